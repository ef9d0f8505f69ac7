"""Staging, by kind of store."""

from delaystore.loading.staging._choice import (
    LoadStore,
    cleanup,
    list_loads,
    load_status,
    open_load_store,
    open_staging,
)
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
    "LoadStore",
    "Owner",
    "StagedAttempt",
    "Staging",
    "cleanup",
    "list_loads",
    "load_status",
    "open_load_store",
    "open_staging",
    "renew_lease",
]
