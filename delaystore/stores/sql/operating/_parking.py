"""Parking what is due at paused destinations, and showing it, and what a limit had postponed, again: in small
transactions, from where the last ended.

What comes first may be messages that are none of ours, a million of them; so a step goes on where the last one ended,
and nothing is left only once a walk from the beginning has found nothing.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import ColumnElement, Update, literal, select

from delaystore.calls import elsewhere
from delaystore.message import EARLIEST_DUE_TIME, PARKED, Position, utc
from delaystore.sql.types import UtcDateTime
from delaystore.stores._allowances import shown_by
from delaystore.stores._checks import check_number
from delaystore.stores.operable import STEP, postponed_until
from delaystore.stores.sql._statements import is_parked, is_postponed
from delaystore.stores.sql.operating._bound import Bound, Noun
from delaystore.stores.sql.operating._destinations import Destinations
from delaystore.stores.sql.operating._search import values_of
from delaystore.stores.sql.rows import has_position, position_of_row

Opened = Callable[[], AbstractContextManager[Bound]]
_FIRST_PARKED: Final = Position(PARKED, "")
LOOKED_AT: Final = 3
"""How many rows a step looks at for each that it may change."""
STRAY_STEPS: Final = 20
"""Steps that a call takes to find a parked message whose destination nobody knows to be paused."""


class _Step(Noun):
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
        of others. `still`: what else a wanted row satisfies unless somebody has changed it meanwhile.
        """
        table = self._sql.whole_table
        order = [table.c.next_attempt, table.c.message_id]
        behind = [] if after is None else [self._dialect.behind(order, values_of(order, after))]
        examine = LOOKED_AT * at_most
        columns = [*order, table.c.due_time, table.c.destination]
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
    """The next step may take as long as the one before: what has a time limit is a transaction, not a walk of many."""
    with elsewhere():
        pass


class _Walk:
    """Where a walk is. `take` takes the step behind a position."""

    def __init__(self, take: Callable[[Position | None], _Step]) -> None:
        self._take = take
        self._up_to: Position | None = None
        self.found = 0
        """What it would have changed, but did not, as it was claimed."""

    def step(self) -> _Step:
        """The next one."""
        step = self._take(self._up_to)
        self._up_to = step.end
        return step

    def go_on(self) -> int:
        """How many messages the next steps have changed; 0: it has come from the beginning to the end."""
        from_beginning, self.found = self._up_to is None, 0
        while True:
            step = self.step()
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
        self._parked_up_to: Position | None = None
        self._at_most, self._ahead = STEP, timedelta(0)
        self._shown, self._postponed = _Walk(self._unpark), _Walk(self._show_postponed)

    def park(self, until: datetime, at_most: int) -> int:
        """See `OperableDelayedMessageStore.park`."""
        check_number(at_most, "at_most")
        until, from_beginning = utc(until, "until"), self._parked_up_to is None
        while True:
            step = self._park(until, at_most)
            if step is None:
                return 0
            self._parked_up_to = step.end
            if step.changed:
                return step.changed
            if step.end is None:
                if from_beginning:
                    return 0
                from_beginning = True
            _begin_anew()

    def _park(self, until: datetime, at_most: int) -> _Step | None:
        """None: no destination is paused."""
        with self._opened() as bound:
            destinations = Destinations(bound)
            if not destinations.paused(lasting=False):
                return None
            destinations.begin_writing()
            paused, sql, step = set(destinations.paused(lasting=True)), bound.parts.statements, _Step(bound)
            next_attempt = sql.whole_table.c.next_attempt
            last = bound.parts.dialect.undisclosed(literal(until, UtcDateTime))
            due = [next_attempt <= last, next_attempt < literal(PARKED, UtcDateTime)]
            step.take(self._parked_up_to, at_most, due, lambda row: row.destination in paused, sql.park)
            return step

    def unpark(self, at_most: int, ahead: timedelta | None) -> int:
        """See `OperableDelayedMessageStore.unpark`.

        Where nothing is resuming, only strays may be shown: then it takes a few steps, and the next call goes on.
        """
        check_number(at_most, "at_most")
        self._at_most = at_most
        with self._opened() as bound:
            destinations = Destinations(bound)
            destinations.end_pauses()
            resuming = destinations.resuming()
        if not resuming:
            return self._unpark_strays()
        shown = self._shown.go_on()
        if not shown and ahead is not None and any(each.reach is not None for each in resuming):
            self._ahead = ahead
            shown = self._postponed.go_on()
        if not shown and not self._shown.found and not self._postponed.found:
            with self._opened() as bound:
                ended = [each for each in resuming if each.reach is None or ahead is not None]
                Destinations(bound).end_resuming(ended)
        return shown

    def _unpark_strays(self) -> int:
        for _ in range(STRAY_STEPS):
            step = self._shown.step()
            if step.changed or step.end is None:
                return step.changed
            _begin_anew()
        return 0

    def _unpark(self, up_to: Position | None) -> _Step:
        with self._opened() as bound:
            paused, sql, step = set(Destinations(bound).paused(lasting=False)), bound.parts.statements, _Step(bound)
            matches, after = [is_parked(sql.whole_table)], up_to or _FIRST_PARKED
            step.take(after, self._at_most, matches, lambda row: row.destination not in paused, sql.unpark)
            return _shown_by_now(bound, step)

    def _show_postponed(self, up_to: Position | None) -> _Step:
        """What is postponed beyond what its limit has promised: a limit of before has postponed it."""
        with self._opened() as bound:
            dialect, sql, step = bound.parts.dialect, bound.parts.statements, _Step(bound)
            resuming = [each for each in Destinations(bound).resuming() if each.reach is not None]
            if not resuming:
                return step
            behind = {each.destination.name: shown_by(each.promised, self._ahead, each.now) for each in resuming}
            last = max(shown_by(each.reach, self._ahead, each.now) for each in resuming)
            time = sql.whole_table.c.next_attempt
            until = dialect.undisclosed(literal(last, UtcDateTime))
            matches = [time > literal(min(behind.values()), UtcDateTime), time <= until]
            still = [is_postponed(sql.whole_table, dialect)]

            def is_wanted(row: Any) -> bool:
                if row.destination not in behind or row.next_attempt <= behind[row.destination]:
                    return False
                is_later = isinstance(row.due_time, datetime) and row.next_attempt > row.due_time
                return is_later and postponed_until(row.next_attempt) == row.next_attempt

            step.take(up_to, self._at_most, matches, is_wanted, sql.unpark, still)
            return _shown_by_now(bound, step)


def _shown_by_now(bound: Bound, step: _Step) -> _Step:
    """`step`, after which dispatchers search from the beginning."""
    if step.changed:
        bound.stored(EARLIEST_DUE_TIME)
    return step
