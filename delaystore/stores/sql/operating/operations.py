"""Operations on many messages, in steps, and the audit trail."""

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import ColumnElement, Delete, Update, delete, false, func, insert, literal, null, select, update
from sqlalchemy.exc import IntegrityError

from delaystore.errors import InvalidMessageError, UnknownLoadError
from delaystore.filters import EVERYTHING, MessageFilter, Shift
from delaystore.message import (
    EARLIEST_DUE_TIME,
    LATEST_DUE_TIME,
    Position,
    check_message_id,
    new_message_id,
    unmarked,
    utc,
)
from delaystore.stores.operable import STEP
from delaystore.stores.records import (
    HELD_KEPT,
    TICK,
    AuditEntry,
    Change,
    LoadChange,
    MessageBefore,
    Operation,
    OperationKind,
    OperationState,
)
from delaystore.stores.shared import check_new, check_number, count_of_begun, taken
from delaystore.stores.sql import setup
from delaystore.stores.sql._statements import begins_with
from delaystore.stores.sql.codec import LOAD, MESSAGE_KEY, decode_mapping
from delaystore.stores.sql.operating._search import (
    OperatorQueries,
    Walk,
    conditions,
    fitting,
    number_in,
    values_of,
    walk,
)
from delaystore.stores.sql.schema import ABOUT_BYTES, NAME_BYTES, is_of_load

_UNTIL_0004: Final = ("made_at", "change_id", "made_by", "action", "about", "messages")
"""The columns that tables of schema version 0004 have."""
_SINCE_0006: Final = ("shift", "time_zone")
"""The columns that an operation has since schema version 0006."""


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


FOLDED: Final = 20
"""Of how many loads and actions rows are summed up at once."""


class LoadChanges(OperatorQueries):
    """How messages of loads have left the store without a delivery."""

    def note(self, left: Mapping[int, int], how: LoadChange) -> None:
        """Note how many messages of each load, by its number, have left the store without a delivery.

        It only adds rows, so transactions that do this at the same time do not wait for each other.
        """
        rows = [
            {"load_number": number, "change_id": new_message_id(), "action": how.value, "messages": count}
            for number, count in sorted(left.items())
        ]
        if rows:
            self._execute(insert(self._tables.load_changes), rows)

    def fold(self) -> None:
        """Sum rows of one load and action up in one of them, of FOLDED loads and actions at most.

        Rows that another session sums up are left out.
        """
        if not self.has_loads:
            return
        self.begin_writing()
        table = self._tables.load_changes
        alike = [table.c.load_number, table.c.action]
        groups = select(*alike).group_by(*alike).having(func.count() > 1).limit(FOLDED)
        for group in self._execute(groups).all():
            of_load = table.c.load_number == group.load_number
            these = of_load, table.c.action == group.action
            found = select(table.c.change_id, table.c.messages).where(*these).limit(STEP)
            rows = self._execute(found.with_for_update(skip_locked=True)).all()
            if len(rows) < 2:
                continue
            first, *others = rows
            kept = update(table).where(of_load, table.c.change_id == first.change_id)
            self._execute(kept.values(messages=sum(row.messages for row in rows)))
            summed = delete(table).where(of_load, self._dialect.among(table.c.change_id, "ids"))
            self._execute(summed, {"ids": [row.change_id for row in others]})

    def summed(self, numbers: Collection[int]) -> Mapping[int, Mapping[str, int]]:
        """By the load's number, how many of its messages have left the store in each way."""
        table, found = self._tables.load_changes, dict[int, dict[str, int]]()
        summed = select(table.c.load_number, table.c.action, func.sum(table.c.messages).label("messages"))
        these = summed.where(table.c.load_number.in_(sorted(numbers)))
        for row in self._execute(these.group_by(table.c.load_number, table.c.action)):
            found.setdefault(row.load_number, {})[row.action] = int(row.messages)
        return found


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
        "wanted": None if entry.wanted is None else _filter_text(entry.wanted),
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
        wanted=None if wanted is None else _filter_of(wanted),
        operation_id=values.get("operation_id"),
        old_due_time=values.get("old_due_time"),
        new_due_time=values.get("new_due_time"),
    )


def _filter_text(wanted: MessageFilter) -> str:
    return json.dumps(wanted.as_dict() if wanted else {})


