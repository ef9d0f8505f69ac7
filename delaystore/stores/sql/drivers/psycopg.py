"""psycopg 3, which knows both ways; SQLAlchemy calls both `psycopg`."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar, Final

from sqlalchemy import URL, Connection, Table
from typing_extensions import override

from delaystore.processes import AT_ONCE, awaited
from delaystore.stores.sql.drivers.base import Options, PostgreSqlDriver
from delaystore.stores.sql.faults import DatabaseHost, quoted_name

_PREPARE: Final = "prepare_threshold"


class Psycopg(PostgreSqlDriver):
    """psycopg in a thread."""

    options_of_preparing: ClassVar[frozenset[str]] = frozenset({_PREPARE})

    @override
    def options(self, url: URL) -> Options:
        """Psycopg prepares a statement after this number of uses; it takes a number or None, not text."""
        if _PREPARE not in url.query:
            return url, {}
        threshold = str(url.query[_PREPARE])
        return url.difference_update_query([_PREPARE]), {_PREPARE: None if threshold == "none" else int(threshold)}

    @override
    def commits_at_once(self, own: Any) -> bool:
        """In autocommit mode; else the first statement begins a transaction."""
        from psycopg.pq import TransactionStatus

        return bool(own.autocommit and own.info.transaction_status == TransactionStatus.IDLE)

    @override
    def hosts_as_arguments(self, hosts: Sequence[DatabaseHost]) -> Mapping[str, Any]:
        """As libpq reads them."""
        names = ",".join(host.name for host in hosts)
        return {"host": names, "port": ",".join("" if host.port is None else str(host.port) for host in hosts)}

    @override
    def host_of(self, connection: Any) -> DatabaseHost:
        info = _own(connection).info
        return DatabaseHost(info.host, info.port)

    @override
    def settings_for(self, connection: Any) -> Mapping[str, str]:
        """Psycopg reads no dates but ISO ones."""
        is_iso = (_own(connection).info.parameter_status("DateStyle") or "").startswith("ISO")
        return {} if is_iso else {"datestyle": "ISO"}

    @override
    def execute_alone(self, connection: Any, statements: str) -> str:
        before, connection.autocommit = connection.autocommit, True
        word = _last_word(connection.execute(statements))
        connection.autocommit = before
        return word

    @override
    def server_process(self, connection: Any) -> int | None:
        return int(_own(connection).info.backend_pid)

    @override
    def prepare_nothing(self, connection: Any) -> None:
        _own(connection).prepare_threshold = None

    @override
    def socket_of(self, connection: Any) -> int | None:
        own = _own(connection)
        return None if own.closed else own.fileno()

    @override
    def read_binary(self, cursor: Any) -> None:
        """In the text form a body takes twice its size in libpq, and most of the time of a fetch to decode."""
        from psycopg.pq import Format  # loads slowly, and programs with another database need it not

        cursor.format = Format.BINARY

    @override
    def cancellation(self, connection: Any) -> Callable[[float], object] | None:
        """A commit that waits for a synchronous standby ends no other way: the server would keep its process for it."""
        from psycopg import capabilities

        if not capabilities.has_cancel_safe():
            return None  # with an older libpq the request itself has no time limit
        return lambda seconds: _cancel(connection, seconds)

    @override
    def copy(
        self, connection: Connection, table: Table, types: Mapping[str, str], rows: Iterable[Sequence[Any]]
    ) -> None:
        cursor: Any = connection.connection.cursor()
        with cursor, cursor.copy(_copy_statement(connection, table, types)) as copy:
            copy.set_types(list(types.values()))
            for row in rows:
                copy.write_row(row)

    @override
    def on_notice(self, connection: Any, note: Callable[[str | None, str], None]) -> None:
        _own(connection).add_notice_handler(
            lambda notice: note(notice.source_function, f"{notice.message_primary}; {notice.message_detail}")
        )

    @override
    def source_of(self, error: BaseException | None) -> str | None:
        return getattr(getattr(error, "diag", None), "source_function", None)

    @override
    def detail_of(self, error: BaseException | None) -> str:
        diagnostics: Any = getattr(error, "diag", None)
        return getattr(diagnostics, "message_detail", None) or ""

    @override
    def context_of(self, error: BaseException | None) -> str:
        return getattr(getattr(error, "diag", None), "context", None) or ""


class AsyncPsycopg(Psycopg):
    """psycopg on an event loop."""

    is_async: ClassVar[bool] = True
    blocking: ClassVar[str | None] = "psycopg"

    @override
    def read_binary(self, cursor: Any) -> None:
        """Not through SQLAlchemy's wrapper, which hides the form. A dispatcher takes the blocking driver."""

    @override
    def cancellation(self, connection: Any) -> Callable[[float], object] | None:
        """None: cancelling the task has psycopg ask the server itself."""
        return None

    @override
    def execute_alone(self, connection: Any, statements: str) -> str:
        own = _own(connection)

        async def execute() -> str:
            before = own.autocommit
            await own.set_autocommit(True)
            word = _last_word(await own.execute(statements))
            await own.set_autocommit(before)
            return word

        return awaited(execute())

    @override
    def copy(
        self, connection: Connection, table: Table, types: Mapping[str, str], rows: Iterable[Sequence[Any]]
    ) -> None:
        own, statement = _own(connection.connection.dbapi_connection), _copy_statement(connection, table, types)

        async def write() -> None:
            async with own.cursor() as cursor, cursor.copy(statement) as copy:
                copy.set_types(list(types.values()))
                for number, row in enumerate(rows):
                    await copy.write_row(row)
                    if number % AT_ONCE == 0:
                        await asyncio.sleep(0)

        awaited(write())


def _own(connection: Any) -> Any:
    """Psycopg's connection, also behind SQLAlchemy's wrapper."""
    return getattr(connection, "driver_connection", connection)


def _last_word(cursor: Any) -> str:
    """The server's status of the last statement that a cursor has executed."""
    while cursor.nextset():
        pass
    return str(cursor.statusmessage)


def _copy_statement(connection: Connection, table: Table, names: Iterable[str]) -> bytes:
    return f"COPY {quoted_name(table, connection.dialect)} ({', '.join(names)}) FROM STDIN (FORMAT BINARY)".encode()


def _cancel(connection: Any, seconds: float) -> None:
    with suppress(Exception):  # it may be answered, closed or unreachable by now; then the wait is cut
        connection.cancel_safe(timeout=seconds)
