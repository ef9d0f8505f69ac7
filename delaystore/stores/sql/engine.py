"""Engines and connections: isolation, fail-over, and the waits of a call in progress."""

import math
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary, WeakSet, ref

from sqlalchemy import URL, Connection, Engine, create_engine, event, exc
from sqlalchemy.engine.interfaces import DBAPIConnection, Dialect, ExceptionContext, ExecutionContext
from sqlalchemy.pool import ConnectionPoolEntry, NullPool, Pool, PoolProxiedConnection, PoolResetState

from delaystore.calls import CUT_AFTER, current_call, in_background
from delaystore.clock import ExtrapolatedClock
from delaystore.errors import ConfigurationError
from delaystore.processes import Turns, renew_in_children
from delaystore.stores.sql.dialects import DIALECTS, SqlDialect, fault_of
from delaystore.stores.sql.dialects.base import BINARY, OWN, PREPARED
from delaystore.stores.sql.drivers import Driver, driver_of, driver_of_url, is_only_async
from delaystore.stores.sql.errors import configuration_errors, unreachable
from delaystore.stores.sql.faults import Fault, HostsInTurn, hosts_of
from delaystore.stores.sql.urls import database_url, known_dialect, same_address, sqlalchemy_dialect

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

IDLE_BEFORE_PING: Final = 1.0
"""Seconds without use after which a pooled connection is tested first, so that callers do not notice a restart."""
KEPT: Final = 5
"""Connections that a pool keeps."""
MORE: Final = 15
"""Connections that it makes beyond these."""
SHORTEST_CONNECT_TIMEOUT: Final = 2
"""Seconds; libpq takes 1 for 2."""
_SQLITE_OPTIONS: Final = frozenset(
    {"cached_statements", "check_same_thread", "detect_types", "isolation_level", "timeout", "uri"}
)
"""What Python's driver takes. With `uri`, the others go to SQLite itself."""
_PASSWORDS: Final = frozenset({"password", "passwd"})
"""Options of libpq and PyMySQL that mean the same as the password before the host."""
_INHERITED: Final[list[Pool]] = []
"""Pools of the processes that this one was forked from, kept forever: asyncpg's connections, when they are collected,
take themselves off their loop, and both processes have the kernel's part of that in common."""


class Connections:
    """New connections of an engine, perhaps a caller's, for our transactions.

    `isolation`: their isolation level, in place of the engine's or its execution options'; None: the engine's own. A
    connection to a read-only server is given up. The owner's own use of the engine does not change.
    """

    def __init__(self, engine: Engine, isolation: str | None) -> None:
        self._engine = engine
        self._options = {OWN: True} if isolation is None else {OWN: True, "isolation_level": isolation}
        renew_after_fork(engine)
        # Listen to the dialect, which keeps these listeners: SQLAlchemy finds them by the target's address in memory,
        # and an engine may have the address of a former one whose dialect lives on.
        listeners = [*_HEARD, *(_HEARD_OF_POSTGRESQL if engine.dialect.name == "postgresql" else ())]
        for name, heard in listeners:
            if not event.contains(engine.dialect, name, heard):
                event.listen(engine.dialect, name, heard)

    def connect(self) -> Connection:
        """A connection; `close` gives it back to the engine's pool."""
        try:
            return self._prepared(self._engine.connect())
        except OSError as error:  # asyncpg raises what the socket raises; our own engines turn it into a driver's error
            raise unreachable(error) from None

    @contextmanager
    def connect_unpooled(self) -> Iterator[Connection]:
        """A connection that is none of the pool's, where the pool's last one may be in use; it is closed after use."""
        pool = self._engine.pool.recreate()
        try:
            with self._prepared(Connection(self._engine, pool.connect())) as connection:
                yield connection
        finally:
            pool.dispose()

    def _prepared(self, connection: Connection) -> Connection:
        try:
            # not options of an engine: those of the engine that it is made from would be set after them
            return connection.execution_options(**self._options)
        except BaseException:
            # a cancelled task's has perhaps the new level by now, and would not get the former one back
            with connection:
                connection.invalidate()
            raise


