"""Paused and limited destinations, and the parking of their messages."""

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final, NamedTuple

from sqlalchemy import ColumnElement, Select, Update, delete, insert, literal, null, or_, select, update
from sqlalchemy.exc import IntegrityError

from delaystore.calls import call_paused
from delaystore.message import EARLIEST_DUE_TIME, PARKED, Position, check_destination, utc
from delaystore.stores.records import Allowance, Change, Destination, name_of_load, number_of_load, postponed_until
from delaystore.stores.shared import Bucket, DestinationState, allowed, check_max_rate, check_number, shown_by
from delaystore.stores.sql._statements import is_parked, is_postponed
from delaystore.stores.sql.codec import LOAD, UtcDateTime
from delaystore.stores.sql.operating._search import BoundParts, OperatorQueries, fitting, values_of
from delaystore.stores.sql.operating.audit import AuditTrail
from delaystore.stores.sql.rows import has_position, position_of_row
from delaystore.stores.sql.schema import NAME_BYTES, paused_names

_READ_AT: Final = "read_at"
"""The column of the database's clock."""


class Resuming(NamedTuple):
    """A destination that is resuming. `promised`: the last time given under its limit; None: it has none."""

    destination: Destination
    promised: datetime | None
    reach: datetime | None
    now: datetime
    """When the row was read."""


