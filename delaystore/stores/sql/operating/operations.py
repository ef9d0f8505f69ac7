"""Operations on many messages, in steps."""

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from sqlalchemy import ColumnElement, Delete, Row, Update, delete, false, func, insert, literal, select, update
from sqlalchemy.exc import IntegrityError

from delaystore.errors import InvalidMessageError, UnknownLoadError
from delaystore.filters import MessageFilter, Shift
from delaystore.message import (
    EARLIEST_DUE_TIME,
    LATEST_DUE_TIME,
    check_message_id,
    unmarked,
    utc,
)
from delaystore.stores.operable import STEP
from delaystore.stores.records import (
    HELD_KEPT,
    TICK,
    Change,
    Ending,
    Operation,
    OperationKind,
    OperationState,
)
from delaystore.stores.shared import check_new, check_number, count_of_begun, taken
from delaystore.stores.sql._history import NewEntries
from delaystore.stores.sql._statements import begins_with
from delaystore.stores.sql.codec import LOAD, decode_mapping
from delaystore.stores.sql.operating._search import (
    OperatorQueries,
    Walk,
    conditions,
    number_in,
    walk,
)
from delaystore.stores.sql.operating.audit import AuditTrail, filter_of, filter_text
from delaystore.stores.sql.operating.loads import LoadChanges, LoadQueries
from delaystore.stores.sql.schema import is_of_load

_NEAR: Final = 4
"""Messages that lie near each other cost so little that a step takes more of them."""
_SPARSE: Final = 16
"""A step that finds fewer than this part of `examine` near each other also takes the next ones by their ids."""
_SINCE_0006: Final = ("shift", "time_zone")
"""The columns that an operation has since schema version 0006."""