def create_store_engine(url: str | URL, *, pooled: bool = True) -> Engine:
    """An engine for `url`, tuned for a store: SQLite in WAL mode, the others under READ COMMITTED.

    PostgreSQL's sessions write times as ISO and text as UTF-8, with any settings of the role or the database.

    Of several hosts in the URL the one that takes writes is used.

    The URL's query goes to the driver. Where it has no `prepare_threshold`, statements are prepared unless a pooler
    such as pgbouncer is between.

    `pooled`: whether it keeps connections; otherwise each is closed after use.

    Raises ConfigurationError for a URL that cannot work, MissingDependencyError for a missing driver.
    """
    with configuration_errors():
        parsed = database_url(url)
        check_blocking(parsed)
        create = create_engine if pooled else partial(create_engine, poolclass=NullPool)
        return _engine(parsed, create, is_async=False, pooled=pooled)


def create_async_store_engine(url: str | URL) -> "AsyncEngine":
    """As `create_store_engine`, for an event loop: a URL without a driver gets one that knows asyncio.

    Its `sync_engine` executes statements in greenlets only.
    """
    with configuration_errors():
        import_module("greenlet")  # what SQLAlchemy says of its absence is long
        from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

        def create(parsed: URL, **options: Any) -> Engine:
            engine = create_async_engine(parsed, **options).sync_engine
            engine.dialect.skip_autocommit_rollback = True  # an argument, too, but only from SQLAlchemy 2.0.43 on
            return engine

        return AsyncEngine(_engine(database_url(url), create, is_async=True))


def transactional(engine: "AsyncEngine") -> "AsyncEngine":
    """The engine of `create_async_store_engine` with the same pool, for code that expects transactions of it."""
    dialect, driver = DIALECTS[engine.url.get_backend_name()], driver_of(engine.sync_engine)
    isolation = dialect.transaction_isolation
    if driver.default_isolation(dialect.single_statement_isolation, isolation) == isolation:
        return engine
    return engine.execution_options(isolation_level=isolation)


def blocking_url(url: URL) -> URL:
    """`url`, which names a driver for event loops, with the driver that threads take for the same database."""
    driver = driver_of_url(url, is_async=True)
    if driver.blocking is None:
        return url
    return url.set(drivername=f"{url.get_backend_name()}+{driver.blocking}", query=driver.blocking_query(url))


def check_blocking(database: URL | Engine) -> None:
    """Raise ConfigurationError for a URL or engine, also an AsyncEngine, whose driver belongs to an event loop.

    And for a URL with an unknown driver.
    """
    url = database if isinstance(database, URL) else database.url
    sqlalchemy_dialect(url)
    if is_only_async(url) or (not isinstance(database, URL) and database.dialect.is_async):
        raise ConfigurationError(
            f"{url.drivername}:// is for asyncio; write {blocking_url(url).drivername}://, or with asyncio use "
            "AsyncSqlDelayedMessageStore and AsyncDelayedDelivery"
        )


