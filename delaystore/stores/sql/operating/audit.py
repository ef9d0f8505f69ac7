"""The audit trail: who changed what, by which way, and when.

The entry of a change of messages is written in the transaction that changes them.
"""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from sqlalchemy import ColumnElement, delete, insert, literal, select

from delaystore.filters import EVERYTHING, MessageFilter
from delaystore.message import Position, new_message_id, utc
from delaystore.sql.columns import MESSAGE_KEY
from delaystore.sql.dialects import Claiming
from delaystore.stores._checks import check_number
from delaystore.stores.operable import AuditEntry, MessageBefore
from delaystore.stores.sql import setup
from delaystore.stores.sql.beside import ABOUT_BYTES, NAME_BYTES
from delaystore.stores.sql.operating._bound import Noun
from delaystore.stores.sql.operating._search import values_of
from delaystore.stores.sql.operating._texts import fitting

_UNTIL_0004: Final = ("made_at", "change_id", "made_by", "action", "about", "messages")
"""The columns that tables of schema version 0004 have."""


class AuditTrail(Noun):
    """That of one endpoint."""

    def note(self, entries: Sequence[AuditEntry]) -> None:
        """Write a row for each; texts that are too long are cut."""
        rows = [_row_of(entry) for entry in entries]
        if not rows:
            return
        if not self._has_all_columns:
            rows = [{name: row[name] for name in _UNTIL_0004} for row in rows]
        self._execute(insert(self._tables.changes), rows)

    def last(self, limit: int = 100, before: datetime | None = None) -> Sequence[AuditEntry]:
        """The newest first."""
        check_number(limit, "limit")
        table = self._tables.changes
        columns = list(table.c) if self._has_all_columns else [table.c[name] for name in _UNTIL_0004]
        newest = select(*columns).order_by(table.c.made_at.desc(), table.c.change_id.desc()).limit(limit)
        if before is not None:
            newest = newest.where(table.c.made_at < utc(before, "before"))
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

        Its row is locked, so that nobody changes it in between; but not where the search for a row that does not exist
        would lock a gap in the index until the caller's transaction ends.
        """
        self.begin_writing()
        table = self._sql.keyed_table
        columns = [table.c.message_id, table.c.destination, table.c.due_time, table.c[MESSAGE_KEY]]
        search = select(*columns).where(table.c.message_id == literal(message_id, table.c.message_id.type))
        is_file_or_locks_rows = self._dialect.claiming is not Claiming.CANDIDATE_LOCKS
        if is_file_or_locks_rows or not self._dialect.reads_older_rows(self._bound.connection):
            search = self._dialect.locked(search, table)
        row = self._execute(search).first()
        return MessageBefore(message_id=message_id) if row is None else before_of(row)

    @property
    def _has_all_columns(self) -> bool:
        return self._bound.parts.version.is_from(setup.AUDITED, self._bound.connection)


def before_of(row: Any) -> MessageBefore:
    """What an entry says of the message of `row`, as it was."""
    return MessageBefore(
        message_id=row.message_id, destination=row.destination, due_time=row.due_time, key=row.message_key
    )


def _row_of(entry: AuditEntry) -> dict[str, Any]:
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
        "wanted": None if entry.wanted is None else json.dumps(entry.wanted.as_dict() if entry.wanted else {}),
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
        wanted=None
        if wanted is None
        else MessageFilter.from_dict(found)
        if (found := json.loads(wanted))
        else EVERYTHING,
        operation_id=values.get("operation_id"),
        old_due_time=values.get("old_due_time"),
        new_due_time=values.get("new_due_time"),
    )
