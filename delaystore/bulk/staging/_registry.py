"""The registry of loads: which process has which, which are finished, and the remains of abandoned ones."""

import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from operator import gt, lt
from typing import Any, Final

from sqlalchemy import Connection, Row, case, delete, func, literal, null, select, update
from sqlalchemy.exc import IntegrityError

from delaystore.bulk.options import is_unnamed
from delaystore.bulk.staging._database import LoadDatabase
from delaystore.bulk.staging.abc import Cleaned, FinishedLoad, LoadKey, LoadOwner, LoadState, LoadStatus
from delaystore.errors import ConfigurationError, LoadInProgressError
from delaystore.stores.records import name_of_load
from delaystore.stores.sql.faults import Fault
from delaystore.stores.sql.schema import is_cancelled, is_of_load, pause_removal, paused_names
from delaystore.text import time_text

# The registry of loads: which process has which, and which are finished.

LOCK_TIMEOUT: Final = 10.0
"""Seconds that a load waits for another process that is promoting the same, or for a killed one's last statement."""
_POLL: Final = 0.1
_NOTHING_YET: Final = dict.fromkeys(
    ("cancelled_at", "cancelled_by", "messages", "rejected", "first_due", "last_due"), null()
)
"""The columns of a load whose cancelled run is forgotten."""
_RowOf = Row[*tuple[Any, ...]]


