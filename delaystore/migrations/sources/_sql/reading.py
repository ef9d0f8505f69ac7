"""Hidden rows, read batch by batch: to be sent, and again to verify what was moved."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, select
from sqlalchemy.exc import DBAPIError

from delaystore.errors import InvalidMessageError
from delaystore.migrations._checksum import Checksum, Identity, checksum
from delaystore.migrations.abc import BatchStatus, Recurring, Rejected, Row, Run
from delaystore.migrations.sources._sql.database import Database
from delaystore.migrations.sources._sql.shape import RecurringError
from delaystore.migrations.sources._sql.tables import BATCH, REJECTED, RunTables

UNREADABLE: Final = (DBAPIError, ValueError, TypeError)
"""What drivers raise for a value that they cannot read."""


def rows_of(
    connection: Connection, tables: RunTables, number: int, names: Sequence[str], *conditions: ColumnElement[bool]
) -> Sequence[Mapping[str, Any]]:
    """The columns `names` of a batch's rows that were not rejected, by due time."""
    side = tables.side
    statement = select(*(side.c[name] for name in names)).where(side.c[BATCH] == number, side.c[REJECTED].is_(None))
    by_due_time = side.c[tables.shape.time_column], side.c[tables.shape.id_column]
    rows = connection.execute(statement.where(*conditions).order_by(*by_due_time))
    return [dict(zip(names, row, strict=True)) for row in rows]


def decoded(connection: Connection, tables: RunTables, number: int) -> Sequence[Row | Rejected]:
    """A batch's rows that were not rejected; those that cannot be decoded are Rejected, and harm no other."""
    try:
        rows = rows_of(connection, tables, number, tables.names)
    except UNREADABLE as error:
        why_unreadable(connection, error)
        return list(_one_by_one(connection, tables, number))
    return [decode(tables, row) for row in rows]


def why_unreadable(connection: Connection, error: Exception) -> str:
    """Why a statement's rows cannot be read; the transaction begins anew. Raises the error of a lost connection."""
    if isinstance(error, DBAPIError) and error.connection_invalidated:
        raise error
    connection.rollback()
    return f"the row cannot be read: {error.orig if isinstance(error, DBAPIError) else error}"


def decode(tables: RunTables, row: Mapping[str, Any]) -> Row | Rejected:
    """A row's message."""
    row_id = tables.shape.row_id(row)
    try:
        return Row(row_id, tables.shape.to_message(row, tables.endpoint))
    except RecurringError as error:
        return Recurring(row_id, str(error), tables.shape.destination(row[tables.shape.destination_column]))
    except InvalidMessageError as error:
        return Rejected(row_id, str(error))


def moved_checksum(database: Database, tables: RunTables, run: Run) -> Checksum:
    """The checksum of the rows themselves, not of what was noted about them."""
    return sum((checksum(page) for page in moved(database, tables, run)), Checksum())


def _one_by_one(connection: Connection, tables: RunTables, number: int) -> Iterator[Row | Rejected]:
    """For a batch with a value that the driver cannot read."""
    key = tables.shape.id_column
    for row in rows_of(connection, tables, number, [key]):
        try:
            (found,) = rows_of(connection, tables, number, tables.names, tables.side.c[key] == row[key])
        except UNREADABLE as error:
            yield Rejected(tables.shape.row_id(row), why_unreadable(connection, error))
        else:
            yield decode(tables, found)


def moved(database: Database, tables: RunTables, run: Run) -> Iterator[Sequence[Identity]]:
    """The messages that were moved, a page for each batch."""
    table, shape = tables.batches, tables.shape
    statement = select(table.c.number).where(
        table.c.run_id == run.run_id, table.c.status == BatchStatus.COMPLETED.value
    )
    with database.reading() as connection:
        numbers = connection.execute(statement.order_by(table.c.number)).scalars().all()
    names = list(dict.fromkeys([shape.id_column, *(shape.identity_columns or tables.names)]))
    for number in numbers:
        with database.reading() as connection:
            rows = rows_of(connection, tables, number, names)
        if rows:
            yield [shape.identity(row, tables.endpoint) for row in rows]
