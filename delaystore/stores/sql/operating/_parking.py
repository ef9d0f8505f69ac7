"""Parking what is due at paused destinations, and showing it again: in small transactions, from where the last ended.

What comes first may be messages that are none of ours, a million of them; so a step goes on where the last one ended,
and nothing is left only once a walk from the beginning has found nothing.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from datetime import datetime

from sqlalchemy import ColumnElement, Update, literal, select

from delaystore.message import EARLIEST_DUE_TIME, PARKED, Position, position_of, utc
from delaystore.sql.types import UtcDateTime
from delaystore.stores._checks import check_number
from delaystore.stores.operable import EXAMINED, Destination
from delaystore.stores.sql._statements import is_parked
from delaystore.stores.sql.operating._bound import Bound, Noun
from delaystore.stores.sql.operating._destinations import Destinations
from delaystore.stores.sql.operating._search import Search
from delaystore.stores.sql.rows import has_position

Opened = Callable[[], AbstractContextManager[Bound]]
_FIRST_PARKED = Position(PARKED, "")


class _Step(Noun):
    """One transaction of a walk: `found` of those it has looked at, `changed` of these, and where the next begins."""

    found = changed = 0
    end: Position | None = None

    def take(
        self,
        after: Position | None,
        at_most: int,
        range_: Sequence[ColumnElement[bool]],
        matches: Sequence[ColumnElement[bool]],
        change: Update,
    ) -> None:
        """Change the first `at_most` rows that match, of a range of positions, and that nobody has claimed."""
        table = self._sql.whole_table
        walked = Search(self._bound).positions(after, EXAMINED, *range_)
        order = table.c.next_attempt, table.c.message_id
        search = select(*order).where(*walked.conditions, *matches).order_by(*order).limit(at_most)
        rows = [row for row in self._execute(search) if has_position(row)]
        self.found, self.end = len(rows), walked.end
        if len(rows) == at_most:
            self.end = position_of(rows[-1])
        if rows:
            ids, now = [row.message_id for row in rows], self._bound.now()
            changed = self._dialect.change_unclaimed_of(
                self._bound.connection, table, change, ids, [*range_, *matches], {}, now
            )
            self.changed = len(changed)


class Parking:
    """Where the walks of one store are. `opened` opens a transaction that finds rows by index."""

    def __init__(self, opened: Opened) -> None:
        self._opened = opened
        self._parked_up_to: Position | None = None
        self._shown_up_to: Position | None = None

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

    def _park(self, until: datetime, at_most: int) -> _Step | None:
        """None: no destination is paused."""
        with self._opened() as bound:
            destinations = Destinations(bound)
            if not destinations.paused(lasting=False):
                return None
            destinations.begin_writing()
            names, table = destinations.paused(lasting=True), bound.parts.statements.whole_table
            step, parked = _Step(bound), literal(PARKED, UtcDateTime)
            range_ = [table.c.next_attempt <= literal(until, UtcDateTime), table.c.next_attempt < parked]
            step.take(
                self._parked_up_to, at_most, range_, [table.c.destination.in_(names)], bound.parts.statements.park
            )
            return step

    def unpark(self, at_most: int) -> int:
        """See `OperableDelayedMessageStore.unpark`.

        Where nothing is resuming, only strays can be parked: then it takes one step alone.
        """
        check_number(at_most, "at_most")
        with self._opened() as bound:
            destinations = Destinations(bound)
            destinations.end_pauses()
            resuming = destinations.resuming()
        return self._unpark_all(resuming, at_most) if resuming else self._unpark(at_most).changed

    def _unpark_all(self, resuming: Sequence[Destination], at_most: int) -> int:
        from_beginning, found = self._shown_up_to is None, 0
        while True:
            step = self._unpark(at_most)
            if step.changed:
                return step.changed
            found += step.found
            if step.end is None:
                if from_beginning:
                    break
                from_beginning, found = True, 0
        if not found:
            with self._opened() as bound:
                Destinations(bound).end_resuming(resuming)
        return 0

    def _unpark(self, at_most: int) -> _Step:
        with self._opened() as bound:
            sql, paused, step = bound.parts.statements, Destinations(bound).paused(lasting=False), _Step(bound)
            table = sql.whole_table
            range_ = [table.c.next_attempt >= literal(PARKED, UtcDateTime)]
            matches = [is_parked(table), *([table.c.destination.not_in(paused)] if paused else [])]
            after = self._shown_up_to or _FIRST_PARKED
            step.take(after, at_most, range_, matches, sql.unpark)
            self._shown_up_to = step.end
            if step.changed:
                bound.stored(EARLIEST_DUE_TIME)  # dispatchers search from the beginning
            return step
