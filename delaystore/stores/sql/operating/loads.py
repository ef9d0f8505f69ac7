"""Loads as units: their messages, how these have left the store, and pauses of loads."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import case, func, literal, null, select, update

from delaystore.message import utc
from delaystore.stores.abc import COUNTED
from delaystore.stores.records import Change, Destination, Load, LoadChange, LoadPhase, name_of_load, number_of_load
from delaystore.stores.shared import check_number
from delaystore.stores.sql.operating._destinations import DestinationQueries
from delaystore.stores.sql.operating._search import OperatorQueries, fitting
from delaystore.stores.sql.operating.operations import AuditTrail, LoadChanges
from delaystore.stores.sql.schema import NAME_BYTES, is_of_load


class LoadQueries(OperatorQueries):
    """Those of one endpoint."""

    def all(self, limit: int = 20) -> Sequence[Load]:
        """The newest first. Of each it counts no more messages than COUNTED."""
        check_number(limit, "limit")
        self.require_loads()
        loads = self._tables.loads
        newest = select(loads).order_by(loads.c.began.desc(), loads.c.load_id.desc()).limit(limit)
        return self._loads(self._execute(newest).all(), exact=False)

    def get(self, load_id: str) -> Load | None:
        """Exact; it reads all waiting messages of the load."""
        self.require_loads()
        loads = self._tables.loads
        rows = self._execute(select(loads).where(loads.c.load_id == load_id)).all()
        return next(iter(self._loads(rows, exact=True)), None)

    def paused(self) -> Sequence[str]:
        """By their rows among destinations."""
        found = [each.name for each in DestinationQueries(self._bound).with_loads() if each.paused]
        numbers = [number for name in found if (number := number_of_load(name)) is not None]
        if not numbers:
            return []
        loads = self._tables.loads
        ids = select(loads.c.load_id).where(loads.c.number.in_(numbers)).order_by(loads.c.load_id)
        return self._execute(ids).scalars().all()

    def cancel(self, load_id: str, *, by: str) -> bool:
        """Note that the load is cancelled as a whole; a run that has not stored anything yet loses it.

        False: there is no such load.
        """
        self.require_loads()
        self.begin_writing()
        loads = self._tables.loads
        still = (loads.c.load_id == load_id) & loads.c.cancelled_at.is_(None) & (loads.c.is_stream == 0)
        cancelled = update(loads).values(
            cancelled_at=self._bound.now(), cancelled_by=fitting(by, NAME_BYTES), token=null()
        )
        self._execute(cancelled.where(still))
        return self._execute(select(loads.c.load_id).where(loads.c.load_id == load_id)).first() is not None

    def pause(self, load_id: str, *, by: str, until: datetime | None = None, change: Change | None = None) -> bool:
        """Paused from now on; False: there is no such load."""
        number = self.number_of(load_id)
        if number is None:
            return False
        until = None if until is None else utc(until, "until")
        at = DestinationQueries(self._bound).put_pause(name_of_load(number), by, until)
        self._note_pause(change, at, load_id, until)
        return True

    def resume(self, load_id: str, *, by: str, change: Change | None = None) -> bool:
        """Whether it was paused."""
        number = self.number_of(load_id)
        at = None if number is None else DestinationQueries(self._bound).end_pause(name_of_load(number), by)
        if at is not None:
            self._note_pause(change, at, load_id)
        return at is not None

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
        gone, left = changes.get(row.number, {}), dict[str, Any]()
        for how in LoadChange:
            left[how.value] = gone.get(how.value, 0)
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
        """The counts of its waiting messages: of all of them, or, unless it must be `exact`, of as many as COUNTED."""
        table, stored = self._sql.table, row.messages or 0
        if row.number is None:  # of an earlier release, whose messages do not have the number of their load
            return {"exact": False, "waiting": 0}
        is_its = is_of_load(table, row.number)
        if not exact and stored > COUNTED:
            some = select(literal(1)).select_from(table).where(is_its).limit(COUNTED + 1).subquery("some")
            if self._execute(select(func.count()).select_from(some)).scalar_one() > COUNTED:
                return {"exact": False, "waiting": COUNTED, "first_due": row.first_due, "last_due": row.last_due}
        columns = (
            func.count().label("waiting"),
            func.coalesce(func.sum(case((table.c.failure_count > 0, 1), else_=0)), 0).label("failing"),
            func.min(table.c.due_time).label("first_due"),
            func.max(table.c.due_time).label("last_due"),
        )
        found = self._execute(select(*columns).where(is_its)).one()
        return {"exact": True, **found._mapping, "failing": int(found.failing)}


def _phase(row: Any, waiting: int, now: datetime) -> LoadPhase:
    if row.cancelled_at is not None:
        return LoadPhase.CANCELLED
    if row.finished_at is None:
        return LoadPhase.STAGING if row.token is not None and row.lease_until > now else LoadPhase.ABANDONED
    return LoadPhase.WAITING if waiting else LoadPhase.DONE