class DestinationQueries(OperatorQueries):
    """Those of one endpoint.

    The statement that reads a row also reads the database's clock. After a step back of that clock, connections that
    carried earlier readings on would differ for seconds: one would postpone messages, or end their search, by a time
    that the other no longer knows.
    """

    def all(self) -> Sequence[Destination]:
        """By name, as they are now."""
        return [each for each in self.with_loads() if number_of_load(each.name) is None]

    def with_loads(self) -> Sequence[Destination]:
        """As `all`, with paused and resuming loads by their `name_of_load`."""
        return [_state_of(row).at(now).destination for row, now in self._rows()]

    def _rows(self) -> Sequence[tuple[Any, datetime]]:
        """Destinations with a pause or a limit, by name, and when each was read."""
        table = self._tables.destinations
        says = or_(table.c.paused == 1, table.c.resuming == 1, table.c.max_rate.is_not(None))
        return [(row, self._read_at(row)) for row in self._execute(self._select().where(says).order_by(table.c.name))]

    def _select(self) -> Select[Any]:
        clock = self._dialect.clock()
        return select(self._tables.destinations, (null() if clock is None else clock).label(_READ_AT))

    def _read_at(self, row: Any) -> datetime:
        return self._bound.parts.clock.now_read(row._mapping[_READ_AT])

    def paused(self, *, lasting: bool) -> Sequence[str]:
        """The names of paused destinations; `lasting`: none of them resumes until the transaction ends."""
        found = paused_names(self._tables, self._bound.now())
        return self._execute(found.with_for_update(read=True) if lasting else found).scalars().all()

    def pause(self, destination: str, *, by: str, until: datetime | None = None, change: Change | None = None) -> None:
        """Paused from now on."""
        check_destination(destination)
        until = None if until is None else utc(until, "until")
        at = self.put_pause(destination, by, until)
        if change is not None:
            AuditTrail(self._bound).note([change.of_destination(at, destination, until=until)])

    def resume(self, destination: str, *, by: str, change: Change | None = None) -> bool:
        """Whether it was paused. Waits for passes of dispatchers that have just parked messages for it."""
        check_destination(destination)
        at = self.end_pause(destination, by)
        if at is not None and change is not None:
            AuditTrail(self._bound).note([change.of_destination(at, destination)])
        return at is not None

    def put_pause(self, name: str, by: str, until: datetime | None, *, at: datetime | None = None) -> datetime:
        """Pause a destination, or a load by its `name_of_load`; returns when. `at`: the time to note; None: now."""
        known = self._locked(name, by)
        if at is not None:
            known = known._replace(destination=replace(known.destination, changed=at))
        self._put(known.paused(until))
        return known.destination.changed

    def end_pause(self, name: str, by: str) -> datetime | None:
        """The inverse of `put_pause`; None: it was not paused."""
        known = self._locked(name, by)
        if not known.destination.paused:
            return None
        self._put(known.resumed(known.destination.changed))
        return known.destination.changed

    def limit(self, destination: str, max_rate: float | None, *, by: str, change: Change | None = None) -> None:
        """None: no limit."""
        check_destination(destination)
        max_rate = check_max_rate(max_rate)
        known = self._locked(destination, by)
        self._put(known.limited(max_rate, known.destination.changed))
        self._forget(destination)
        if change is not None:
            entry = change.of_destination(known.destination.changed, destination, max_rate=max_rate)
            AuditTrail(self._bound).note([entry])

    def allowance(self, destination: str, wanted: int) -> Allowance:
        """Messages that may go now count as gone."""
        self.begin_writing()
        table = self._tables.destinations
        row = self._row(destination)
        if row is None or row.max_rate is None:
            return Allowance(granted=wanted)
        now = self._read_at(row)
        known = _state_of(row).at(now)
        allowance, bucket = allowed(known.bucket or Bucket.full(now), row.max_rate, now, wanted)
        self._execute(update(table).where(table.c.name == destination).values(_values(known._replace(bucket=bucket))))
        return allowance

    def end_pauses(self) -> None:
        """Let those resume whose time is over, or whose postponed messages would wait for a time of another clock."""
        for name in [row.name for row, now in self._rows() if (state := _state_of(row)).at(now) != state]:
            self.begin_writing()
            row = self._row(name)
            if row is not None:
                self._put(_state_of(row).at(self._read_at(row)))

    def resuming(self) -> Sequence[Resuming]:
        """Those some of whose messages may still be parked or postponed."""
        found = [(_state_of(row).at(now), now) for row, now in self._rows()]
        return [
            Resuming(each.destination, each.promised(now), each.reach, now)
            for each, now in found
            if each.destination.resuming
        ]

    def end_resuming(self, shown: Sequence[Resuming]) -> None:
        """None of the messages of `shown` is parked or postponed any more. Forgets destinations that have neither a
        pause nor a limit by now.

        By name: a search would wait for other destinations' rows, which a parking dispatcher has locked. A row may have
        a further reach by now although it was not changed: where the clock stepped back.
        """
        table = self._tables.destinations
        for each, _, reach, _ in shown:
            same = (table.c.name == each.name) & (table.c.changed == each.changed) & (table.c.paused == 0)
            ended = update(table).where(same, table.c.paused_until == reach).values(resuming=0, paused_until=None)
            if self._execute(ended).rowcount:
                self._forget(each.name)

    def _locked(self, name: str, by: str) -> DestinationState:
        """Its record as of now, to be changed by `by`; its row, if there is one, is locked."""
        self.begin_writing()
        row, by = self._row(name), fitting(by, NAME_BYTES)
        if row is None:
            return DestinationState(Destination(name=name, changed=self._bound.now(), by=by))
        now = self._read_at(row)
        known = _state_of(row).at(now)
        return known._replace(destination=replace(known.destination, changed=now, by=by))

    def _forget(self, name: str) -> None:
        """Delete its row if that says nothing."""
        table = self._tables.destinations
        says_nothing = (table.c.paused == 0) & (table.c.resuming == 0) & table.c.max_rate.is_(None)
        self._execute(delete(table).where(table.c.name == name, says_nothing))

    def _row(self, name: str) -> Any:
        return self._execute(self._select().where(self._tables.destinations.c.name == name).with_for_update()).first()

    def _put(self, known: DestinationState) -> None:
        table, values = self._tables.destinations, _values(known)
        changed = update(table).where(table.c.name == known.destination.name).values(values)
        if self._execute(changed).rowcount:
            return
        try:
            with self._dialect.savepoint(self._bound.connection):
                self._bound.connection.execute(insert(table), values)
        except IntegrityError:  # another session was first
            self._execute(changed)


def _state_of(row: Any) -> DestinationState:
    """The record of a row, as it was when it was written.

    The column `paused_until` of a destination that is not paused is the reach. Dispatchers of earlier builds do not
    know that, and set `resuming` to 0 before such messages are shown: with a reach it is resuming.
    """
    reach = None if row.paused else row.paused_until
    destination = Destination(
        name=row.name,
        paused=bool(row.paused),
        paused_until=row.paused_until if row.paused else None,
        resuming=bool(row.resuming) or reach is not None,
        max_rate=row.max_rate,
        changed=row.changed,
        by=row.changed_by,
    )
    bucket = None if row.full_at is None or row.promised is None else Bucket(row.full_at, row.promised)
    return DestinationState(destination, bucket, reach)


