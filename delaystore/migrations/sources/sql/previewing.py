"""What waits, and would move."""

from datetime import datetime
from typing import Any

from sqlalchemy import Select, func, literal, select

from delaystore.migrations.abc import EndpointPreview
from delaystore.migrations.sources.sql.database import Database
from delaystore.migrations.sources.sql.eligible import eligible, of_endpoint
from delaystore.migrations.sources.sql.tables import RunTables


def preview(database: Database, tables: RunTables, cutoff: datetime | None) -> EndpointPreview:
    """One look at all eligible rows, which the database counts."""
    source, shape = tables.source, tables.shape
    time, destination = source.c[shape.time_column], source.c[shape.destination_column]
    exact = database.dialect.exact(destination)
    found: Select[*tuple[Any, ...]] = (
        select(func.min(destination, type_=destination.type), func.count(), func.min(time), func.max(time))
        .where(eligible(tables, cutoff))
        .group_by(exact)
    )
    everything = select(func.count()).select_from(source).where(of_endpoint(tables))
    with database.reading() as connection:
        rows = connection.execute(database.dialect.passing(found, source)).all()
        total: int = connection.execute(database.dialect.passing(everything, source)).scalar_one()
    destinations: dict[str, int] = {}
    for value, number, _, _ in rows:
        name = shape.destination(value)
        destinations[name] = destinations.get(name, 0) + number
    count = sum(destinations.values())
    return EndpointPreview(
        endpoint=tables.endpoint,
        count=count,
        earliest=min((row[2] for row in rows), default=None),
        latest=max((row[3] for row in rows), default=None),
        destinations=dict(sorted(destinations.items())),
        staying=max(total - count, 0),
    )


def late(database: Database, tables: RunTables, due_after: datetime) -> int:
    """How many are due after that."""
    time = tables.source.c[tables.shape.time_column]
    later = time > literal(due_after, time.type)
    statement = select(func.count()).select_from(tables.source).where(eligible(tables, None), later)
    with database.reading() as connection:
        number: int = connection.execute(database.dialect.passing(statement, tables.source)).scalar_one()
        return number