class OperationQueries(OperatorQueries):
    """Those of one endpoint."""

    def begin(self, operation: Operation, *, change: Change | None = None) -> None:
        """Raises ConfigurationError for one that is not new."""
        check_new(operation)
        try:
            self._bound.connection.execute(insert(self._tables.operations), _row_of(operation) | _shift_of(operation))
        except IntegrityError:
            raise taken(operation) from None
        if operation.cancelled_load is None:
            self.of_load(operation.wanted)  # refuses an unknown load
        else:
            LoadQueries(self._bound).begin_cancel(operation, operation.cancelled_load)
        self._note(operation, change)

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
        cancelled = _cancelled(operation, self._begun_load(operation))
        if cancelled is not None:
            LoadQueries(self._bound).abandon_cancel(operation, cancelled, change.by if change else operation.by)
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
        load = self._begun_load(operation)
        cancelled = _cancelled(operation, load)
        step = (
            _StepResult(None, 0, 0) if cancelled is None else self._cancel_near(operation, cancelled, _NEAR * examine)
        )
        if step.changed * _SPARSE < examine:
            step = step.and_then(self._next(operation, load, examine))
        LoadChanges(self._bound).note(step.left, Ending.CANCELLED)
        advanced = replace(
            operation,
            after=step.end or operation.after,
            examined=operation.examined + step.examined,
            changed=operation.changed + step.changed,
            held=operation.held + len(step.held),
            held_ids=(*operation.held_ids, *step.held)[:HELD_KEPT],
        )
        if step.end is None:
            advanced = self._at_end(advanced, load)
        self._note_progress(operation, advanced, change)
        return self._put(advanced)

    def _cancel_near(self, operation: Operation, load: Row[Any], size: int) -> "_StepResult":
        """Cancel messages of a load that lie near its next one, where rows do not lie in the order of their ids.

        Where ids are random, the rows of a step by ids lie on as many pages. PostgreSQL writes each page to the WAL
        as a whole, the first time after a checkpoint, and other transactions wait for that.
        """
        table, number = self._sql.table, number_in(load)
        key, of_load = table.c.message_id, is_of_load(table, number)
        behind = [] if operation.after is None else [key > operation.after]
        first = select(key).where(of_load, *behind).order_by(key).limit(1)
        entries = self._entries(operation)
        found = self._dialect.delete_neighbours(self._bound.connection, table, first, [of_load], size, entries)
        if found is None:
            return _StepResult(None, 0, 0)
        end, count = found
        return _StepResult(end, count, count, {number: count} if count else {})

    def _next(self, operation: Operation, load: Row[Any] | None, examine: int) -> "_StepResult":
        """Change the next messages by their ids."""
        walked = self._ids(operation, load, examine)
        wanted = [*walked.conditions, *conditions(operation.wanted, self._sql.table, self._dialect)]
        examined = examine if walked.end else self._count(walked)
        ids = self._with_headers(operation.wanted, wanted) if operation.wanted.headers else None
        changed = self._change(operation, ids, wanted)
        are_all = len(changed) == (examined if ids is None else len(ids))
        is_counted_at_end = _cancelled(operation, load) is not None
        held = [] if are_all or is_counted_at_end else self._unchanged(ids, wanted, changed)
        is_cancel = operation.kind is OperationKind.CANCEL
        left = Counter(number for number in changed.values() if is_cancel and number is not None)
        return _StepResult(walked.end, examined, len(changed), left, held)

    def _at_end(self, operation: Operation, load: Row[Any] | None) -> Operation:
        """Done, or begun again while fewer messages of a cancelled load are left than before: dispatchers had them."""
        done = replace(operation, state=OperationState.DONE, ended=self._bound.now())
        if operation.cancelled_load is not None and load is None:
            return replace(done, held=0, held_ids=())
        cancelled = _cancelled(operation, load)
        if cancelled is None:
            return done
        held, ids = LoadQueries(self._bound).end_cancel(cancelled)
        if held and (not operation.held or held < operation.held):
            return replace(operation, after=None, held=held, held_ids=ids)
        return replace(done, held=held, held_ids=ids)

    def _ids(self, operation: Operation, load: Row[Any] | None, examine: int) -> Walk[str]:
        """The next messages by their ids: of a load, or with a prefix, no others."""
        key, wanted, after = self._sql.table.c.message_id, operation.wanted, operation.after
        behind = [*self._of_begun(operation, load), *([] if after is None else [key > after])]
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

    def _of_begun(self, operation: Operation, load: Row[Any] | None) -> list[ColumnElement[bool]]:
        """As `of_load`, of the operation's load as `_begun_load` finds it."""
        if operation.wanted.load is None:
            return []
        return [false()] if load is None else [is_of_load(self._sql.table, number_in(load))]

    def _begun_load(self, operation: Operation) -> Row[Any] | None:
        """The load of its filter; None: none, or one that was forgotten, or loaded again, since the operation began."""
        if operation.wanted.load is None:
            return None
        try:
            row = self.load_row(operation.wanted.load)
        except UnknownLoadError:
            return None
        return row if row.is_stream or row.began <= operation.began else None

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
            return self._changed(self._sql.cancel, {}, ids, matches, number, self._entries(operation))
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
        entries: NewEntries | None = None,
    ) -> Mapping[str, Any]:
        bound = self._bound
        return self._dialect.change_unclaimed_of(
            bound.connection, self._sql.table, change, ids, matches, values, bound.now(), returning, entries
        )

    def _entries(self, operation: Operation) -> NewEntries | None:
        """The entries that messages get in the history which it cancels."""
        return self._bound.new_entries(Ending.CANCELLED, self._bound.now(), operation.by)

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


class _StepResult(NamedTuple):
    """A part of an operation, up to a message_id; `end` None: up to the last one.

    `left`: how many messages of each load have left the store.
    """

    end: str | None
    examined: int
    changed: int
    left: Mapping[int, int] = {}
    held: Sequence[str] = ()

    def and_then(self, later: "_StepResult") -> "_StepResult":
        """Both together."""
        examined, changed = self.examined + later.examined, self.changed + later.changed
        return _StepResult(
            later.end, examined, changed, Counter(self.left) + Counter(later.left), (*self.held, *later.held)
        )


def _cancelled(operation: Operation, load: Row[Any] | None) -> Row[Any] | None:
    """The load, if it is cancelled as a whole: it is no stream, which goes on."""
    return None if load is None or load.is_stream or operation.cancelled_load is None else load


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
        "wanted": filter_text(operation.wanted),
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
        wanted=filter_of(row.wanted),
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