def _values(state: DestinationState) -> dict[str, Any]:
    known, bucket, reach = state
    return {
        "name": known.name,
        "paused": int(known.paused),
        "paused_until": known.paused_until if known.paused else reach,
        "resuming": int(known.resuming),
        "max_rate": known.max_rate,
        "full_at": None if bucket is None else bucket.full_at,
        "promised": None if bucket is None else bucket.promised,
        "changed": known.changed,
        "changed_by": known.by,
    }


Opened = Callable[[], AbstractContextManager[BoundParts]]
_FIRST_PARKED: Final = Position(PARKED, "")
LOOKED_AT: Final = 3
"""How many rows a step looks at for each that it may change."""
STRAY_STEPS: Final = 20
"""Steps that a call takes to find a parked message whose destination is no longer known to be paused."""


class _Step(OperatorQueries):
    """One transaction of a walk: `found` of those it has looked at, `changed` of these, and where the next begins.

    `end` None: it has come to the end.
    """

    found = changed = 0
    end: Position | None = None

    def take(
        self,
        after: Position | None,
        at_most: int,
        matches: Sequence[ColumnElement[bool]],
        is_wanted: Callable[[Any], bool],
        change: Update,
        still: Sequence[ColumnElement[bool]] = (),
    ) -> None:
        """Change those of the next rows that match, are wanted, and are claimed by no dispatcher.

        `matches` is found by index: the database reads on until there are enough such rows, and there may be millions
        of others. `still`: what else a wanted row satisfies unless it was changed meanwhile.
        """
        table = self._sql.table
        order = [table.c.next_attempt, table.c.message_id]
        behind = [] if after is None else [self._dialect.behind(order, values_of(order, after))]
        examine = LOOKED_AT * at_most
        load = table.c[LOAD] if self.has_loads else null().label(LOAD)
        columns = [*order, table.c.due_time, table.c.destination, load]
        search = select(*columns).where(*behind, *matches).order_by(*order).limit(examine)
        rows = self._execute(search).all()
        wanted = [row for row in rows if has_position(row) and is_wanted(row)]
        last = wanted[at_most - 1] if len(wanted) > at_most else rows[-1] if len(rows) == examine else None
        self.found, self.end = len(wanted), None if last is None else _further(last, after)
        if wanted:
            ids, now = [row.message_id for row in wanted[:at_most]], self._bound.now()
            all_of_it, connection = [*matches, *still], self._bound.connection
            self.changed = len(self._dialect.change_unclaimed_of(connection, table, change, ids, all_of_it, {}, now))


def _further(row: Any, after: Position | None) -> Position | None:
    """The position of a row; None where it has none that lies further: the walk ends there."""
    position = position_of_row(row)
    return position if after is None or position > after else None


def _begin_anew() -> None:
    """The next step may take as long as the one before: the time limit holds for a transaction, not for a walk of
    many.
    """
    with call_paused():
        pass


class _ParkingWalk:
    """Where a walk is. Its steps are taken by a function of the position behind which the step begins."""

    def __init__(self) -> None:
        self._up_to: Position | None = None
        self.found = 0
        """Messages that it would have changed, but did not, as they were claimed."""

    def step(self, take: Callable[[Position | None], _Step]) -> _Step:
        """The next one."""
        step = take(self._up_to)
        self._up_to = step.end
        return step

    def go_on(self, take: Callable[[Position | None], _Step]) -> int:
        """How many messages the next steps have changed; 0: it has come from the beginning to the end."""
        from_beginning, self.found = self._up_to is None, 0
        while True:
            step = self.step(take)
            self.found += step.found
            if step.changed:
                return step.changed
            if step.end is None:
                if from_beginning:
                    return 0
                from_beginning, self.found = True, 0
            _begin_anew()


