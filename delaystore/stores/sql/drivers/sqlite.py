"""The drivers of SQLite: Python's own, and one that has it in a thread for event loops."""

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar

from sqlalchemy.engine.interfaces import Dialect
from typing_extensions import override

from delaystore.stores.sql.drivers.base import Driver


class PySqlite(Driver):
    """The module sqlite3."""

    @override
    def commits_at_once(self, own: Any) -> bool:
        """In autocommit mode; else the driver begins a transaction before the first insert."""
        if own.in_transaction:
            return False
        autocommit = getattr(own, "autocommit", None)  # new in Python 3.12, and not of aiosqlite
        return autocommit is True or (autocommit is not False and own.isolation_level is None)

    @override
    def leave(self, cursor: Any) -> None:
        """An INSERT ... RETURNING keeps its locks until its cursor is closed, even where its connection is."""
        with suppress(sqlite3.Error, ValueError):  # the connection is closed already
            cursor.close()


class AioSqlite(PySqlite):
    """aiosqlite on an event loop."""

    is_async: ClassVar[bool] = True
    blocking: ClassVar[str | None] = "pysqlite"

    @override
    def connect(self, dialect: Dialect, arguments: Sequence[Any], parameters: Mapping[str, Any]) -> Any:
        return super().connect(dialect, arguments, {"async_creator_fn": _closing_what_was_opened, **parameters})

    @override
    def text_by(self, connection: Any, decode: Callable[[bytes], str]) -> None:
        connection.driver_connection.text_factory = decode


def _closing_what_was_opened(*arguments: Any, **parameters: Any) -> Any:
    """A connection of aiosqlite that closes SQLite's at its end, even if its task was cancelled while it was opened."""
    import aiosqlite

    connection: Any = aiosqlite.connect(*arguments, **parameters)
    connection._thread.daemon = True  # as SQLAlchemy has it
    opened: list[sqlite3.Connection] = []
    connector, stop = connection._connector, connection.stop

    def open_it() -> sqlite3.Connection:
        opened.append(connector())
        return opened[0]

    def close_it() -> None:
        while opened:
            opened.pop().close()

    def stop_it() -> Any:
        connection._tx.put_nowait((None, close_it))
        return stop()

    connection._connector, connection.stop = open_it, stop_it
    return connection
