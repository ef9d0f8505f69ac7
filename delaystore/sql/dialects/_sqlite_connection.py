"""A connection to SQLite that holds forks off while it works.

SQLite keeps in this process's memory which locks its connections have. A child that is forked in the middle of a write
inherits that, with nobody to end the write, and finds the database locked for ever.
"""

import sqlite3
from collections.abc import Callable
from typing import Any, TypeVar

from typing_extensions import override

from delaystore.forks import hold_off, let_go

Result = TypeVar("Result")


class ForkSafeConnection(sqlite3.Connection):
    """For `sqlite3.connect(factory=...)`: forks wait for the end of a statement, or of the transaction it is in."""

    @override
    def cursor(self, factory: Any = None) -> Any:
        return super().cursor(factory or _ForkSafeCursor)

    @override
    def commit(self) -> None:
        self.without_forks(super().commit)

    @override
    def rollback(self) -> None:
        self.without_forks(super().rollback)

    @override
    def close(self) -> None:
        """Undo what is open; SQLite does so only once no cursor is left, and a cancelled task may still hold one."""
        try:
            if self._in_transaction():
                super().rollback()
        finally:
            try:
                super().close()
            finally:
                let_go(self)

    def _in_transaction(self) -> bool:
        try:
            return self.in_transaction
        except sqlite3.ProgrammingError:  # it is closed already
            return False

    def without_forks(self, work: Callable[..., Result], *arguments: Any) -> Result:
        """What `work` returns; forks wait for its end, and for that of the transaction it leaves open."""
        hold_off(self)
        try:
            return work(*arguments)
        finally:
            if not self.in_transaction:
                let_go(self)


class _ForkSafeCursor(sqlite3.Cursor):
    connection: ForkSafeConnection

    @override
    def execute(self, *arguments: Any) -> "_ForkSafeCursor":
        self.connection.without_forks(super().execute, *arguments)
        return self

    @override
    def executemany(self, *arguments: Any) -> "_ForkSafeCursor":
        self.connection.without_forks(super().executemany, *arguments)
        return self
