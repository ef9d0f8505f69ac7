"""Runs and batches of a migration, as a source in a database notes them, and rows given back."""

import os
import socket
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Final, TypeVar

import sqlalchemy
from sqlalchemy import ColumnElement, Connection, case, delete, func, or_, select, update
from sqlalchemy.exc import IntegrityError
from typing_extensions import override

from delaystore.errors import MessageBeingStoredError, MigrationError, MigrationLockedError
from delaystore.message import new_message_id
from delaystore.migrations.abc import (
    BatchStatus,
    Checksum,
    Identity,
    MigrationBatch,
    MigrationRow,
    MigrationRun,
    MigrationSource,
    Rejected,
    RunCounts,
    RunParameters,
    RunStatus,
    checksum,
)
from delaystore.migrations.sources._sql._database import Database, slices
from delaystore.migrations.sources._sql._preparing import naming_missing_grants, prepare
from delaystore.migrations.sources._sql._reading import decoded, rows_of
from delaystore.migrations.sources._sql.tables import (
    BATCH,
    REJECTED,
    RunTables,
    TableLayout,
    check_layout,
    has_table,
    run_tables,
)
from delaystore.stores.sql.faults import execute_as_it_stands

_ATTEMPTS: Final = 5
"""The most attempts at a batch: each fails if one of its ids is stored again at that very moment."""
ResultT = TypeVar("ResultT")


class _RefusedError(Exception):
    """The source's table does not take a row."""


@dataclass(frozen=True, slots=True)
class _HiddenRow:
    id: Any
    was_rejected: bool
    waits_again: bool


def attempt(tables: RunTables, number: int, work: Callable[[], ResultT]) -> ResultT:
    """`work()`, a transaction that puts rows of a batch back: again while the table takes one of them not yet."""
    for _ in range(_ATTEMPTS):
        try:
            return work()
        except _RefusedError as error:
            reason = error
    raise MigrationError(f"rows of batch {number} cannot go back to {tables.source.name!r}: {reason}")


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


def storable(reason: str) -> str:
    """Text that every database takes, and that is not empty."""
    text = reason.encode(errors="backslashreplace").decode().replace("\0", "\\0")
    return text or "no reason was given"


_OPEN: Final = [status.value for status in RunStatus if status.unfinished]


