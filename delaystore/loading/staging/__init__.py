"""Staging, by kind of store."""

from delaystore.loading.staging._choice import cleanup, list_loads, load_status, open_staging, set_up, waiting_ids
from delaystore.loading.staging._loads import Cleaned, LoadState, LoadStatus
from delaystore.loading.staging._owner import Owner
from delaystore.loading.staging._sql.run import renew_lease
from delaystore.loading.staging.abc import AttemptSink, FinishedLoad, Lease, LoadKey, StagedAttempt, Staging

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
    "set_up",
    "waiting_ids",
]
