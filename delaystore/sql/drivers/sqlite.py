"""The drivers of SQLite: Python's own, and one that has it in a thread for event loops."""

import sqlite3
from collections.abc import Callable
from contextlib import suppress
from typing import Any, ClassVar

from typing_extensions import override

from delaystore.sql.drivers.base import Driver


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
    def text_by(self, connection: Any, decode: Callable[[bytes], str]) -> None:
        connection.text_factory = decode

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
    def text_by(self, connection: Any, decode: Callable[[bytes], str]) -> None:
        connection.driver_connection.text_factory = decode
