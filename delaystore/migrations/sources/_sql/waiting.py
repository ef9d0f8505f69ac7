"""What waits, and would move."""

from collections import Counter
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Select, func, literal, select

from delaystore.message import EARLIEST_DUE_TIME, LATEST_DUE_TIME
from delaystore.migrations.abc import Waiting
from delaystore.migrations.sources._sql.database import Database
from delaystore.migrations.sources._sql.tables import RunTables


def waiting(database: Database, tables: RunTables, cutoff: datetime | None) -> Waiting:
    """What waits, as the database counts it."""
    source, shape = tables.source, tables.shape
    time, destination = source.c[shape.time_column], source.c[shape.destination_column]
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
        known = shape.destination(value)
        destinations[known if isinstance(known, str) else ascii(known)] += number
    count = destinations.total()
    return Waiting(
        endpoint=tables.endpoint,
        count=count,
        earliest=min((row[2] for row in rows if isinstance(row[2], datetime)), default=None),
        latest=max((row[3] for row in rows if isinstance(row[3], datetime)), default=None),
        destinations=dict(sorted(destinations.items())),
        staying=max(total - count, 0),
    )


def late(database: Database, tables: RunTables, due_after: datetime) -> int:
    """How many messages are due later than `due_after`."""
    time = tables.source.c[tables.shape.time_column]
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
    shape, source = tables.shape, tables.source
    found = of_endpoint(tables)
    for name in dict.fromkeys((shape.time_column, shape.order_column or shape.time_column)):
        column = source.c[name]
        low, high = cutoff or EARLIEST_DUE_TIME, LATEST_DUE_TIME
        found = column.between(literal(low, column.type), literal(high, column.type)) & found
    return found


def of_endpoint(tables: RunTables) -> ColumnElement[bool]:
    """Whether a row is the endpoint's."""
    condition = tables.shape.of_endpoint(tables.source, tables.endpoint)
    return literal(True) if condition is None else condition
