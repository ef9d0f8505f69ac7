"""What hinders a run, found before anything is changed."""

from collections.abc import Iterator, Sequence

from sqlalchemy import Connection, Inspector, inspect

from delaystore.errors import MigrationError, StorePermissionError, StoreSetupError
from delaystore.migrations.abc import Problem
from delaystore.migrations.sources.sql.database import Database
from delaystore.migrations.sources.sql.shape import TableShape
from delaystore.migrations.sources.sql.tables import BATCH, REJECTED, RunTables, check_layout, has_table, run_tables


def check(database: Database, shape: TableShape, endpoint: str, schema: str | None) -> Sequence[Problem]:
    """See the contract."""
    with database.reading() as connection:
        try:
            tables = run_tables(connection, shape, endpoint, schema)
        except StoreSetupError as error:
            return [Problem(endpoint, str(error))]
        if problems := list(_columns(inspect(connection), tables)):
            return problems
        try:
            check_layout(connection, tables)
        except MigrationError as error:
            problems.append(Problem(endpoint, str(error)))
        problems += _right_to_create(database, connection, tables)
    return problems + list(_rights(database, tables))


def grants(database: Database, tables: RunTables) -> str:
    """What a database's owner must grant."""
    if database.dialect_name == "sqlite":
        return "allow writing to the database's file and folder"
    name = tables.source.fullname
    return (
        f"grant {database.dialect.rights} on {name}, and the right to create and drop tables beside it, "
        f"to {database.user!r}"
    )


def _columns(inspector: Inspector, tables: RunTables) -> Iterator[Problem]:
    shape, source = tables.shape, tables.source
    table = repr(source.name)
    for name, role in shape.columns.items():
        if name not in source.c:
            yield Problem(source.name, f"the table {table} has no column {name!r} ({role}); is it {shape.kind}'s?")
    found = {column["name"] for column in inspector.get_columns(source.name, schema=source.schema)}
    for name in (BATCH, REJECTED):
        if name in found:
            yield Problem(source.name, f"the table {table} has a column {name!r}; rename it for the migration")
    if shape.id_column in source.c and not _is_unique(inspector, tables):
        yield Problem(source.name, f"{shape.id_column!r} of {table} is no primary key; make it one, lest rows mix")
    engine = inspector.get_table_options(source.name, schema=source.schema).get("mysql_engine", "InnoDB")
    if engine != "InnoDB":
        yield Problem(source.name, f"the table {table} is kept by {engine}, which has no transactions; use InnoDB")


def _is_unique(inspector: Inspector, tables: RunTables) -> bool:
    """MySQL and MariaDB look for it as the primary key."""
    name, schema, key = tables.source.name, tables.source.schema, [tables.shape.id_column]
    if inspector.get_pk_constraint(name, schema=schema)["constrained_columns"] == key:
        return True
    if inspector.dialect.name in ("mysql", "mariadb"):
        return False
    indexes = inspector.get_indexes(name, schema=schema)
    return any(index["unique"] and index["column_names"] == key for index in indexes)


def _right_to_create(database: Database, connection: Connection, tables: RunTables) -> Iterator[Problem]:
    if has_table(connection, tables.side) or database.dialect.may_create(connection, tables.source.schema):
        return
    yield Problem(tables.source.name, f"the run's tables may not be created; {grants(database, tables)}")


def _rights(database: Database, tables: RunTables) -> Iterator[Problem]:
    """By statements that find no row; each is undone, too."""
    for statement in database.dialect.trials(tables):
        try:
            with database.reading() as connection:
                connection.execute(statement)
        except StorePermissionError as error:
            yield Problem(tables.source.name, f"{error}; {grants(database, tables)}")
            return
