"""Waiting rows of a source, as messages or as the reason why not."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Select, func, literal, select
from sqlalchemy.exc import DBAPIError

from delaystore.errors import InvalidMessageError
from delaystore.message import EARLIEST_DUE_TIME, LATEST_DUE_TIME
from delaystore.migrations.abc import (
    MigrationRow,
    Recurring,
    Rejected,
    WaitingCounts,
)
from delaystore.migrations.sources._sql._database import SLICE, Database
from delaystore.migrations.sources._sql.tables import BATCH, REJECTED, RecurringError, RunTables

UNREADABLE: Final = (DBAPIError, ValueError, TypeError)
"""What drivers raise for a value that they cannot read."""


def rows_of(
    connection: Connection, tables: RunTables, number: int, names: Sequence[str], *conditions: ColumnElement[bool]
) -> Sequence[Mapping[str, Any]]:
    """The columns `names` of a batch's rows that were not rejected, by due time."""
    side = tables.side
    statement = select(*(side.c[name] for name in names)).where(side.c[BATCH] == number, side.c[REJECTED].is_(None))
    by_due_time = side.c[tables.layout.time_column], side.c[tables.layout.id_column]
    rows = connection.execute(statement.where(*conditions).order_by(*by_due_time))
    return [dict(zip(names, row, strict=True)) for row in rows]


def decoded(connection: Connection, tables: RunTables, number: int) -> Sequence[MigrationRow | Rejected]:
    """A batch's rows that were not rejected; rows that cannot be decoded are Rejected, and harm no other."""
    try:
        rows = rows_of(connection, tables, number, tables.names)
    except UNREADABLE as error:
        why_unreadable(connection, error)
        return list(_one_by_one(connection, tables, number))
    return [decode(tables, row) for row in rows]


def why_unreadable(connection: Connection, error: Exception) -> str:
    """Why a statement's rows cannot be read; the transaction begins again. Raises the error of a lost connection."""
    if isinstance(error, DBAPIError) and error.connection_invalidated:
        raise error
    connection.rollback()
    return f"the row cannot be read: {error.orig if isinstance(error, DBAPIError) else error}"


def decode(tables: RunTables, row: Mapping[str, Any]) -> MigrationRow | Rejected:
    """A row's message."""
    row_id = tables.layout.row_id(row)
    try:
        return MigrationRow(row_id, tables.layout.to_message(row, tables.endpoint))
    except RecurringError as error:
        return Recurring(row_id, str(error), tables.layout.destination(row[tables.layout.destination_column]))
    except InvalidMessageError as error:
        return Rejected(row_id, str(error))


def _one_by_one(connection: Connection, tables: RunTables, number: int) -> Iterator[MigrationRow | Rejected]:
    """For a batch with a value that the driver cannot read."""
    key = tables.layout.id_column
    for row in rows_of(connection, tables, number, [key]):
        try:
            (found,) = rows_of(connection, tables, number, tables.names, tables.side.c[key] == row[key])
        except UNREADABLE as error:
            yield Rejected(tables.layout.row_id(row), why_unreadable(connection, error))
        else:
            yield decode(tables, found)


def waiting(database: Database, tables: RunTables, cutoff: datetime | None) -> WaitingCounts:
    """Waiting messages, as the database counts them."""
    source, layout = tables.source, tables.layout
    time, destination = source.c[layout.time_column], source.c[layout.destination_column]
    found: Select[*tuple[Any, ...]] = (
        select(func.min(destination, type_=destination.type), func.count(), func.min(time), func.max(time))
        .where(eligible(tables, cutoff))
        .group_by(database.dialect.bytewise(destination))
    )
    everything = select(func.count()).select_from(source).where(of_endpoint(tables))
    with database.reading() as connection:
        database.dialect.allow_long_reading(connection)
        rows = connection.execute(database.dialect.lock_free(found, source)).all()
        total: int = connection.execute(database.dialect.lock_free(everything, source)).scalar_one()
    destinations: Counter[str] = Counter()
    for value, number, _, _ in rows:
        known = layout.destination(value)
        destinations[known if isinstance(known, str) else ascii(known)] += number
    count = destinations.total()
    return WaitingCounts(
        endpoint=tables.endpoint,
        count=count,
        earliest=min((row[2] for row in rows if isinstance(row[2], datetime)), default=None),
        latest=max((row[3] for row in rows if isinstance(row[3], datetime)), default=None),
        destinations=dict(sorted(destinations.items())),
        staying=max(total - count, 0),
    )


