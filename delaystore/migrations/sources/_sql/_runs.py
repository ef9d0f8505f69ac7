"""Runs and batches of a migration, as the source notes them, and rows given back."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Final, TypeVar

import sqlalchemy
from sqlalchemy import ColumnElement, Connection, bindparam, case, delete, func, or_, select, update
from sqlalchemy.exc import IntegrityError

from delaystore.errors import MessageBeingStoredError, MigrationError
from delaystore.message import new_message_id
from delaystore.migrations.abc import (
    BatchStatus,
    MigrationBatch,
    MigrationRow,
    MigrationRun,
    Rejected,
    RunCounts,
    RunParameters,
    RunStatus,
)
from delaystore.migrations.sources._sql._database import Database, slices
from delaystore.migrations.sources._sql._reading import decoded, rows_of
from delaystore.migrations.sources._sql.tables import BATCH, REJECTED, RunTables, check_layout, has_table
from delaystore.stores.sql.faults import execute_as_it_stands

_ATTEMPTS: Final = 5
"""The most attempts at a batch: each fails if one of its ids is stored anew at that very moment."""
Result = TypeVar("Result")


class _RefusedError(Exception):
    """The source's table does not take a row."""


@dataclass(frozen=True, slots=True)
class _HiddenRow:
    id: Any
    was_rejected: bool
    waits_again: bool


def give_back(database: Database, tables: RunTables, run: MigrationRun, *, rejected: bool) -> Iterator[int]:
    """A row whose id waits in the table again cannot go back; it is rejected, and stays."""
    table = tables.batches
    wanted: ColumnElement[bool] = (table.c.status != BatchStatus.COMPLETED.value) & (tables.left > 0)
    if rejected:
        wanted = or_(wanted, table.c.rejected > 0)
    statement = select(table.c.number, table.c.status).where(table.c.run_id == run.run_id, wanted)
    with database.reading() as connection:
        numbers = connection.execute(statement.order_by(table.c.number)).all()
    for number, status in numbers:
        moved = status == BatchStatus.COMPLETED.value
        if count := attempt(tables, number, partial(_give_back, database, tables, number, moved=moved)):
            yield count


def attempt(tables: RunTables, number: int, work: Callable[[], Result]) -> Result:
    """`work()`, a transaction that puts rows of a batch back: again while the table takes one of them not yet."""
    for _ in range(_ATTEMPTS):
        try:
            return work()
        except _RefusedError as error:
            reason = error
    raise MigrationError(f"rows of batch {number} cannot go back to {tables.source.name!r}: {reason}")


def _give_back(database: Database, tables: RunTables, number: int, *, moved: bool) -> int:
    with database.writing() as connection:
        return put_back(database, connection, tables, number, moved=moved)


def put_back(database: Database, connection: Connection, tables: RunTables, number: int, *, moved: bool) -> int:
    """Put one batch back; how many rows. `moved`: only its rejected rows go back."""
    table = tables.batches
    database.dialect.prefer_indexes(connection)
    rows = _rows(connection, tables, number)
    going = [row for row in rows if not row.waits_again and row.was_rejected >= moved]
    staying = [row.id for row in rows if row.waits_again and not row.was_rejected and not moved]
    if staying:
        reason = f"a row of the same id waits in {tables.source.name} again"
        statement = database.dialect.rejecting(tables, number)
        connection.execute(statement, [{"rejected_row": id_, "rejected_because": reason} for id_ in staying])
    partitions = tables.layout.partitions(connection, tables.source)
    for slice_ in slices([row.id for row in going]):
        _move(database, connection, tables, number, slice_)
        if partitions is not None:
            _refuse_partitioned(database, connection, partitions.c[tables.layout.id_column], slice_)
    freed = sum(row.was_rejected for row in going)
    connection.execute(
        update(table)
        .where(table.c.number == number)
        .values(returned=table.c.returned + len(going), rejected=table.c.rejected + (len(staying) - freed))
    )
    return len(going)


def _rows(connection: Connection, tables: RunTables, number: int) -> Sequence[_HiddenRow]:
    side, source, key = tables.side, tables.source, tables.layout.id_column
    statement = (
        select(side.c[key], side.c[REJECTED], source.c[key])
        .outerjoin_from(side, source, side.c[key] == source.c[key])
        .where(side.c[BATCH] == number)
    )
    rows = connection.execute(statement)
    return [_HiddenRow(id_, reason is not None, waiting is not None) for id_, reason, waiting in rows]


def _refuse_partitioned(
    database: Database, connection: Connection, key: ColumnElement[Any], ids: Sequence[Any]
) -> None:
    """The primary key of the source's table does not know them."""
    found = connection.execute(select(key).where(database.dialect.one_of(key, ids)).limit(1)).scalar()
    if found is not None:
        raise _RefusedError(str(MessageBeingStoredError(str(found))))


def _move(database: Database, connection: Connection, tables: RunTables, number: int, ids: Sequence[Any]) -> None:
    side, source = tables.side, tables.source
    these = (side.c[BATCH] == number) & database.dialect.one_of(side.c[tables.layout.id_column], ids)
    copied = select(*(side.c[name] for name in tables.names)).where(these)
    try:
        connection.execute(source.insert().from_select(tables.names, copied))
    except IntegrityError as error:
        raise _RefusedError(str(error.orig).splitlines()[0]) from None
    connection.execute(delete(side).where(these))


