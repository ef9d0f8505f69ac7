"""Destinations that are paused, limited, or resuming: a row for each."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final, NamedTuple, Self

from sqlalchemy import Select, delete, insert, null, or_, select, update
from sqlalchemy.exc import IntegrityError

from delaystore.message import check_destination, utc
from delaystore.stores._allowances import Bucket, allowed, check_max_rate
from delaystore.stores.operable import FURTHEST, Allowance, Destination
from delaystore.stores.sql.beside import NAME_BYTES, paused_names
from delaystore.stores.sql.operating._bound import Noun
from delaystore.stores.sql.operating._texts import fitting

_READ_AT: Final = "read_at"
"""The column of the database's clock."""


class _Known(NamedTuple):
    """What a row says. `reach`: up to when its messages may be postponed that are to be shown; None: there are none.

    While it is paused, the bucket keeps that. In the table it is `paused_until` of what is not paused. Dispatchers of
    earlier builds do not know it, and set `resuming` to 0 before such messages are shown: with a reach it is resuming.
    """

    destination: Destination
    bucket: Bucket | None
    reach: datetime | None = None

    def with_promises(self) -> Bucket | None:
        """The bucket with all that was promised, to be forgiven later."""
        if self.bucket is None or self.reach is None:
            return self.bucket
        return replace(self.bucket, promised=max(self.bucket.promised, self.reach))

    def forgiven(self, now: datetime) -> Self:
        """Without promises: what is postponed is to be shown, unless it is paused."""
        bucket, reach = self.bucket, self.reach
        if self.destination.paused or bucket is None:
            return self
        if bucket.has_promised(now):
            reach = max(reach or now, bucket.promised, now + FURTHEST)
        destination = replace(self.destination, resuming=self.destination.resuming or reach is not None)
        return self._replace(destination=destination, bucket=bucket.forgiven(now), reach=reach)


class Resuming(NamedTuple):
    """A destination that is resuming. `promised`: the last time given under its limit; None: it has none."""

    destination: Destination
    promised: datetime | None
    reach: datetime | None
    now: datetime
    """When the row was read."""