class SqlRuns(MigrationSource):
    """The runs of a source in a database: noted, with their batches, in tables beside the source's own.

    Args:
        database: The database.
        layout: The layout of the source's tables.
        schema: Their schema; None: the connection's own.

    """

    def __init__(self, database: Database, layout: TableLayout, schema: str | None) -> None:
        self._database = database
        self._layout = layout
        self._schema = schema
        self._known: dict[str, RunTables] = {}
        self._left: dict[str, dict[str, Rejected]] = {}
        self._refused: dict[str, dict[str, Rejected]] = {}
        self._holder = f"{socket.gethostname()}, process {os.getpid()}"
        self.leaves_rejected = layout.leaves_rejected

    def _tables(self, endpoint: str) -> RunTables:
        """Looked up once for a run."""
        if endpoint not in self._known:
            with self._database.reading() as connection:
                self._known[endpoint] = run_tables(connection, self._layout, endpoint, self._schema)
        return self._known[endpoint]

    @override
    @contextmanager
    def lock(self, endpoint: str, holder: str) -> Iterator[None]:
        """Locks the endpoint's table. The lock ends with the connection, or with the process (SQLite)."""
        tables = self._tables(endpoint)
        with self._database.exclusive(self._database.key_of(tables.source), holder) as other:
            if other is not None:
                raise MigrationLockedError(
                    f"{tables.source.name!r} is being migrated by {self._noted_holder(tables) or other}; wait until it "
                    "ends, or stop it"
                )
            self._holder = holder
            with naming_missing_grants(self._database, tables):
                self._note_holder(tables)
            yield

    def _note_holder(self, tables: RunTables) -> None:
        """Write down who has the source's lock, if there is a table of runs."""
        with self._database.reading() as connection:
            if not has_table(connection, tables.runs):
                return
        with self._database.writing() as connection:
            connection.execute(update(tables.runs).values(holder=self._holder))

    def _noted_holder(self, tables: RunTables) -> str | None:
        """Who was written down last."""
        with self._database.reading() as connection:
            if not has_table(connection, tables.runs):
                return None
            holder: str | None = connection.execute(select(tables.runs.c.holder).limit(1)).scalar()
            return holder

    @override
    def runs(self, endpoint: str) -> Sequence[MigrationRun]:
        """MigrationError for tables of another layout."""
        tables = self._tables(endpoint)
        runs = tables.runs
        statement = select(runs).where(runs.c.endpoint == endpoint).order_by(runs.c.started, runs.c.run_id)
        with naming_missing_grants(self._database, tables), self._database.reading() as connection:
            if not has_table(connection, runs):
                return []
            check_layout(connection, tables)
            return [_run(row) for row in connection.execute(statement)]

    @override
    def begin(self, parameters: RunParameters) -> MigrationRun:
        """The rows of earlier runs stay in the side table until each run is cleaned up.

        Raises MigrationError for an unfinished run, tables of another layout, rows of an unknown run;
        StorePermissionError with the required GRANT.
        """
        self._known.pop(parameters.endpoint, None)
        tables = self._tables(parameters.endpoint)
        run = MigrationRun(
            run_id=new_message_id(), parameters=parameters, status=RunStatus.PREPARING, started=self._database.now()
        )
        row = {"run_id": run.run_id, "status": run.status.value, "started": run.started, "holder": self._holder}
        with naming_missing_grants(self._database, tables), self._database.writing() as connection:
            check_layout(connection, tables)
            _create_tables(self._database, connection, tables)
            _refuse_strangers(connection, tables)
            _refuse_open_runs(connection, tables)
            connection.execute(tables.runs.insert(), asdict(parameters) | row)
        return run

    @override
    def prepare(self, run: MigrationRun) -> Iterator[MigrationBatch]:
        """Messages that a dispatcher has claimed in each of three passes stay with it."""
        tables = self._tables(run.parameters.endpoint)
        with naming_missing_grants(self._database, tables):
            left, refused = (found.setdefault(run.run_id, {}) for found in (self._left, self._refused))
            yield from prepare(self._database, tables, run, ChainMap(left, refused))

    @override
    def left(self, run: MigrationRun) -> Sequence[Rejected]:
        return list(self._left.get(run.run_id, {}).values())

    @override
    def set_status(self, run: MigrationRun, status: RunStatus) -> MigrationRun:
        runs = self._tables(run.parameters.endpoint).runs
        completed = None if status.unfinished else self._database.now()
        change = update(runs).where(runs.c.run_id == run.run_id).values(status=status.value, completed=completed)
        with self._database.writing() as connection:
            if connection.execute(change).rowcount != 1:
                raise MigrationError(f"the run {run.run_id} is not there any more; another process has cleaned it up")
        return replace(run, status=status, completed=completed)

    @override
    def batches(self, run: MigrationRun, *statuses: BatchStatus) -> Sequence[MigrationBatch]:
        """Counts leave out rejected and restored messages."""
        tables = self._tables(run.parameters.endpoint)
        table = tables.batches
        statement = select(table.c.number, table.c.status, tables.left).where(table.c.run_id == run.run_id)
        if statuses:
            statement = statement.where(table.c.status.in_([status.value for status in statuses]))
        with self._database.reading() as connection:
            rows = connection.execute(statement.order_by(table.c.number)).all()
        return [MigrationBatch(number, BatchStatus(status), count) for number, status, count in rows]

    @override
    def stage(self, run: MigrationRun, batch: MigrationBatch) -> Sequence[MigrationRow | Rejected]:
        """The status STAGED is committed before a row is read, and so before one can be sent.

        Raises MigrationError for a batch that is COMPLETED.
        """
        tables = self._tables(run.parameters.endpoint)
        table = tables.batches
        change = update(table).where(
            table.c.number == batch.number, table.c.run_id == run.run_id, table.c.status != BatchStatus.COMPLETED.value
        )
        with self._database.writing() as connection:
            if connection.execute(change.values(status=BatchStatus.STAGED.value)).rowcount != 1:
                raise MigrationError(
                    f"batch {batch.number} of the run {run.run_id} is completed already, or is not there"
                )
        with self._database.reading() as connection:
            return decoded(connection, tables, batch.number)

    @override
    def complete(self, run: MigrationRun, batch: MigrationBatch, rejected: Sequence[Rejected]) -> None:
        """Raises MigrationError for a batch that is not STAGED, or a row that is not in it.

        In the same transaction, rejected rows that another program may still run go back to its table.
        """
        tables = self._tables(run.parameters.endpoint)
        reasons = {rejection.row_id: rejection.reason for rejection in rejected}
        attempt(tables, batch.number, lambda: _complete(self._database, tables, run, batch, reasons))
        if rejected and self.leaves_rejected:
            self._refused.setdefault(run.run_id, {}).update((one.row_id, one) for one in rejected)

    @override
    def give_back(self, run: MigrationRun, *, rejected: bool) -> Iterator[int]:
        """A row whose id waits in the table again cannot go back; it is rejected, and stays."""
        tables = self._tables(run.parameters.endpoint)
        table = tables.batches
        wanted: ColumnElement[bool] = (table.c.status != BatchStatus.COMPLETED.value) & (tables.left > 0)
        if rejected:
            wanted = or_(wanted, table.c.rejected > 0)
        statement = select(table.c.number, table.c.status).where(table.c.run_id == run.run_id, wanted)
        with naming_missing_grants(self._database, tables):
            with self._database.reading() as connection:
                found = connection.execute(statement.order_by(table.c.number)).all()
            for number, status in found:
                moved = status == BatchStatus.COMPLETED.value
                if count := attempt(tables, number, partial(self._put_back, tables, number, moved=moved)):
                    yield count

    def _put_back(self, tables: RunTables, number: int, *, moved: bool) -> int:
        with self._database.writing() as connection:
            return put_back(self._database, connection, tables, number, moved=moved)

    @override
    def counts(self, run: MigrationRun) -> RunCounts:
        """Summed over the run's batches; reads no row."""
        tables = self._tables(run.parameters.endpoint)
        table, left = tables.batches, tables.left
        is_completed = table.c.status == BatchStatus.COMPLETED.value
        sums = {
            "prepared": table.c.prepared,
            "pending": case((is_completed, 0), else_=left),
            "moved": case((is_completed, left), else_=0),
            "rejected": table.c.rejected,
            "returned": table.c.returned,
        }
        columns = (func.coalesce(func.sum(value), 0).label(name) for name, value in sums.items())
        with self._database.reading() as connection:
            found = connection.execute(select(*columns).where(table.c.run_id == run.run_id)).mappings().one()
        return RunCounts(**{name: int(value) for name, value in found.items()})

    @override
    def in_flight(self, run: MigrationRun) -> int:
        """A row that goes back changes neither the status of its batch nor this number."""
        table = self._tables(run.parameters.endpoint).batches
        statement = select(func.coalesce(func.sum(table.c.prepared), 0)).where(
            table.c.run_id == run.run_id, table.c.status == BatchStatus.STAGED.value
        )
        with self._database.reading() as connection:
            return int(connection.execute(statement).scalar_one())

    @override
    def rejections(self, run: MigrationRun, limit: int | None) -> Sequence[Rejected]:
        """In the order of their batches."""
        tables = self._tables(run.parameters.endpoint)
        side, table, key = tables.side, tables.batches, tables.layout.id_column
        statement = (
            select(side.c[key], side.c[REJECTED])
            .join(table, table.c.number == side.c[BATCH])
            .where(table.c.run_id == run.run_id, table.c.rejected > 0, side.c[REJECTED].is_not(None))
            .order_by(table.c.number, side.c[key])
        )
        limited = statement if limit is None else self._database.dialect.limited(statement, limit)
        with self._database.reading() as connection:
            rows = connection.execute(limited).all()
        return [Rejected(tables.layout.row_id({key: id_}), reason) for id_, reason in rows]

    @override
    def moved_checksum(self, run: MigrationRun) -> Checksum:
        """The checksum of the rows themselves, read again, not of notes about them."""
        return sum(map(checksum, self.moved(run)), Checksum())

    @override
    def moved(self, run: MigrationRun) -> Iterator[Sequence[Identity]]:
        """A page for each batch."""
        tables = self._tables(run.parameters.endpoint)
        table, layout = tables.batches, tables.layout
        statement = select(table.c.number).where(
            table.c.run_id == run.run_id, table.c.status == BatchStatus.COMPLETED.value
        )
        with self._database.reading() as connection:
            numbers = connection.execute(statement.order_by(table.c.number)).scalars().all()
        names = list(dict.fromkeys([layout.id_column, *(layout.identity_columns or tables.names)]))
        for number in numbers:
            with self._database.reading() as connection:
                rows = rows_of(connection, tables, number, names)
            if rows:
                yield [layout.identity(row, tables.endpoint) for row in rows]

    @override
    def clean_up(self, run: MigrationRun) -> None:
        """While other runs are not cleaned up, only the run's own rows are deleted; else the tables are dropped.

        Runs of the endpoint that ended and kept no row, such as dry runs, are forgotten with it, so that none of them
        becomes the latest again. Rejected rows are deleted, too. MigrationError while rows have neither moved nor gone
        back: they are nowhere else.
        """
        tables = self._tables(run.parameters.endpoint)
        with naming_missing_grants(self._database, tables):
            if left := self.counts(run).pending:
                raise MigrationError(f"{left} rows of the run {run.run_id} have not moved; resume or abort it first")
            self._delete(tables, run)
        self._known.clear()

    def _delete(self, tables: RunTables, run: MigrationRun) -> None:
        runs, batches = tables.runs, tables.batches
        with_rows = select(batches.c.run_id).where(batches.c.prepared > batches.c.returned)
        without_rows = select(runs.c.run_id).where(
            runs.c.endpoint == tables.endpoint,
            runs.c.run_id != run.run_id,
            runs.c.status.not_in(_OPEN),
            runs.c.run_id.not_in(with_rows),
        )
        with self._database.reading() as connection:
            ended = [*connection.execute(without_rows).scalars(), run.run_id]
            others: int = connection.execute(select(func.count()).where(runs.c.run_id.not_in(ended))).scalar_one()
        if others:
            for run_id in ended:
                _delete_rows(self._database, tables, run_id)
            return
        with self._database.writing() as connection:
            for statement in self._database.dialect.dropping(connection, tables.created):
                execute_as_it_stands(connection, statement)


