"""Arguments of `enlist`: SQLAlchemy, Django, or a connection of a driver."""

import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import URL, Connection, event, exc
from typing_extensions import override

from delaystore.errors import ConfigurationError, StoreError
from delaystore.stores.sql.drivers import driver_of
from delaystore.stores.sql.targets._drivers import (
    COMMITS_AT_ONCE,
    DriverConnectionAdapter,
    LentConnection,
    LentConnectionTarget,
    Target,
)

if TYPE_CHECKING:
    from sqlalchemy.orm import Session, SessionTransaction

_WAITING: Final = "delaystore_waiting"
"""The key in Session.info of the actions to call at the transaction's end; one listener per session calls them all."""


class ConnectionTarget(Target):
    """A Connection's transaction. It has an event before its commit, and none after it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @property
    @override
    def connection(self) -> Connection:
        return _in_transaction(self._connection)

    @property
    @override
    def address(self) -> URL:
        return self._connection.engine.url


class SessionTarget(Target):
    """A Session's transaction.

    Each statement asks the Session for its connection: only then does the Session begin its savepoints, and a
    savepoint that is rolled back undoes its own changes.
    """

    def __init__(self, session: "Session") -> None:
        self._session = session

    @property
    @override
    def connection(self) -> Connection:
        try:
            return _in_transaction(self._session.connection())
        except exc.PendingRollbackError:
            raise StoreError("the session's transaction has failed; roll it back, and begin another") from None
        except exc.UnboundExecutionError:
            raise ConfigurationError(
                "the session is bound to no single engine; enlist the connection to the store's database, as in "
                "session.connection(bind_arguments={'mapper': Order})"
            ) from None
        except exc.InvalidRequestError as error:
            raise StoreError(f"the session takes no statements: {str(error).partition(chr(10))[0]}") from None

    @property
    @override
    def address(self) -> URL:
        return self.connection.engine.url

    @override
    def when_ended(self, action: Callable[[], None]) -> None:
        """After the outermost transaction, committed or not."""
        info = self._session.info
        if _WAITING not in info:
            info[_WAITING] = []
            event.listen(self._session, "after_transaction_end", _call_waiting)
        if action not in info[_WAITING]:
            info[_WAITING].append(action)


def _in_transaction(connection: Connection) -> Connection:
    """`connection`, unless it is one that commits each statement at once."""
    given = connection.get_execution_options().get("isolation_level")
    if (given or connection.dialect._on_connect_isolation_level) == "AUTOCOMMIT":  # there is no other way to know
        raise ConfigurationError(
            "the connection has isolation_level AUTOCOMMIT, so that each statement would be committed at once; "
            "enlist one that has transactions"
        )
    driver = driver_of(connection)
    if driver.commits_at_once(_own(connection)):
        begun = None if connection.in_transaction() else connection.begin()  # whose listener may begin one
        if driver.commits_at_once(_own(connection)):
            if begun is not None:
                begun.rollback()
            raise ConfigurationError(COMMITS_AT_ONCE)
    return connection


def _own(connection: Connection) -> Any:
    """The driver's own connection; SQLAlchemy does not name it where it is detached from its pool."""
    wrapper: Any = connection.connection.dbapi_connection
    return connection.connection.driver_connection or getattr(wrapper, "driver_connection", wrapper)


def _call_waiting(session: "Session", transaction: "SessionTransaction") -> None:
    if transaction.parent is None:
        waiting, session.info[_WAITING] = session.info[_WAITING], []
        for action in waiting:
            action()


class DjangoTarget(Target):
    """The transaction of one of Django's connections, a BaseDatabaseWrapper.

    `lent` makes a target of the driver's connection behind it, which Django may replace by a new one.
    """

    def __init__(
        self,
        wrapper: Any,
        adapter: DriverConnectionAdapter,
        lent: Callable[[Any, DriverConnectionAdapter], LentConnectionTarget],
    ) -> None:
        self._wrapper = wrapper
        self._adapter = adapter
        self._lent = lent
        self._raw: Any = None
        self._target: LentConnectionTarget | None = None

    @property
    @override
    def connection(self) -> Connection:
        return self._current().connection

    @property
    @override
    def address(self) -> URL | None:
        return self._current().address

    @override
    def when_ended(self, action: Callable[[], None]) -> None:
        """After the commit of the outermost atomic block; Django forgets `action` with a savepoint rolled back."""
        if self._wrapper.in_atomic_block:
            self._wrapper.on_commit(action, robust=True)

    def _current(self) -> LentConnectionTarget:
        wrapper = self._wrapper
        if not wrapper.in_atomic_block and wrapper.get_autocommit():
            raise ConfigurationError(
                f"Django's connection {wrapper.alias!r} is in no transaction, so that each statement would be "
                "committed at once; enlist it inside transaction.atomic()"
            )
        if wrapper.needs_rollback:
            raise StoreError("the atomic block will be rolled back after an error; leave it, and begin another")
        wrapper.validate_thread_sharing()
        wrapper.ensure_connection()
        if self._target is None or self._raw is not wrapper.connection:
            self._raw = wrapper.connection
            self._target = self._lent(self._raw, self._adapter)
        return self._target


