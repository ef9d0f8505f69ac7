"""MariaDB and MySQL: inserts of many rows each."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc
import pymysql
from sqlalchemy import Connection, Insert, Select, Table
from sqlalchemy.dialects import mysql
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from delaystore.errors import LoadError
from delaystore.spark.options import OnDuplicate
from delaystore.spark.staging.sql.binary_copy import COLUMNS
from delaystore.spark.staging.sql.dialects.base import StagingDialect, plain_insert, python_rows, run
from delaystore.stores.sql.names import quoted_name

DROP_PATIENCE: Final = 2
"""Seconds that a drop waits for an attempt that still writes."""
_ESCAPED: Final = (b"\0", b"\\", b"\n", b"\r", b"\x1a", b'"', b"'")
"""What takes two bytes in a statement."""
_ROOM: Final = 2**17
"""Bytes of a statement for all but the body; headers that are larger still than this are told by the server."""
_DUPLICATE: Final = 1062
_LOCK_TIMEOUT: Final = 1205
_DEADLOCK: Final = 1213


class MySqlStaging(StagingDialect):
    """MariaDB and MySQL. DDL commits what went before it."""

    patience: ClassVar[Mapping[str, str]] = {"read_timeout": "86400"}

    def drop(self, connection: Connection, name: str) -> None:
        """Waits briefly."""
        with _impatience(connection):
            run(connection, f"DROP TABLE IF EXISTS {name}")

    def empty(self, connection: Connection, name: str) -> None:
        """Waits briefly."""
        with _impatience(connection):
            run(connection, f"TRUNCATE TABLE {name}")

    def is_held(self, error: DBAPIError) -> bool:
        """By the timeout of the table's lock."""
        return bool(_number(error) == _LOCK_TIMEOUT)

    def copy(self, connection: Connection, staging: Table, attempt: int, rows: pa.RecordBatch) -> None:
        """PyMySQL joins rows to statements of up to a megabyte."""
        name = quoted_name(staging, connection.dialect).replace("%", "%%")
        values = ", ".join(["%s"] * len(COLUMNS))
        statement = f"INSERT INTO {name} ({', '.join(COLUMNS)}) VALUES ({values})"  # noqa: S608 - names are quoted
        times = pc.strftime(rows.column("due_time"), "%Y-%m-%d %H:%M:%S")
        _check_packets(connection, rows)
        cursor: pymysql.cursors.Cursor = connection.connection.cursor()  # type: ignore[assignment]
        try:
            with cursor:
                cursor.executemany(statement, list(python_rows(rows, attempt, times)))
        except pymysql.Error as error:
            raise DBAPIError.instance(statement, {}, error, pymysql.Error, dialect=connection.dialect) from None

    def promoting(self, live: Table, names: Sequence[str], staged: Select[Any], on_duplicate: OnDuplicate) -> Insert:
        """The staging has the types of the table itself, so that IGNORE can only meet duplicates."""
        if on_duplicate is OnDuplicate.ERROR:
            return plain_insert(live, names, staged)
        if on_duplicate is OnDuplicate.IGNORE:
            return plain_insert(live, names, staged).prefix_with("IGNORE")
        statement = mysql.insert(live).from_select(list(names), staged, include_defaults=False)
        changed = {name: statement.inserted[name] for name in names if name != "message_id"}
        return statement.on_duplicate_key_update(changed)

    def is_duplicate(self, error: DBAPIError) -> bool:
        """By its number."""
        return bool(_number(error) == _DUPLICATE)

    def is_conflict(self, error: DBAPIError) -> bool:
        """A deadlock, or a lock that was not to be had in time."""
        return _number(error) in (_DEADLOCK, _LOCK_TIMEOUT)


def _check_packets(connection: Connection, rows: pa.RecordBatch) -> None:
    """LoadError for a row that no statement could bring: the server would drop the connection without a word.

    MariaDB 10.11 was seen to take a statement of half of its max_allowed_packet, and none longer.
    """
    longest = int(connection.exec_driver_sql("SELECT @@max_allowed_packet").scalar_one()) // 2 - _ROOM
    sizes = pc.binary_length(rows.column("body"))
    for index in pc.indices_nonzero(pc.greater(sizes, longest // 2)).to_pylist():
        body = rows.column("body")[index].as_py()
        if len(body) + sum(map(body.count, _ESCAPED)) > longest:
            raise LoadError(
                f"the body of message_id {rows.column('message_id')[index].as_py()!r}, {len(body)} bytes, is more than "
                "the server's max_allowed_packet lets through; raise that, or set maxBodyBytes lower"
            )


@contextmanager
def _impatience(connection: Connection) -> Iterator[None]:
    """Tables in use are waited for briefly in the block; the connection is as it was then, for it goes to a pool."""
    before = connection.exec_driver_sql("SELECT @@SESSION.lock_wait_timeout").scalar_one()
    connection.exec_driver_sql(f"SET SESSION lock_wait_timeout = {DROP_PATIENCE}")
    try:
        yield
    finally:
        with suppress(SQLAlchemyError):  # a connection that was lost goes to no pool
            connection.exec_driver_sql(f"SET SESSION lock_wait_timeout = {before}")


def _number(error: DBAPIError) -> Any:
    return error.orig.args[0] if error.orig is not None and error.orig.args else None
