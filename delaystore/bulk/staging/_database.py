"""The way to the database of a load: the store, and the tables of loads beside its own."""

import atexit
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from threading import Timer
from typing import Final

from sqlalchemy import Connection, Table, inspect, select
from sqlalchemy.exc import DBAPIError

from delaystore.bulk.options import DeliveredRows, StoreOptions, WriteOptions
from delaystore.bulk.staging._dialects import STAGING_DIALECTS, staging_table
from delaystore.errors import DelaystoreError
from delaystore.settings import TransactionMode
from delaystore.stores.sql import SqlDelayedMessageStore
from delaystore.stores.sql.bound import BoundSqlStore
from delaystore.stores.sql.dialects import dialect_of
from delaystore.stores.sql.errors import configuration_errors, translated_errors
from delaystore.stores.sql.faults import Fault, quoted_name, quoted_table
from delaystore.stores.sql.schema import OperatingTables
from delaystore.stores.sql.setup import load_tables
from delaystore.stores.sql.urls import database_url

# The way to the database of a load, for one operation.

KEPT: Final = 5.0
"""Seconds for which a task's connection waits for the next task."""


class LoadDatabase:
    """The store, and the tables of loads beside its own."""

    def __init__(self, store: SqlDelayedMessageStore, if_delivered: DeliveredRows = DeliveredRows.LOAD) -> None:
        self.store, self.if_delivered = store, if_delivered
        self.dialect = dialect_of(store.engine, STAGING_DIALECTS)
        self.live = store.table
        self.tables = OperatingTables(self.live, self.dialect)
        self.registry = self.tables.loads

    def staging(self, token: str) -> Table:
        """The staging of that run."""
        return staging_table(self.live, token, self.dialect, self.dialect.prefixes)

    @contextmanager
    def writing(self) -> Iterator[BoundSqlStore]:
        """A transaction that writes: rows that its block reads stay as they are until its commit, where rows are
        locked.
        """
        with self.store.transaction() as bound, self.dialect.ended_by_interrupt(bound.connection):
            self.dialect.begin_writing(bound.connection)
            yield bound

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A connection for reading."""
        with self.store.transaction() as bound:
            yield bound.connection

    def has(self, table: Table) -> bool:
        """Whether `table`, the registry or a staging, is there."""
        with self.reading() as connection:
            return inspect(connection).has_table(table.name, schema=table.schema)

    def set_up(self) -> None:
        """Make or upgrade the store's tables, the registry among them.

        Raises ConfigurationError where the load needs a history, and none is kept.
        """
        self.store.setup_infrastructure()
        if self.if_delivered is not DeliveredRows.LOAD:
            with self.store.transaction() as bound:
                bound.require_history("the option ifDelivered")

    def create_staging(self, token: str) -> None:
        """Make the staging of a run, unless another process of the same run was quicker."""
        staging = self.staging(token)
        with self._setting_up() as connection:
            if not inspect(connection).has_table(staging.name, schema=staging.schema):
                self.dialect.create(connection, staging)

    def create_attachable_staging(self, token: str) -> bool:
        """As `create_staging`, such that it can become a bulk partition. False: there can be none, and none is made."""
        partitions = self.store.partitions
        number = select(self.registry.c.number).where(self.registry.c.token == token)
        with translated_errors(), self._setting_up() as connection:
            if partitions is None or not partitions.may_be_made(connection):
                return False
            partitions.create_staging(connection, self.staging(token), connection.execute(number).scalar_one())
            return True

    def staging_names(self) -> list[str]:
        """The stagings that are there."""
        with self.reading() as connection:
            return load_tables(connection, self.live)

    def drop(self, name: str) -> bool:
        """Drop a staging, if it is there; False: a process still works on it."""
        return self._unless_locked(self.dialect.drop, name)

    def empty(self, name: str) -> bool:
        """Remove the rows of a staging; False: a process still works on it."""
        return self._unless_locked(self.dialect.empty, name)

    @contextmanager
    def _setting_up(self) -> Iterator[Connection]:
        """A transaction in which no other load makes tables."""
        with self.store.transaction() as bound, self.dialect.setup_lock(bound.connection, self.registry.fullname):
            yield bound.connection

    def _unless_locked(self, action: Callable[[Connection, str], None], name: str) -> bool:
        quoted = quoted_name(quoted_table(name, self.live.schema), self.store.engine.dialect)
        try:
            with self.writing() as bound:
                try:
                    action(bound.connection, quoted)
                except DBAPIError as error:
                    if self.dialect.fault(error) is Fault.LOCKED:
                        raise _LockedError from None
                    raise
        except _LockedError:
            return False
        return True


class _LockedError(Exception):
    """Rolls the transaction back."""


def open_database(options: StoreOptions, *, long_statements: bool = False) -> LoadDatabase:
    """The database of the options' endpoint; connects to nothing. `long_statements`: a statement may take hours."""
    with configuration_errors():
        url = database_url(options.store)
    if long_statements:
        waiting = dialect_of(url, STAGING_DIALECTS).without_time_limit
        url = url.update_query_dict({name: value for name, value in waiting.items() if name not in url.query})
    store = SqlDelayedMessageStore(url, schema=options.schema, table=options.table)
    store.initialize(options.endpoint, TransactionMode.NONE)
    return LoadDatabase(store, options.if_delivered if isinstance(options, WriteOptions) else DeliveredRows.LOAD)


@contextmanager
def load_database(options: StoreOptions, *, long_statements: bool = False) -> Iterator[LoadDatabase]:
    """As `open_database`, closed with the block."""
    database = open_database(options, long_statements=long_statements)
    with closing(database.store):
        yield database


@contextmanager
def kept_database(options: StoreOptions) -> Iterator[LoadDatabase]:
    """The same for a task: it stays connected for the next one in this process, most of a small task's time saved.

    It is closed after some seconds without use, so that no idle connection keeps the database from being dropped.
    """
    key = StoreOptions(store=options.store, endpoint=options.endpoint, schema=options.schema, table=options.table)
    database, closing_it = _idle.pop(key, (None, None))
    if closing_it is not None:
        closing_it.cancel()
    if database is not None and not _answers(database):
        database = None
    if database is None:
        database = open_database(options)
    try:
        yield database
    except BaseException:
        database.store.close()
        raise
    _keep(key, database)


def _answers(database: LoadDatabase) -> bool:
    """Whether the connection still works; else it is closed: the server may have been restarted meanwhile."""
    try:
        with database.reading() as connection:
            connection.exec_driver_sql("SELECT 1")
    except DelaystoreError:
        database.store.close()
        return False
    return True


def _keep(key: StoreOptions, database: LoadDatabase) -> None:
    closing_it = Timer(KEPT, _close_idle, (key,))
    closing_it.daemon = True
    kept = _idle.setdefault(key, (database, closing_it)) if database.dialect.keeps_connections else None
    if kept is None or kept[0] is not database:
        database.store.close()
    else:
        closing_it.start()


def _close_idle(key: StoreOptions) -> None:
    database, _ = _idle.pop(key, (None, None))
    if database is not None:
        database.store.close()


@atexit.register
def _close_all() -> None:
    for key in list(_idle):
        _close_idle(key)


_idle: Final[dict[StoreOptions, tuple[LoadDatabase, Timer]]] = {}
"""Databases that no task uses now, and the timer that will close each."""
