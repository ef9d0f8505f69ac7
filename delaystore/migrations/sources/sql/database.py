"""Connections to the source's database."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime

from sqlalchemy import URL, Connection, Table, inspect, select
from sqlalchemy.exc import SQLAlchemyError

from delaystore.errors import StoreUnavailableError
from delaystore.migrations.sources.sql.dialects import dialect_of
from delaystore.stores.sql.clock import DatabaseClock
from delaystore.stores.sql.dialects import dialect_of as store_dialect_of
from delaystore.stores.sql.engine import create_store_engine
from delaystore.stores.sql.translation import translated_errors


class Database:
    """One database. While a lock is held, all work goes through the lock's own connection.

    So the work ends where the lock ends: with a lost connection the database gives the lock to the next process, and
    this one can write nothing more.
    """

    def __init__(self, url: URL) -> None:
        self._own = create_store_engine(url)
        self.dialect = dialect_of(self._own)
        self.dialect.prepare_engine(self._own)
        isolation = self.dialect.isolation
        self._engine = self._own if isolation is None else self._own.execution_options(isolation_level=isolation)
        self._instant = store_dialect_of(self._engine).clock()
        self._clock = DatabaseClock(self._read_clock)
        self._held: Connection | None = None
        self._keys: set[str] = set()

    @property
    def label(self) -> str:
        """The URL without a password or options."""
        return self._engine.url.set(query={}).render_as_string(hide_password=True)

    @property
    def user(self) -> str:
        """Who works here, as far as the URL says."""
        return self._engine.url.username or "the user"

    @property
    def dialect_name(self) -> str:
        """SQLAlchemy's name for it."""
        return self._engine.dialect.name

    def key_of(self, table: Table) -> str:
        """The name of a table's lock: the same whether its schema was named or is the connection's own."""
        with self.reading() as connection:
            return f"{table.schema or inspect(connection).default_schema_name}.{table.name}"

    def now(self) -> datetime:
        """The database's clock (SQLite: this computer's)."""
        return self._clock.now()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A connection whose transaction ends with the block."""
        with self._connection() as connection:
            try:
                yield connection
            finally:
                connection.rollback()

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction, committed at the block's end, or rolled back when it raises."""
        with self._connection() as connection:
            try:
                with self.dialect.writing(connection):
                    yield connection
                connection.commit()
            except BaseException:
                connection.rollback()
                raise

    @contextmanager
    def exclusive(self, key: str, holder: str) -> Iterator[str | None]:
        """Hold the lock `key` until the block ends. Yields None; or who has it, as far as known, and nothing is held.

        A lock that this object holds already is held once.
        """
        if key in self._keys:
            yield None
            return
        with self._lock_connection() as connection, translated_errors():
            release = self.dialect.hold(connection, key, holder)
            connection.rollback()
            if release is None:
                other = self.dialect.holder(connection, key)
                connection.rollback()
                yield other or "somebody"
                return
            self._keys.add(key)
            try:
                yield None
            finally:
                self._keys.discard(key)
                with suppress(SQLAlchemyError):  # a lost connection has ended it
                    release()
                    connection.rollback()

    def close(self) -> None:
        """Give back connections."""
        self._own.dispose()

    @contextmanager
    def _lock_connection(self) -> Iterator[Connection]:
        """The connection of the locks; closed for good after the last of them."""
        if self._held is not None:
            yield self._held
            return
        with translated_errors(), self._engine.connect() as connection:
            connection.detach()
            self._held = connection
            try:
                yield connection
            finally:
                self._held = None

    @contextmanager
    def _connection(self) -> Iterator[Connection]:
        with translated_errors():
            if self._held is None:
                with self._engine.connect() as connection:
                    yield connection
                return
            if self._held.invalidated:
                raise StoreUnavailableError("the connection that held the migration's lock was lost")
            yield self._held

    def _read_clock(self) -> datetime:
        if self._instant is None:
            return datetime.now(UTC)
        with self.reading() as connection:
            instant: datetime = connection.execute(select(self._instant)).scalar_one()
            return instant