class Registry:
    """The rows of one endpoint's loads."""

    def __init__(self, database: LoadDatabase) -> None:
        self._database = database
        self._table, self._tables = database.registry, database.tables

    def take(
        self, key: LoadKey, token: str, owner: LoadOwner, lease: timedelta, *, again: bool = False
    ) -> FinishedLoad | None:
        """Have the load for the run `token`, from now until its lease ends; a finished one is returned.

        Raises LoadInProgressError while another run has it, and ConfigurationError for a cancelled one, unless `again`:
        then it is another load of the same id, once no message of the cancelled one waits. The row stays cancelled
        until that load is finished.
        """
        with self._locking(key, owner) as (connection, row, now):
            if row.cancelled_at is not None:
                if not again:
                    raise cancelled_error(status_of(row, now))
                if self._waits(connection, row.number):
                    raise ConfigurationError(
                        f"the load {key.load_id!r} is not loaded again, because messages of it still wait; run its "
                        "cancel to the end first (delaystore loads cancel)"
                    )
            elif (finished := finished_load(row, key)) is not None:
                return finished
            if row.token not in (None, token) and not is_abandoned(row, now):
                raise LoadInProgressError(
                    f"the load {key.load_id!r} is in progress: {owner_of(row)}, since {time_text(row.began)}, last "
                    f"seen {time_text(row.heartbeat)}; wait for it, or until {time_text(row.lease_until)} if it "
                    "has died"
                )
            if is_cancelled(row):
                connection.execute(self._update(key.load_id).values(finished_at=null()))
                self._forget_pause(connection, row.number)
            self._give(connection, key, token, owner, now, lease)
        return None

    def join(self, key: LoadKey, token: str, owner: LoadOwner, lease: timedelta) -> FinishedLoad | str:
        """As `take`, but shared: the token of the run that has the load, which is `token` if none had it.

        The first to join may be on an executor that ends before the stream does, so the lease ends by time alone.
        """
        with self._locking(key, owner) as (connection, row, now):
            if (finished := finished_load(row, key)) is not None:
                return finished
            current = token if row.token is None else str(row.token)
            self._give(connection, key, current, LoadOwner(owner.host, owner.pid), now, lease)
        return current

    @contextmanager
    def _locking(self, key: LoadKey, owner: LoadOwner) -> Iterator[tuple[Connection, _RowOf, datetime]]:
        """The load's row, made if there is none, and locked; and the time."""
        deadline = time.monotonic() + LOCK_TIMEOUT
        while True:
            with self._database.writing() as bound:
                now = self._database.store.now()
                row = self._locked_or_new(bound.connection, key, owner, now)
                if row is not None:
                    if row.is_stream != int(key.batch is not None):
                        kind = "a stream" if row.is_stream else "a load"
                        raise ConfigurationError(f"the load id {key.load_id!r} belongs to {kind}; choose another")
                    yield bound.connection, row, now
                    return
            if time.monotonic() > deadline:
                raise LoadInProgressError(
                    f"the load {key.load_id!r} is just being finished by another process; try again later"
                )
            time.sleep(_POLL)

    def _give(
        self, connection: Connection, key: LoadKey, token: str, owner: LoadOwner, now: datetime, lease: timedelta
    ) -> None:
        same = self._table.c.token == token
        values: dict[str, Any] = {"heartbeat": now, "lease_until": now + lease}
        if not connection.execute(self._update(key.load_id).where(same).values(values)).rowcount:
            columns = self._table.c  # a stream that goes on is the same load, which operations may be changing
            began = case((columns.finished_at.is_(None), literal(now, columns.began.type)), else_=columns.began)
            values |= {"token": token, "began": began, **_values_of(owner)}
            connection.execute(self._update(key.load_id).values(values))
            without = self._update(key.load_id).where(self._table.c.number.is_(None))  # an earlier release has made it
            connection.execute(without.values(number=new_number()))

    def _locked_or_new(self, connection: Connection, key: LoadKey, owner: LoadOwner, now: datetime) -> _RowOf | None:
        """The load's row, locked; made if there is none. None: another process has it locked."""
        known = select(self._table.c.load_id).where(self._table.c.load_id == key.load_id)
        if connection.execute(known).first() is None:
            times = {"began": now, "heartbeat": now, "lease_until": now}
            kind = {"is_stream": int(key.batch is not None), "number": new_number()}
            values = {"load_id": key.load_id, **kind, **_values_of(owner), **times}
            try:
                connection.execute(self._database.dialect.insert(self._table), values)
            except IntegrityError as error:  # another process was quicker
                if self._database.dialect.fault(error) is not Fault.DUPLICATE:
                    raise
        return self.locked(connection, key.load_id)

    def locked(self, connection: Connection, load_id: str, *, wait: bool = False) -> _RowOf | None:
        """The load's row, locked; None: there is none, or another process has it locked and `wait` is False."""
        rows = select(self._table).where(self._table.c.load_id == load_id)
        return connection.execute(rows.with_for_update(skip_locked=not wait)).first()

    def renew(self, token: str, lease: timedelta) -> bool:
        """Let the lease of a run begin again. False: the load is not that run's any more."""
        with self._database.writing() as bound:
            row = self._of_run(bound.connection, token)
            if row is None:
                return False
            if self.locked(bound.connection, row.load_id) is not None:  # else it is just being promoted
                self.prolong(bound.connection, row.load_id, token, lease)
            return True

    def prolong(self, connection: Connection, load_id: str, token: str, lease: timedelta) -> None:
        """As `renew`, in a transaction that has the load's row locked."""
        now = self._database.store.now()
        change = self._update(load_id).where(self._table.c.token == token)
        connection.execute(change.values(heartbeat=now, lease_until=now + lease))

    def finish(self, connection: Connection, load: FinishedLoad, rejected: int, due: Sequence[Any]) -> None:
        """Note that the load is finished, in the transaction that stores it; its row is locked. A stream goes on.

        `due`: the first and the last due time of its messages; none where it has no messages.
        """
        columns, key, now = self._table.c, load.key, load.finished_at
        again = self._update(key.load_id).where(columns.cancelled_at.is_not(None)).values(_NOTHING_YET)
        if key.batch is None and connection.execute(again).rowcount:  # no stream is cancelled as a whole
            self._forget_changes(connection, key.load_id)
        values = {"heartbeat": now, "finished_at": now, "batch": key.batch} | {
            "stored": load.stored,
            "skipped": load.skipped,
            "messages": func.coalesce(columns.messages, 0) + load.stored,
            "rejected": func.coalesce(columns.rejected, 0) + rejected,
        }
        if key.batch is None:
            values["token"] = None
        for column, due_time, is_further in zip((columns.first_due, columns.last_due), due, (lt, gt), strict=False):
            new = literal(due_time, column.type)
            values[column.name] = case((column.is_(None) | is_further(new, column), new), else_=column)
        connection.execute(self._update(key.load_id).values(values))

    def release(self, connection: Connection, row: _RowOf) -> bool:
        """Take the load, whose row is locked, from its run. Returns whether it is forgotten, as it never finished
        anything; unless its next run is to find it paused or cancelled.
        """
        is_kept = row.cancelled_at is not None or self._is_paused(connection, row.number)
        if row.finished_at is None and (is_unnamed(row.load_id) or not is_kept):
            self._forget(connection, row)
            return True
        connection.execute(self._update(row.load_id).values(token=None))
        return False

    def discard(self, token: str) -> None:
        """Give a load up, if that run has it."""
        with self._database.writing() as bound:
            found = self._of_run(bound.connection, token)
            row = None if found is None else self.locked(bound.connection, found.load_id, wait=True)
            if row is not None and row.token == token:
                self.release(bound.connection, row)

    def forget_unnamed(self, before: datetime) -> None:
        """Forget the loads without a name that were finished before then, unless a message of theirs waits.

        One whose last due time lies after `before` is not looked at.
        """
        columns = self._table.c
        ended = (columns.finished_at < before) & (func.coalesce(columns.last_due, columns.finished_at) < before)
        finished = select(columns.load_id, columns.number).where(columns.is_stream == 0, ended)
        with self._database.writing() as bound:
            for row in bound.connection.execute(finished).all():
                if is_unnamed(row.load_id) and not self._waits(bound.connection, row.number):
                    self._forget(bound.connection, row)

    def _forget(self, connection: Connection, row: _RowOf) -> None:
        """Delete all that is known of a load none of whose messages waits."""
        self._forget_changes(connection, row.load_id)
        self._forget_pause(connection, row.number)
        connection.execute(delete(self._table).where(self._table.c.load_id == row.load_id))

    def _forget_changes(self, connection: Connection, load_id: str) -> None:
        changes, columns = self._tables.load_changes, self._table.c
        number = select(columns.number).where(columns.load_id == load_id).scalar_subquery()
        connection.execute(delete(changes).where(changes.c.load_number == number))

    def _forget_pause(self, connection: Connection, number: int | None) -> None:
        if number is not None:
            connection.execute(pause_removal(self._tables, number))

    def _is_paused(self, connection: Connection, number: int | None) -> bool:
        if number is None:
            return False
        names = paused_names(self._tables, self._database.store.now(), [name_of_load(number)])
        return connection.execute(names).first() is not None

    def rows(self, connection: Connection, load_id: str | None = None) -> Sequence[_RowOf]:
        """All loads, the newest last; or the one of that id, if there is one."""
        wanted = select(self._table).order_by(self._table.c.began, self._table.c.load_id)
        return connection.execute(wanted if load_id is None else wanted.where(self._table.c.load_id == load_id)).all()

    def _waits(self, connection: Connection, number: int | None) -> bool:
        """Whether a message of the load waits, by its index."""
        if number is None:
            return False
        live = self._database.live
        found = select(live.c.message_id).where(is_of_load(live, number)).order_by(live.c.message_id).limit(1)
        return connection.execute(found).first() is not None

    def _of_run(self, connection: Connection, token: str) -> _RowOf | None:
        return connection.execute(select(self._table).where(self._table.c.token == token)).first()

    def _update(self, load_id: str) -> Any:
        return update(self._table).where(self._table.c.load_id == load_id)