def _engine(parsed: URL, create: Callable[..., Engine], *, is_async: bool, pooled: bool = True) -> Engine:
    """The engine that `create` makes of a URL, tuned for a store. Raises what SQLAlchemy raises, and
    ConfigurationError.
    """
    dialect, options = known_dialect(parsed), dict[str, Any](hide_parameters=True)
    parsed = _with_password_hidden(_with_driver(parsed, dialect, is_async=is_async))
    sqlalchemy_dialect(parsed)
    if dialect.is_file:
        _check_sqlite_url(parsed)
        options["paramstyle"] = "named"  # for any other, SQLAlchemy takes a table called "%(id)s" for a parameter
    driver = driver_of_url(parsed, is_async=is_async)
    if pooled:
        options |= driver.pool_sizes(KEPT, MORE)
    if dialect.transaction_isolation is not None:
        options["isolation_level"] = driver.default_isolation(
            dialect.single_statement_isolation, dialect.transaction_isolation
        )
    heed_pooler = driver.options_of_preparing.isdisjoint(parsed.query)
    parsed, given = driver.options(parsed)
    defaults = driver.connect_arguments
    if defaults is None:
        defaults = dialect.connect_arguments
    given = {**{name: value for name, value in defaults.items() if name not in parsed.query}, **given}
    engine = create(parsed, connect_args=given, **options)

    def prepare(connection: DBAPIConnection, record: ConnectionPoolEntry) -> None:
        record.info[PREPARED] = dialect.prepare(connection, driver, heed_pooler=heed_pooler)

    event.listen(engine, "do_connect", _connecting(dialect, driver, HostsInTurn(hosts_of(parsed))))
    event.listen(engine, "connect", prepare)
    if not dialect.is_file:
        event.listen(engine, "checkin", _note_use)
        event.listen(engine, "checkout", _ping_after_idling)
    renew_after_fork(engine)
    return engine


def same_database(one: Engine, other: Engine) -> bool:
    """Whether both engines lead to the same database, so that one transaction can span both."""
    return one.pool is other.pool or same_address(one.url, other.url)


def renew_after_fork(engine: Engine) -> None:
    """Let a forked child open connections of its own: a socket shared with the parent would mix up both."""
    renew_in_children(engine, _leave_to_parent)


def _leave_to_parent(engine: Engine) -> None:
    if engine.dialect.is_async:
        _INHERITED.append(engine.pool)
    engine.dispose(close=False)


def _with_driver(url: URL, dialect: SqlDialect, *, is_async: bool) -> URL:
    default = next(iter(dialect.async_drivers), None) if is_async else dialect.default_driver
    if default is not None and "+" not in url.drivername:
        return url.set(drivername=f"{url.drivername}+{default}")
    if is_async and url.get_driver_name().removesuffix("_async") not in dialect.async_drivers:
        known = ", ".join(f"{url.get_backend_name()}+{name}://" for name in dialect.async_drivers)
        raise ConfigurationError(f"{url.drivername}:// is not for asyncio; use {known or 'another database'}")
    return url


def _with_password_hidden(url: URL) -> URL:
    """A password among the options as the URL's own, which the engine's repr and SQLAlchemy's logs leave out."""
    for name in _PASSWORDS & set(url.query):
        url = url.set(password=str(url.query[name])).difference_update_query([name])
    return url


def _check_sqlite_url(url: URL) -> None:
    named = str(url.database or "").removeprefix("file:")
    if named in ("", ":memory:") or "mode=memory" in named or url.query.get("mode") == "memory":
        raise ConfigurationError("a SQLite store needs a file, as in sqlite:///app.db; for memory use memory://")
    unknown = sorted(set(url.query) - _SQLITE_OPTIONS)
    if unknown and "uri" not in url.query:
        raise ConfigurationError(f"SQLite has no option {unknown[0]!r}; take it out of the URL")
    folder = os.path.dirname(os.path.abspath(str(url.database)))
    if not str(url.database).startswith("file:") and not os.path.isdir(folder):
        raise ConfigurationError(f"the folder {folder!r} of the SQLite database does not exist; create it first")


def _connecting(ours: SqlDialect, driver: Driver, hosts: HostsInTurn) -> Callable[..., DBAPIConnection]:
    """A function that makes connections; it raises ConfigurationError for an option that the driver does not know."""
    turns = Turns()

    def connect(
        dialect: Dialect, _record: ConnectionPoolEntry, arguments: Sequence[Any], parameters: Mapping[str, Any]
    ) -> DBAPIConnection:
        if driver.is_async:
            turns.wait()  # a driver reads files and makes a TLS context at once before it awaits anything
        with configuration_errors():
            connection: DBAPIConnection = ours.connect(
                dialect, arguments, _in_time(parameters, driver.time_limit), hosts
            )
            return connection

    return connect


