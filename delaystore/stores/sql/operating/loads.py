"""Loads as units: their messages, how these have left the store, and pauses of loads."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import case, func, literal, select

from delaystore.errors import ConfigurationError
from delaystore.message import utc
from delaystore.stores.abc import COUNTED
from delaystore.stores.records import Change, Destination, Load, LoadChange, LoadPhase, name_of_load, number_of_load
from delaystore.stores.shared import check_number
from delaystore.stores.sql.operating._destinations import DestinationQueries
from delaystore.stores.sql.operating._search import OperatorQueries, number_in
from delaystore.stores.sql.operating.operations import AuditTrail, LoadChanges
from delaystore.stores.sql.schema import is_cancelled, is_of_load


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
        if not numbers:
            return []
        loads = self._tables.loads
        ids = select(loads.c.load_id).where(loads.c.number.in_(numbers)).order_by(loads.c.load_id)
        return self._execute(ids).scalars().all()

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
        left: dict[str, Any] = {how.value: gone.get(how.value, 0) for how in LoadChange}
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