def new_number() -> int:
    """A number for a load, which its messages have; the registry refuses one that is taken."""
    return secrets.randbelow(2**31)


def cancelled_error(load: LoadStatus) -> ConfigurationError:
    """The refusal to run a load that was cancelled."""
    at = "" if load.cancelled_at is None else f" at {time_text(load.cancelled_at)}"
    return ConfigurationError(
        f"the load {load.load_id!r} was cancelled by {load.cancelled_by}{at}, and is not loaded again; choose another "
        "load id, or set the option again, which loads it once more"
    )


def finished_load(row: _RowOf, key: LoadKey) -> FinishedLoad | None:
    """The report of `row` about a finished load; for an earlier batch of a stream, about the last one."""
    if row.finished_at is None or (key.batch is not None and row.batch < key.batch):
        return None
    return FinishedLoad(LoadKey(row.load_id, row.batch), row.finished_at, row.stored, row.skipped)


def is_abandoned(row: _RowOf, now: datetime) -> bool:
    """Whether the run that has the load shows no more signs of life: its lease or its process has ended."""
    return bool(row.lease_until <= now) or owner_of(row).has_ended()


def status_of(row: _RowOf, now: datetime) -> LoadStatus:
    """A row, for people."""
    state = LoadState.ABANDONED if row.finished_at is None else LoadState.FINISHED
    if row.token is not None and not is_abandoned(row, now):
        state = LoadState.RUNNING
    return LoadStatus(
        load_id=row.load_id,
        state=state,
        batch=row.batch,
        host=row.host,
        pid=row.pid,
        began=row.began,
        heartbeat=row.heartbeat,
        finished_at=row.finished_at,
        stored=row.stored,
        skipped=row.skipped,
        cancelled_at=row.cancelled_at,
        cancelled_by=row.cancelled_by,
        rejected=row.rejected,
    )


