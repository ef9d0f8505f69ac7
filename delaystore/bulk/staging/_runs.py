"""One run of a load, staged in a table beside the one of waiting messages."""

import logging
import os
import secrets
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from datetime import timedelta
from itertools import islice
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import select
from typing_extensions import override

from delaystore.bulk.columns import STAGED
from delaystore.bulk.options import OnDuplicate, StoreOptions, WriteOptions
from delaystore.bulk.staging._database import LoadDatabase, kept_database, load_database
from delaystore.bulk.staging._promotion import Promotion, Rules
from delaystore.bulk.staging._registry import Registry, clean_up, status_of
from delaystore.bulk.staging.abc import (
    AttemptSink,
    FinishedLoad,
    Lease,
    LoadKey,
    LoadOwner,
    LoadStatus,
    StagedAttempt,
    Staging,
)
from delaystore.clock import RateLimit
from delaystore.errors import ConfigurationError, DelaystoreError, LoadLostError, StoreError, StoreSetupError
from delaystore.stores.sql.urls import TOKEN_LENGTH

# What one task attempt stages.

CHUNK_BYTES: Final = 64 * 2**20
"""Bytes that are sorted and copied at once; an attempt takes three or four times as much memory."""
CHUNK_ROWS: Final = 500_000
Order = list[tuple[str, str]]
ORDER_OF_IDS: Final[Order] = [("message_id", "ascending")]
"""In which rows are inserted fastest into the primary key of the messages' table."""
ORDER_OF_DUE_TIMES: Final[Order] = [("due_time", "ascending"), *ORDER_OF_IDS]
"""In which neighbours are dispatched together, if the staging itself becomes a bulk partition."""
RENEWALS: Final = 4
"""Signs of life in the time of a lease."""
_logger: Final = logging.getLogger(__name__)


