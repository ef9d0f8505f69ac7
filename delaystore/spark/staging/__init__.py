"""Staging, by kind of store."""

from delaystore.spark.staging.abc import AttemptSink, FinishedLoad, LoadKey, StagedAttempt, Staging
from delaystore.spark.staging.holder import Holder
from delaystore.spark.staging.loads import Cleaned, LoadState, LoadStatus
from delaystore.spark.staging.opening import cleanup, list_loads, load_status, open_staging

__all__ = [
    "AttemptSink",
    "Cleaned",
    "FinishedLoad",
    "Holder",
    "LoadKey",
    "LoadState",
    "LoadStatus",
    "StagedAttempt",
    "Staging",
    "cleanup",
    "list_loads",
    "load_status",
    "open_staging",
]
