"""Staging, by kind of store."""

from delaystore.bulk.staging._registry import cancelled_error
from delaystore.bulk.staging._runs import renew_lease
from delaystore.bulk.staging._stores import LoadStore, cleanup, list_loads, load_status, open_load_store, open_staging
from delaystore.bulk.staging.abc import (
    AttemptSink,
    Cleaned,
    FinishedLoad,
    Lease,
    LoadKey,
    LoadOwner,
    LoadState,
    LoadStatus,
    StagedAttempt,
    Staging,
)

__all__ = [
    "AttemptSink",
    "Cleaned",
    "FinishedLoad",
    "Lease",
    "LoadKey",
    "LoadOwner",
    "LoadState",
    "LoadStatus",
    "LoadStore",
    "StagedAttempt",
    "Staging",
    "cancelled_error",
    "cleanup",
    "list_loads",
    "load_status",
    "open_load_store",
    "open_staging",
    "renew_lease",
]