def late(database: Database, tables: RunTables, due_after: datetime) -> int:
    """How many messages are due later than `due_after`."""
    time = tables.source.c[tables.layout.time_column]
    later = time > literal(due_after, time.type)
    statement = select(func.count()).select_from(tables.source).where(eligible(tables, None), later)
    with database.reading() as connection:
        database.dialect.allow_long_reading(connection)
        number: int = connection.execute(database.dialect.lock_free(statement, tables.source)).scalar_one()
        return number


def eligible(tables: RunTables, cutoff: datetime | None) -> ColumnElement[bool]:
    """Whether a row is the endpoint's, and due at the cut-off or later.

    A row without a time, or with one that Python cannot represent, such as PostgreSQL's infinity, is not.
    """
    layout, source = tables.layout, tables.source
    found = of_endpoint(tables)
    for name in dict.fromkeys((layout.time_column, layout.order_column or layout.time_column)):
        column = source.c[name]
        low, high = cutoff or EARLIEST_DUE_TIME, LATEST_DUE_TIME
        found = column.between(literal(low, column.type), literal(high, column.type)) & found
    return found


def of_endpoint(tables: RunTables) -> ColumnElement[bool]:
    """Whether a row is the endpoint's."""
    condition = tables.layout.of_endpoint(tables.source, tables.endpoint)
    return literal(True) if condition is None else condition


_PAGE: Final = SLICE
_LARGEST: Final = 16 * 2**20
"""Bytes of the bodies of one page; its last message may exceed it. A body can be far larger than the row it is in."""


def would_move(
    database: Database, tables: RunTables, cutoff: datetime | None
) -> Iterator[Sequence[MigrationRow | Rejected]]:
    """Pages of waiting messages, in the order in which a run would hide them; Rejected: cannot be decoded."""
    source, dialect = tables.source, database.dialect
    order = time, key = tables.order
    search = dialect.limited(select(time, key).where(eligible(tables, cutoff)).order_by(time, key), _PAGE)
    statement = search
    while True:
        with database.reading() as connection:
            dialect.allow_long_reading(connection)
            found = connection.execute(dialect.lock_free(statement, source)).all()
            rows = rows_of_ids(connection, database, tables, [row[1] for row in found])
        while page := until_large(rows):
            yield page
        if len(found) < _PAGE:
            return
        last = [literal(value, column.type) for value, column in zip(found[-1], order, strict=True)]
        statement = search.where(dialect.behind(order, last))


def until_large(rows: Iterator[MigrationRow | Rejected]) -> list[MigrationRow | Rejected]:
    """The next rows, until their bodies have _LARGEST bytes in all."""
    page, size = list[MigrationRow | Rejected](), 0
    for row in rows:
        page.append(row)
        size += len(row.message.body) if isinstance(row, MigrationRow) else 0
        if size >= _LARGEST:
            break
    return page


def rows_of_ids(
    connection: Connection, database: Database, tables: RunTables, ids: Sequence[Any]
) -> Iterator[MigrationRow | Rejected]:
    """The rows of these ids, as far as they still wait, in the order in which a run would hide them.

    They are read at once, and each is decoded when the iterator is asked for it.
    """
    rows = _read(connection, database, tables, ids)
    return (row if isinstance(row, Rejected) else decode(tables, row) for row in rows)


def _read(
    connection: Connection, database: Database, tables: RunTables, ids: Sequence[Any]
) -> list[Mapping[str, Any] | Rejected]:
    """One by one where the driver cannot read one of them."""
    source, key = tables.source, tables.layout.id_column
    columns = [source.c[name] for name in tables.names]
    these = select(*columns).where(database.dialect.one_of(source.c[key], ids)).order_by(*tables.order)
    try:
        rows = connection.execute(database.dialect.lock_free(these, source)).all()
    except UNREADABLE as error:
        reason = why_unreadable(connection, error)
        if len(ids) == 1:
            return [Rejected(tables.layout.row_id({key: ids[0]}), reason)]
        return [row for id_ in ids for row in _read(connection, database, tables, [id_])]
    return [dict(zip(tables.names, row, strict=True)) for row in rows]
