"""Hiding rows from the dispatchers: each batch moves from the source's table to the side table in one transaction.

Rows are found in the order of an index, each batch behind the last one, so that the cost of a batch does not grow with
what has been moved. Rows that a dispatcher holds are passed over, and looked for again in the next pass.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Connection, Select, func, literal, select

from delaystore.errors import MigrationError
from delaystore.migrations.abc import Batch, BatchStatus, Run, RunStatus
from delaystore.migrations.sources.sql.database import Database
from delaystore.migrations.sources.sql.dialects.base import Hidden
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
            hidden, batch = self._hide(self._search(place, end))
            if batch is not None:
                yield batch
            if hidden is None or hidden.found < self._run.parameters.batch_size:
                return
            place = hidden.place

    def _search(self, place: Place | None, end: datetime) -> Select[Any]:
        source, dialect = self._tables.source, self._database.dialect
        time, key = source.c[self._order], source.c[self._key]
        statement = select(time, key).where(self._eligible, time <= literal(end, time.type)).order_by(time, key)
        if place is not None:
            statement = statement.where(dialect.behind(source, self._order, self._key, place))
        if (free := self._tables.shape.free(source, self._database.now())) is not None:
            statement = statement.where(free)
        return dialect.limited(statement, self._run.parameters.batch_size)

    def _hide(self, search: Select[Any]) -> tuple[Hidden | None, Batch | None]:
        """Move and account for what the search finds, in one transaction; no batch where all of it is held."""
        tables, dialect = self._tables, self._database.dialect
        with self._database.writing() as connection:
            dialect.by_index(connection)
            number = self._next_number(connection)
            hidden = dialect.hide(connection, tables, number, search, self._eligible)
            if hidden is None or not hidden.locked:
                return hidden, None
            self._expect(hidden.locked, hidden.moved)
            values = {"run_id": self._run.run_id, "status": BatchStatus.PENDING.value, "prepared": hidden.moved}
            connection.execute(tables.batches.insert(), {"number": number, **values})
        return hidden, Batch(number, BatchStatus.PENDING, hidden.moved)

    def _next_number(self, connection: Connection) -> int:
        last: int | None = connection.execute(select(func.max(self._tables.batches.c.number))).scalar()
        return (last or 0) + 1

    def _expect(self, rows: int, moved: int) -> None:
        """Locked rows can neither vanish nor double, unless the id is not unique or a trigger is at work."""
        if rows != moved:
            raise MigrationError(
                f"{moved} rows of {self._tables.source.name!r} moved where {rows} should have; nothing of this batch "
                f"was moved. Is {self._key!r} unique, and is there no trigger?"
            )
