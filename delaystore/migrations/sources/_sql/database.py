"""Connections to the source's database."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime

from sqlalchemy import URL, Connection, Table, inspect, select
from sqlalchemy.exc import SQLAlchemyError

from delaystore.clock import CarriedClock
from delaystore.errors import StoreUnavailableError
from delaystore.migrations.sources._sql.dialects import MIGRATION_DIALECTS
from delaystore.sql.dialects import dialect_of
from delaystore.sql.engine import create_store_engine
from delaystore.sql.errors import translated_errors
from delaystore.sql.urls import url_label


class Database:
    """One database. While it has a lock, all work goes through the lock's own connection.

    So the work ends where the lock ends: with a lost connection the database gives the lock to the next process, and
    this one can write nothing more.
    """

    def __init__(self, url: URL) -> None:
        self._engine = create_store_engine(url)
        self.dialect = dialect_of(self._engine, MIGRATION_DIALECTS)
        self.dialect.check_driver(self._engine.driver)
        self.dialect.speak_utc(self._engine)
        self._instant = self.dialect.clock()
        self._clock = CarriedClock(self._read_clock)
        self._locking: Connection | None = None
        self._keys: set[str] = set()

    @property
    def label(self) -> str:
        """The URL without a password or options."""
        return url_label(self._engine.url)

    @property
    def user(self) -> str:
        """The user in the URL, or "the user"."""
        return self._engine.url.username or "the user"

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
                self.dialect.begin_writing(connection)
                yield connection
                connection.commit()
            except BaseException:
                connection.rollback()
                raise

    @contextmanager
    def exclusive(self, key: str, owner: str) -> Iterator[str | None]:
        """Have the lock `key` until the block ends. Yields None; or who else has it, as far as known.

        `owner`: how others shall know who has it. A lock that this object has already is taken once.
        """
        if key in self._keys:
            yield None
            return
        with self._lock_connection() as connection, translated_errors():
            release = self.dialect.take_lock(connection, f"migration {key}", owner)
            connection.rollback()
            if release is None:
                other = self.dialect.lock_owner(connection, f"migration {key}")
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
        self._engine.dispose()

    @contextmanager
    def _lock_connection(self) -> Iterator[Connection]:
        """The connection of the locks; closed for good after the last of them."""
        if self._locking is not None:
            yield self._locking
            return
        with translated_errors(), self._engine.connect() as connection:
            connection.detach()
            self._locking = connection
            try:
                yield connection
            finally:
                self._locking = None

    @contextmanager
    def _connection(self) -> Iterator[Connection]:
        with translated_errors():
            if self._locking is None:
                with self._engine.connect() as connection:
                    yield connection
                return
            if self._locking.invalidated:
                raise StoreUnavailableError("the connection that held the migration's lock was lost")
            yield self._locking

    def _read_clock(self) -> datetime:
        if self._instant is None:
            return datetime.now(UTC)
        with self.reading() as connection:
            instant: datetime = connection.execute(select(self._instant)).scalar_one()
            return instant
