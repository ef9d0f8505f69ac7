"""asyncpg: prepares each statement, and lacks settings that libpq has."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final
from uuid import uuid4

from sqlalchemy import URL, Connection, Table
from sqlalchemy.engine.interfaces import Dialect
from typing_extensions import override

from delaystore.processes import AT_ONCE, awaited
from delaystore.stores.sql.drivers.base import Options, PostgreSqlDriver
from delaystore.stores.sql.faults import DatabaseHost, quoted_name

_KEEPALIVES: Final[Mapping[str, int]] = {
    "TCP_KEEPIDLE": 30,
    "TCP_KEEPINTVL": 10,
    "TCP_KEEPCNT": 3,
    "TCP_USER_TIMEOUT": 60_000,
}
"""As libpq sets them for the other drivers."""
_PREPARE: Final = "prepare_threshold"
_CACHES: Final = frozenset({"prepared_statement_cache_size", "statement_cache_size"})
"""SQLAlchemy's of prepared statements, which is all that we use, and asyncpg's own."""
_OF_LIBPQ: Final[Mapping[str, str]] = {"ssl": "sslmode", "timeout": "connect_timeout"}
"""asyncpg's options as libpq calls them."""
_OWN: Final = frozenset({"command_timeout", "max_cached_statement_lifetime", "max_cacheable_statement_size"} | _CACHES)
"""Options that libpq neither knows nor needs."""
_NUMBERS: Final[Mapping[str, Callable[[str], float]]] = {
    **dict.fromkeys(("timeout", "command_timeout"), float),
    **dict.fromkeys(("statement_cache_size", "max_cached_statement_lifetime", "max_cacheable_statement_size"), int),
}


class Asyncpg(PostgreSqlDriver):
    """asyncpg on an event loop."""

    is_async: ClassVar[bool] = True
    blocking: ClassVar[str | None] = "psycopg"
    connect_arguments: ClassVar[Mapping[str, Any] | None] = {"timeout": 10.0}
    time_limit: ClassVar[str] = "timeout"
    options_of_preparing: ClassVar[frozenset[str]] = frozenset({_PREPARE}) | _CACHES

    @override
    def options(self, url: URL) -> Options:
        """Numbers are numbers, `prepare_threshold=none` is for poolers that share sessions, and libpq's names will do.

        asyncpg itself keeps no prepared statements: it would prepare some before it is known that a pooler is between.
        """
        names = {theirs: ours for ours, theirs in _OF_LIBPQ.items()}
        given: dict[str, Any] = {}
        if self.options_of_preparing.isdisjoint(url.query):
            given |= {"statement_cache_size": 0, "prepared_statement_name_func": _name_of_its_own}
        for name, value in url.query.items():
            ours = names.get(name, name)
            if name == _PREPARE:
                if value == "none":
                    given |= dict.fromkeys(_CACHES, 0)
            elif ours in _NUMBERS:
                given[ours] = _NUMBERS[ours](str(value))
            elif ours != name:
                given[ours] = value
        return url.difference_update_query([_PREPARE, *_NUMBERS, *names]), given

    @override
    def blocking_query(self, url: URL) -> Mapping[str, Any]:
        return {_OF_LIBPQ.get(name, name): value for name, value in url.query.items() if name not in _OWN}

    @override
    def connect(self, dialect: Dialect, arguments: Sequence[Any], parameters: Mapping[str, Any]) -> Any:
        """Asyncpg raises the socket's errors, which SQLAlchemy does not take for the database's."""
        try:
            connection = dialect.connect(*arguments, **parameters)
        except TimeoutError:
            raise dialect.loaded_dbapi.OperationalError(
                f"no answer within {parameters.get(self.time_limit, '?')} s"
            ) from None
        except OSError as error:
            raise dialect.loaded_dbapi.OperationalError(str(error)) from None
        opened = _socket_of(connection)
        if opened is not None and opened.family != socket.AF_UNIX:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for name, value in _KEEPALIVES.items():
                if hasattr(socket, name):
                    opened.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        return connection

    @override
    def hosts_as_arguments(self, hosts: Sequence[DatabaseHost]) -> Mapping[str, Any]:
        return {"host": [host.name for host in hosts], "port": [host.port for host in hosts]}

    @override
    def host_of(self, connection: Any) -> DatabaseHost:
        return DatabaseHost(*connection.driver_connection._addr[:2])  # there is no other way to know

    @override
    def execute_alone(self, connection: Any, statements: str) -> str:
        return str(awaited(connection.driver_connection.execute(statements)))

    @override
    def server_process(self, connection: Any) -> int | None:
        return int(connection.driver_connection.get_server_pid())

    @override
    def prepare_nothing(self, connection: Any) -> None:
        """Statements without a name are prepared again with each use, together with it. There is no other way."""
        connection._prepared_statement_cache = None
        connection._prepared_statement_name_func = _no_name

    @override
    def socket_of(self, connection: Any) -> int | None:
        opened = _socket_of(connection)
        descriptor = -1 if opened is None else opened.fileno()
        return None if descriptor < 0 else descriptor

    @override
    def copy(
        self, connection: Connection, table: Table, types: Mapping[str, str], rows: Iterable[Sequence[Any]]
    ) -> None:
        """Where nothing is prepared a pooler may be between: there each row is inserted, without waiting for the last.

        asyncpg sends the rows of a COPY before the server has agreed to it, and pgbouncer 1.26 then never gives the
        session back to its pool.
        """
        wrapper: Any = connection.connection.dbapi_connection
        own = wrapper.driver_connection
        names = list(types)
        try:
            if wrapper._prepared_statement_cache is None:
                awaited(own.executemany(_insertion(connection, table, names), rows))
            else:
                copied = own.copy_records_to_table
                awaited(copied(table.name, schema_name=table.schema, columns=names, records=_slowly(rows)))
        except Exception as error:
            wrapper._handle_exception(error)  # makes it one of the errors that SQLAlchemy knows, or raises it as it is

    @override
    def on_notice(self, connection: Any, note: Callable[[str | None, str], None]) -> None:
        connection.driver_connection.add_log_listener(
            lambda _connection, message: note(
                getattr(message, "server_source_function", None), f"{message.message}; {message.detail}"
            )
        )

    @override
    def source_of(self, error: BaseException | None) -> str | None:
        return getattr(error and error.__cause__, "server_source_function", None)

    @override
    def detail_of(self, error: BaseException | None) -> str:
        return getattr(error and error.__cause__, "detail", None) or ""

    @override
    def context_of(self, error: BaseException | None) -> str:
        return getattr(error and error.__cause__, "context", None) or ""


def _insertion(connection: Connection, table: Table, names: Sequence[str]) -> str:
    values = ", ".join(f"${number}" for number in range(1, len(names) + 1))
    name = quoted_name(table, connection.dialect)
    return f"INSERT INTO {name} ({', '.join(names)}) VALUES ({values})"  # noqa: S608 - quoted


async def _slowly(rows: Iterable[Sequence[Any]]) -> AsyncIterator[Sequence[Any]]:
    for number, row in enumerate(rows):
        if number % AT_ONCE == 0:
            await asyncio.sleep(0)
        yield row


def _socket_of(connection: Any) -> Any:
    """The socket of a connection's transport; None once that is closed."""
    transport = connection.driver_connection._transport  # there is no other way to it
    return None if transport is None or transport.is_closing() else transport.get_extra_info("socket")


def _no_name() -> str:
    """The name of statements that are prepared again with each use."""
    return ""


def _name_of_its_own() -> str:
    return f"__delaystore_{uuid4().hex}__"
