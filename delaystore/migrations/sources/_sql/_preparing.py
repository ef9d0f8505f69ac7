"""Rows are hidden from the old side before they move; the checks before that."""

from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Connection, Inspector, Select, func, inspect, literal, select

from delaystore.errors import MigrationError, StoreError, StorePermissionError, StoreUnavailableError
from delaystore.migrations.abc import (
    BatchStatus,
    MigrationBatch,
    MigrationRow,
    MigrationRun,
    Problem,
    Rejected,
    RunStatus,
)
from delaystore.migrations.sources._sql._database import Database, HiddenRows, slices
from delaystore.migrations.sources._sql._reading import eligible, rows_of_ids, until_large
from delaystore.migrations.sources._sql.tables import (
    BATCH,
    REJECTED,
    RunTables,
    TableLayout,
    check_layout,
    has_table,
    run_tables,
)
from delaystore.stores.sql.codec import INNODB

PASSES: Final = 3
"""Maximum number of passes over the whole table: rows that are claimed in each of them, or arrive later, stay."""
RowPosition = tuple[Any, Any]
"""The time and the id of a row, by which rows are found in order."""


def prepare(
    database: Database, tables: RunTables, run: MigrationRun, left: MutableMapping[str, Rejected]
) -> Iterator[MigrationBatch]:
    """Hide eligible rows; see the contract.

    `left`: by row_id, the rows to leave in the table; gets rows that turn out to be no messages.
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
    def __init__(
        self, database: Database, tables: RunTables, run: MigrationRun, left: MutableMapping[str, Rejected]
    ) -> None:
        self._database, self._tables, self._run, self._left = database, tables, run, left
        self._order = tables.order
        self._eligible = eligible(tables, run.parameters.cutoff)

    def pass_over(self) -> Iterator[MigrationBatch]:
        """From the first row to the one that is the last now, so that it ends although the table grows."""
        time, _ = self._order
        last = self._database.dialect.lock_free(select(func.max(time)).where(self._eligible), self._tables.source)
        with self._database.reading() as connection:
            self._database.dialect.allow_long_reading(connection)
            end: datetime | None = connection.execute(last).scalar()
        position: RowPosition | None = None
        while end is not None:
            search = self._search(position, end)
            if self._tables.layout.leaves_rejected:
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

    def _search(self, position: RowPosition | None, end: datetime) -> Select[Any]:
        source, dialect = self._tables.source, self._database.dialect
        time, key = self._order
        statement = select(time, key).where(self._eligible, time <= literal(end, time.type)).order_by(time, key)
        if position is not None:
            values = [literal(value, column.type) for value, column in zip(position, self._order, strict=True)]
            statement = statement.where(dialect.behind(self._order, values))
        if (free := self._tables.layout.free(source, self._database.now())) is not None:
            statement = statement.where(free)
        return dialect.limited(statement, self._run.parameters.batch_size)

    def _movable(self, search: Select[Any]) -> tuple[bool, RowPosition | None, list[Select[Any]]]:
        """Whether more rows may follow the search's rows, the last of these, and searches for rows that can move.

        A batch ends early where its bodies would be large: it is staged as a whole.
        """
        source, layout, dialect = self._tables.source, self._tables.layout, self._database.dialect
        with self._database.reading() as connection:
            found = connection.execute(dialect.lock_free(search, source)).all()
            more = len(found) == self._run.parameters.batch_size
            names = {layout.row_id({layout.id_column: key}): key for _, key in found}
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
            for some in slices([ids[row.row_id] for row in page if isinstance(row, MigrationRow)])
        ]
        return more, (found[-1][0], found[-1][1]) if found else None, searches

    def _hide(self, searches: Sequence[Select[Any]]) -> tuple[HiddenRows | None, MigrationBatch | None]:
        """Move and account for the rows that the searches find, in one transaction; no batch where all of it is
        claimed.
        """
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
        return hidden, MigrationBatch(number, BatchStatus.PENDING, hidden.moved)

    def _expect(self, rows: int, moved: int) -> None:
        """Locked rows can neither vanish nor double, unless the id is not unique or a trigger is at work."""
        if rows != moved:
            raise MigrationError(
                f"{moved} rows of {self._tables.source.name!r} moved where {rows} should have; nothing of this batch "
                f"was moved. Is {self._tables.layout.id_column!r} unique, and is there no trigger?"
            )


def _together(parts: Sequence[HiddenRows]) -> HiddenRows | None:
    """The results of all searches of a batch."""
    if not parts:
        return None
    return HiddenRows(
        position=parts[-1].position,
        found=sum(part.found for part in parts),
        locked=sum(part.locked for part in parts),
        moved=sum(part.moved for part in parts),
    )


def check(database: Database, layout: TableLayout, endpoint: str, schema: str | None) -> Sequence[Problem]:
    """What blocks a run, and what to do about it; StoreUnavailableError where the database does not answer."""
    try:
        with database.reading() as connection:
            tables = run_tables(connection, layout, endpoint, schema)
    except StoreError as error:
        if isinstance(error, StoreUnavailableError):
            raise
        return [Problem(endpoint, str(error))]
    problems: list[Problem] = []
    for step in (_columns, _layout, _right_to_create, _rights):
        try:
            with database.reading() as connection:
                problems += step(connection, database, tables)
        except StorePermissionError as error:
            problems.append(Problem(tables.source.name, f"{error}; {grants(database, tables)}"))
        if problems:
            break
    return problems


@contextmanager
def naming_missing_grants(database: Database, tables: RunTables) -> Iterator[None]:
    """Add the required GRANT to the error of a missing right."""
    try:
        yield
    except StorePermissionError as error:
        raise StorePermissionError(f"{error}; {grants(database, tables)}") from None


def grants(database: Database, tables: RunTables) -> str:
    """The rights that a database's owner must grant."""
    if database.dialect.is_file:
        return "allow writing to the database's file and folder"
    name = tables.source.fullname
    return (
        f"grant SELECT, INSERT, UPDATE, DELETE on {name}, and the right to create and drop tables beside it, "
        f"to {database.user!r}"
    )