def batches(
    database: Database, tables: RunTables, run: MigrationRun, statuses: Sequence[BatchStatus]
) -> Sequence[MigrationBatch]:
    """The run's batches with one of `statuses`, or all; `count`: rows that were neither rejected nor given back."""
    table = tables.batches
    statement = select(table.c.number, table.c.status, tables.left).where(table.c.run_id == run.run_id)
    if statuses:
        statement = statement.where(table.c.status.in_([status.value for status in statuses]))
    with database.reading() as connection:
        rows = connection.execute(statement.order_by(table.c.number)).all()
    return [MigrationBatch(number, BatchStatus(status), count) for number, status, count in rows]


def counts(database: Database, tables: RunTables, run: MigrationRun) -> RunCounts:
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


def stage(
    database: Database, tables: RunTables, run: MigrationRun, batch: MigrationBatch
) -> Sequence[MigrationRow | Rejected]:
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


def complete(
    database: Database, tables: RunTables, run: MigrationRun, batch: MigrationBatch, rejected: Sequence[Rejected]
) -> None:
    """Note a staged batch as completed, and its rejected rows' reasons; MigrationError if it is not staged.

    In the same transaction, rejected rows that another program may still run go back to its table.
    """
    attempt(tables, batch.number, lambda: _complete(database, tables, run, batch, rejected))


def _complete(
    database: Database, tables: RunTables, run: MigrationRun, batch: MigrationBatch, rejected: Sequence[Rejected]
) -> None:
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
        key, layout = tables.layout.id_column, tables.layout
        ids = {layout.row_id(row): row[key] for row in rows_of(connection, tables, batch.number, [key])}
        if unknown := sorted(reasons.keys() - ids.keys()):
            raise MigrationError(f"the row {unknown[0]!r} is not in batch {batch.number} of the run {run.run_id}")
        connection.execute(
            database.dialect.rejecting(tables, batch.number),
            [{"rejected_row": ids[row_id], "rejected_because": storable(reason)} for row_id, reason in reasons.items()],
        )
        if tables.layout.leaves_rejected:
            put_back(database, connection, tables, batch.number, moved=True)


def in_flight(database: Database, tables: RunTables, run: MigrationRun) -> int:
    """How many rows the run's staged batches hid. A row that goes back changes neither their status nor this number."""
    table = tables.batches
    statement = select(func.coalesce(func.sum(table.c.prepared), 0)).where(
        table.c.run_id == run.run_id, table.c.status == BatchStatus.STAGED.value
    )
    with database.reading() as connection:
        return int(connection.execute(statement).scalar_one())


def rejections(database: Database, tables: RunTables, run: MigrationRun, limit: int | None) -> Sequence[Rejected]:
    """At most `limit` rejected rows, in the order of their batches; None: all."""
    side, table, key = tables.side, tables.batches, tables.layout.id_column
    statement = (
        select(side.c[key], side.c[REJECTED])
        .join(table, table.c.number == side.c[BATCH])
        .where(table.c.run_id == run.run_id, table.c.rejected > 0, side.c[REJECTED].is_not(None))
        .order_by(table.c.number, side.c[key])
    )
    with database.reading() as connection:
        rows = connection.execute(statement if limit is None else database.dialect.limited(statement, limit)).all()
    return [Rejected(tables.layout.row_id({key: id_}), reason) for id_, reason in rows]


def storable(reason: str) -> str:
    """Text that every database takes, and that is not empty."""
    text = reason.encode(errors="backslashreplace").decode().replace("\0", "\\0")
    return text or "no reason was given"


_OPEN: Final = [status.value for status in RunStatus if status.unfinished]


def remembered(database: Database, tables: RunTables) -> Sequence[MigrationRun]:
    """The endpoint's runs, the latest last. MigrationError for tables of another layout."""
    runs = tables.runs
    statement = select(runs).where(runs.c.endpoint == tables.endpoint).order_by(runs.c.started, runs.c.run_id)
    with database.reading() as connection:
        if not has_table(connection, runs):
            return []
        check_layout(connection, tables)
        return [_run(row) for row in connection.execute(statement)]


def begin(database: Database, tables: RunTables, parameters: RunParameters, holder: str) -> MigrationRun:
    """A new run; see the contract. MigrationError where another is unfinished, or there are rows of an unknown one."""
    run = MigrationRun(
        run_id=new_message_id(), parameters=parameters, status=RunStatus.PREPARING, started=database.now()
    )
    with database.writing() as connection:
        check_layout(connection, tables)
        _create_tables(database, connection, tables)
        _refuse_strangers(connection, tables)
        _refuse_open_runs(connection, tables)
        row = {"run_id": run.run_id, "status": run.status.value, "started": run.started, "holder": holder}
        connection.execute(tables.runs.insert(), asdict(parameters) | row)
    return run


def set_status(database: Database, tables: RunTables, run: MigrationRun, status: RunStatus) -> MigrationRun:
    """The run as it is now."""
    completed = None if status.unfinished else database.now()
    change = update(tables.runs).where(tables.runs.c.run_id == run.run_id)
    with database.writing() as connection:
        if connection.execute(change.values(status=status.value, completed=completed)).rowcount != 1:
            raise MigrationError(f"the run {run.run_id} is not there any more; another process has cleaned it up")
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


def clean_up(database: Database, tables: RunTables, run: MigrationRun) -> None:
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


def _run(row: sqlalchemy.Row[Any]) -> MigrationRun:
    parameters = RunParameters(endpoint=row.endpoint, target=row.target, cutoff=row.cutoff, batch_size=row.batch_size)
    return MigrationRun(
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
