"""Loads as units: their messages, how these have left the store, and pauses of loads."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Row, case, delete, func, insert, literal, null, select, update

from delaystore.errors import ConfigurationError
from delaystore.message import new_message_id, utc
from delaystore.stores.abc import COUNTED
from delaystore.stores.operable import STEP
from delaystore.stores.records import (
    HELD_KEPT,
    REMOVED,
    Change,
    Destination,
    Ending,
    Load,
    LoadPhase,
    Operation,
    OperationState,
    name_of_load,
    number_of_load,
)
from delaystore.stores.shared import check_number
from delaystore.stores.sql.operating._destinations import DestinationQueries
from delaystore.stores.sql.operating._search import OperatorQueries, fitting, number_in
from delaystore.stores.sql.operating.audit import AuditTrail, filter_of
from delaystore.stores.sql.schema import NAME_BYTES, is_cancelled, is_of_load, pause_removal

FOLDED: Final = 20
"""Of how many loads and actions rows are summed up at once."""


class LoadChanges(OperatorQueries):
    """How messages of loads have left the store without a delivery."""

    def note(self, left: Mapping[int, int], how: Ending) -> None:
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


class LoadQueries(OperatorQueries):
    """Those of one endpoint."""

    def all(self, limit: int = 20) -> Sequence[Load]:
        """The newest first. Of each it counts no more messages than COUNTED."""
        check_number(limit, "limit")
        self.require_loads()
        loads = self._tables.loads
        newest = select(loads).order_by(loads.c.began.desc(), loads.c.load_id.desc()).limit(limit)
        return self._loads(self._execute(newest).all(), exact=False)

    def get(self, load_id: str) -> Load:
        """Exact; it reads all waiting messages of the load."""
        return self._loads([self.load_row(load_id)], exact=True)[0]

    def paused(self) -> Sequence[str]:
        """By their rows among destinations."""
        found = [each.name for each in DestinationQueries(self._bound).with_loads() if each.paused]
        numbers = [number for name in found if (number := number_of_load(name)) is not None]
        return sorted(self.ids(numbers).values())

    def ids(self, numbers: Collection[int]) -> Mapping[int, str]:
        """The ids of loads, by their numbers."""
        if not numbers:
            return {}
        loads = self._tables.loads
        known = select(loads.c.number, loads.c.load_id).where(loads.c.number.in_(sorted(numbers)))
        return {row.number: row.load_id for row in self._execute(known)}

    def pause(self, load_id: str, *, by: str, until: datetime | None = None, change: Change | None = None) -> None:
        """Paused from now on."""
        self.begin_writing()
        row = self.load_row(load_id)
        number = number_in(row)
        has_ended = is_cancelled(row) or (row.finished_at is not None and not row.is_stream)
        if has_ended and not self._counted(number, 1):
            raise ConfigurationError(
                f"the load {load_id!r} is not paused, because none of its messages waits any more; `delaystore loads "
                "list` shows loads with waiting messages"
            )
        until = None if until is None else utc(until, "until")
        at = DestinationQueries(self._bound).put_pause(name_of_load(number), by, until)
        self._note_pause(change, at, load_id, until)

    def resume(self, load_id: str, *, by: str, change: Change | None = None) -> bool:
        """Whether it was paused."""
        at = DestinationQueries(self._bound).end_pause(name_of_load(self.number_of(load_id)), by)
        if at is not None:
            self._note_pause(change, at, load_id)
        return at is not None

    def begin_cancel(self, operation: Operation, load_id: str) -> None:
        """Note that the load is cancelled: a run that has not stored anything yet loses it. And pause it without end,
        so that dispatchers deliver none of it before the operation comes to it. A stream goes on.
        """
        loads, load = self._tables.loads, self.load_row(load_id, locked=True)
        name = name_of_load(number_in(load))
        if load.is_stream:
            return
        if not is_cancelled(load):
            by = fitting(operation.by, NAME_BYTES)
            cancelled = update(loads).values(cancelled_at=self._bound.now(), cancelled_by=by, token=null())
            self._execute(cancelled.where(loads.c.load_id == load_id))
        if load.began > operation.began:  # a moment ago: the operation finds nothing of it
            return
        pause, cancels = self._pause_of(name), self._running_cancels(operation)
        if pause is None or pause.paused_until is not None or pause.changed in cancels:
            DestinationQueries(self._bound).put_pause(name, operation.by, None, at=operation.began)

    def abandon_cancel(self, operation: Operation, load: Row[Any], by: str) -> None:
        """End the pause of `begin_cancel`, which has the operation's time; a user's own pause stays.

        Another cancel of the load that has not ended takes the pause over.
        """
        destinations, name = DestinationQueries(self._bound), name_of_load(number_in(load))
        pause, others = self._pause_of(name), self._running_cancels(operation)
        if pause is None or pause.changed != operation.began:
            return
        if others:
            destinations.put_pause(name, operation.by, None, at=others[0])
        else:
            destinations.end_pause(name, by)

    def _pause_of(self, name: str) -> Destination | None:
        known = DestinationQueries(self._bound).with_loads()
        return next((each for each in known if each.name == name and each.paused), None)

    def _running_cancels(self, operation: Operation) -> Sequence[datetime]:
        """When the running operations that cancel the same load began."""
        table = self._tables.operations
        is_running = (table.c.kind == operation.kind.value) & (table.c.state == OperationState.RUNNING.value)
        running = self._execute(select(table.c.began, table.c.wanted).where(is_running))
        return [row.began for row in running if filter_of(row.wanted) == operation.wanted]

    def end_cancel(self, load: Row[Any]) -> tuple[int, Sequence[str]]:
        """How many messages of the load still wait, and the first ids. After the last one it is not paused any more."""
        table, number = self._sql.table, number_in(load)
        first = select(table.c.message_id).where(is_of_load(table, number)).order_by(table.c.message_id)
        ids = self._execute(first.limit(HELD_KEPT)).scalars().all()
        if not ids:
            self._execute(pause_removal(self._tables, number))
        return self._counted(number, COUNTED) if ids else 0, ids

    def _note_pause(self, change: Change | None, at: datetime, load_id: str, until: datetime | None = None) -> None:
        if change is not None:
            AuditTrail(self._bound).note([change.of_load(at, load_id, until)])

    def _loads(self, rows: Sequence[Any], *, exact: bool) -> Sequence[Load]:
        pauses = {each.name: each for each in DestinationQueries(self._bound).with_loads()}
        changes = LoadChanges(self._bound).summed([row.number for row in rows if row.number is not None])
        return [self._load(row, self._counts(row, exact=exact), changes, pauses) for row in rows]

    def _load(
        self,
        row: Any,
        counts: Mapping[str, Any],
        changes: Mapping[int, Mapping[str, int]],
        pauses: Mapping[str, Destination],
    ) -> Load:
        gone = changes.get(row.number, {})
        left: dict[str, Any] = {how.value: gone.get(how.value, 0) for how in REMOVED}
        pause = None if row.number is None else pauses.get(name_of_load(row.number))
        stored, waiting = row.messages or 0, counts["waiting"]
        return Load(
            load_id=row.load_id,
            is_stream=bool(row.is_stream),
            state=_phase(row, waiting, self._bound.now()),
            paused=pause is not None and pause.paused,
            paused_until=None if pause is None else pause.paused_until,
            began=row.began,
            finished=row.finished_at,
            stored=row.stored or 0 if row.number is None else stored,
            rejected=row.rejected,
            delivered=max(0, stored - waiting - sum(gone.values())) if counts["exact"] else None,
            cancelled_at=row.cancelled_at,
            cancelled_by=row.cancelled_by,
            **left,
            **counts,
        )

    def _counts(self, row: Any, *, exact: bool) -> Mapping[str, Any]:
        """The counts of its waiting messages; unless they must be `exact`, by the index of loads alone."""
        table = self._sql.table
        if row.number is None:  # of an earlier release, whose messages do not have the number of their load
            return {"exact": False, "waiting": 0}
        if not exact:
            waiting = self._counted(row.number, COUNTED + 1)
            due = {"first_due": row.first_due, "last_due": row.last_due} if waiting else {}
            return {"exact": waiting <= COUNTED, "waiting": min(waiting, COUNTED), "failing": None, **due}
        columns = (
            func.count().label("waiting"),
            func.count(case((table.c.failure_count > 0, 1))).label("failing"),
            func.min(self._sql.unmarked).label("first_due"),
            func.max(self._sql.unmarked).label("last_due"),
        )
        found = self._execute(select(*columns).where(is_of_load(table, row.number))).one()
        return {"exact": True, **found._mapping}

    def _counted(self, number: int, at_most: int) -> int:
        """How many messages of the load wait, `at_most` if there are as many or more."""
        some = select(literal(1)).select_from(self._sql.table).where(is_of_load(self._sql.table, number))
        return int(self._execute(select(func.count()).select_from(some.limit(at_most).subquery("some"))).scalar_one())


def _phase(row: Any, waiting: int, now: datetime) -> LoadPhase:
    is_staging = row.finished_at is None and row.token is not None and row.lease_until > now
    if row.cancelled_at is not None and not is_staging:
        return LoadPhase.CANCELLED
    if row.finished_at is None:
        return LoadPhase.STAGING if is_staging else LoadPhase.ABANDONED
    return LoadPhase.WAITING if waiting else LoadPhase.DONE
