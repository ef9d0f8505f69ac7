"""The rows of recurring schedules, and their waiting occurrences."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Final, Protocol

from sqlalchemy import Select, bindparam, delete, insert, select, update
from sqlalchemy.exc import IntegrityError
from typing_extensions import override

from delaystore.errors import InvalidMessageError
from delaystore.message import DelayedMessage
from delaystore.stores.operable import STEP
from delaystore.stores.records import AuditEntry, Ending
from delaystore.stores.schedules import OCCURRENCES, ScheduleProgress, ScheduleRows, StoredSchedule
from delaystore.stores.sql import setup
from delaystore.stores.sql._statements import begins_with
from delaystore.stores.sql.codec import decode_mapping, encode_mapping
from delaystore.stores.sql.errors import translated_errors
from delaystore.stores.sql.operating._search import BoundParts, OperatorQueries

_NAME: Final = "name_"
"""The parameter of a row's name."""


class _BoundMessages(BoundParts, Protocol):
    """A transaction, and its messages; see BoundSqlStore."""

    def written(self) -> None: ...

    def store_many(self, messages: Iterable[DelayedMessage]) -> int: ...

    def waiting_ids(self, message_ids: Sequence[str]) -> Collection[str]: ...

    def get_many(self, message_ids: Sequence[str]) -> Mapping[str, DelayedMessage]: ...

    def note_changes(self, entries: Sequence[AuditEntry]) -> None: ...


class ScheduleQueries(OperatorQueries, ScheduleRows):
    """Those of one endpoint."""

    def __init__(self, bound: _BoundMessages) -> None:
        super().__init__(bound)
        self.transaction = self._messages = bound
        self.require(setup.SCHEDULED, "schedules")
        self._rows = self._tables.schedules

    @override
    def lock(self, names: Collection[str]) -> Mapping[str, StoredSchedule]:
        self._write()
        these = select(self._rows).where(self._dialect.among(self._rows.c.name, "ids")).order_by(self._rows.c.name)
        found: list[StoredSchedule] = []
        for ids in _in_steps(names):
            found += self._read(these.with_for_update(), {"ids": ids})
        return {each.name: each for each in found}

    @override
    def take_due(self, at: datetime, limit: int) -> Sequence[StoredSchedule]:
        self._write()
        look_at, name = self._rows.c.look_at, self._rows.c.name
        due = select(self._rows).where(look_at <= at).order_by(look_at, name).limit(limit)
        return self._read(due.with_for_update(skip_locked=True))

    @override
    def list(self, prefix: str = "", *, after: str | None = None, limit: int = 100) -> Sequence[StoredSchedule]:
        name = self._rows.c.name
        found = select(self._rows).where(*begins_with(name, prefix)).order_by(name).limit(limit)
        return self._read(found if after is None else found.where(name > after))

    @override
    def next_look(self) -> datetime | None:
        look_at = self._rows.c.look_at
        first = select(look_at).where(look_at.is_not(None)).order_by(look_at).limit(1)
        return self._execute(first).scalar()

    @override
    def zones(self) -> Collection[tuple[str, str]]:
        found = select(self._rows.c.zone, self._rows.c.zone_rules).distinct()
        return [(row.zone, row.zone_rules) for row in self._execute(found)]

    @override
    def of_zone(self, zone: str, zone_rules: str, limit: int) -> Sequence[StoredSchedule]:
        self._write()
        is_wanted = (self._rows.c.zone == zone) & (self._rows.c.zone_rules == zone_rules)
        found = select(self._rows).where(is_wanted).order_by(self._rows.c.name).limit(limit)
        return self._read(found.with_for_update(skip_locked=True))

    @override
    def add(self, rows: Sequence[StoredSchedule]) -> bool:
        self._write()
        if not rows:
            return True
        connection = self._bound.connection
        with translated_errors():
            try:
                with self._dialect.savepoint(connection):
                    connection.execute(insert(self._rows), [_values(each) for each in rows])
            except IntegrityError:
                return False
        return True

    @override
    def write(self, rows: Sequence[StoredSchedule]) -> None:
        self._update([_values(each) for each in rows if each.definition])
        self._update_unread(rows)

    @override
    def advance(self, rows: Sequence[StoredSchedule]) -> None:
        self._update([{"name": each.name, **_progress(each)} for each in rows if each.definition])
        self._update_unread(rows)

    @override
    def delete(self, names: Collection[str]) -> None:
        self._write()
        these = delete(self._rows).where(self._dialect.among(self._rows.c.name, "ids"))
        for ids in _in_steps(names):
            self._execute(these, {"ids": ids})

    @override
    def names(self, prefix: str) -> Sequence[str]:
        name = self._rows.c.name
        return list(self._execute(select(name).where(*begins_with(name, prefix)).order_by(name)).scalars())

    @property
    @override
    def reads_older(self) -> bool:
        candidates = self._dialect.candidates
        with translated_errors():
            return candidates is not None and candidates.reads_older_rows(self._bound.connection)

    @override
    def occurrences(self, prefix: str) -> Sequence[str]:
        message_id = self._sql.table.c.message_id
        found = select(message_id).where(*begins_with(message_id, f"{OCCURRENCES}{prefix}")).order_by(message_id)
        return [each for each in self._execute(found).scalars() if isinstance(each, str)]

    @override
    def messages(self, message_ids: Sequence[str]) -> Mapping[str, DelayedMessage]:
        return self._messages.get_many(message_ids)

    @override
    def remove_occurrences(self, message_ids: Sequence[str], by: str | None) -> Collection[str]:
        self._write()
        now = self._bound.now()
        entries = self._bound.new_entries(Ending.CANCELLED, now, by) if message_ids else None
        removed: list[str] = []
        for ids in _in_steps(message_ids):
            with translated_errors():
                removed += self._dialect.change_unclaimed_of(
                    self._bound.connection, self._sql.table, self._sql.cancel, ids, (), {}, now, None, entries
                )
        return removed

    @override
    def waiting_of(self, message_ids: Sequence[str]) -> Collection[str]:
        return self._messages.waiting_ids(message_ids)

    def _write(self) -> None:
        self._messages.written()
        self.begin_writing()

    def _read(self, statement: Select[Any], parameters: Any = None) -> Sequence[StoredSchedule]:
        return [_schedule(row) for row in self._execute(statement, parameters)]

    def _update_unread(self, rows: Sequence[StoredSchedule]) -> None:
        """Write the unreadable ones of rows; their definition and progress stay as they are."""
        unread = [each for each in rows if not each.definition]
        self._update([{"name": each.name, "paused": int(each.paused), "look_at": each.look_at} for each in unread])

    def _update(self, values: Sequence[Mapping[str, Any]]) -> None:
        if values:
            self._write()
            columns: dict[str, Any] = {name: bindparam(name) for name in values[0] if name != "name"}
            change = update(self._rows).where(self._rows.c.name == bindparam(_NAME)).values(columns)
            self._execute(change, [{**each, _NAME: each["name"]} for each in values])


