"""Connections of drivers, lent to SQLAlchemy for the caller's transaction."""

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property
from typing import Any, ClassVar, Final, NoReturn, TypeVar
from weakref import WeakKeyDictionary

import psycopg
import pymysql
from psycopg.adapt import AdaptersMap
from psycopg.rows import TupleRow, tuple_row
from pymysql.cursors import Cursor
from sqlalchemy import URL, Connection, Engine
from sqlalchemy.pool import NullPool, PoolProxiedConnection
from typing_extensions import override

from delaystore.errors import ConfigurationError, StoreError
from delaystore.stores.sql.dialects import store_dialect_of
from delaystore.stores.sql.dialects.sqlite import text_of
from delaystore.stores.sql.drivers import driver_of


class Target(ABC):
    """A transaction of somebody else's, who alone commits it or rolls it back. Belongs to its thread."""

    @property
    @abstractmethod
    def connection(self) -> Connection:
        """The connection of this moment; ask for it before each statement.

        Raises ConfigurationError where a statement would be committed at once.
        """

    @property
    @abstractmethod
    def address(self) -> URL | None:
        """Where it leads; None: only the database itself can tell."""

    def when_ended(self, action: Callable[[], None]) -> None:  # noqa: B027 - most transactions tell nobody
        """Call `action` once after the transaction's end, at least after a commit.

        This default never does, for a driver tells nobody of its commits: PostgreSQL notifies dispatchers, and
        elsewhere they poll.
        """


COMMITS_AT_ONCE: Final = "the connection commits each statement at once; begin a transaction first, then enlist it"
_infos: Final[WeakKeyDictionary[Any, dict[Any, Any]]] = WeakKeyDictionary()
"""What is known of drivers' connections, for as long as they live."""


