"""Hiding rows from the dispatchers: each batch moves from the source's table to the side table in one transaction.

Rows are found in the order of an index, each batch behind the last one, so that the cost of a batch does not grow with
what has been moved. Rows that a dispatcher has claimed are passed over, and tried again in the next pass.

Another program may still run the rows of its table: of such a table a batch is read before it is hidden, so that a row
that cannot move is never out of that program's sight.
"""

from collections.abc import Iterator, MutableMapping, Sequence
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Select, func, literal, select

from delaystore.errors import MigrationError
from delaystore.migrations.abc import Batch, BatchStatus, Rejected, Row, Run, RunStatus
from delaystore.migrations.sources._sql.database import Database
from delaystore.migrations.sources._sql.dialects import Hidden, slices
from delaystore.migrations.sources._sql.previewing import rows_of_ids, until_large
from delaystore.migrations.sources._sql.tables import RunTables
from delaystore.migrations.sources._sql.waiting import eligible

PASSES: Final = 3
"""The most passes over the whole table: what is claimed in each of them, or arrives later, stays where it is."""
Position = tuple[Any, Any]
"""The time and the id of a row, by which rows are found in order."""


def prepare(database: Database, tables: RunTables, run: Run, left: MutableMapping[str, Rejected]) -> Iterator[Batch]:
    """Hide what is eligible; see the contract.

    `left`: by row_id, the rows to leave in the table; gets those that turn out to be no messages.
    """
    if run.status is not RunStatus.PREPARING:
        raise MigrationError(f"the run {run.run_id} is {run.status}, and hides no more rows")
    hiding = _Hiding(database, tables, run, left)
    for _ in range(PASSES):
        moved = False
        for batch in hiding.pass_over():
            moved = True
            yield batch
        if not moved:
            return


class _Hiding:
    def __init__(self, database: Database, tables: RunTables, run: Run, left: MutableMapping[str, Rejected]) -> None:
        self._database, self._tables, self._run, self._left = database, tables, run, left
        self._order = tables.order
        self._eligible = eligible(tables, run.parameters.cutoff)

    def pass_over(self) -> Iterator[Batch]:
        """From the first row to the one that is the last now, so that it ends although the table grows."""
        time, _ = self._order
        last = self._database.dialect.lock_free(select(func.max(time)).where(self._eligible), self._tables.source)
        with self._database.reading() as connection:
            self._database.dialect.allow_long_reading(connection)
            end: datetime | None = connection.execute(last).scalar()
        position: Position | None = None
        while end is not None:
            search = self._search(position, end)
            if self._tables.shape.leaves_rejected:
                more, position, searches = self._movable(search)
                _, batch = self._hide(searches)
            else:
                hidden, batch = self._hide([search])
                more = hidden is not None and hidden.found == self._run.parameters.batch_size
                position = None if hidden is None else hidden.position
            if batch is not None:
                yield batch
            if not more:
                return

    def _search(self, position: Position | None, end: datetime) -> Select[Any]:
        source, dialect = self._tables.source, self._database.dialect
        time, key = self._order
        statement = select(time, key).where(self._eligible, time <= literal(end, time.type)).order_by(time, key)
        if position is not None:
            values = [literal(value, column.type) for value, column in zip(position, self._order, strict=True)]
            statement = statement.where(dialect.behind(self._order, values))
        if (free := self._tables.shape.free(source, self._database.now())) is not None:
            statement = statement.where(free)
        return dialect.limited(statement, self._run.parameters.batch_size)

    def _movable(self, search: Select[Any]) -> tuple[bool, Position | None, list[Select[Any]]]:
        """Whether more rows may follow those of the search, the last of these, and searches for those that can move.

        A batch ends early where its bodies would be large: it is staged as a whole.
        """
        source, shape, dialect = self._tables.source, self._tables.shape, self._database.dialect
        with self._database.reading() as connection:
            found = connection.execute(dialect.lock_free(search, source)).all()
            more = len(found) == self._run.parameters.batch_size
            names = {shape.row_id({shape.id_column: key}): key for _, key in found}
            ids = {name: key for name, key in names.items() if name not in self._left}
            page = until_large(
                row
                for some in slices(list(ids.values()))
                for row in rows_of_ids(connection, self._database, self._tables, some)
            )
        self._left.update((row.row_id, row) for row in page if isinstance(row, Rejected))
        if 0 < len(page) < len(ids):
            more, found = True, found[: list(names).index(page[-1].row_id) + 1]
        time, key = self._order
        searches = [
            select(time, key).where(self._eligible, dialect.one_of(key, some)).order_by(time, key)
            for some in slices([ids[row.row_id] for row in page if isinstance(row, Row)])
        ]
        return more, (found[-1][0], found[-1][1]) if found else None, searches

    def _hide(self, searches: Sequence[Select[Any]]) -> tuple[Hidden | None, Batch | None]:
        """Move and account for what the searches find, in one transaction; no batch where all of it is claimed."""
        tables, dialect = self._tables, self._database.dialect
        with self._database.writing() as connection:
            dialect.prefer_indexes(connection)
            last: int | None = connection.execute(select(func.max(tables.batches.c.number))).scalar()
            number = (last or 0) + 1
            parts = [dialect.hide(connection, tables, number, search, self._eligible) for search in searches]
            hidden = _together([part for part in parts if part is not None])
            if hidden is None or not hidden.locked:
                return hidden, None
            self._expect(hidden.locked, hidden.moved)
            values = {"run_id": self._run.run_id, "status": BatchStatus.PENDING.value, "prepared": hidden.moved}
            connection.execute(tables.batches.insert(), {"number": number, **values})
        return hidden, Batch(number, BatchStatus.PENDING, hidden.moved)

    def _expect(self, rows: int, moved: int) -> None:
        """Locked rows can neither vanish nor double, unless the id is not unique or a trigger is at work."""
        if rows != moved:
            raise MigrationError(
                f"{moved} rows of {self._tables.source.name!r} moved where {rows} should have; nothing of this batch "
                f"was moved. Is {self._tables.shape.id_column!r} unique, and is there no trigger?"
            )


def _together(parts: Sequence[Hidden]) -> Hidden | None:
    """What became of all searches of a batch."""
    if not parts:
        return None
    return Hidden(
        position=parts[-1].position,
        found=sum(part.found for part in parts),
        locked=sum(part.locked for part in parts),
        moved=sum(part.moved for part in parts),
    )
