"""The tables of what operators and dispatchers note, beside the one in which messages wait."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

from sqlalchemy import BigInteger, Column, Double, Index, Integer, MetaData, Select, Table, literal, select

from delaystore.message import MAX_ADDRESS_BYTES, MAX_KEY_BYTES, MAX_MESSAGE_ID_BYTES
from delaystore.sql.dialects import StoreDialect
from delaystore.sql.names import derived_name, operating_table_names
from delaystore.sql.types import INNODB, ExactText, Json, UtcDateTime

NAME_BYTES = 255
"""Of what names a person, a dispatcher, or an operation."""
ABOUT_BYTES = 4000
"""Of what says to what a change was made."""


@dataclass(frozen=True, slots=True)
class OperatingTables:
    """A row of `destinations` says that it is paused, limited, or resuming; its bucket is that of `_allowances`.

    `dispatchers` has a row for each that lives, or did until lately; `activity` one for each dispatcher and minute.
    """

    destinations: Table
    dispatchers: Table
    activity: Table
    operations: Table
    changes: Table

    @classmethod
    def of(cls, live: Table, dialect: StoreDialect) -> Self:
        """Those of the endpoint whose messages wait in `live`."""
        destinations, dispatchers, activity, operations, changes = operating_table_names(live.name, dialect)
        began = derived_name(live.name, "_operations_began", dialect)
        return cls(
            destinations=_beside(live, destinations, *_destinations()),
            dispatchers=_beside(live, dispatchers, *_dispatchers()),
            activity=_beside(live, activity, *_activity()),
            operations=_beside(live, operations, *_operations(), Index(began, "began", "operation_id")),
            changes=_beside(live, changes, *_changes()),
        )

    @property
    def all(self) -> list[Table]:
        """All of them."""
        return [self.destinations, self.dispatchers, self.activity, self.operations, self.changes]


def paused_names(tables: OperatingTables, now: datetime, names: Collection[str] | None = None) -> Select[Any]:
    """The names of the destinations, of `names` or of all, that are paused at `now`."""
    table = tables.destinations
    lasts = table.c.paused_until.is_(None) | (table.c.paused_until > literal(now, UtcDateTime))
    found = select(table.c.name).where(table.c.paused == 1, lasts).order_by(table.c.name)
    return found if names is None else found.where(table.c.name.in_(sorted(names)))


def promised_times(tables: OperatingTables, names: Collection[str]) -> Select[Any]:
    """Of the destinations of `names` that are limited: the name, and the last time that was given to a message."""
    table = tables.destinations
    limited = table.c.name.in_(sorted(names)) & table.c.max_rate.is_not(None)
    return select(table.c.name, table.c.promised).where(limited).order_by(table.c.name)


def _beside(live: Table, name: str, *parts: Any) -> Table:
    quote_schema = True if live.schema else None
    return Table(name, MetaData(), *parts, schema=live.schema, quote=True, quote_schema=quote_schema, **INNODB)


def _destinations() -> list[Column[Any]]:
    return [
        Column("name", ExactText(MAX_ADDRESS_BYTES), primary_key=True),
        Column("paused", Integer, nullable=False),
        Column("paused_until", UtcDateTime),
        Column("resuming", Integer, nullable=False),
        Column("max_rate", Double),
        Column("full_at", UtcDateTime),
        Column("promised", UtcDateTime),
        Column("changed", UtcDateTime, nullable=False),
        Column("changed_by", ExactText(NAME_BYTES), nullable=False),
    ]


def _dispatchers() -> list[Column[Any]]:
    return [
        Column("dispatcher_id", ExactText(NAME_BYTES), primary_key=True),
        Column("beat", UtcDateTime, nullable=False),
        Column("record", Json, nullable=False),
    ]


def _activity() -> list[Column[Any]]:
    counts = ("delivered", "failed", "moved_to_error_queue", "gave_way")
    return [
        Column("minute", UtcDateTime, primary_key=True),
        Column("dispatcher_id", ExactText(NAME_BYTES), primary_key=True),
        *(Column(name, BigInteger, nullable=False) for name in counts),
        Column("lateness", Json, nullable=False),
        Column("by_destination", Json, nullable=False),
    ]


def _operations() -> list[Column[Any]]:
    return [
        Column("operation_id", ExactText(NAME_BYTES), primary_key=True),
        Column("kind", ExactText(20), nullable=False),
        Column("wanted", Json, nullable=False),
        Column("begun_by", ExactText(NAME_BYTES), nullable=False),
        Column("began", UtcDateTime, nullable=False),
        Column("due_time", UtcDateTime),
        Column("ended", UtcDateTime),
        Column("state", ExactText(20), nullable=False),
        Column("after_id", ExactText(MAX_MESSAGE_ID_BYTES)),
        Column("examined", BigInteger, nullable=False),
        Column("changed", BigInteger, nullable=False),
        Column("held", BigInteger, nullable=False),
        Column("held_ids", Json, nullable=False),
    ]


def _changes() -> list[Column[Any]]:
    """The id is time-ordered: of those made at the same time, the later one has the greater id.

    Releases that know schema version 0004 alone write the columns up to `messages`, and leave out the others.
    """
    return [
        Column("made_at", UtcDateTime, primary_key=True),
        Column("change_id", ExactText(36), primary_key=True),
        Column("made_by", ExactText(NAME_BYTES), nullable=False),
        Column("action", ExactText(NAME_BYTES), nullable=False),
        Column("about", ExactText(ABOUT_BYTES), nullable=False),
        Column("messages", BigInteger, nullable=False),
        Column("way", ExactText(20)),
        Column("message_id", ExactText(MAX_MESSAGE_ID_BYTES)),
        Column("message_key", ExactText(MAX_KEY_BYTES)),
        Column("destination", ExactText(MAX_ADDRESS_BYTES)),
        Column("wanted", Json),
        Column("operation_id", ExactText(NAME_BYTES)),
        Column("old_due_time", UtcDateTime),
        Column("new_due_time", UtcDateTime),
    ]
