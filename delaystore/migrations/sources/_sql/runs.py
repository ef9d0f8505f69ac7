"""Runs, as the source remembers them: from the making of their tables to the end of them."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any, Final

from sqlalchemy import Connection, Row, delete, func, select, update

from delaystore.errors import MigrationError
from delaystore.message import new_message_id
from delaystore.migrations.abc import Run, RunParameters, RunStatus
from delaystore.migrations.sources._sql.batches import counts
from delaystore.migrations.sources._sql.database import Database
from delaystore.migrations.sources._sql.tables import BATCH, RunTables, check_layout, has_table
from delaystore.sql.quoting import execute_as_it_stands

_OPEN: Final = [status.value for status in RunStatus if status.unfinished]


def remembered(database: Database, tables: RunTables) -> Sequence[Run]:
    """The endpoint's runs, the latest last. MigrationError for tables of another layout."""
    runs = tables.runs
    statement = select(runs).where(runs.c.endpoint == tables.endpoint).order_by(runs.c.started, runs.c.run_id)
    with database.reading() as connection:
        if not has_table(connection, runs):
            return []
        check_layout(connection, tables)
        return [_run(row) for row in connection.execute(statement)]


def begin(database: Database, tables: RunTables, parameters: RunParameters, holder: str) -> Run:
    """A new run; see the contract. MigrationError where another is unfinished, or there are rows of an unknown one."""
    run = Run(run_id=new_message_id(), parameters=parameters, status=RunStatus.PREPARING, started=database.now())
    with database.writing() as connection:
        check_layout(connection, tables)
        _create_tables(database, connection, tables)
        _refuse_strangers(connection, tables)
        _refuse_open_runs(connection, tables)
        row = {"run_id": run.run_id, "status": run.status.value, "started": run.started, "holder": holder}
        connection.execute(tables.runs.insert(), asdict(parameters) | row)
    return run


def set_status(database: Database, tables: RunTables, run: Run, status: RunStatus) -> Run:
    """The run as it is now."""
    completed = None if status.unfinished else database.now()
    change = update(tables.runs).where(tables.runs.c.run_id == run.run_id)
    with database.writing() as connection:
        if connection.execute(change.values(status=status.value, completed=completed)).rowcount != 1:
            raise MigrationError(f"the run {run.run_id} is not there any more; somebody has cleaned it up")
    return replace(run, status=status, completed=completed)


def note_holder(database: Database, tables: RunTables, holder: str) -> None:
    """Write down who has the source's lock, if there is a table of runs."""
    with database.reading() as connection:
        if not has_table(connection, tables.runs):
            return
    with database.writing() as connection:
        connection.execute(update(tables.runs).values(holder=holder))


def noted_holder(database: Database, tables: RunTables) -> str | None:
    """Who was written down last."""
    with database.reading() as connection:
        if not has_table(connection, tables.runs):
            return None
        holder: str | None = connection.execute(select(tables.runs.c.holder).limit(1)).scalar()
        return holder


def clean_up(database: Database, tables: RunTables, run: Run) -> None:
    """Delete what is left of the run; with the last run, the tables are dropped.

    Runs of the endpoint that ended and kept no row, such as dry runs, are forgotten with it, lest one of them becomes
    the latest again. MigrationError while rows have neither moved nor gone back: they are nowhere else.
    """
    if left := counts(database, tables, run).pending:
        raise MigrationError(f"{left} rows of the run {run.run_id} have not moved; resume or abort it first")
    runs, batches = tables.runs, tables.batches
    with_rows = select(batches.c.run_id).where(batches.c.prepared > batches.c.returned)
    without_rows = select(runs.c.run_id).where(
        runs.c.endpoint == tables.endpoint,
        runs.c.run_id != run.run_id,
        runs.c.status.not_in(_OPEN),
        runs.c.run_id.not_in(with_rows),
    )
    with database.reading() as connection:
        ended = [*connection.execute(without_rows).scalars(), run.run_id]
        others: int = connection.execute(select(func.count()).where(runs.c.run_id.not_in(ended))).scalar_one()
    if others:
        for run_id in ended:
            _delete(database, tables, run_id)
        return
    with database.writing() as connection:
        for statement in database.dialect.dropping(connection, tables.created):
            execute_as_it_stands(connection, statement)


def _create_tables(database: Database, connection: Connection, tables: RunTables) -> None:
    for table in (tables.runs, tables.batches):
        table.create(connection, checkfirst=True)
    if not has_table(connection, tables.side):
        for statement in database.dialect.creating(connection, tables):
            execute_as_it_stands(connection, statement)


def _refuse_strangers(connection: Connection, tables: RunTables) -> None:
    """Rows that no batch accounts for would get mixed up with the next run's."""
    last_row = connection.execute(select(func.max(tables.side.c[BATCH]))).scalar() or 0
    last_batch = connection.execute(select(func.max(tables.batches.c.number))).scalar() or 0
    if last_row > last_batch:
        raise MigrationError(
            f"the table {tables.side.name!r} holds rows of a run that {tables.batches.name!r} does not know; "
            f"move them back to {tables.source.name!r} by hand, then drop it"
        )


def _refuse_open_runs(connection: Connection, tables: RunTables) -> None:
    runs = tables.runs
    statement = select(runs.c.run_id, runs.c.status).where(runs.c.endpoint == tables.endpoint, runs.c.status.in_(_OPEN))
    if (row := connection.execute(statement).first()) is not None:
        raise MigrationError(f"the run {row.run_id} of {tables.endpoint!r} is {row.status}; resume or abort it first")


def _run(row: Row[Any]) -> Run:
    parameters = RunParameters(endpoint=row.endpoint, target=row.target, cutoff=row.cutoff, batch_size=row.batch_size)
    return Run(
        run_id=row.run_id,
        parameters=parameters,
        status=RunStatus(row.status),
        started=row.started,
        completed=row.completed,
    )


def _delete(database: Database, tables: RunTables, run_id: str) -> None:
    """A batch in each transaction; the run's own row last, so that an interrupted deletion can be repeated."""
    batches, runs = tables.batches, tables.runs
    with database.reading() as connection:
        found = select(batches.c.number).where(batches.c.run_id == run_id)
        numbers = connection.execute(found).scalars().all()
    for number in numbers:
        with database.writing() as connection:
            connection.execute(delete(tables.side).where(tables.side.c[BATCH] == number))
            connection.execute(delete(batches).where(batches.c.number == number))
    with database.writing() as connection:
        connection.execute(delete(runs).where(runs.c.run_id == run_id))
