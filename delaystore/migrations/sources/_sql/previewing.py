"""What would move, read before anything is hidden."""

from collections.abc import Iterator, Mapping, Sequence
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
_LARGEST: Final = 16 * 2**20
"""Bytes of the bodies of one page; its last message may exceed it. A body can be far larger than the row it is in."""


def would_move(database: Database, tables: RunTables, cutoff: datetime | None) -> Iterator[Sequence[Row | Rejected]]:
    """Pages of what waits, in the order in which a run would hide it; those that cannot be decoded are Rejected."""
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


def until_large(rows: Iterator[Row | Rejected]) -> list[Row | Rejected]:
    """The next rows, until their bodies have _LARGEST bytes in all."""
    page, size = list[Row | Rejected](), 0
    for row in rows:
        page.append(row)
        size += len(row.message.body) if isinstance(row, Row) else 0
        if size >= _LARGEST:
            break
    return page


def rows_of_ids(
    connection: Connection, database: Database, tables: RunTables, ids: Sequence[Any]
) -> Iterator[Row | Rejected]:
    """The rows of these ids, as far as they still wait, in the order in which a run would hide them.

    They are read at once, and each is decoded when the iterator is asked for it.
    """
    rows = _read(connection, database, tables, ids)
    return (row if isinstance(row, Rejected) else decode(tables, row) for row in rows)


def _read(
    connection: Connection, database: Database, tables: RunTables, ids: Sequence[Any]
) -> list[Mapping[str, Any] | Rejected]:
    """One by one where the driver cannot read one of them."""
    source, key = tables.source, tables.shape.id_column
    columns = [source.c[name] for name in tables.names]
    these = select(*columns).where(database.dialect.one_of(source.c[key], ids)).order_by(*tables.order)
    try:
        rows = connection.execute(database.dialect.lock_free(these, source)).all()
    except UNREADABLE as error:
        reason = why_unreadable(connection, error)
        if len(ids) == 1:
            return [Rejected(tables.shape.row_id({key: ids[0]}), reason)]
        return [row for id_ in ids for row in _read(connection, database, tables, [id_])]
    return [dict(zip(tables.names, row, strict=True)) for row in rows]