def _complete(
    database: Database, tables: RunTables, run: MigrationRun, batch: MigrationBatch, reasons: Mapping[str, str]
) -> None:
    """Note a staged batch as completed, its rejected rows' `reasons`, by row_id, and the moved ones, in one
    transaction.
    """
    table = tables.batches
    change = (
        update(table)
        .where(table.c.number == batch.number, table.c.run_id == run.run_id)
        .where(table.c.status == BatchStatus.STAGED.value)
        .values(status=BatchStatus.COMPLETED.value, rejected=table.c.rejected + len(reasons))
    )
    with database.writing() as connection:
        if connection.execute(change).rowcount != 1:
            raise MigrationError(f"batch {batch.number} of the run {run.run_id} is not staged, or is not there")
        key, layout, number = tables.layout.id_column, tables.layout, batch.number
        if reasons:
            ids = {layout.row_id(row): row[key] for row in rows_of(connection, tables, number, [key])}
            if unknown := sorted(reasons.keys() - ids.keys()):
                raise MigrationError(f"the row {unknown[0]!r} is not in batch {number} of the run {run.run_id}")
            found = [
                {"rejected_row": ids[row_id], "rejected_because": storable(why)} for row_id, why in reasons.items()
            ]
            connection.execute(database.dialect.rejecting(tables, number), found)
        layout.note_moved(connection, tables, number)
        if reasons and layout.leaves_rejected:
            put_back(database, connection, tables, number, moved=True)


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


def _delete_rows(database: Database, tables: RunTables, run_id: str) -> None:
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
