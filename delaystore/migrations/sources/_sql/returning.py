"""Rows that go back where they were."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

from sqlalchemy import ColumnElement, Connection, delete, or_, select, update
from sqlalchemy.exc import IntegrityError

from delaystore.errors import MessageBeingStoredError, MigrationError
from delaystore.migrations.abc import BatchStatus, Run
from delaystore.migrations.sources._sql.database import Database
from delaystore.migrations.sources._sql.dialects import slices
from delaystore.migrations.sources._sql.tables import BATCH, REJECTED, RunTables

_ATTEMPTS: Final = 5
"""The most attempts at a batch: each fails if one of its ids is stored anew at that very moment."""
Result = TypeVar("Result")


class _RefusedError(Exception):
    """The source's table does not take a row."""


@dataclass(frozen=True, slots=True)
class _HiddenRow:
    id: Any
    was_rejected: bool
    waits_again: bool


def give_back(database: Database, tables: RunTables, run: Run, *, rejected: bool) -> Iterator[int]:
    """A row whose id waits in the table again cannot go back; it is rejected, and stays."""
    table = tables.batches
    wanted: ColumnElement[bool] = (table.c.status != BatchStatus.COMPLETED.value) & (tables.left > 0)
    if rejected:
        wanted = or_(wanted, table.c.rejected > 0)
    statement = select(table.c.number, table.c.status).where(table.c.run_id == run.run_id, wanted)
    with database.reading() as connection:
        numbers = connection.execute(statement.order_by(table.c.number)).all()
    for number, status in numbers:
        moved = status == BatchStatus.COMPLETED.value
        if count := attempt(tables, number, partial(_give_back, database, tables, number, moved=moved)):
            yield count


def attempt(tables: RunTables, number: int, work: Callable[[], Result]) -> Result:
    """`work()`, a transaction that puts rows of a batch back: again while the table takes one of them not yet."""
    for _ in range(_ATTEMPTS):
        try:
            return work()
        except _RefusedError as error:
            reason = error
    raise MigrationError(f"rows of batch {number} cannot go back to {tables.source.name!r}: {reason}")


def _give_back(database: Database, tables: RunTables, number: int, *, moved: bool) -> int:
    with database.writing() as connection:
        return put_back(database, connection, tables, number, moved=moved)


def put_back(database: Database, connection: Connection, tables: RunTables, number: int, *, moved: bool) -> int:
    """Put one batch back; how many rows. `moved`: only its rejected rows go back."""
    table = tables.batches
    database.dialect.prefer_indexes(connection)
    rows = _rows(connection, tables, number)
    going = [row for row in rows if not row.waits_again and row.was_rejected >= moved]
    staying = [row.id for row in rows if row.waits_again and not row.was_rejected and not moved]
    if staying:
        reason = f"a row of the same id waits in {tables.source.name} again"
        statement = database.dialect.rejecting(tables, number)
        connection.execute(statement, [{"rejected_row": id_, "rejected_because": reason} for id_ in staying])
    shelves = tables.shape.shelves(connection, tables.source)
    for slice_ in slices([row.id for row in going]):
        _move(database, connection, tables, number, slice_)
        if shelves is not None:
            _refuse_shelved(database, connection, shelves.c[tables.shape.id_column], slice_)
    freed = sum(row.was_rejected for row in going)
    connection.execute(
        update(table)
        .where(table.c.number == number)
        .values(returned=table.c.returned + len(going), rejected=table.c.rejected + (len(staying) - freed))
    )
    return len(going)


def _rows(connection: Connection, tables: RunTables, number: int) -> Sequence[_HiddenRow]:
    side, source, key = tables.side, tables.source, tables.shape.id_column
    statement = (
        select(side.c[key], side.c[REJECTED], source.c[key])
        .outerjoin_from(side, source, side.c[key] == source.c[key])
        .where(side.c[BATCH] == number)
    )
    rows = connection.execute(statement)
    return [_HiddenRow(id_, reason is not None, waiting is not None) for id_, reason, waiting in rows]


def _refuse_shelved(database: Database, connection: Connection, key: ColumnElement[Any], ids: Sequence[Any]) -> None:
    """The primary key of the source's table does not know them."""
    found = connection.execute(select(key).where(database.dialect.one_of(key, ids)).limit(1)).scalar()
    if found is not None:
        raise _RefusedError(str(MessageBeingStoredError(str(found))))


def _move(database: Database, connection: Connection, tables: RunTables, number: int, ids: Sequence[Any]) -> None:
    side, source = tables.side, tables.source
    these = (side.c[BATCH] == number) & database.dialect.one_of(side.c[tables.shape.id_column], ids)
    copied = select(*(side.c[name] for name in tables.names)).where(these)
    try:
        connection.execute(source.insert().from_select(tables.names, copied))
    except IntegrityError as error:
        raise _RefusedError(str(error.orig).splitlines()[0]) from None
    connection.execute(delete(side).where(these))
