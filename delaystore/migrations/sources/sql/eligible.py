"""Which rows move."""

from datetime import datetime

from sqlalchemy import ColumnElement, literal

from delaystore.message import EARLIEST_DUE_TIME, LATEST_DUE_TIME
from delaystore.migrations.sources.sql.tables import RunTables


def eligible(tables: RunTables, cutoff: datetime | None) -> ColumnElement[bool]:
    """Whether a row is the endpoint's, and due at the cut-off or later.

    Times out of range, or none at all, such as PostgreSQL's infinity, are not Python's.
    """
    shape, source = tables.shape, tables.source
    found = of_endpoint(tables)
    for name in {shape.time_column: None, (shape.order_column or shape.time_column): None}:
        column = source.c[name]
        low, high = cutoff or EARLIEST_DUE_TIME, LATEST_DUE_TIME
        found = column.between(literal(low, column.type), literal(high, column.type)) & found
    return found


def of_endpoint(tables: RunTables) -> ColumnElement[bool]:
    """Whether a row is the endpoint's."""
    condition = tables.shape.of_endpoint(tables.source, tables.endpoint)
    return literal(True) if condition is None else condition
