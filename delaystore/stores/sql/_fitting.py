"""The rows at the beginning of a search whose bodies fit into the parameter `most_bytes`: at least one."""

from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import BigInteger, ColumnElement, FromClause, Row, Select, Table, bindparam, func, select

from delaystore.sql.columns import in_order, message_columns
from delaystore.sql.dialects import StoreDialect

SHELF = "shelf"
LOCATION = "location"
"""The labels of where a row lies: in which shelf, and where there."""
SIZE = "size"
"""The label of a body's length in bytes."""


def size_of(body: ColumnElement[Any]) -> ColumnElement[int]:
    """The length of a body in bytes; the database knows it without reading the body."""
    return func.length(body).label(SIZE)


def locked_and_fitting(locking: Select[Any]) -> Select[Any]:
    """The first rows of a search that locks what it finds; those that do not fit stay locked, and unread."""
    locked = locking.cte("locked")
    sized = select(*locked.c, size_of(locked.c.body)).subquery("sized")
    return _fitting(sized, [*message_columns(sized), sized.c[SHELF], sized.c[LOCATION]])


def fitting_ids(statement: Select[Any], table: Table) -> Select[Any]:
    """The message_ids of the first rows of a search."""
    sized = statement.with_only_columns(*in_order(table), size_of(table.c.body)).subquery("sized")
    return _fitting(sized, [sized.c.message_id])


def with_sizes(statement: Select[Any], table: Table, dialect: StoreDialect) -> Select[Any]:
    """A search of positions in an index alone, and then the sizes, by primary key, of what it finds."""
    found = statement.subquery("found")
    joined = found.join(table, found.c.message_id == table.c.message_id)
    sized = select(*found.c, size_of(table.c.body)).select_from(joined).order_by(*in_order(found))
    return dialect.by_primary_key(sized, table).prefix_with("STRAIGHT_JOIN")


def fitting(candidates: Sequence[Row[Any]], room: int, *, at_least_one: bool) -> Sequence[Row[Any]]:
    """The first of rows with a SIZE that fit into `room` bytes."""

    def taken() -> Iterator[Row[Any]]:
        left = room
        for number, row in enumerate(candidates):
            left -= row.size
            if left < 0 and (number or not at_least_one):
                return
            yield row

    return list(taken())


def _fitting(sized: FromClause, columns: Sequence[ColumnElement[Any]]) -> Select[Any]:
    total = func.sum(sized.c.size).over(order_by=in_order(sized), rows=(None, 0)).label("total")
    number = func.row_number().over(order_by=in_order(sized)).label("number")
    summed = select(*sized.c, total, number).subquery("summed")
    most_bytes = bindparam("most_bytes", type_=BigInteger)
    fits = (summed.c.total <= most_bytes) | (summed.c.number == 1)
    chosen = [summed.c[column.name] for column in columns]
    return select(*chosen).where(fits).order_by(*in_order(summed))
