"""The audit trail: who changed what."""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from sqlalchemy import ColumnElement, delete, insert, literal, select, update

from delaystore.filters import EVERYTHING, MessageFilter
from delaystore.message import Position, check_message_id, new_message_id, unmarked, utc
from delaystore.stores.records import AuditEntry, MessageBefore, Operation
from delaystore.stores.shared import check_number
from delaystore.stores.sql import setup
from delaystore.stores.sql.codec import MESSAGE_KEY
from delaystore.stores.sql.operating._search import OperatorQueries, fitting, values_of
from delaystore.stores.sql.schema import ABOUT_BYTES, NAME_BYTES

_UNTIL_0004: Final = ("made_at", "change_id", "made_by", "action", "about", "messages")
"""The columns that tables of schema version 0004 have."""


class AuditTrail(OperatorQueries):
    """The trail of one endpoint."""

    def note(self, entries: Sequence[AuditEntry]) -> None:
        """Write a row for each; texts that are too long are cut."""
        rows = [_entry_row(entry) for entry in entries]
        if not rows:
            return
        if not self._has_all_columns:
            rows = [{name: row[name] for name in _UNTIL_0004} for row in rows]
        self._execute(insert(self._tables.changes), rows)

    def count_of_begun(self, operation: Operation, count: int) -> None:
        """Give the entry that an operation began with this number of messages; tables of version 0004 keep its 0."""
        if not self._has_all_columns:
            return
        table = self._tables.changes
        is_entry = [table.c.made_at == operation.began, table.c.operation_id == operation.operation_id]
        self._execute(update(table).where(*is_entry).values(messages=count))

    def last(self, limit: int = 100, before: datetime | None = None) -> Sequence[AuditEntry]:
        """The newest first."""
        made_at = self._tables.changes.c.made_at
        return self._newest(limit, *([] if before is None else [made_at < utc(before, "before")]))

    def changes_of(self, message_id: str, limit: int = 100) -> Sequence[AuditEntry]:
        """Of one message, the newest first."""
        check_message_id(message_id)
        known = self._tables.changes.c.message_id
        return self._newest(limit, known == message_id) if self._has_all_columns else ()

    def _newest(self, limit: int, *where: ColumnElement[bool]) -> Sequence[AuditEntry]:
        check_number(limit, "limit")
        table = self._tables.changes
        columns = list(table.c) if self._has_all_columns else [table.c[name] for name in _UNTIL_0004]
        newest = select(*columns).where(*where).order_by(table.c.made_at.desc(), table.c.change_id.desc()).limit(limit)
        return [_entry_of(row) for row in self._execute(newest)]

    def forget(self, before: datetime, at_most: int) -> int:
        """Delete the oldest entries; returns how many."""
        table = self._tables.changes
        order: list[ColumnElement[Any]] = [table.c.made_at, table.c.change_id]
        is_old = table.c.made_at < utc(before, "time")
        oldest = select(*order).where(is_old).order_by(*order).offset(at_most - 1).limit(1)
        row = self._execute(oldest).first()
        end = None if row is None else values_of(order, Position(row.made_at, row.change_id))
        up_to = [] if end is None else [self._dialect.up_to(order, end)]
        return self._execute(delete(table).where(is_old, *up_to)).rowcount

    def before(self, message_id: str) -> MessageBefore:
        """The waiting message as it is before a change that follows.

        Its row is locked, so that no session changes it in between; but not where the search for a row that does not
        exist would lock a gap in the index until the caller's transaction ends.
        """
        self.begin_writing()
        table = self._sql.table
        names = ("message_id", "destination", "due_time", "next_attempt", MESSAGE_KEY)
        columns = [table.c[name] for name in names]
        search = select(*columns).where(table.c.message_id == literal(message_id, table.c.message_id.type))
        candidates = self._dialect.candidates
        if candidates is None or not candidates.reads_older_rows(self._bound.connection):
            search = self._dialect.locked(search, table)
        row = self._execute(search).first()
        return MessageBefore(message_id=message_id) if row is None else before_of(row)

    @property
    def _has_all_columns(self) -> bool:
        return self._bound.parts.version.is_from(setup.AUDITED, self._bound.connection)


def before_of(row: Any) -> MessageBefore:
    """The part of an entry about the message of `row`, as it was."""
    return MessageBefore(
        message_id=row.message_id, destination=row.destination, due_time=unmarked(row), key=row.message_key
    )


def _entry_row(entry: AuditEntry) -> dict[str, Any]:
    return {
        "made_at": utc(entry.at, "at"),
        "change_id": new_message_id(),
        "made_by": fitting(entry.by, NAME_BYTES),
        "action": fitting(entry.action, NAME_BYTES),
        "about": fitting(entry.about, ABOUT_BYTES),
        "messages": entry.count,
        "way": entry.way,
        "message_id": entry.message_id,
        "message_key": entry.key,
        "destination": entry.destination,
        "wanted": None if entry.wanted is None else filter_text(entry.wanted),
        "operation_id": entry.operation_id,
        "old_due_time": entry.old_due_time,
        "new_due_time": entry.new_due_time,
    }


def _entry_of(row: Any) -> AuditEntry:
    """Rows of earlier releases have the first columns alone."""
    values = dict(row._mapping)
    wanted = values.get("wanted")
    return AuditEntry(
        at=row.made_at,
        by=row.made_by,
        action=row.action,
        about=row.about,
        count=row.messages,
        way=values.get("way"),
        message_id=values.get("message_id"),
        key=values.get("message_key"),
        destination=values.get("destination"),
        wanted=None if wanted is None else filter_of(wanted),
        operation_id=values.get("operation_id"),
        old_due_time=values.get("old_due_time"),
        new_due_time=values.get("new_due_time"),
    )


def filter_text(wanted: MessageFilter) -> str:
    """How a row keeps a filter."""
    return json.dumps(wanted.as_dict() if wanted else {})


def filter_of(text: str) -> MessageFilter:
    """The inverse of `filter_text`."""
    members = json.loads(text)
    return MessageFilter.from_dict(members) if members else EVERYTHING