class Destinations(Noun):
    """Those of one endpoint.

    The statement that reads a row also reads the database's clock. After a step back of that clock, connections that
    carried earlier readings on would differ for seconds: one would postpone messages, or end their search, by a time
    that the other no longer knows.
    """

    def all(self) -> Sequence[Destination]:
        """By name, as they are now."""
        return [_known(row, now).destination for row, now in self._rows()]

    def _rows(self) -> Sequence[tuple[Any, datetime]]:
        """Those that say something, by name, and when each was read."""
        table = self._tables.destinations
        says = or_(table.c.paused == 1, table.c.resuming == 1, table.c.max_rate.is_not(None))
        return [(row, self._read_at(row)) for row in self._execute(self._select().where(says).order_by(table.c.name))]

    def _select(self) -> Select[Any]:
        clock = self._dialect.clock()
        return select(self._tables.destinations, (null() if clock is None else clock).label(_READ_AT))

    def _read_at(self, row: Any) -> datetime:
        return self._bound.parts.clock.now_as_told(row._mapping[_READ_AT])

    def paused(self, *, lasting: bool) -> Sequence[str]:
        """The names of those that are paused; `lasting`: none of them resumes until the transaction ends."""
        found = paused_names(self._tables, self._bound.now())
        return self._execute(found.with_for_update(read=True) if lasting else found).scalars().all()

    def pause(self, destination: str, *, by: str, until: datetime | None = None) -> None:
        """Paused from now on."""
        check_destination(destination)
        until = None if until is None else utc(until, "until")
        known = self._locked(destination, by)
        changed = replace(known.destination, paused=True, paused_until=until, resuming=False)
        self._put(_Known(changed, known.with_promises()))

    def resume(self, destination: str, *, by: str) -> bool:
        """Whether it was paused. Waits for passes of dispatchers that have just parked messages for it."""
        check_destination(destination)
        known = self._locked(destination, by)
        if not known.destination.paused:
            return False
        self._put(_resumed(known, known.destination.changed))
        return True

    def limit(self, destination: str, max_rate: float | None, *, by: str) -> None:
        """None: no limit."""
        check_destination(destination)
        max_rate = check_max_rate(max_rate)
        known = self._locked(destination, by)
        known = known.forgiven(known.destination.changed)
        self._put(known._replace(destination=replace(known.destination, max_rate=max_rate)))
        self._forget(destination)

    def allowance(self, destination: str, wanted: int) -> Allowance:
        """What may go now counts as gone."""
        self.begin_writing()
        table = self._tables.destinations
        row = self._row(destination)
        if row is None or row.max_rate is None:
            return Allowance(granted=wanted)
        now = self._read_at(row)
        known = _known(row, now)
        allowance, bucket = allowed(known.bucket or Bucket.full(now), row.max_rate, now, wanted)
        self._execute(update(table).where(table.c.name == destination).values(_values(known._replace(bucket=bucket))))
        return allowance

    def end_pauses(self) -> None:
        """Let those resume whose time is over, or whose postponed messages would wait for a time of another clock."""
        for name in [row.name for row, now in self._rows() if _known(row, now) != _known(row, None)]:
            self.begin_writing()
            row = self._row(name)
            if row is not None:
                self._put(_known(row, self._read_at(row)))

    def resuming(self) -> Sequence[Resuming]:
        """Those some of whose messages may still be parked or postponed."""
        found = [(known, now) for row, now in self._rows() if (known := _known(row, now)).destination.resuming]
        return [
            Resuming(each, None if each.max_rate is None else now if bucket is None else bucket.promised, reach, now)
            for (each, bucket, reach), now in found
        ]

    def end_resuming(self, shown: Sequence[Resuming]) -> None:
        """None of the messages of `shown` is parked or postponed any more. Forgets those that say nothing by now.

        By name: a search would wait for other destinations' rows, which whoever parks has locked. A row may have a
        further reach by now although nobody has changed it: where the clock stepped back.
        """
        table = self._tables.destinations
        for each, _, reach, _ in shown:
            same = (table.c.name == each.name) & (table.c.changed == each.changed) & (table.c.paused == 0)
            ended = update(table).where(same, table.c.paused_until == reach).values(resuming=0, paused_until=None)
            if self._execute(ended).rowcount:
                self._forget(each.name)

    def _locked(self, name: str, by: str) -> _Known:
        """What is known of it, as of now, to be changed by `by`; its row, if there is one, is locked."""
        self.begin_writing()
        row, by = self._row(name), fitting(by, NAME_BYTES)
        if row is None:
            return _Known(Destination(name=name, changed=self._bound.now(), by=by), None)
        now = self._read_at(row)
        known = _known(row, now)
        return known._replace(destination=replace(known.destination, changed=now, by=by))

    def _forget(self, name: str) -> None:
        """Delete its row if that says nothing."""
        table = self._tables.destinations
        says_nothing = (table.c.paused == 0) & (table.c.resuming == 0) & table.c.max_rate.is_(None)
        self._execute(delete(table).where(table.c.name == name, says_nothing))

    def _row(self, name: str) -> Any:
        return self._execute(self._select().where(self._tables.destinations.c.name == name).with_for_update()).first()

    def _put(self, known: _Known) -> None:
        table, values = self._tables.destinations, _values(known)
        changed = update(table).where(table.c.name == known.destination.name).values(values)
        if self._execute(changed).rowcount:
            return
        try:
            with self._dialect.savepoint(self._bound.connection):
                self._bound.connection.execute(insert(table), values)
        except IntegrityError:  # somebody else was first
            self._execute(changed)


def _known(row: Any, now: datetime | None) -> _Known:
    """What a row says at `now`: a pause whose time is over has ended, and so have promises of another clock.

    None: as it was when it was written.
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
    known = _Known(destination, bucket, reach)
    if now is not None and destination.paused_until is not None and destination.paused_until <= now:
        return _resumed(known, now)
    if now is not None and bucket is not None and bucket.is_of_another_clock(now):
        return known.forgiven(now)
    return known


def _resumed(known: _Known, now: datetime) -> _Known:
    resumed = replace(known.destination, paused=False, paused_until=None, resuming=True)
    return known._replace(destination=resumed).forgiven(now)


def _values(row: _Known) -> dict[str, Any]:
    known, bucket, reach = row
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
