"""Destinations that are paused, limited, or resuming: a row for each."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import delete, insert, literal, or_, select, update
from sqlalchemy.exc import IntegrityError

from delaystore.message import check_destination, utc
from delaystore.sql.types import UtcDateTime
from delaystore.stores._allowances import Bucket, allowed, check_max_rate
from delaystore.stores.operable import Allowance, Destination
from delaystore.stores.sql.beside import NAME_BYTES, paused_names
from delaystore.stores.sql.operating._bound import Noun
from delaystore.stores.sql.operating._texts import fitting


class _Known(NamedTuple):
    """What a row says."""

    destination: Destination
    bucket: Bucket | None


class Destinations(Noun):
    """Those of one endpoint."""

    def all(self) -> Sequence[Destination]:
        """By name, as they are now."""
        table, now = self._tables.destinations, self._bound.now()
        says = or_(table.c.paused == 1, table.c.resuming == 1, table.c.max_rate.is_not(None))
        rows = self._execute(select(table).where(says).order_by(table.c.name))
        return [_known(row, now).destination for row in rows]

    def paused(self, *, lasting: bool) -> Sequence[str]:
        """The names of those that are paused; `lasting`: none of them resumes until the transaction ends."""
        found = paused_names(self._tables, self._bound.now())
        return self._execute(found.with_for_update(read=True) if lasting else found).scalars().all()

    def pause(self, name: str, by: str, until: datetime | None) -> None:
        """Paused from now on."""
        check_destination(name)
        until = None if until is None else utc(until, "until")
        known = self._locked(name, by)
        self._put(known.destination, known.bucket, paused=True, paused_until=until, resuming=False)

    def resume(self, name: str, by: str) -> bool:
        """Whether it was paused."""
        check_destination(name)
        known = self._locked(name, by)
        if not known.destination.paused:
            return False
        self._put(known.destination, self._forgiven(known), paused=False, paused_until=None, resuming=True)
        return True

    def limit(self, name: str, max_rate: float | None, by: str) -> None:
        """None: no limit."""
        check_destination(name)
        max_rate = check_max_rate(max_rate)
        known = self._locked(name, by)
        self._put(known.destination, None if max_rate is None else self._forgiven(known), max_rate=max_rate)
        self._forget(name)

    def allowance(self, name: str, wanted: int) -> Allowance:
        """What may go now counts as gone."""
        self.begin_writing()
        table = self._tables.destinations
        row = self._row(name)
        if row is None or row.max_rate is None:
            return Allowance(granted=wanted)
        now = self._bound.now()
        allowance, bucket = allowed(_bucket(row) or Bucket.full(now), row.max_rate, now, wanted)
        self._execute(
            update(table).where(table.c.name == name).values(full_at=bucket.full_at, promised=bucket.promised)
        )
        return allowance

    def end_pauses(self) -> None:
        """Let those resume whose time is over."""
        table, now = self._tables.destinations, self._bound.now()
        is_over = (table.c.paused == 1) & (table.c.paused_until <= literal(now, UtcDateTime))
        values = {"paused": 0, "paused_until": None, "resuming": 1, "promised": now}
        if self._execute(select(table.c.name).where(is_over)).first() is not None:
            self._execute(update(table).where(is_over).values(values))

    def resuming(self) -> Sequence[Destination]:
        """Those some of whose messages may still be parked."""
        return [each for each in self.all() if each.resuming]

    def end_resuming(self, shown: Sequence[Destination]) -> None:
        """None of the messages of `shown` is parked any more. Forgets those that say nothing by now.

        By name: a search would wait for other destinations' rows, which whoever parks has locked.
        """
        table = self._tables.destinations
        for each in shown:
            same = (table.c.name == each.name) & (table.c.changed == each.changed) & (table.c.resuming == 1)
            if self._execute(update(table).where(same).values(resuming=0)).rowcount:
                self._forget(each.name)

    def _locked(self, name: str, by: str) -> _Known:
        """What is known of it, as of now, to be changed by `by`; its row, if there is one, is locked."""
        self.begin_writing()
        row, now, by = self._row(name), self._bound.now(), fitting(by, NAME_BYTES)
        if row is None:
            return _Known(Destination(name=name, changed=now, by=by), None)
        known = _known(row, now)
        return known._replace(destination=replace(known.destination, changed=now, by=by))

    def _forget(self, name: str) -> None:
        """Delete its row if that says nothing."""
        table = self._tables.destinations
        says_nothing = (table.c.paused == 0) & (table.c.resuming == 0) & table.c.max_rate.is_(None)
        self._execute(delete(table).where(table.c.name == name, says_nothing))

    def _row(self, name: str) -> Any:
        table = self._tables.destinations
        return self._execute(select(table).where(table.c.name == name).with_for_update()).first()

    def _put(self, known: Destination, bucket: Bucket | None, **changes: Any) -> None:
        table, values = self._tables.destinations, _values(replace(known, **changes), bucket)
        changed = update(table).where(table.c.name == known.name).values(values)
        if self._execute(changed).rowcount:
            return
        try:
            with self._dialect.savepoint(self._bound.connection):
                self._bound.connection.execute(insert(table), values)
        except IntegrityError:  # somebody else was first
            self._execute(changed)

    def _forgiven(self, known: _Known) -> Bucket | None:
        return None if known.bucket is None else known.bucket.forgiven(self._bound.now())


def _known(row: Any, now: datetime) -> _Known:
    """What a row says at `now`: a pause whose time is over has ended."""
    is_over = bool(row.paused) and row.paused_until is not None and row.paused_until <= now
    destination = Destination(
        name=row.name,
        paused=bool(row.paused) and not is_over,
        paused_until=None if is_over else row.paused_until,
        resuming=bool(row.resuming) or is_over,
        max_rate=row.max_rate,
        changed=row.changed,
        by=row.changed_by,
    )
    bucket = _bucket(row)
    return _Known(destination, bucket.forgiven(now) if is_over and bucket is not None else bucket)


def _bucket(row: Any) -> Bucket | None:
    return None if row.full_at is None or row.promised is None else Bucket(row.full_at, row.promised)


def _values(known: Destination, bucket: Bucket | None) -> dict[str, Any]:
    return {
        "name": known.name,
        "paused": int(known.paused),
        "paused_until": known.paused_until,
        "resuming": int(known.resuming),
        "max_rate": known.max_rate,
        "full_at": None if bucket is None else bucket.full_at,
        "promised": None if bucket is None else bucket.promised,
        "changed": known.changed,
        "changed_by": known.by,
    }
