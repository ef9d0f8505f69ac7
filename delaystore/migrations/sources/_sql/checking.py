"""What hinders a run, found before anything is changed."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from sqlalchemy import Connection, Inspector, inspect

from delaystore.errors import MigrationError, StoreError, StorePermissionError, StoreUnavailableError
from delaystore.migrations.abc import Problem
from delaystore.migrations.sources._sql.database import Database
from delaystore.migrations.sources._sql.shape import TableShape
from delaystore.migrations.sources._sql.tables import BATCH, REJECTED, RunTables, check_layout, has_table, run_tables
from delaystore.sql.types import INNODB


def check(database: Database, shape: TableShape, endpoint: str, schema: str | None) -> Sequence[Problem]:
    """What hinders a run, and what to do about it; StoreUnavailableError where the database does not answer."""
    try:
        with database.reading() as connection:
            tables = run_tables(connection, shape, endpoint, schema)
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
    """Add what to grant to the error of a missing right."""
    try:
        yield
    except StorePermissionError as error:
        raise StorePermissionError(f"{error}; {grants(database, tables)}") from None


def grants(database: Database, tables: RunTables) -> str:
    """What a database's owner must grant."""
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
    shape, source = tables.shape, tables.source
    table = repr(source.name)
    for name, role in shape.columns.items():
        if name not in source.c:
            question = f"is it {shape.kind}'s?{shape.missing_column_advice}"
            yield Problem(source.name, f"the table {table} has no column {name!r} ({role}); {question}")
    found = {column["name"] for column in inspector.get_columns(source.name, schema=source.schema)}
    for name in (BATCH, REJECTED):
        if name in found:
            yield Problem(source.name, f"the table {table} has a column {name!r}; rename it for the migration")
    if shape.id_column in source.c and not _is_unique(database, inspector, tables):
        yield Problem(source.name, f"{shape.id_column!r} of {table} is no primary key; make it one, lest rows mix")
    options: Mapping[str, Any] = {}
    with suppress(NotImplementedError):  # as SQLAlchemy 2.0 says of databases that have none
        options = inspector.get_table_options(source.name, schema=source.schema)
    engine = next((options[name] for name in INNODB if name in options and name.endswith("_engine")), "InnoDB")
    if engine != "InnoDB":
        yield Problem(source.name, f"the table {table} is kept by {engine}, which has no transactions; use InnoDB")


def _is_unique(database: Database, inspector: Inspector, tables: RunTables) -> bool:
    """Whether the id is unique; on MySQL and MariaDB it must be the primary key."""
    name, schema, key = tables.source.name, tables.source.schema, [tables.shape.id_column]
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
