"""The end of a run's tables."""

from sqlalchemy import delete, func, select

from delaystore.errors import MigrationError
from delaystore.migrations.abc import Run
from delaystore.migrations.sources.sql.batches import counts
from delaystore.migrations.sources.sql.database import Database
from delaystore.migrations.sources.sql.dialects.base import run_statement
from delaystore.migrations.sources.sql.tables import BATCH, RunTables


def clean_up(database: Database, tables: RunTables, run: Run) -> None:
    """Delete what is left of the run; the last one takes the tables along.

    MigrationError while rows have neither moved nor gone back: they are nowhere else.
    """
    if left := counts(database, tables, run).pending:
        raise MigrationError(f"{left} rows of the run {run.run_id} have not moved; resume or abort it first")
    runs = tables.runs
    with database.reading() as connection:
        others: int = connection.execute(select(func.count()).where(runs.c.run_id != run.run_id)).scalar_one()
    if others:
        _delete(database, tables, run)
        return
    with database.writing() as connection:
        for statement in database.dialect.dropping(connection, tables.run_tables):
            run_statement(connection, statement)


def _delete(database: Database, tables: RunTables, run: Run) -> None:
    """A batch in each transaction; the run's own row last, so that what is broken off can be done again."""
    batches, runs = tables.batches, tables.runs
    with database.reading() as connection:
        found = select(batches.c.number).where(batches.c.run_id == run.run_id)
        numbers = connection.execute(found).scalars().all()
    for number in numbers:
        with database.writing() as connection:
            connection.execute(delete(tables.side).where(tables.side.c[BATCH] == number))
            connection.execute(delete(batches).where(batches.c.number == number))
    with database.writing() as connection:
        connection.execute(delete(runs).where(runs.c.run_id == run.run_id))