def _in_time(parameters: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """`parameters` with no longer time limit, which is called `name`, than the call in progress has left.

    In whole seconds.
    """
    call, limit = current_call(), parameters.get(name)
    left = None if call is None else call.seconds_left
    if left is None or limit is None:
        return parameters
    return {**parameters, name: max(SHORTEST_CONNECT_TIMEOUT, min(int(limit), math.ceil(left)))}


def _leave_read_only_server(context: ExceptionContext) -> None:
    """Have SQLAlchemy treat the connection as lost, with its pool's others: the next ones may find the primary."""
    error = context.sqlalchemy_exception
    if context.connection is None or OWN not in context.connection.get_execution_options():
        return
    if isinstance(error, exc.DBAPIError) and fault_of(error) is Fault.READ_ONLY:
        context.is_disconnect = True


def _close_what_was_cut(context: ExceptionContext) -> None:
    """Close the cursor of a statement that was cancelled in the middle: SQLAlchemy closes only its connection."""
    execution = context.execution_context
    if execution is not None and not isinstance(context.original_exception, Exception):
        driver_of(context.dialect).leave(execution.cursor)


def _read_binary(cursor: Any, _statement: str, _parameters: Any, context: ExecutionContext) -> None:
    """Have the driver fetch binary values for statements with that option."""
    if BINARY in context.execution_options:
        driver_of(context.dialect).read_binary(cursor)


_HEARD: Final[Sequence[tuple[str, Callable[..., None]]]] = (
    ("handle_error", _leave_read_only_server),
    ("handle_error", _close_what_was_cut),
)
"""SQLAlchemy's events, and who hears of them."""
_HEARD_OF_POSTGRESQL: Final[Sequence[tuple[str, Callable[..., None]]]] = (("do_execute", _read_binary),)
"""Called for each statement, which other databases need not pay for."""


def _note_use(_connection: DBAPIConnection | None, record: ConnectionPoolEntry) -> None:
    record.info["delaystore_used"] = time.monotonic()


def _ping_after_idling(connection: DBAPIConnection, record: ConnectionPoolEntry, _proxy: PoolProxiedConnection) -> None:
    used = record.info.get("delaystore_used")
    if used is None or time.monotonic() - used < IDLE_BEFORE_PING:
        return
    try:
        cursor = connection.cursor()
        cursor.execute("SELECT 1")
        cursor.close()
        connection.rollback()
    except Exception as error:
        raise exc.DisconnectionError("a pooled connection had gone") from error


MAKES_OLD: Final = 1.0
"""Seconds; older readings of a clock are requested again after a connection was made, perhaps to another server."""


class EngineConnections:
    """The listeners of one engine.

    They tell clocks that another server may answer, and calls on which connection they wait. A connection that is
    given back after the engine was disposed of is closed: its pool is gone.
    """

    def __init__(self, engine: Engine) -> None:
        self._driver = driver_of(engine)
        self.clocks: Final[WeakSet[ExtrapolatedClock]] = WeakSet()
        """Clocks of the server, which must be asked again where another server may answer."""
        self._pool = ref(engine.pool)
        event.listen(engine, "engine_disposed", self._disposed)
        event.listen(engine, "connect", self._made, insert=True)  # before the connection is prepared
        event.listen(engine, "invalidate", self._lost)
        event.listen(engine, "checkout", self._used, insert=True)  # before the connection is tested
        event.listen(engine, "reset", self._given_back)
        event.listen(engine, "checkin", self._returned)
        for moment in ("before_cursor_execute", "commit", "rollback"):
            event.listen(engine, moment, self._used_by)

    def _disposed(self, engine: Engine) -> None:
        former, self._pool = self._pool(), ref(engine.pool)
        if former is not None:
            _close_when_given_back(former)

    def _made(self, driver: Any, _record: ConnectionPoolEntry) -> None:
        self._driver.repair(driver)
        self._used(driver)
        for clock in list(self.clocks):
            clock.forget(older_than=MAKES_OLD)

    def _lost(self, *_: Any) -> None:
        for clock in list(self.clocks):
            clock.forget()

    def _used(self, driver: Any, *_: Any) -> None:
        call = current_call()
        if call is None or call.limit is None:
            return
        former = call.waits_for
        if isinstance(former, WaitingConnection) and former.connection is driver:
            return
        descriptor = self._driver.socket_of(driver)
        if descriptor is None:
            return
        try:
            duplicate = os.dup(descriptor)
        except OSError:  # too many open files: better a call without an end than none
            return
        call.wait_for(WaitingConnection(driver, duplicate, self._driver))

    def _used_by(self, connection: Connection, *_: Any) -> None:
        if current_call() is not None and not connection.invalidated:
            self._used(connection.connection.dbapi_connection)

    def _given_back(self, driver: Any, record: Any, state: PoolResetState) -> None:
        """Give the connection the isolation level back that it had.

        SQLAlchemy does it later, where the cancellation of a task, which is awaited on a loop, would lose the place
        in the pool. From here the connection is closed then.
        """
        self._used(driver)
        if not self._driver.is_async or not state.asyncio_safe or record is None or not record.finalize_callback:
            return
        if not state.transaction_was_reset:
            driver.rollback()
        while record.finalize_callback:
            record.finalize_callback.pop()(driver)

    def _returned(self, driver: Any, record: ConnectionPoolEntry) -> None:
        """From now on the call ends nothing on the connection, which another thread may take.

        No caller gets the connection of a call that was to be ended: a late cancellation would hit the next one. The
        same holds for one that took too long: the caller has perhaps closed the store by now, and the connection
        would stay open.
        """
        call = current_call()
        if call is not None and isinstance(call.waits_for, WaitingConnection) and call.waits_for.connection is driver:
            call.wait_for(None)
        if call is not None and (call.overdue or call.seconds_left == 0):
            _end(driver, record)


def dispose(engine: Engine) -> None:
    """Close the engine's connections: idle ones now, those in use as soon as they are given back.

    SQLite's engines have no other listener for this: any event of an Engine slows each send down by a quarter.
    """
    former = engine.pool
    engine.dispose()
    _close_when_given_back(former)
    former.dispose()  # those that were given back meanwhile


def _close_when_given_back(pool: Pool) -> None:
    """SQLAlchemy leaves them to the garbage collector. Their users include threads that connect at this moment."""
    event.listen(pool, "checkin", _end)


def _end(_driver: Any, record: ConnectionPoolEntry) -> None:
    record.invalidate()


class WaitingConnection:
    """A driver's connection that a call waits for.

    `descriptor`: a duplicate of its socket's, so that it stays open even if the driver closes its own.
    """

    def __init__(self, connection: Any, descriptor: int, driver: Driver) -> None:
        self.connection = connection
        self._descriptor = descriptor
        self._driver = driver

    def ask_to_end(self) -> None:
        """Where the server can be asked to end its work for this connection, ask it; else end the wait."""
        cancel: Callable[[float], object] | None = self._driver.cancellation(self.connection)
        if cancel is None:
            self.cut()
        else:
            in_background("delaystore-cancel", lambda: cancel(CUT_AFTER))

    def cut(self) -> None:
        """Shut the socket down: the driver sees the end of the connection."""
        try:
            with socket.socket(fileno=os.dup(self._descriptor)) as duplicate:
                duplicate.shutdown(socket.SHUT_RDWR)
        except OSError:  # it has just ended
            return

    def release(self) -> None:
        """Close the duplicate."""
        os.close(self._descriptor)


_known: Final[WeakKeyDictionary[Engine, EngineConnections]] = WeakKeyDictionary()


def connections_of(engine: Engine) -> EngineConnections:
    """The one EngineConnections of `engine`."""
    known = _known.get(engine)
    if known is None:
        known = _known[engine] = EngineConnections(engine)
    return known
