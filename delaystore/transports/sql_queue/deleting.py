"""Deleting rows that a reader has locked, and touching no others."""

from collections.abc import Sequence
from typing import Final

from sqlalchemy import Connection, Table, bindparam, delete, text

from delaystore.stores.sql.names import quoted_name
from delaystore.stores.sql.types import JsonList

_MYSQL: Final = ("mysql", "mariadb")


def delete_rows(connection: Connection, table: Table, numbers: Sequence[int]) -> None:
    """Delete the rows with these values of `seq`, by primary key alone."""
    if not numbers:
        return
    if connection.dialect.name in _MYSQL:
        _delete_joined(connection, table, numbers)
    else:
        statement = delete(table).where(table.c.seq == bindparam("number"))
        connection.execute(statement, [{"number": number} for number in numbers])


def _delete_joined(connection: Connection, table: Table, numbers: Sequence[int]) -> None:
    """One statement; with a plain list of keys these databases may scan the table, and meet the locks of others."""
    name = quoted_name(table, connection.dialect).replace(":", r"\:")
    taken = "JSON_TABLE(:numbers, '$[*]' COLUMNS (seq BIGINT PATH '$')) AS taken"
    statement = text(f"DELETE waiting FROM {taken} STRAIGHT_JOIN {name} AS waiting ON waiting.seq = taken.seq")
    connection.execute(statement.bindparams(bindparam("numbers", type_=JsonList())), {"numbers": list(numbers)})