def _in_steps(names: Collection[str]) -> Iterable[Sequence[str]]:
    ordered = sorted(names)
    return (ordered[first : first + STEP] for first in range(0, len(ordered), STEP))


def _progress(of: StoredSchedule) -> dict[str, Any]:
    return {
        "next_due": of.next_due,
        "look_at": of.look_at,
        "zone_rules": of.zone_rules,
        "progress": of.progress.text(),
    }


def _values(of: StoredSchedule) -> dict[str, Any]:
    return {
        "name": of.name,
        "destination": of.destination,
        "body": of.body,
        "headers": encode_mapping(of.headers) if of.headers else None,
        "properties": encode_mapping(of.properties) if of.properties else None,
        "definition": json.dumps(of.definition),
        "zone": of.zone,
        "paused": int(of.paused),
        "version": of.version,
        "changed": of.changed,
        "changed_by": of.changed_by,
        **_progress(of),
    }


def _schedule(row: Any) -> StoredSchedule:
    """The row; where it cannot be read, as one was written by hand, its definition is empty, and so is the rest."""
    known: dict[str, Any] = {"definition": {}, "progress": ScheduleProgress()}
    with suppress(KeyError, TypeError, ValueError, OverflowError, OSError, InvalidMessageError):
        known["progress"] = ScheduleProgress.of(row.progress)
        known["headers"], known["properties"] = decode_mapping(row.headers), decode_mapping(row.properties)
        definition = json.loads(row.definition)
        known["definition"] = definition if isinstance(definition, dict) else {}
    return StoredSchedule(
        name=row.name,
        destination=row.destination,
        body=bytes(row.body),
        zone=row.zone,
        zone_rules=row.zone_rules,
        paused=bool(row.paused),
        next_due=row.next_due,
        look_at=row.look_at,
        version=row.version,
        changed=row.changed,
        changed_by=row.changed_by,
        **known,
    )
