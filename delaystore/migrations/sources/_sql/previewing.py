"""What would move, read before anything is hidden."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Connection, literal, select

from delaystore.migrations.abc import Rejected, Row
from delaystore.migrations.sources._sql.database import Database
from delaystore.migrations.sources._sql.dialects import SLICE
from delaystore.migrations.sources._sql.reading import UNREADABLE, decode, why_unreadable
from delaystore.migrations.sources._sql.tables import RunTables
from delaystore.migrations.sources._sql.waiting import eligible

_PAGE: Final = SLICE


def would_move(database: Database, tables: RunTables, cutoff: datetime | None) -> Iterator[Sequence[Row | Rejected]]:
    """Pages of what waits, in the order in which a run would hide it; those that cannot be decoded are Rejected."""
    source, shape, dialect = tables.source, tables.shape, database.dialect
    order = time, key = source.c[shape.order_column or shape.time_column], source.c[shape.id_column]
    search = dialect.limited(select(time, key).where(eligible(tables, cutoff)).order_by(time, key), _PAGE)
    statement = search
    while True:
        with database.reading() as connection:
            dialect.allow_long_reading(connection)
            found = connection.execute(dialect.lock_free(statement, source)).all()
            rows = rows_of_ids(connection, database, tables, [row[1] for row in found])
        yield rows
        if len(found) < _PAGE:
            return
        last = [literal(value, column.type) for value, column in zip(found[-1], order, strict=True)]
        statement = search.where(dialect.behind(order, last))


def rows_of_ids(
    connection: Connection, database: Database, tables: RunTables, ids: Sequence[Any]
) -> list[Row | Rejected]:
    """The rows of these ids, as far as they still wait; one by one where the driver cannot read one of them."""
    source, key = tables.source, tables.shape.id_column
    columns = [source.c[name] for name in tables.names]
    statement = database.dialect.lock_free(select(*columns).where(database.dialect.one_of(source.c[key], ids)), source)
    try:
        rows = connection.execute(statement).all()
    except UNREADABLE as error:
        reason = why_unreadable(connection, error)
        if len(ids) == 1:
            return [Rejected(tables.shape.row_id({key: ids[0]}), reason)]
        return [row for id_ in ids for row in rows_of_ids(connection, database, tables, [id_])]
    return [decode(tables, dict(zip(tables.names, row, strict=True))) for row in rows]
