"""Staging, by kind of store."""

from delaystore.spark.staging._choice import cleanup, list_loads, load_status, open_staging
from delaystore.spark.staging._loads import Cleaned, LoadState, LoadStatus
from delaystore.spark.staging._owner import Owner
from delaystore.spark.staging._sql.run import renew_lease
from delaystore.spark.staging.abc import AttemptSink, FinishedLoad, Lease, LoadKey, StagedAttempt, Staging

__all__ = [
    "AttemptSink",
    "Cleaned",
    "FinishedLoad",
    "Lease",
    "LoadKey",
    "LoadState",
    "LoadStatus",
    "Owner",
    "StagedAttempt",
    "Staging",
    "cleanup",
    "list_loads",
    "load_status",
    "open_staging",
    "renew_lease",
]
