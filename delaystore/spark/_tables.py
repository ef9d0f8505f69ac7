"""The store that a user's options name."""

from dataclasses import dataclass
from functools import lru_cache

from sqlalchemy import Connection, Engine, Table

from delaystore.errors import ConfigurationError
from delaystore.loading.options import StoreOptions
from delaystore.settings import TransactionMode
from delaystore.sql.dialects import Claiming, store_dialect_of
from delaystore.sql.errors import translated_errors
from delaystore.sql.names import check_identifier, check_table_name, default_table_name
from delaystore.stores import open_store
from delaystore.stores.abc import DelayedMessageStore, ManagedDelayedMessageStore
from delaystore.stores.memory import InMemoryDelayedMessageStore
from delaystore.stores.sql.schema import delayed_table
from delaystore.stores.sql.store import SqlDelayedMessageStore


@dataclass(frozen=True)
class SqlTable:
    """A SQL store's engine, and the table in which its messages wait."""

    engine: Engine
    table: Table

    @property
    def is_postgresql(self) -> bool:
        """Whether several connections can read from one snapshot, and rows come as Arrow data."""
        return store_dialect_of(self.engine).exports_snapshots

    def connect(self) -> Connection:
        """A connection of no pool: closed when it is closed. Raises StoreError."""
        with translated_errors():
            connection = self.engine.connect()
            connection.detach()
            return connection


def open_readable(options: StoreOptions) -> SqlTable | ManagedDelayedMessageStore:
    """What to read from; connects to nothing. Raises ConfigurationError and its kin.

    A store in memory is refused: Spark's workers are other processes, and cannot see it.
    """
    store = _opened(options.store, options.endpoint)
    if isinstance(store, SqlDelayedMessageStore):
        return SqlTable(store.engine, _table(store.engine, options))
    if isinstance(store, InMemoryDelayedMessageStore):
        raise ConfigurationError("Spark's workers cannot see a store in this process's memory; use a database")
    if not isinstance(store, ManagedDelayedMessageStore):
        raise ConfigurationError(f"{type(store).__name__} cannot list what waits in it, so it cannot be read")
    if options.schema is not None or options.table is not None:
        raise ConfigurationError("the options schema and table are for SQL stores; leave them out")
    store.initialize(options.endpoint, TransactionMode.NONE)
    return store


def open_table(options: StoreOptions) -> SqlTable:
    """The table of a SQL store; connects to nothing. Raises ConfigurationError and its kin."""
    opened = open_readable(options)
    if not isinstance(opened, SqlTable):
        raise ConfigurationError(f"{type(opened).__name__} is no SQL store")
    return opened


@lru_cache(maxsize=8)
def _opened(url: str, endpoint: str) -> DelayedMessageStore:  # noqa: ARG001 - a store is of one endpoint
    """The store, opened once in a process: Spark's workers live for several tasks, and need not ask a server twice."""
    return open_store(url)


def _table(engine: Engine, options: StoreOptions) -> Table:
    dialect = store_dialect_of(engine)
    if options.schema is not None:
        check_identifier(options.schema, dialect, "the schema name")
    name = check_table_name(options.table or default_table_name(options.endpoint), dialect)
    return delayed_table(name, options.schema, leases=dialect.claiming is Claiming.LEASES)
