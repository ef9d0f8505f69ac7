"""Hidden rows, read batch by batch."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, select
from sqlalchemy.exc import DBAPIError

from delaystore.errors import InvalidMessageError
from delaystore.migrations.abc import Rejected, Row
from delaystore.migrations.sources.sql.tables import BATCH, REJECTED, RunTables


def rows_of(
    connection: Connection, tables: RunTables, number: int, names: Sequence[str], *conditions: ColumnElement[bool]
) -> Sequence[Mapping[str, Any]]:
    """The columns `names` of a batch's rows that were not rejected, by due time."""
    rows = connection.execute(_reading(tables, number, names, *conditions))
    return [dict(zip(names, row, strict=True)) for row in rows]


def decoded(connection: Connection, tables: RunTables, number: int) -> Sequence[Row | Rejected]:
    """A batch's rows that were not rejected; those that cannot be decoded are Rejected, and harm no other."""
    try:
        rows = rows_of(connection, tables, number, tables.names)
    except (DBAPIError, ValueError, TypeError) as error:
        if isinstance(error, DBAPIError) and error.connection_invalidated:
            raise
        connection.rollback()
        return list(_one_by_one(connection, tables, number))
    return [decode(tables, row) for row in rows]


def decode(tables: RunTables, row: Mapping[str, Any]) -> Row | Rejected:
    """A row's message."""
    row_id = tables.shape.row_id(row)
    try:
        return Row(row_id, tables.shape.to_message(row, tables.endpoint))
    except InvalidMessageError as error:
        return Rejected(row_id, str(error))


def _one_by_one(connection: Connection, tables: RunTables, number: int) -> Iterator[Row | Rejected]:
    """For a batch with a value that the driver cannot read."""
    key = tables.shape.id_column
    for row in rows_of(connection, tables, number, [key]):
        try:
            (found,) = rows_of(connection, tables, number, tables.names, tables.side.c[key] == row[key])
        except (DBAPIError, ValueError, TypeError) as error:
            if isinstance(error, DBAPIError) and error.connection_invalidated:
                raise
            connection.rollback()
            reason = error.orig if isinstance(error, DBAPIError) else error
            yield Rejected(tables.shape.row_id(row), f"the row cannot be read: {reason}")
        else:
            yield decode(tables, found)


def _reading(
    tables: RunTables, number: int, names: Sequence[str], *conditions: ColumnElement[bool]
) -> Select[tuple[Any, ...]]:
    side = tables.side
    statement = select(*(side.c[name] for name in names)).where(side.c[BATCH] == number, side.c[REJECTED].is_(None))
    return statement.where(*conditions).order_by(side.c[tables.shape.time_column], side.c[tables.shape.id_column])