class Loan(PoolProxiedConnection):
    """A driver's connection as a pool would hand it out; nothing of it is committed, rolled back, reset or closed.

    What its owner has set for it, such as a row factory, neither holds for our statements nor is changed.
    """

    driver: ClassVar[str]
    """SQLAlchemy's name of the driver."""
    is_async: ClassVar[bool] = False
    """Whether it belongs to an event loop."""

    def __init__(self, raw: Any) -> None:
        self.raw: Final = raw
        self.driver_module: Any = None
        """The driver as SQLAlchemy knows it, once it is lent."""
        self._is_valid = True
        self._info = _info_of(raw)

    @property
    @abstractmethod
    def address(self) -> URL | None:
        """Where it leads; None: only the database itself can tell."""

    @property
    @abstractmethod
    def is_closed(self) -> bool:
        """Whether its owner has closed it, as far as the driver knows."""

    @abstractmethod
    def cursor(self, *arguments: Any, **options: Any) -> Any:
        """A cursor that takes and gives what SQLAlchemy expects."""

    def check(self) -> None:
        """Raise StoreError or ConfigurationError where nothing can be done in its transaction."""
        if self.is_closed or not self.is_valid:
            raise StoreError(
                "the connection was lost or closed, and the transaction with it; begin another, and enlist again"
            )

    @property
    @override
    def dbapi_connection(self) -> Any:  # type: ignore[override]  # an attribute there; it would refer to itself
        return self

    @property
    @override
    def driver_connection(self) -> Any:  # type: ignore[override]  # an attribute there
        return self.raw

    @property
    @override
    def info(self) -> dict[Any, Any]:
        return self._info

    @property
    @override
    def record_info(self) -> None:
        return None

    @property
    @override
    def is_valid(self) -> bool:
        return self._is_valid

    @property
    @override
    def is_detached(self) -> bool:
        return True

    @override
    def invalidate(self, e: BaseException | None = None, soft: bool = False) -> None:
        """Run no more statements: the connection is lost, which its owner will find out."""
        self._is_valid = False

    @override
    def detach(self) -> None:
        """It is in no pool."""

    def commit(self) -> None:
        """Its owner commits."""

    def rollback(self) -> None:
        """Its owner rolls back."""

    @override
    def close(self) -> None:
        """Its owner closes it."""

    def _close_special(self, transaction_reset: bool = False) -> None:
        """As `close`; SQLAlchemy calls it after its own rollback."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)


class Lender:
    """Makes SQLAlchemy Connections of drivers' connections, in the dialect of a store's engine.

    Their engine has no pool and no events: none of what an engine does with connections that are new, idle or given
    back happens to them.
    """

    def __init__(self, engine: Engine) -> None:
        self.driver: Final = engine.driver
        self.is_async: Final = driver_of(engine).is_async
        self._engine = engine

    def check_side(self, given: Any, *, is_async: bool) -> None:
        """Raise ConfigurationError if `given` belongs to an event loop where the store does not, or the reverse."""
        if is_async != self.is_async:
            raise ConfigurationError(
                f"a {type(given).__name__} of {type(given).__module__.partition('.')[0]} cannot be enlisted here: what "
                "belongs to asyncio is enlisted by AsyncDelayedDelivery.enlist, and nothing else is"
            )

    def lend(self, loan: Loan) -> Connection:
        """A Connection that belongs to the transaction of `loan`; it need not be closed."""
        loan.driver_module = self._engine.dialect.loaded_dbapi
        connection = Connection(self._lending, loan, _allow_revalidate=False)
        if self._engine.dialect.server_version_info is None:  # nothing is known of the server so far
            store_dialect_of(self._engine).introduce(self._engine, connection)
        return connection

    @cached_property
    def _lending(self) -> Engine:
        dialect = self._engine.dialect
        pool = NullPool(_no_connection, dialect=dialect)
        return Engine(pool, dialect, self._engine.url, hide_parameters=self._engine.hide_parameters)


class LoanTarget(Target):
    """The transaction of a driver's connection."""

    def __init__(self, lender: Lender, loan: Loan) -> None:
        lender.check_side(loan.raw, is_async=loan.is_async)
        if loan.driver != lender.driver:
            raise ConfigurationError(
                f"a connection of {loan.driver} cannot be enlisted by a store whose driver is {lender.driver}; "
                "use the same driver for both"
            )
        self._loan = loan
        self._connection = lender.lend(loan)

    @property
    @override
    def connection(self) -> Connection:
        self._loan.check()
        if driver_of(self._connection).commits_at_once(self._loan.raw):
            raise ConfigurationError(COMMITS_AT_ONCE)
        return self._connection

    @property
    @override
    def address(self) -> URL | None:
        return self._loan.address


def _info_of(raw: Any) -> dict[Any, Any]:
    try:
        return _infos.setdefault(raw, {})
    except TypeError:  # sqlite3's connections take no weak references
        return {}


def _no_connection() -> NoReturn:
    raise AssertionError("an engine that lends makes no connections")


class PsycopgLoan(Loan):
    """A psycopg.Connection."""

    driver: ClassVar[str] = "psycopg"
    taken: ClassVar[type] = psycopg.Connection

    @property
    @override
    def address(self) -> URL:
        info = self.raw.info
        return URL.create("postgresql", host=info.host, port=info.port, database=info.dbname)

    @property
    @override
    def is_closed(self) -> bool:
        return bool(self.raw.closed)

    @override
    def check(self) -> None:
        """In a pipeline statements have no answers yet."""
        super().check()
        if self.raw.pgconn.pipeline_status != psycopg.pq.PipelineStatus.OFF:
            raise ConfigurationError("the connection is in a pipeline; use what was enlisted before or after it")

    @override
    def cursor(self, *_arguments: Any, **_options: Any) -> Any:
        return _PlainPsycopgCursor(self.raw)