class SqlSink(AttemptSink):
    """Collects rows to chunks; each is sorted by `order`, and copied in a transaction of its own.

    `limit`: of the rows a second. A chunk has no more rows than it lets go at once.
    """

    def __init__(
        self, database: LoadDatabase, token: str, lost: threading.Event, limit: RateLimit, order: Order
    ) -> None:
        self._database, self._staging, self._lost = database, database.staging(token), lost
        self._limit, self._most = limit, min(CHUNK_ROWS, limit.burst or CHUNK_ROWS)
        self._attempt, self._order = secrets.randbits(63), order
        self._waiting: list[pa.RecordBatch] = []
        self._bytes = self._rows = self._count = 0

    @override
    def write(self, batch: pa.RecordBatch) -> None:
        most = self._most if batch.nbytes <= CHUNK_BYTES else min(self._most, max(1, batch.num_rows // 2))
        if batch.num_rows > most:
            for start in range(0, batch.num_rows, most):
                self.write(batch.slice(start, most))
            return
        if self._bytes + batch.nbytes > CHUNK_BYTES or self._rows + batch.num_rows > self._most:
            self._copy()
        self._waiting.append(batch)
        self._bytes += batch.nbytes
        self._rows += batch.num_rows

    @override
    def finish(self) -> StagedAttempt:
        self._copy()
        return StagedAttempt(str(self._attempt), self._count)

    def _copy(self) -> None:
        if self._lost.is_set():
            raise LoadLostError("the load was taken over, or given up after a time without a sign of life")
        if not self._rows:
            return
        allowed = 0
        while allowed < self._rows:
            allowed += self._limit.wait(self._rows - allowed)
        rows = self._taken()
        try:
            with self._database.writing() as bound:
                self._database.dialect.copy(bound.connection, self._staging, self._attempt, rows)
        except StoreSetupError:
            raise LoadLostError(
                f"the load's table {self._staging.name!r} is gone: the load was finished, given up or taken over"
            ) from None
        self._count += rows.num_rows

    def _taken(self) -> pa.RecordBatch:
        """The collected rows, as one sorted batch; nothing remains collected."""
        table = pa.Table.from_batches(self._waiting, STAGED)
        self._waiting, self._bytes, self._rows = [], 0, 0
        batch = table.combine_chunks().to_batches()[0]
        return batch.take(pc.sort_indices(batch, sort_keys=self._order))


@contextmanager
def sql_sink(
    opened: AbstractContextManager[LoadDatabase], token: str, lease: timedelta, limit: RateLimit, order: Order
) -> Iterator[SqlSink]:
    """A sink for one attempt, which keeps the lease alive while the block lasts."""
    lost, ended = threading.Event(), threading.Event()
    with opened as database:
        registry = Registry(database)

        def keep_alive() -> None:
            while not ended.wait(lease.total_seconds() / RENEWALS):
                try:
                    if not registry.renew(token, lease):
                        lost.set()
                        return
                except DelaystoreError as error:
                    _logger.warning("cannot renew the lease of a load, will retry: %s", error)

        renewal_thread = threading.Thread(target=keep_alive, name="delaystore-lease", daemon=True)
        renewal_thread.start()
        try:
            yield SqlSink(database, token, lost, limit, order)
        finally:
            ended.set()
            renewal_thread.join()


# One run of a load, staged in a table beside the one in which messages wait.

_TIME_DIGITS = 12
_ASKED = 500
"""Ids in one question: every database takes as many parameters."""


class SqlStaging(Staging):
    """One run of a load. Without a `database` that was opened for it, each operation connects for itself.

    The run's token is made with this object and travels with it, so that every process which has a copy is the same
    run. The table is made with `begin` and dropped after the promotion, by `discard`, or by the next load's `begin`.
    A stream's runs share one token, by which the registry knows the first of them, and one table.
    """

    def __init__(
        self, options: StoreOptions, lease_seconds: int, owner: LoadOwner | None, database: LoadDatabase | None = None
    ) -> None:
        self._options, self._database = options, database
        self._lease = timedelta(seconds=lease_seconds)
        self._owner = owner
        self._token = new_token()
        self._key: LoadKey | None = None
        self._is_attachable = False

    def __repr__(self) -> str:
        return f"SqlStaging({self._options!r}, token={self._token!r})"

    @property
    @override
    def lease(self) -> Lease:
        given = self._options
        store = StoreOptions(store=given.store, endpoint=given.endpoint, schema=given.schema, table=given.table)
        return Lease(store, self._token, self._lease.total_seconds())

    @override
    def begin(self, key: LoadKey) -> FinishedLoad | None:
        self._key = key
        with self._opened() as database:
            database.set_up()
            again = isinstance(self._options, WriteOptions) and self._options.again
            finished = Registry(database).take(key, self._token, self._owner_now(), self._lease, again=again)
            clean_up(database, self._token)
            if finished is None:
                self._is_attachable = database.create_attachable_staging(self._token)
                if not self._is_attachable:
                    database.create_staging(self._token)
            return finished

    @override
    def join(self, key: LoadKey) -> FinishedLoad | None:
        self._key = key
        with self._opened() as database:
            database.set_up()
            joined = Registry(database).join(key, self._token, self._owner_now(), self._lease)
            if isinstance(joined, FinishedLoad):
                return joined
            self._token = joined
            if not database.has(database.staging(joined)):
                clean_up(database, joined)
                database.create_staging(joined)
            return None

    @override
    def attempt(self) -> AbstractContextManager[AttemptSink]:
        opened = kept_database(self._options) if self._database is None else nullcontext(self._database)
        rate = self._options.max_rows_per_second if isinstance(self._options, WriteOptions) else None
        order = ORDER_OF_DUE_TIMES if self._is_attachable else ORDER_OF_IDS
        return sql_sink(opened, self._token, self._lease, RateLimit(rate), order)

    @override
    def promote(self, attempts: Sequence[StagedAttempt], on_duplicate: OnDuplicate) -> FinishedLoad:
        if self._key is None:
            raise ConfigurationError("this load was not begun; call begin or join first")
        with self._opened(long_statements=True) as database:
            rules = self._rules(on_duplicate)
            finished = Promotion(database, self._token, self._lease, self._key, attempts, rules).run()
            with suppress(StoreError):  # the load is finished anyway; the next one removes the left-overs
                clear = database.drop if self._key.batch is None else database.empty
                clear(database.staging(self._token).name)
            return finished

    @override
    def renew(self) -> None:
        """As in the contract; LoadLostError if another run has the load now."""
        with self._opened() as database:
            _renew(database, self._token, self._lease)

    @override
    def discard(self) -> None:
        """A table that an attempt still writes to is left to the next cleanup."""
        with self._opened() as database:
            if database.has(database.registry):
                Registry(database).discard(self._token)
            database.drop(database.staging(self._token).name)

    def _opened(self, *, long_statements: bool = False) -> AbstractContextManager[LoadDatabase]:
        """`long_statements`: a statement may take hours, for which some drivers need connections of their own."""
        if self._database is None or (long_statements and self._database.dialect.without_time_limit):
            return load_database(self._options, long_statements=long_statements)
        return nullcontext(self._database)

    def _rules(self, on_duplicate: OnDuplicate) -> Rules:
        given = self._options
        return (
            Rules(on_duplicate, given.key_rule, given.noted_as, given.if_delivered)
            if isinstance(given, WriteOptions)
            else Rules(on_duplicate)
        )

    def _owner_now(self) -> LoadOwner:
        """Spark runs this in a short-lived worker: its parent lives as long as the driver or executor."""
        return self._owner or LoadOwner.of(os.getppid())


def renew_lease(lease: Lease) -> None:
    """Let a load's lease begin again. Raises LoadLostError if another run has the load now, and StoreError."""
    with load_database(lease.store) as database:
        _renew(database, lease.token, timedelta(seconds=lease.seconds))


def _renew(database: LoadDatabase, token: str, lease: timedelta) -> None:
    if not Registry(database).renew(token, lease):
        raise LoadLostError("the load was finished, given up or taken over")


def new_token() -> str:
    """A name for a run; a later one of the same computer compares greater."""
    moment = f"{time.time_ns() // 1_000_000:0{_TIME_DIGITS}x}"
    return moment + secrets.token_hex((TOKEN_LENGTH - _TIME_DIGITS) // 2)


def statuses(database: LoadDatabase, load_id: str | None = None) -> Sequence[LoadStatus]:
    """The loads into the endpoint, the newest last; or the one of that id, if it is known."""
    if not database.has(database.registry):
        return []
    now = database.store.now()
    with database.reading() as connection:
        return [status_of(row, now) for row in Registry(database).rows(connection, load_id)]


def waiting_among(database: LoadDatabase, ids: Iterable[str]) -> set[str]:
    """Which of these ids are those of messages in the endpoint's table; none where there is no table yet."""
    if not database.has(database.live):
        return set()
    found: set[str] = set()
    left = iter(ids)
    column = database.live.c.message_id
    with database.reading() as connection:
        while some := list(islice(left, _ASKED)):
            found.update(connection.scalars(select(column).where(column.in_(some))))
    return found
