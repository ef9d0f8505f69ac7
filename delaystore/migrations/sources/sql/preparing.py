"""Hiding rows from the dispatchers: each batch moves from the source's table to the side table in one transaction.

Rows are found in the order of an index, each batch behind the last one, so that the cost of a batch does not grow with
what has been moved. Rows that a dispatcher holds are passed over, and looked for again in the next pass.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Connection, func, literal, select

from delaystore.errors import MigrationError
from delaystore.migrations.abc import Batch, BatchStatus, Run, RunStatus
from delaystore.migrations.sources.sql.database import Database
from delaystore.migrations.sources.sql.dialects.base import slices
from delaystore.migrations.sources.sql.eligible import eligible
from delaystore.migrations.sources.sql.tables import RunTables

PASSES: Final = 3
"""Looks at the whole table at most: what is held that long, or goes on arriving, stays with the old dispatchers."""
Place = tuple[datetime, Any]
"""A place in the order in which rows are found."""


def prepare(database: Database, tables: RunTables, run: Run) -> Iterator[Batch]:
    """Hide what is eligible; see the contract."""
    if run.status is not RunStatus.PREPARING:
        raise MigrationError(f"the run {run.run_id} is {run.status}, and hides no more rows")
    hiding = _Hiding(database, tables, run)
    for _ in range(PASSES):
        moved = False
        for batch in hiding.pass_over():
            moved = True
            yield batch
        if not moved:
            return


class _Hiding:
    def __init__(self, database: Database, tables: RunTables, run: Run) -> None:
        self._database, self._tables, self._run = database, tables, run
        self._order = tables.shape.order_column or tables.shape.time_column
        self._key = tables.shape.id_column
        self._eligible = eligible(tables, run.parameters.cutoff)

    def pass_over(self) -> Iterator[Batch]:
        """From the first row to what is the last one now: a table that grows has an end."""
        time = self._tables.source.c[self._order]
        last = self._database.dialect.passing(select(func.max(time)).where(self._eligible), self._tables.source)
        with self._database.reading() as connection:
            end: datetime | None = connection.execute(last).scalar()
        place: Place | None = None
        while end is not None:
            with self._database.writing() as connection:
                found = self._found(connection, place, end)
                batch = self._move(connection, [row[1] for row in found]) if found else None
            if batch is not None:
                yield batch
            if len(found) < self._run.parameters.batch_size:
                return
            place = (found[-1][0], found[-1][1])

    def _found(self, connection: Connection, place: Place | None, end: datetime) -> Sequence[Any]:
        source, dialect = self._tables.source, self._database.dialect
        time, key = source.c[self._order], source.c[self._key]
        statement = select(time, key).where(self._eligible, time <= literal(end, time.type)).order_by(time, key)
        if place is not None:
            statement = statement.where(dialect.behind(source, self._order, self._key, place))
        if (free := self._free()) is not None:
            statement = statement.where(free)
        limited = dialect.limited(statement, self._run.parameters.batch_size)
        return connection.execute(dialect.passing(limited, source)).all()

    def _move(self, connection: Connection, ids: Sequence[Any]) -> Batch | None:
        """Lock, copy, delete and account for; None: all are held."""
        held = [id_ for slice_ in slices(ids) for id_ in self._locked(connection, slice_)]
        if not held:
            return None
        tables, dialect = self._tables, self._database.dialect
        number = self._next_number(connection)
        for slice_ in slices(held):
            self._expect(
                len(slice_),
                connection.execute(
                    dialect.moving(tables, number, slice_), execution_options={"preserve_rowcount": True}
                ).rowcount,
            )
        removed = 0
        for slice_ in slices(held):
            removed += connection.execute(dialect.removing(tables, number, slice_)).rowcount
        self._expect(len(held), removed)
        connection.execute(
            tables.batches.insert(),
            {"number": number, "run_id": self._run.run_id, "status": BatchStatus.PENDING.value, "prepared": len(held)},
        )
        return Batch(number, BatchStatus.PENDING, len(held))

    def _locked(self, connection: Connection, ids: Sequence[Any]) -> Sequence[Any]:
        """Those that nobody holds, and that are still eligible."""
        source, dialect = self._tables.source, self._database.dialect
        key = source.c[self._key]
        statement = select(key).where(dialect.among(key, ids), self._eligible)
        return connection.execute(dialect.locked(statement, source)).scalars().all()

    def _next_number(self, connection: Connection) -> int:
        last: int | None = connection.execute(select(func.max(self._tables.batches.c.number))).scalar()
        return (last or 0) + 1

    def _free(self) -> Any:
        return self._tables.shape.free(self._tables.source, self._database.now())

    def _expect(self, rows: int, moved: int) -> None:
        """Locked rows can neither vanish nor double, unless the id is not unique or a trigger is at work."""
        if rows != moved:
            raise MigrationError(
                f"{moved} rows of {self._tables.source.name!r} moved where {rows} should have; nothing of this batch "
                f"was moved. Is {self._key!r} unique, and is there no trigger?"
            )