def owner_of(row: _RowOf) -> LoadOwner:
    """Who has the load, or had it last."""
    return LoadOwner(row.host, row.pid, row.place, row.process_started)


def _values_of(owner: LoadOwner) -> dict[str, Any]:
    return {"host": owner.host, "pid": owner.pid, "place": owner.system, "process_started": owner.started}


# What abandoned loads left, and its removal.

UNNAMED_KEPT: Final = timedelta(days=1)
"""How long a load without a name is remembered, so that its own process can look up its result."""


def clean_up(database: LoadDatabase, own: str | None = None) -> Cleaned:
    """Forget abandoned loads, and drop every staging that no living load has; the run `own` is alive.

    A load is registered before its staging is made. So stagings are listed first, and loads after: a staging whose
    load is not found has none.
    """
    names, registry = database.staging_names(), Registry(database)
    forgotten: list[str] = []
    kept: set[str] = set()
    if database.has(database.registry):
        forgotten = _forget(database, registry, own)
        registry.forget_unnamed(database.store.now() - UNNAMED_KEPT)
        with database.reading() as connection:
            kept = {database.staging(row.token).name for row in registry.rows(connection) if row.token is not None}
    dropped: list[str] = []
    in_use: list[str] = []
    for name in names:
        if name not in kept:
            (dropped if database.drop(name) else in_use).append(name)
    return Cleaned(tuple(forgotten), tuple(dropped), tuple(in_use))


def _may_be_forgotten(row: _RowOf, own: str | None, now: datetime) -> bool:
    """Whether a run has abandoned the load, or it waits for the end of its pause since; the run `own` is alive."""
    is_known = row.token is None and (row.finished_at is not None or row.cancelled_at is not None)
    return not is_known and (own is None or row.token != own) and is_abandoned(row, now)


def _forget(database: LoadDatabase, registry: Registry, own: str | None) -> list[str]:
    """A load that is being promoted has its row locked, and is passed over, however old its lease."""
    forgotten = []
    with database.writing() as bound:
        now = database.store.now()
        for found in registry.rows(bound.connection):
            if not _may_be_forgotten(found, own, now):
                continue
            row = registry.locked(bound.connection, found.load_id)
            if row is not None and _may_be_forgotten(row, own, now) and registry.release(bound.connection, row):
                forgotten.append(row.load_id)
    return forgotten