class Parking:
    """Where the walks of one store are. `opened` opens a transaction that finds rows by index."""

    def __init__(self, opened: Opened) -> None:
        self._opened = opened
        self._parked, self._shown, self._postponed = _ParkingWalk(), _ParkingWalk(), _ParkingWalk()

    def park(self, until: datetime, at_most: int) -> int:
        """See `OperableDelayedMessageStore.park`."""
        check_number(at_most, "at_most")
        return self._parked.go_on(partial(self._park, utc(until, "until"), at_most))

    def _park(self, until: datetime, at_most: int, up_to: Position | None) -> _Step:
        """A walk of one step where no destination is paused."""
        with self._opened() as bound:
            destinations, sql, step = DestinationQueries(bound), bound.parts.statements, _Step(bound)
            if not destinations.paused(lasting=False):
                return step
            destinations.begin_writing()
            paused = set(destinations.paused(lasting=True))
            next_attempt = sql.table.c.next_attempt
            last = bound.parts.dialect.without_value_in_plan(literal(until, UtcDateTime))
            due = [next_attempt <= last, next_attempt < literal(PARKED, UtcDateTime)]
            step.take(up_to, at_most, due, lambda row: _is_paused(row, paused), sql.park)
            return step

    def unpark(self, at_most: int, ahead: timedelta | None) -> int:
        """See `OperableDelayedMessageStore.unpark`.

        Where nothing is resuming, only strays may be shown: then it takes a few steps, and the next call goes on.
        """
        check_number(at_most, "at_most")
        with self._opened() as bound:
            destinations = DestinationQueries(bound)
            destinations.end_pauses()
            resuming = destinations.resuming()
        if not resuming:
            return self._unpark_strays(at_most)
        shown = self._shown.go_on(partial(self._unpark, at_most))
        if not shown and ahead is not None and any(each.reach is not None for each in resuming):
            shown = self._postponed.go_on(partial(self._show_postponed, at_most, ahead))
        if not shown and not self._shown.found and not self._postponed.found:
            with self._opened() as bound:
                ended = [each for each in resuming if each.reach is None or ahead is not None]
                DestinationQueries(bound).end_resuming(ended)
        return shown

    def _unpark_strays(self, at_most: int) -> int:
        for _ in range(STRAY_STEPS):
            step = self._shown.step(partial(self._unpark, at_most))
            if step.changed or step.end is None:
                return step.changed
            _begin_anew()
        return 0

    def _unpark(self, at_most: int, up_to: Position | None) -> _Step:
        with self._opened() as bound:
            paused, sql, step = (
                set(DestinationQueries(bound).paused(lasting=False)),
                bound.parts.statements,
                _Step(bound),
            )
            matches, after = [is_parked(sql.table)], up_to or _FIRST_PARKED
            step.take(after, at_most, matches, lambda row: not _is_paused(row, paused), sql.unpark)
            return _shown_by_now(bound, step)

    def _show_postponed(self, at_most: int, ahead: timedelta, up_to: Position | None) -> _Step:
        """Messages that are postponed beyond the times their limit has promised: an earlier limit has postponed
        them.
        """
        with self._opened() as bound:
            dialect, sql, step = bound.parts.dialect, bound.parts.statements, _Step(bound)
            resuming = [each for each in DestinationQueries(bound).resuming() if each.reach is not None]
            if not resuming:
                return step
            behind = {each.destination.name: shown_by(each.promised, ahead, each.now) for each in resuming}
            last = max(shown_by(each.reach, ahead, each.now) for each in resuming)
            time = sql.table.c.next_attempt
            until = dialect.without_value_in_plan(literal(last, UtcDateTime))
            matches = [time > literal(min(behind.values()), UtcDateTime), time <= until]
            still = [is_postponed(sql.table, dialect)]

            def is_wanted(row: Any) -> bool:
                if row.destination not in behind or row.next_attempt <= behind[row.destination]:
                    return False
                is_later = isinstance(row.due_time, datetime) and row.next_attempt > row.due_time
                return is_later and postponed_until(row.next_attempt) == row.next_attempt

            step.take(up_to, at_most, matches, is_wanted, sql.unpark, still)
            return _shown_by_now(bound, step)


def _is_paused(row: Any, paused: Collection[str]) -> bool:
    """Whether the destination or the load of a message is among the `paused` names."""
    of_load = row.load_number is not None and name_of_load(row.load_number) in paused
    return of_load or row.destination in paused


def _shown_by_now(bound: BoundParts, step: _Step) -> _Step:
    """`step`, after which dispatchers search from the beginning."""
    if step.changed:
        bound.stored(EARLIEST_DUE_TIME)
    return step