def _filter_of(text: str) -> MessageFilter:
    members = json.loads(text)
    return MessageFilter.from_dict(members) if members else EVERYTHING


class OperationQueries(OperatorQueries):
    """Those of one endpoint."""

    def begin(self, operation: Operation, *, change: Change | None = None) -> None:
        """Raises ConfigurationError for one that is not new."""
        check_new(operation)
        try:
            self._bound.connection.execute(insert(self._tables.operations), _row_of(operation) | _shift_of(operation))
        except IntegrityError:
            raise taken(operation) from None
        self.of_load(operation.wanted)  # refuses an unknown load
        if operation.cancelled_load is not None:
            self._cancel_load(operation.cancelled_load, operation)
        self._note(operation, change)

    def _cancel_load(self, load_id: str, operation: Operation) -> None:
        """A run of the load that has not stored anything yet loses it. A stream goes on."""
        loads = self._tables.loads
        is_cancelled = loads.c.cancelled_at.is_not(None) & loads.c.token.is_(None)  # with a token it is loaded again
        still = (loads.c.load_id == load_id) & ~is_cancelled & (loads.c.is_stream == 0)
        by = fitting(operation.by, NAME_BYTES)
        cancelled = update(loads).values(cancelled_at=self._bound.now(), cancelled_by=by, token=null())
        self._execute(cancelled.where(still))

    def get(self, operation_id: str) -> Operation | None:
        """None: there is none."""
        return self._one(operation_id, locked=False)

    def last(self, limit: int = 20) -> Sequence[Operation]:
        """The newest first."""
        check_number(limit, "limit")
        table = self._tables.operations
        columns = self.columns_of(table, *_SINCE_0006)
        newest = select(*columns).order_by(table.c.began.desc(), table.c.operation_id.desc()).limit(limit)
        return [_operation_of(row) for row in self._execute(newest)]

    def end(self, operation_id: str, *, change: Change | None = None) -> Operation | None:
        """None: there is none."""
        self.begin_writing()
        operation = self._one(operation_id, locked=True)
        if operation is None or operation.state is not OperationState.RUNNING:
            return operation
        ended = self._put(replace(operation, state=OperationState.ABANDONED, ended=self._bound.now()))
        self._note_progress(operation, ended, change)
        return ended

    def forget(self, before: datetime, at_most: int) -> int:
        """Delete operations that ended before that time, in the order in which they began; returns how many."""
        table = self._tables.operations
        is_old = table.c.ended < utc(before, "time")
        oldest = select(table.c.operation_id).where(is_old).order_by(table.c.began, table.c.operation_id).limit(at_most)
        ids = self._execute(oldest).scalars().all()
        if not ids:
            return 0
        are_these = self._dialect.among(table.c.operation_id, "ids")
        return self._execute(delete(table).where(are_these, is_old), {"ids": list(ids)}).rowcount

    def _note(self, operation: Operation, change: Change | None) -> None:
        if change is not None:
            AuditTrail(self._bound).note([change.of_operation(operation.ended or operation.began, operation)])

    def _note_progress(self, before: Operation, after: Operation, change: Change | None) -> None:
        """Have the operation's entries say how many messages it has changed by now."""
        count = count_of_begun(after, change)
        if count != count_of_begun(before, None):
            AuditTrail(self._bound).count_of_begun(after, count)
        if after.ended is not None:
            self._note(after, change)

    def advance(self, operation_id: str, examine: int = STEP, *, change: Change | None = None) -> Operation | None:
        """One step. The operation's row is locked: who else takes a step waits for the end of this one."""
        check_number(examine, "examine")
        self.begin_writing()
        operation = self._one(operation_id, locked=True)
        if operation is None or operation.state is not OperationState.RUNNING:
            return operation
        walked = self._ids(operation, examine)
        wanted = [*walked.conditions, *conditions(operation.wanted, self._sql.table, self._dialect)]
        examined = examine if walked.end else self._count(walked)
        ids = self._with_headers(operation.wanted, wanted) if operation.wanted.headers else None
        changed = self._change(operation, ids, wanted)
        if operation.kind is OperationKind.CANCEL:
            left = Counter(number for number in changed.values() if number is not None)
            LoadChanges(self._bound).note(left, LoadChange.CANCELLED)
        all_are_changed = len(changed) == (examined if ids is None else len(ids))
        held = [] if all_are_changed else self._unchanged(ids, wanted, changed)
        advanced = replace(
            operation,
            after=walked.end or operation.after,
            examined=operation.examined + examined,
            changed=operation.changed + len(changed),
            held=operation.held + len(held),
            held_ids=(*operation.held_ids, *held)[:HELD_KEPT],
        )
        if walked.end is None:
            advanced = replace(advanced, state=OperationState.DONE, ended=self._bound.now())
        self._note_progress(operation, advanced, change)
        return self._put(advanced)

    def _ids(self, operation: Operation, examine: int) -> Walk[str]:
        """The next messages by their ids: of a load, or with a prefix, no others."""
        key, wanted, after = self._sql.table.c.message_id, operation.wanted, operation.after
        behind = [*self._of_begun_load(operation), *([] if after is None else [key > after])]
        if wanted.id_prefix is not None:
            behind += begins_with(key, wanted.id_prefix)
        return walk(
            lambda statement: self._execute(statement).scalars().all(),
            select(key).order_by(key),
            behind,
            examine,
            lambda found: found if _is_id(found) else None,
            lambda end: key <= literal(end, key.type),
        )

    def _of_begun_load(self, operation: Operation) -> list[ColumnElement[bool]]:
        """As `of_load`. No message is left of a load that was forgotten, or loaded again, since the operation began."""
        if operation.wanted.load is None:
            return []
        try:
            row = self.load_row(operation.wanted.load)
        except UnknownLoadError:
            return [false()]
        is_another = not row.is_stream and row.began > operation.began
        return [false()] if is_another else [is_of_load(self._sql.table, number_in(row))]

    def _count(self, walked: Walk[str]) -> int:
        table = self._sql.table
        counted = select(func.count()).select_from(table).where(*walked.conditions)
        return int(self._execute(counted).scalar_one())

    def _with_headers(self, wanted: MessageFilter, matches: Sequence[ColumnElement[bool]]) -> Sequence[str]:
        """The ids of matching messages; no database can search in headers as `MessageFilter` does."""
        table = self._sql.table
        rows = self._execute(select(table.c.message_id, table.c.headers).where(*matches))
        return [row.message_id for row in rows if _is_id(row.message_id) and _has(wanted, row.headers)]

    def _change(
        self, operation: Operation, ids: Sequence[str] | None, matches: Sequence[ColumnElement[bool]]
    ) -> Mapping[str, int | None]:
        """Change matching messages, of `ids` or all; the ids of changed ones, and for a cancel the number of their
        load.
        """
        if ids is not None and not ids:
            return {}
        if operation.kind is OperationKind.CANCEL:
            number = self._sql.table.c[LOAD] if self.has_loads else None
            return self._changed(self._sql.cancel, {}, ids, matches, number)
        self._bound.stored(operation.due_time or EARLIEST_DUE_TIME)
        if operation.due_time is not None:
            return self._changed(self._sql_as_of.reschedule, {"new_due_time": operation.due_time}, ids, matches)
        assert operation.shift is not None
        if not operation.shift.days:
            return self._shifted(operation.shift.by, ids, matches)
        return self._shifted_by_days(operation.shift, ids, matches)

    def _changed(
        self,
        change: Delete | Update,
        values: dict[str, Any],
        ids: Sequence[str] | None,
        matches: Sequence[ColumnElement[bool]],
        returning: ColumnElement[Any] | None = None,
    ) -> Mapping[str, Any]:
        bound = self._bound
        return self._dialect.change_unclaimed_of(
            bound.connection, self._sql.table, change, ids, matches, values, bound.now(), returning
        )

    def _shifted(
        self, by: timedelta, ids: Sequence[str] | None, matches: Sequence[ColumnElement[bool]]
    ) -> Mapping[str, Any]:
        """One statement moves all due times, without reading them."""
        first = EARLIEST_DUE_TIME - min(by, timedelta(0))
        last = LATEST_DUE_TIME - max(by, timedelta(0))
        values = {"microseconds": by // TICK}
        return self._changed(self._sql_as_of.shift, values, ids, [*matches, self._sql.is_within(first, last)])

    def _shifted_by_days(
        self, shift: Shift, ids: Sequence[str] | None, matches: Sequence[ColumnElement[bool]]
    ) -> Mapping[str, Any]:
        """Days of a calendar differ in length, few of them: one statement for all messages that move as far.

        Due times in a gap of the clocks move to one time, however far: one statement for all of these.
        """
        table, bound = self._sql.table, self._bound
        columns = [table.c.message_id, table.c.due_time, table.c.next_attempt]
        these = [] if ids is None else [self._dialect.among(table.c.message_id, "ids")]
        found = select(*columns).where(*these, *matches)
        rows = self._execute(self._dialect.claimed(found, table), {"ids": list(ids or ()), "now": bound.now()}).all()
        moves = [(row[0], unmarked(row), shift.moved(unmarked(row))) for row in rows if _has_times(row)]
        known = [(message_id, after - before, after) for message_id, before, after in moves if after is not None]
        alike = Counter(target for _, *targets in known for target in targets)
        groups: dict[timedelta | datetime, list[str]] = {}
        for message_id, by, after in known:
            groups.setdefault(by if alike[by] >= alike[after] else after, []).append(message_id)
        changed: dict[str, Any] = {}
        for target, chosen in groups.items():
            if isinstance(target, timedelta):
                changed.update(self._shifted(target, chosen, ()))
            else:
                changed.update(self._changed(self._sql_as_of.reschedule, {"new_due_time": target}, chosen, ()))
        return changed

    def _unchanged(
        self, ids: Sequence[str] | None, matches: Sequence[ColumnElement[bool]], changed: Collection[str]
    ) -> Sequence[str]:
        """Messages that a dispatcher has claimed and not removed meanwhile, or whose new due time is out of range."""
        key = self._sql.table.c.message_id
        these = [] if ids is None else [self._dialect.among(key, "ids")]
        found = self._execute(select(key).where(*these, *matches).order_by(key), {"ids": list(ids or ())}).scalars()
        return [each for each in found if _is_id(each) and each not in changed]

    def _one(self, operation_id: str, *, locked: bool) -> Operation | None:
        if not _is_id(operation_id):  # half a character, or NUL, would be the driver's error
            return None
        table = self._tables.operations
        found = select(*self.columns_of(table, *_SINCE_0006)).where(table.c.operation_id == operation_id)
        row = self._execute(found.with_for_update() if locked else found).first()
        return None if row is None else _operation_of(row)

    def _put(self, operation: Operation) -> Operation:
        table = self._tables.operations
        self._execute(update(table).where(table.c.operation_id == operation.operation_id).values(_row_of(operation)))
        return operation


def _is_id(value: object) -> bool:
    try:
        check_message_id(value)  # type: ignore[arg-type]  # SQLite has anything in any column
    except InvalidMessageError:
        return False
    return True


def _has_times(row: Any) -> bool:
    """A row that was written by hand may hold anything."""
    return isinstance(row.due_time, datetime) and isinstance(row.next_attempt, datetime)


def _has(wanted: MessageFilter, headers: str | None) -> bool:
    try:
        return wanted.matches_headers(decode_mapping(headers))
    except ValueError:
        return False


def _row_of(operation: Operation) -> dict[str, Any]:
    return {
        "operation_id": operation.operation_id,
        "kind": operation.kind.value,
        "wanted": _filter_text(operation.wanted),
        "begun_by": operation.by,
        "began": operation.began,
        "due_time": operation.due_time,
        "ended": operation.ended,
        "state": operation.state.value,
        "after_id": operation.after,
        "examined": operation.examined,
        "changed": operation.changed,
        "held": operation.held,
        "held_ids": json.dumps(list(operation.held_ids)),
    }


def _shift_of(operation: Operation) -> dict[str, Any]:
    """The columns of a shift, which tables of an earlier version lack; without a shift, none."""
    shift = operation.shift
    return {} if shift is None else {"shift": shift.by // TICK, "time_zone": shift.time_zone}


def _operation_of(row: Any) -> Operation:
    values = row._mapping
    microseconds = values.get("shift")
    return Operation(
        operation_id=row.operation_id,
        kind=OperationKind(row.kind),
        wanted=_filter_of(row.wanted),
        by=row.begun_by,
        began=row.began,
        due_time=row.due_time,
        shift=None if microseconds is None else Shift(microseconds * TICK, values["time_zone"]),
        ended=row.ended,
        state=OperationState(row.state),
        after=row.after_id,
        examined=row.examined,
        changed=row.changed,
        held=row.held,
        held_ids=tuple(json.loads(row.held_ids)),
    )