def _layout(connection: Connection, _database: Database, tables: RunTables) -> Iterator[Problem]:
    try:
        check_layout(connection, tables)
    except MigrationError as error:
        yield Problem(tables.endpoint, str(error))


def _columns(connection: Connection, database: Database, tables: RunTables) -> Iterator[Problem]:
    inspector = inspect(connection)
    layout, source = tables.layout, tables.source
    table = repr(source.name)
    for name, role in layout.columns.items():
        if name not in source.c:
            question = f"is it {layout.kind}'s?{layout.missing_column_advice}"
            yield Problem(source.name, f"the table {table} has no column {name!r} ({role}); {question}")
    found = {column["name"] for column in inspector.get_columns(source.name, schema=source.schema)}
    for name in (BATCH, REJECTED):
        if name in found:
            yield Problem(source.name, f"the table {table} has a column {name!r}; rename it for the migration")
    if layout.id_column in source.c and not _is_unique(database, inspector, tables):
        yield Problem(source.name, f"{layout.id_column!r} of {table} is no primary key; make it one, or rows may mix")
    options: Mapping[str, Any] = {}
    with suppress(NotImplementedError):  # as SQLAlchemy 2.0 says of databases that have none
        options = inspector.get_table_options(source.name, schema=source.schema)
    engine = next((options[name] for name in INNODB if name in options and name.endswith("_engine")), "InnoDB")
    if engine != "InnoDB":
        yield Problem(source.name, f"the table {table} is kept by {engine}, which has no transactions; use InnoDB")


def _is_unique(database: Database, inspector: Inspector, tables: RunTables) -> bool:
    """Whether the id is unique; on MySQL and MariaDB it must be the primary key."""
    name, schema, key = tables.source.name, tables.source.schema, [tables.layout.id_column]
    if inspector.get_pk_constraint(name, schema=schema)["constrained_columns"] == key:
        return True
    if database.dialect.needs_primary_key:
        return False
    indexes = inspector.get_indexes(name, schema=schema)
    return any(index["unique"] and index["column_names"] == key for index in indexes)


def _right_to_create(connection: Connection, database: Database, tables: RunTables) -> Iterator[Problem]:
    if not (has_table(connection, tables.side) or database.dialect.may_create(connection, tables.source.schema)):
        yield Problem(tables.source.name, f"the run's tables may not be created; {grants(database, tables)}")


def _rights(connection: Connection, database: Database, tables: RunTables) -> Sequence[Problem]:
    """Check rights by statements that find no row. StorePermissionError where one is refused."""
    for statement in database.dialect.rights_checks(tables):
        connection.execute(statement)
        connection.rollback()
    return []
