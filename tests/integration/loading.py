"""Loads without Spark: rows, stagings, and what they leave."""

import os
import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from sqlalchemy import create_engine, inspect

from delaystore.bulk.columns import STAGED
from delaystore.bulk.options import OnDuplicate, StoreOptions, WriteOptions
from delaystore.bulk.staging import FinishedLoad, LoadKey, LoadOwner, StagedAttempt, Staging, open_staging
from delaystore.message import DelayedMessage
from delaystore.stores.sql.rows import to_row
from delaystore.stores.sql.urls import OPERATING_SUFFIXES
from tests.integration.sql_stores import execute

DUE = datetime(2033, 5, 18, 3, 33, 20, 123456, tzinfo=UTC)
DEAD = replace(LoadOwner.of(os.getpid()), pid=2**22 + 1)  # above the largest pid there can be
HERE = LoadOwner("here", 7)  # nobody can tell whether it has ended


def row(message_id: str, seconds: float = 0, **fields: Any) -> DelayedMessage:
    values: dict[str, Any] = {"destination": "billing", "body": b"pay", **fields}
    return DelayedMessage(message_id=message_id, due_time=DUE + timedelta(seconds=seconds), **values)


def rows(count: int, prefix: str = "m", **fields: Any) -> list[DelayedMessage]:
    return [row(f"{prefix}-{number:05d}", number, **fields) for number in range(count)]


def batch(messages: Sequence[DelayedMessage]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{**to_row(message), "message_key": message.key} for message in messages], STAGED)


def staging_of(url: str, owner: LoadOwner | None = HERE, *, lease: int = 600, **options: Any) -> Staging:
    kind = WriteOptions if options.keys() & {"key_rule", "again", "if_delivered"} else StoreOptions
    return open_staging(kind(store=url, endpoint="sales", **options), lease, owner)


def staged(staging: Staging, *batches: Sequence[DelayedMessage]) -> StagedAttempt:
    """What one attempt has staged."""
    with staging.attempt() as sink:
        for messages in batches:
            sink.write(batch(messages))
        return sink.finish()


def load(
    url: str,
    load_id: str,
    messages: Sequence[DelayedMessage],
    on_duplicate: OnDuplicate = OnDuplicate.ERROR,
    **options: Any,
) -> FinishedLoad:
    """A whole load, in one attempt."""
    staging = staging_of(url, **options)
    finished = staging.begin(LoadKey(load_id))
    return finished or staging.promote([staged(staging, messages)], on_duplicate)


def end_lease(url: str) -> None:
    """As if all loads had shown no sign of life for long."""
    execute(url, "UPDATE sales_delayed_loads SET lease_until = '2001-01-01 00:00:00.000000'")


_OPERATING_TABLE = re.compile(rf"(_shelves|_history_default|_shelf_[0-9a-f]{{20}}|{'|'.join(OPERATING_SUFFIXES)})$")


def tables(url: str) -> list[str]:
    """The tables that are there, less the store's own, those beside it, and its partitions."""
    engine = create_engine(url)
    try:
        names = inspect(engine).get_table_names()
    finally:
        engine.dispose()
    others = set(names) - {"sales_delayed", "sales_delayed_version"}
    return sorted(name for name in others if _OPERATING_TABLE.search(name) is None)
