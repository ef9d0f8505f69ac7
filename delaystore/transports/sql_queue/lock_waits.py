"""How long a statement may wait for somebody else's lock."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from sqlalchemy import Connection, exc, text

_LONGEST: Final = 2_000_000
"""Seconds; PostgreSQL and SQLite count milliseconds in 32 bits."""


@contextmanager
def lock_wait(connection: Connection, seconds: float | None) -> Iterator[None]:
    """Let no statement in the block wait longer than `seconds` for a lock; None: as the connection has it.

    The transaction is to end inside the block. MySQL and MariaDB take whole seconds, at least one.
    """
    if seconds is None:
        yield
        return
    before = _limit(connection, min(seconds, _LONGEST))
    try:
        yield
    finally:
        _restore(connection, before)


def _limit(connection: Connection, seconds: float) -> str | None:
    """Set the limit; the statement that sets what was there before, if the transaction's end does not."""
    milliseconds = max(1, int(seconds * 1000))
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT set_config('lock_timeout', :limit, true)"), {"limit": f"{milliseconds}ms"})
        return None
    if connection.dialect.name == "sqlite":
        before = connection.exec_driver_sql("PRAGMA busy_timeout").scalar_one()
        connection.exec_driver_sql(f"PRAGMA busy_timeout = {milliseconds}")
        return f"PRAGMA busy_timeout = {int(before)}"
    if connection.dialect.name in ("mysql", "mariadb"):
        query = "SELECT @@SESSION.innodb_lock_wait_timeout, @@SESSION.lock_wait_timeout"
        rows, tables = connection.exec_driver_sql(query).one()
        whole = max(1, math.ceil(seconds))
        connection.exec_driver_sql(_mysql_limits(whole, whole))
        return _mysql_limits(int(rows), int(tables))
    return None


def _mysql_limits(rows: int, tables: int) -> str:
    return f"SET SESSION innodb_lock_wait_timeout = {rows}, SESSION lock_wait_timeout = {tables}"


def _restore(connection: Connection, statement: str | None) -> None:
    """The pool may give the connection to others; where it cannot be restored, they get a new one."""
    if statement is None or connection.invalidated:
        return
    try:
        connection.exec_driver_sql(statement)
    except exc.SQLAlchemyError:  # what became of the transaction is known, and must not be hidden by this
        connection.invalidate()
