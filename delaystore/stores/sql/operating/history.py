"""The history: whether it is kept, its entries, and its clean-up."""

from collections.abc import Callable, Collection, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

from sqlalchemy import ColumnElement, Table, and_, delete, insert, or_, select, update
from sqlalchemy.exc import IntegrityError

from delaystore.message import Position, failures_in
from delaystore.stores.history import (
    FORGOTTEN_AT_ONCE,
    HistoryEntry,
    HistoryFilter,
    HistoryPage,
    HistoryStatus,
)
from delaystore.stores.operable import EXAMINED, STEP
from delaystore.stores.records import DELIVERED, Ending
from delaystore.stores.shared import check_number
from delaystore.stores.sql import setup
from delaystore.stores.sql._parts import ASKED_AGAIN, HISTORY, HistorySetting
from delaystore.stores.sql.codec import LOAD, MESSAGE_KEY
from delaystore.stores.sql.errors import translated_errors
from delaystore.stores.sql.operating._search import OperatorQueries, values_of, walk
from delaystore.stores.sql.rows import time_or_earliest
from delaystore.stores.sql.urls import history_partition_name


class HistoryQueries(OperatorQueries):
    """Those of one endpoint."""

    def keep_history(self, kept: timedelta | None) -> None:
        """See `StoreWithHistory.keep_history`."""
        self._require()
        bound, before = self._bound, self._setting()
        if kept is None:
            wanted = None if before is None else HistorySetting(before.kept, None)
        else:
            since = None if before is None else before.since
            if before is not None and since is not None and before.kept < kept:
                since = max(since, bound.now() - before.kept)  # older entries are deleted already
            wanted = HistorySetting(kept, since or bound.now() + timedelta(seconds=ASKED_AGAIN))
        if wanted != before and wanted is not None:
            self.begin_writing()
            self._put(wanted)
            wanted = self._setting()
        bound.parts.history.note(wanted)

    def history_status(self) -> HistoryStatus:
        """The database keeps the sizes in its catalog."""
        if not self._is_there:
            return HistoryStatus()
        setting = self._setting()
        with translated_errors():
            sizes = self._dialect.sizes(self._bound.connection, self._tables.history)
        rows = [each.rows for each in sizes if each.rows is not None]
        entries = sum(rows) if len(rows) == len(sizes) else None
        is_own = not self._dialect.is_file  # SQLite knows the size of the whole file alone
        size = sum(each.data_bytes + (each.index_bytes or 0) for each in sizes) if is_own else None
        kept = None if setting is None or setting.since is None else setting.kept
        since = None if setting is None else setting.since
        if kept is not None and since is not None:
            since = max(since, self._bound.now() - kept)
        return HistoryStatus(kept=kept, since=since, entries=entries, size=size)

    def history(self, wanted: HistoryFilter, *, after: Position | None = None, limit: int = 100) -> HistoryPage:
        """See `StoreWithHistory.history`."""
        check_number(limit, "limit")
        self._require()
        ended_at, message_id = self._order
        newest = [ended_at.desc(), message_id.desc()]
        times = [] if after is None else [self._is_older(after)]
        if wanted.since is not None:
            times.append(ended_at >= wanted.since)
        if wanted.until is not None:
            times.append(ended_at < wanted.until)
        conditions, end = [*times, *self._of_columns(wanted)], None
        if wanted.message_id is None and wanted.key is None:  # these have an index
            walked = walk(
                lambda statement: self._execute(statement).all(),
                select(ended_at, message_id).order_by(*newest),
                times,
                EXAMINED,
                _position,
                self._is_up_to,
            )
            conditions, end = [*walked.conditions, *self._of_columns(wanted)], walked.end
        chosen, loads = select(self._tables.history).where(*conditions), self._tables.loads
        if wanted.message_id is not None or wanted.key is not None:
            # A fence: PostgreSQL would otherwise walk the index by time, which has the order, to find few entries.
            found = chosen.offset(0).subquery("found")
        else:
            found = chosen.order_by(*newest).limit(limit + 1).subquery("found")
        joined = found.outerjoin(loads, found.c[LOAD] == loads.c.number)
        shown = select(found, loads.c.load_id).select_from(joined)
        rows = self._execute(shown.order_by(found.c.ended_at.desc(), found.c.message_id.desc()).limit(limit + 1)).all()
        if len(rows) > limit:
            rows = rows[:limit]
            end = _position(rows[-1])
        return HistoryPage([_entry_of(row) for row in rows], end)

    def delivered_ids(self, message_ids: Sequence[str]) -> Collection[str]:
        """Those of the ids whose messages were delivered, or handed over to a native delay."""
        table, found = self._tables.history, set[str]()
        these = select(table.c.message_id).where(self._dialect.among(table.c.message_id, "ids"), is_delivered(table))
        for first in range(0, len(message_ids), STEP):
            ids = {"ids": [*message_ids[first : first + STEP]]}
            found.update(self._execute(these.distinct(), ids).scalars())
        return found

    def forget_history(self, at_most: int = FORGOTTEN_AT_ONCE) -> int:
        """See `StoreWithHistory.forget_history`."""
        check_number(at_most, "at_most")
        setting = self._setting()
        if setting is None:
            return 0
        table = self._dialect.without_dated_partitions(self._tables.history, self._partition_name)
        order: list[ColumnElement[Any]] = [table.c.ended_at, table.c.message_id]
        is_old = table.c.ended_at < self._bound.now() - setting.kept
        oldest = select(*order).where(is_old).order_by(*order)
        row = self._execute(oldest.offset(at_most - 1).limit(1)).first()
        up_to = [] if row is None else [self._dialect.up_to(order, values_of(order, _position(row)))]
        return self._execute(delete(table).where(is_old, *up_to)).rowcount

    def partition(self) -> None:
        """Make and drop partitions, where the database has some; commits."""
        bound, setting = self._bound, self._setting()
        if setting is not None:
            history, name = self._tables.history, self._partition_name
            with translated_errors():
                self._dialect.partition_history(bound.connection, history, name, bound.now(), setting.kept)

    @property
    def _partition_name(self) -> Callable[[str], str]:
        return partial(history_partition_name, self._sql.table.name, dialect=self._dialect)

    def _put(self, setting: HistorySetting) -> None:
        settings, connection = self._tables.settings, self._bound.connection
        with translated_errors():
            changing = update(settings).where(settings.c.name == HISTORY).values(value=setting.text())
            if connection.execute(changing).rowcount:
                return
            try:
                with self._dialect.savepoint(connection):
                    connection.execute(insert(settings), {"name": HISTORY, "value": setting.text()})
            except IntegrityError:  # another dispatcher, which starts at the same time, has just done it
                return

    @property
    def _order(self) -> list[ColumnElement[Any]]:
        table = self._tables.history
        return [table.c.ended_at, table.c.message_id]

    def _is_older(self, position: Position) -> ColumnElement[bool]:
        """Whether an entry comes behind a position, the newest first; a bound on the time alone is for the index."""
        ended_at, message_id = self._order
        time, last = values_of(self._order, position)
        return and_(ended_at <= time, or_(ended_at < time, message_id < last))

    def _is_up_to(self, end: Position) -> ColumnElement[bool]:
        """Whether an entry comes at a position, or ahead of it."""
        ended_at, message_id = self._order
        time, last = values_of(self._order, end)
        return and_(ended_at >= time, or_(ended_at > time, message_id >= last))

    def _of_columns(self, wanted: HistoryFilter) -> list[ColumnElement[bool]]:
        table, ending = self._tables.history, wanted.ending
        known = {
            "message_id": wanted.message_id,
            MESSAGE_KEY: wanted.key,
            "destination": wanted.destination,
            "ending": None if ending is None else ending.value,
        }
        return [table.c[name] == value for name, value in known.items() if value is not None]

    def _setting(self) -> HistorySetting | None:
        with translated_errors():
            return self._bound.parts.history.read(self._bound.connection) if self._is_there else None

    @property
    def _is_there(self) -> bool:
        """Whether the tables have a history; False: they are of an earlier release."""
        return self._bound.parts.version.is_from(setup.HISTORIC, self._bound.connection)

    def _require(self) -> None:
        """Raise StoreSetupError for tables of an earlier release."""
        self.require(setup.HISTORIC, "a history")


def is_delivered(history: Table) -> ColumnElement[bool]:
    """Whether an entry is of a message that was delivered, or handed over to a native delay."""
    return history.c.ending.in_([ending.value for ending in DELIVERED])


def _position(row: Any) -> Position:
    return Position(time_or_earliest(row.ended_at), row.message_id)


def _entry_of(row: Any) -> HistoryEntry:
    return HistoryEntry(
        message_id=row.message_id,
        destination=row.destination,
        due_time=time_or_earliest(row.due_time),
        ended=time_or_earliest(row.ended_at),
        ending=Ending(row.ending),
        attempts=row.attempts,
        key=row.message_key,
        load=row.load_id,
        by=row.ended_by,
        body_hash=None if row.body_hash is None else bytes(row.body_hash).hex(),
        failures=failures_in(row.failures),
    )