_LENT_CONNECTIONS: Final = {
    "psycopg": ("_psycopg", ("PsycopgLentConnection", "AsyncPsycopgLentConnection")),
    "sqlite3": ("_sqlite3", ("SqliteLentConnection",)),
    "pymysql": ("_pymysql", ("PyMySqlLentConnection",)),
}
"""By the package of the driver: where its class is. A module is imported once a caller has such a connection."""
_TAKEN: Final = (
    "a Connection or Session of SQLAlchemy, a connection of psycopg 3, sqlite3 or PyMySQL, or Django's connection"
)
_TAKEN_ON_A_LOOP: Final = "an AsyncConnection or AsyncSession of SQLAlchemy, or an AsyncConnection of psycopg 3"
_ORM: Final = "sqlalchemy.orm"
"""Not imported here: it loads slowly, and only programs that have imported it have a Session."""
_ASYNCHRONOUS: Final = {
    "sqlalchemy.ext.asyncio": ("AsyncConnection", "AsyncSession", "async_scoped_session"),
    "psycopg": ("AsyncConnection",),
    "aiosqlite": ("Connection",),
    "asyncpg": ("Connection",),
}


def target_of(given: Any, adapter: DriverConnectionAdapter) -> Target:
    """The transaction of `given`; raises ConfigurationError for an object without a transaction that a store can
    take part in.
    """
    if isinstance(given, Target):
        return given
    if isinstance(given, Connection):
        return ConnectionTarget(given)
    if _is_of_orm(given, "scoped_session"):
        return SessionTarget(given())
    if _is_of_orm(given, "Session"):
        return SessionTarget(given)
    wrapper = _wrapper_of(given)
    if wrapper is not None:
        return DjangoTarget(wrapper, adapter, lent)
    if not adapter.is_async and _is_asynchronous(given):
        raise ConfigurationError(
            f"a {type(given).__name__} belongs to asyncio; enlist it by AsyncDelayedDelivery.enlist"
        )
    if isinstance(given, _kinds("sqlalchemy.ext.asyncio", ("AsyncConnection",))):
        raise ConfigurationError("the AsyncConnection has not been started; await it first, or use `async with`")
    return lent(given, adapter)


def lent(raw: Any, adapter: DriverConnectionAdapter) -> LentConnectionTarget:
    """The transaction of a driver's connection; raises ConfigurationError for anything else."""
    for base in type(raw).__mro__:
        place = _LENT_CONNECTIONS.get(base.__module__.partition(".")[0])
        module, names = place or ("", ())
        for name in names:
            lent_connection: Any = getattr(import_module(f"{__package__}.{module}"), name)
            if isinstance(raw, lent_connection.taken):
                made: LentConnection = lent_connection(raw)
                return LentConnectionTarget(adapter, made)
    takes = _TAKEN_ON_A_LOOP if adapter.is_async else _TAKEN
    raise ConfigurationError(f"enlist takes {takes}, not {type(raw).__name__}")


def _wrapper_of(given: Any) -> Any:
    """Django's BaseDatabaseWrapper, which django.db.connection stands for; None: `given` is none of Django's."""
    django: Any = sys.modules.get("django.db")
    if django is None:
        return None
    if isinstance(given, type(django.connection)):
        return django.connections[given.alias]
    return given if isinstance(given, import_module("django.db.backends.base.base").BaseDatabaseWrapper) else None


def _is_of_orm(given: Any, name: str) -> bool:
    return isinstance(given, _kinds(_ORM, (name,)))


def _is_asynchronous(given: Any) -> bool:
    return any(isinstance(given, _kinds(module, names)) for module, names in _ASYNCHRONOUS.items())


def _kinds(module: str, names: Sequence[str]) -> tuple[type, ...]:
    """The classes of a module; none where it is not imported."""
    return tuple(kind for name in names if (kind := getattr(sys.modules.get(module), name, None)) is not None)
