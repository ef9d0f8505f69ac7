"""The numbered batches of a run, and what became of their rows."""

from collections.abc import Sequence

from sqlalchemy import bindparam, case, func, select, update

from delaystore.errors import MigrationError
from delaystore.migrations.abc import Batch, BatchStatus, Rejected, Row, Run, RunCounts
from delaystore.migrations.sources._sql.database import Database
from delaystore.migrations.sources._sql.reading import decoded, rows_of
from delaystore.migrations.sources._sql.returning import attempt, put_back
from delaystore.migrations.sources._sql.tables import BATCH, REJECTED, RunTables


def batches(database: Database, tables: RunTables, run: Run, statuses: Sequence[BatchStatus]) -> Sequence[Batch]:
    """The run's batches with one of `statuses`, or all; `count`: rows that were neither rejected nor given back."""
    table = tables.batches
    statement = select(table.c.number, table.c.status, tables.left).where(table.c.run_id == run.run_id)
    if statuses:
        statement = statement.where(table.c.status.in_([status.value for status in statuses]))
    with database.reading() as connection:
        rows = connection.execute(statement.order_by(table.c.number)).all()
    return [Batch(number, BatchStatus(status), count) for number, status, count in rows]


def counts(database: Database, tables: RunTables, run: Run) -> RunCounts:
    """The run's counts, summed over its batches; reads no row."""
    table, left = tables.batches, tables.left
    is_completed = table.c.status == BatchStatus.COMPLETED.value
    sums = (
        table.c.prepared,
        case((is_completed, 0), else_=left),
        case((is_completed, left), else_=0),
        table.c.rejected,
        table.c.returned,
    )
    statement = select(*(func.coalesce(func.sum(value), 0) for value in sums)).where(table.c.run_id == run.run_id)
    with database.reading() as connection:
        prepared, pending, moved, rejected, returned = (int(value) for value in connection.execute(statement).one())
    return RunCounts(prepared=prepared, pending=pending, moved=moved, rejected=rejected, returned=returned)


def stage(database: Database, tables: RunTables, run: Run, batch: Batch) -> Sequence[Row | Rejected]:
    """The status STAGED is committed before a row is read, and so before one can be sent."""
    table = tables.batches
    change = update(table).where(
        table.c.number == batch.number, table.c.run_id == run.run_id, table.c.status != BatchStatus.COMPLETED.value
    )
    with database.writing() as connection:
        if connection.execute(change.values(status=BatchStatus.STAGED.value)).rowcount != 1:
            raise MigrationError(f"batch {batch.number} of the run {run.run_id} is completed already, or is not there")
    with database.reading() as connection:
        return decoded(connection, tables, batch.number)


def complete(database: Database, tables: RunTables, run: Run, batch: Batch, rejected: Sequence[Rejected]) -> None:
    """Note a staged batch as completed, and its rejected rows' reasons; MigrationError if it is not staged.

    In the same transaction, rejected rows that another program may still run go back to its table.
    """
    attempt(tables, batch.number, lambda: _complete(database, tables, run, batch, rejected))


def _complete(database: Database, tables: RunTables, run: Run, batch: Batch, rejected: Sequence[Rejected]) -> None:
    table = tables.batches
    change = (
        update(table)
        .where(table.c.number == batch.number, table.c.run_id == run.run_id)
        .where(table.c.status == BatchStatus.STAGED.value)
        .values(status=BatchStatus.COMPLETED.value, rejected=table.c.rejected + bindparam("newly"))
    )
    reasons = {rejection.row_id: rejection.reason for rejection in rejected}
    with database.writing() as connection:
        if connection.execute(change, {"newly": len(reasons)}).rowcount != 1:
            raise MigrationError(f"batch {batch.number} of the run {run.run_id} is not staged, or is not there")
        if not reasons:
            return
        key, shape = tables.shape.id_column, tables.shape
        ids = {shape.row_id(row): row[key] for row in rows_of(connection, tables, batch.number, [key])}
        if unknown := sorted(reasons.keys() - ids.keys()):
            raise MigrationError(f"the row {unknown[0]!r} is not in batch {batch.number} of the run {run.run_id}")
        connection.execute(
            database.dialect.rejecting(tables, batch.number),
            [{"rejected_row": ids[row_id], "rejected_because": storable(reason)} for row_id, reason in reasons.items()],
        )
        if tables.shape.leaves_rejected:
            put_back(database, connection, tables, batch.number, moved=True)


def in_flight(database: Database, tables: RunTables, run: Run) -> int:
    """How many rows the run's staged batches hid. A row that goes back changes neither their status nor this number."""
    table = tables.batches
    statement = select(func.coalesce(func.sum(table.c.prepared), 0)).where(
        table.c.run_id == run.run_id, table.c.status == BatchStatus.STAGED.value
    )
    with database.reading() as connection:
        return int(connection.execute(statement).scalar_one())


def rejections(database: Database, tables: RunTables, run: Run, limit: int | None) -> Sequence[Rejected]:
    """At most `limit` rejected rows, in the order of their batches; None: all."""
    side, table, key = tables.side, tables.batches, tables.shape.id_column
    statement = (
        select(side.c[key], side.c[REJECTED])
        .join(table, table.c.number == side.c[BATCH])
        .where(table.c.run_id == run.run_id, table.c.rejected > 0, side.c[REJECTED].is_not(None))
        .order_by(table.c.number, side.c[key])
    )
    with database.reading() as connection:
        rows = connection.execute(statement if limit is None else database.dialect.limited(statement, limit)).all()
    return [Rejected(tables.shape.row_id({key: id_}), reason) for id_, reason in rows]


def storable(reason: str) -> str:
    """Text that every database takes, and that is not empty."""
    text = reason.encode(errors="backslashreplace").decode().replace("\0", "\\0")
    return text or "no reason was given"
