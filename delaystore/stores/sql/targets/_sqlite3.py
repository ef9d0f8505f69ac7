"""Connections of Python's sqlite3."""

import sqlite3
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

from typing_extensions import override

from delaystore.stores.sql.dialects.sqlite import text_of
from delaystore.stores.sql.targets._drivers import LentConnection

ResultT = TypeVar("ResultT")


class SqliteLentConnection(LentConnection):
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
    """Rows are tuples, whose texts are str, with any factories of the connection."""

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

    def _as_str(self, work: Callable[..., ResultT], *arguments: Any, **options: Any) -> ResultT:
        before, self.connection.text_factory = self.connection.text_factory, text_of
        try:
            return work(*arguments, **options)
        finally:
            self.connection.text_factory = before
