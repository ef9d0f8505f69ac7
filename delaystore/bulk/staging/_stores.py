"""The store of a load, by its URL, opened once for all that a process asks of it."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import ClassVar, Final

import pyarrow as pa
from typing_extensions import override

from delaystore.bulk.options import DeliveredRows, OnDuplicate, StoreOptions, WriteOptions
from delaystore.bulk.staging._database import open_database
from delaystore.bulk.staging._dialects import STAGING_DIALECTS
from delaystore.bulk.staging._registry import clean_up
from delaystore.bulk.staging._runs import SqlStaging, statuses, waiting_among
from delaystore.bulk.staging.abc import (
    AttemptSink,
    Cleaned,
    FinishedLoad,
    LoadKey,
    LoadOwner,
    LoadStatus,
    StagedAttempt,
    Staging,
)
from delaystore.errors import ConfigurationError, DuplicateMessageError
from delaystore.message import DelayedMessage
from delaystore.settings import TransactionMode
from delaystore.stores import open_store
from delaystore.stores.abc import DelayedMessageStore, ManagedDelayedMessageStore
from delaystore.stores.sql.codec import NOT_AFTER, completed
from delaystore.stores.sql.errors import configuration_errors
from delaystore.stores.sql.rows import to_readable_message
from delaystore.stores.sql.urls import database_url, sqlite_file

# Loading into a store of which only the contract is known.

BATCH: Final = 1000
"""Messages in one call of `store_many`."""


class PlainStaging(Staging):
    """No staging at all: each task stores its rows at once, and there is no way back.

    A load is neither all or nothing nor remembered: others see it grow, and the messages of a failed load stay. A
    message_id that waits already is left as it is, so that a repeated task adds nothing, unless its messages have
    been dispatched meanwhile. Therefore only onDuplicate=ignore is possible.
    """

    guarantee: ClassVar[str] = "each row at once, at least once; not all or nothing, and not remembered"
    after_failure: ClassVar[str] = "what was stored until then stays"
    remembers: ClassVar[bool] = False

    def __init__(self, options: StoreOptions, store: DelayedMessageStore | None = None) -> None:
        """`store`: the store that was opened with these options, which were checked; None: each process opens its
        own.
        """
        self._options, self._store = options, store
        self._key: LoadKey | None = None

    @override
    def begin(self, key: LoadKey) -> FinishedLoad | None:
        """Nothing is ever known to be finished."""
        self._key = key
        with self._opened() as store:
            store.setup_infrastructure()
        return None

    join = begin

    @override
    @contextmanager
    def attempt(self) -> Iterator[AttemptSink]:
        """An exception leaves stored messages."""
        with self._opened() as store:
            yield _PlainSink(store)

    @override
    def promote(self, attempts: Sequence[StagedAttempt], on_duplicate: OnDuplicate) -> FinishedLoad:
        """Only counts."""
        if on_duplicate is not OnDuplicate.IGNORE:
            raise ConfigurationError(_ONLY_IGNORE)
        if self._key is None:
            raise ConfigurationError("this load was not begun; call begin first")
        skipped = sum(attempt.skipped for attempt in attempts)
        stored = sum(attempt.count for attempt in attempts) - skipped
        return FinishedLoad(self._key, datetime.now(UTC), stored, skipped)

    @override
    def renew(self) -> None:
        """There is no lease."""

    @override
    def discard(self) -> None:
        """There is nothing to remove."""

    @contextmanager
    def _opened(self) -> Iterator[DelayedMessageStore]:
        if self._store is not None:
            yield self._store
            return
        with closing(open_store(self._options.store)) as store:
            store.initialize(self._options.endpoint, TransactionMode.NONE)
            yield store


def check_plain_options(options: StoreOptions) -> None:
    """ConfigurationError for options that need a SQL store."""
    if isinstance(options, WriteOptions) and options.on_duplicate is not OnDuplicate.IGNORE:
        raise ConfigurationError(_ONLY_IGNORE)
    if isinstance(options, WriteOptions) and options.key_column is not None:
        raise ConfigurationError("the option keyColumn is for SQL stores; leave it out")
    if isinstance(options, WriteOptions) and options.if_delivered is not DeliveredRows.LOAD:
        raise ConfigurationError("the option ifDelivered is for SQL stores; leave it out")
    if isinstance(options, WriteOptions) and options.max_rows_per_second is not None:
        raise ConfigurationError("the option maxRowsPerSecond is for SQL stores; leave it out")
    if options.schema is not None or options.table is not None:
        raise ConfigurationError("the options schema and table are for SQL stores; leave them out")


_NO_LIMITS: Final = "this store keeps no latest delivery; leave out the column not_after or max_late"
_ONLY_IGNORE: Final = (
    "this store keeps messages at once, so a load cannot be undone; set the option onDuplicate to ignore if "
    "you want that, or load into PostgreSQL, MariaDB, MySQL or SQLite"
)


class _PlainSink(AttemptSink):
    def __init__(self, store: DelayedMessageStore) -> None:
        self._store = store
        self._count = self._skipped = 0

    @override
    def write(self, batch: pa.RecordBatch) -> None:
        for start in range(0, batch.num_rows, BATCH):
            rows = batch.slice(start, BATCH).to_pylist()
            messages = [to_readable_message(completed(row, int), not_after=row[NOT_AFTER]) for row in rows]
            if not self._store.keeps_not_after and any(message.not_after is not None for message in messages):
                raise ConfigurationError(_NO_LIMITS)
            self._skipped += self._store_new(messages)
            self._count += len(messages)

    @override
    def finish(self) -> StagedAttempt:
        return StagedAttempt("", self._count, self._skipped)

    def _store_new(self, messages: Sequence[DelayedMessage]) -> int:
        """Store messages that do not wait already; returns how many do. Stores one by one once there is a duplicate."""
        try:
            self._store.store_many(messages)
        except DuplicateMessageError:
            return sum(not self._stored(message) for message in messages)
        return 0

    def _stored(self, message: DelayedMessage) -> bool:
        try:
            self._store.store(message)
        except DuplicateMessageError:
            return False
        return True


# The store of a load, by its URL, opened once for all that a process asks of it.

_MEMORY: Final = "memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadStore:
    """The store of a load, with the functions of its kind. Making it connects to nothing; `close` closes it.

    All of them raise StoreError and its kin for a store that fails.
    """

    store: DelayedMessageStore
    staging: Callable[..., Staging]
    """Makes a staging for one run of a load by this process, over the connections of this object.

    Its arguments are the lease in seconds, and the LoadOwner with which the load ends, as of `open_staging`.
    """
    set_up: Callable[[], object]
    """Makes the tables of messages and of loads, where they are missing; a store without staging does it later."""
    clean_up: Callable[[], Cleaned]
    """Removes the remains of abandoned loads: once their lease has ended, or their process has."""
    loads: Callable[..., Sequence[LoadStatus]]
    """Lists loads that are running, abandoned or finished, the newest last; or the one of an id, if it is known."""
    waiting_ids: Callable[[Iterable[str]], set[str] | None]
    """Returns which of these ids are those of waiting messages; None: the store cannot list its messages."""
    close: Callable[[], None]


def _sql_load_store(options: StoreOptions) -> LoadStore:
    """A SQL store and the tables of loads beside its own: one engine."""
    database = open_database(options)
    return LoadStore(
        store=database.store,
        staging=lambda lease_seconds, owner=None: SqlStaging(_absolute(options), lease_seconds, owner, database),
        set_up=database.set_up,
        clean_up=partial(clean_up, database),
        loads=partial(statuses, database),
        waiting_ids=partial(waiting_among, database),
        close=database.store.close,
    )


def _plain_load_store(options: StoreOptions) -> LoadStore:
    """A third-party store, known by its contract alone: it remembers no loads."""
    store = open_store(options.store)
    try:
        check_plain_options(options)
        store.initialize(options.endpoint, TransactionMode.NONE)
    except BaseException:
        store.close()
        raise

    def waiting_ids(ids: Iterable[str]) -> set[str] | None:
        if not isinstance(store, ManagedDelayedMessageStore):
            return None
        return {message_id for message_id in ids if store.get(message_id) is not None}

    return LoadStore(
        store=store,
        staging=lambda *_: PlainStaging(options, store),
        set_up=lambda: None,  # each run does it when it begins
        clean_up=Cleaned,
        loads=lambda *_: [],
        waiting_ids=waiting_ids,
        close=store.close,
    )


def open_load_store(options: StoreOptions) -> LoadStore:
    """The store that `options` name, for the loads of this process.

    Raises ConfigurationError for a store that cannot be loaded, and for an endpoint, schema or table whose name it does
    not take, UnknownSchemeError, and MissingDependencyError.
    """
    return _sql_load_store(options) if _is_sql(options) else _plain_load_store(options)


def open_staging(options: StoreOptions, lease_seconds: int, owner: LoadOwner | None = None) -> Staging:
    """A staging for one run of a load by several processes; each has its own connections.

    `owner`: the process with which the load ends; None: the parent of the one that calls `begin`. Connects to nothing.
    Raises as `open_load_store`.
    """
    open_load_store(options).close()  # its kind, driver and names are checked
    return SqlStaging(_absolute(options), lease_seconds, owner) if _is_sql(options) else PlainStaging(options)


def cleanup(options: StoreOptions) -> Cleaned:
    """As `LoadStore.clean_up`."""
    with closing(open_load_store(options)) as store:
        return store.clean_up()


def list_loads(options: StoreOptions) -> Sequence[LoadStatus]:
    """As `LoadStore.loads`."""
    with closing(open_load_store(options)) as store:
        return store.loads()


def load_status(options: StoreOptions, load_id: str) -> LoadStatus | None:
    """The load, or stream, of that id. None: it is unknown; a store without staging knows none."""
    with closing(open_load_store(options)) as store:
        return next(iter(store.loads(load_id)), None)


def _is_sql(options: StoreOptions) -> bool:
    scheme = options.store.partition(":")[0].partition("+")[0].lower()
    if scheme == _MEMORY:
        raise ConfigurationError(
            "a store in memory cannot be loaded, because Spark's tasks are other processes; use a "
            "database, such as sqlite:///app.db"
        )
    return scheme in STAGING_DIALECTS


def _absolute(options: StoreOptions) -> StoreOptions:
    """The options with the path of a file, if there is one, as tasks in other folders need it."""
    with configuration_errors():
        url = database_url(options.store)
    if sqlite_file(url) is None or not url.database or url.database.startswith(("file:", ":")):
        return options
    path = url.set(database=os.path.abspath(url.database))
    return replace(options, store=path.render_as_string(hide_password=False))
