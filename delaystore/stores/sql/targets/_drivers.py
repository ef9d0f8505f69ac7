"""Connections of drivers, lent to SQLAlchemy for the caller's transaction; a module for each driver imports it."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property
from typing import Any, ClassVar, Final, NoReturn
from weakref import WeakKeyDictionary

from sqlalchemy import URL, Connection, Engine
from sqlalchemy.pool import NullPool, PoolProxiedConnection
from typing_extensions import override

from delaystore.errors import ConfigurationError, StoreError
from delaystore.stores.sql.dialects import store_dialect_of
from delaystore.stores.sql.drivers import driver_of


class Target(ABC):
    """A caller's transaction, which the caller alone commits or rolls back. Belongs to its thread."""

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

    def when_ended(self, action: Callable[[], None]) -> None:  # noqa: B027 - most transactions do not report their end
        """Call `action` once after the transaction's end, at least after a commit.

        This default never does, for a driver does not report its commits: PostgreSQL notifies dispatchers, and
        elsewhere they poll.
        """


COMMITS_AT_ONCE: Final = "the connection commits each statement at once; begin a transaction first, then enlist it"
_infos: Final[WeakKeyDictionary[Any, dict[Any, Any]]] = WeakKeyDictionary()
"""Knowledge of drivers' connections, for as long as they live."""


class LentConnection(PoolProxiedConnection):
    """A driver's connection as a pool would hand it out; nothing of it is committed, rolled back, reset or closed.

    Its owner's settings, such as a row factory, neither hold for our statements nor change.
    """

    driver: ClassVar[str]
    """SQLAlchemy's name of the driver."""
    is_async: ClassVar[bool] = False
    """Whether it belongs to an event loop."""
    record_info: None = None
    is_detached: bool = True
    is_valid: bool = True

    def __init__(self, raw: Any) -> None:
        self.raw: Final = raw
        self.driver_module: Any = None
        """The driver as SQLAlchemy knows it, once it is lent."""
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

    @override
    def invalidate(self, e: BaseException | None = None, soft: bool = False) -> None:
        """Run no more statements: the connection is lost, which its owner will find out."""
        self.is_valid = False

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


class DriverConnectionAdapter:
    """Makes SQLAlchemy Connections of drivers' connections, in the dialect of a store's engine.

    Their engine has no pool and no events: an engine's work on new, idle or returned connections does not happen to
    them.
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

    def lend(self, lent_connection: LentConnection) -> Connection:
        """A Connection that belongs to the transaction of `lent_connection`; it need not be closed."""
        lent_connection.driver_module = self._engine.dialect.loaded_dbapi
        connection = Connection(self._lending, lent_connection, _allow_revalidate=False)
        if self._engine.dialect.server_version_info is None:  # nothing is known of the server so far
            store_dialect_of(self._engine).initialize_dialect(self._engine, connection)
        return connection

    @cached_property
    def _lending(self) -> Engine:
        dialect = self._engine.dialect
        pool = NullPool(_no_connection, dialect=dialect)
        return Engine(pool, dialect, self._engine.url, hide_parameters=self._engine.hide_parameters)


class LentConnectionTarget(Target):
    """The transaction of a driver's connection."""

    def __init__(self, adapter: DriverConnectionAdapter, lent_connection: LentConnection) -> None:
        adapter.check_side(lent_connection.raw, is_async=lent_connection.is_async)
        if lent_connection.driver != adapter.driver:
            raise ConfigurationError(
                f"a connection of {lent_connection.driver} cannot be enlisted by a store whose driver is "
                f"{adapter.driver}; "
                "use the same driver for both"
            )
        self._lent_connection = lent_connection
        self._connection = adapter.lend(lent_connection)

    @property
    @override
    def connection(self) -> Connection:
        self._lent_connection.check()
        if driver_of(self._connection).commits_at_once(self._lent_connection.raw):
            raise ConfigurationError(COMMITS_AT_ONCE)
        return self._connection

    @property
    @override
    def address(self) -> URL | None:
        return self._lent_connection.address


def _info_of(raw: Any) -> dict[Any, Any]:
    try:
        return _infos.setdefault(raw, {})
    except TypeError:  # sqlite3's connections take no weak references
        return {}


def _no_connection() -> NoReturn:
    raise AssertionError("an engine that lends makes no connections")