class AsyncPsycopgLoan(PsycopgLoan):
    """A psycopg.AsyncConnection, as SQLAlchemy wraps one: to be used in greenlets."""

    taken: ClassVar[type] = psycopg.AsyncConnection
    is_async: ClassVar[bool] = True

    @override
    def cursor(self, *_arguments: Any, **_options: Any) -> Any:
        return self._wrapped.cursor()

    @cached_property
    def _wrapped(self) -> Any:
        async def taken() -> _WithPlainCursors:
            return _WithPlainCursors(self.raw)

        return self.driver_module.connect(async_creator_fn=taken)


class _WithPlainCursors:
    """An AsyncConnection whose cursors are plain."""

    def __init__(self, raw: psycopg.AsyncConnection[Any]) -> None:
        self._raw = raw

    def cursor(self) -> "_PlainAsyncCursor":
        return _PlainAsyncCursor(self._raw)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._raw, name)


class _PlainAsyncCursor(psycopg.AsyncCursor[TupleRow]):
    """As _PlainPsycopgCursor."""

    def __init__(self, connection: psycopg.AsyncConnection[Any]) -> None:
        self._plain = AdaptersMap(psycopg.adapters)
        super().__init__(connection, row_factory=tuple_row)

    @property
    @override
    def adapters(self) -> AdaptersMap:
        return self._plain


class _PlainPsycopgCursor(psycopg.Cursor[TupleRow]):
    """Rows are tuples of psycopg's own types, whatever the connection's row factory and adapters make of them."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._plain = AdaptersMap(psycopg.adapters)
        super().__init__(connection, row_factory=tuple_row)

    @property
    @override
    def adapters(self) -> AdaptersMap:
        return self._plain


class PyMySqlLoan(Loan):
    """A pymysql.Connection."""

    driver: ClassVar[str] = "pymysql"
    taken: ClassVar[type] = pymysql.connections.Connection

    @property
    @override
    def address(self) -> URL | None:
        database = self.raw.db
        name = database.decode() if isinstance(database, bytes) else database
        return URL.create("mysql", host=self.raw.host, port=self.raw.port, database=name)

    @property
    @override
    def is_closed(self) -> bool:
        return not self.raw.open

    @override
    def cursor(self, *_arguments: Any, **_options: Any) -> Any:
        """One whose rows are tuples."""
        return self.raw.cursor(Cursor)


Result = TypeVar("Result")


class SqliteLoan(Loan):
    """A sqlite3.Connection."""

    driver: ClassVar[str] = "pysqlite"
    taken: ClassVar[type] = sqlite3.Connection

    @property
    @override
    def address(self) -> None:
        return None

    @property
    @override
    def is_closed(self) -> bool:
        try:
            self.raw.total_changes  # noqa: B018 - there is no other way to know
        except sqlite3.ProgrammingError:
            return True
        return False

    @override
    def cursor(self, *_arguments: Any, **_options: Any) -> Any:
        return _PlainSqliteCursor(self.raw)


class _PlainSqliteCursor(sqlite3.Cursor):
    """Rows are tuples, whose texts are str, whatever the connection's factories make of them."""

    @override
    def execute(self, *arguments: Any) -> "_PlainSqliteCursor":
        self._as_str(super().execute, *arguments)
        return self

    @override
    def executemany(self, *arguments: Any) -> "_PlainSqliteCursor":
        self._as_str(super().executemany, *arguments)
        return self

    @override
    def fetchone(self) -> Any:
        return self._as_str(super().fetchone)

    @override
    def fetchmany(self, *arguments: Any, **options: Any) -> list[Any]:
        return self._as_str(super().fetchmany, *arguments, **options)

    @override
    def fetchall(self) -> list[Any]:
        return self._as_str(super().fetchall)

    def _as_str(self, work: Callable[..., Result], *arguments: Any, **options: Any) -> Result:
        before, self.connection.text_factory = self.connection.text_factory, text_of
        try:
            return work(*arguments, **options)
        finally:
            self.connection.text_factory = before
