"""SQL Server's statements of a migration, compiled and compared. The test machines have no such server."""

import re
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import (
    Column,
    Connection,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    create_mock_engine,
    func,
    literal,
    select,
)
from sqlalchemy.dialects import mssql
from sqlalchemy.schema import CreateTable
from sqlalchemy.sql.elements import ClauseElement

from delaystore.migrations.sources._sql._database import SqlServerMigration
from delaystore.migrations.sources._sql.source import DelaystoreLayout
from delaystore.migrations.sources._sql.tables import BATCH, REJECTED, Instant, RunTables, batches_table, runs_table

DIALECT = SqlServerMigration("mssql")


def table(name: str, *more: Column[Any]) -> Table:
    columns = [Column("message_id", String), Column("due_time", Instant(mssql.DATETIME2(6))), Column("next_attempt",
               Instant(mssql.DATETIME2(6))), Column("destination", String)]  # fmt: skip
    return Table(name, MetaData(), *columns, *more, schema="dbo", quote=True, quote_schema=True)


TABLES = RunTables(
    endpoint="sales",
    layout=DelaystoreLayout(),
    source=table("sales_delayed"),
    side=table("sales_delayed_migrating", Column(BATCH, Integer), Column(REJECTED, Text)),
    runs=table("unused"),
    batches=table("unused"),
)


def compiled(statement: ClauseElement) -> str:
    text = str(statement.compile(dialect=mssql.dialect()))
    return (
        re.sub(r"\s+", " ", text)
        .replace("[dbo].[sales_delayed].", "")
        .replace("[dbo].[sales_delayed_migrating].", "s.")
    )


@pytest.fixture
def connection() -> Connection:
    return create_mock_engine("mssql+pyodbc://", executor=lambda *_: None)  # type: ignore[return-value] # only its dialect is asked


def test_rows_are_searched_past_locks_in_the_order_of_the_index() -> None:
    source = TABLES.source
    order = (source.c.next_attempt, source.c.message_id)
    position = literal(datetime(2040, 1, 1, tzinfo=UTC), order[0].type), literal("m1", order[1].type)
    search = select(*order).where(DIALECT.behind(order, position)).order_by(*order)
    assert compiled(DIALECT.lock_free(DIALECT.limited(search, 7), source)) == (
        "SELECT TOP (7) next_attempt, message_id FROM [dbo].[sales_delayed] WITH (READPAST) "
        "WHERE next_attempt >= :param_1 AND (next_attempt > :param_1 OR message_id > :param_2) "
        "ORDER BY next_attempt, message_id"
    )


def test_rows_are_locked_one_by_one_past_locks() -> None:
    key = TABLES.source.c.message_id
    assert compiled(DIALECT.locked(select(key).where(DIALECT.one_of(key, ["m1"])), TABLES.source)) == (
        "SELECT message_id FROM [dbo].[sales_delayed] WITH (READPAST, UPDLOCK, ROWLOCK) "
        "WHERE message_id IN (__[POSTCOMPILE_ids_1])"
    )


def test_rows_move_by_their_ids() -> None:
    assert compiled(DIALECT.moving(TABLES, 3, ["m1"])) == (
        "INSERT INTO [dbo].[sales_delayed_migrating] (message_id, due_time, next_attempt, destination, "
        "migration_batch, migration_rejected) SELECT message_id, due_time, next_attempt, destination, "
        ":param_1 AS anon_1, NULL AS anon_2 FROM [dbo].[sales_delayed] WHERE message_id IN (__[POSTCOMPILE_ids_1])"
    )
    assert compiled(DIALECT.removing(TABLES, 3, ["m1"])) == (
        "DELETE FROM [dbo].[sales_delayed] WHERE message_id IN (__[POSTCOMPILE_ids_1])"
    )


def test_a_rejected_row_is_flagged() -> None:
    assert compiled(DIALECT.rejecting(TABLES, 3)) == (
        "UPDATE [dbo].[sales_delayed_migrating] SET migration_rejected=:rejected_because "
        "WHERE s.migration_batch = :migration_batch_1 AND s.message_id = :rejected_row"
    )


def test_the_side_table_is_like_the_source(connection: Connection) -> None:
    assert DIALECT.creating(connection, TABLES) == [
        "SELECT [message_id], [due_time], [next_attempt], [destination], ISNULL(CAST(0 AS int), 0) AS migration_batch, "
        "CAST(NULL AS nvarchar(max)) AS migration_rejected INTO [dbo].[sales_delayed_migrating] "
        "FROM [dbo].[sales_delayed] WHERE 1 = 0",
        "ALTER TABLE [dbo].[sales_delayed_migrating] ADD PRIMARY KEY (migration_batch, [message_id])",
    ]
    assert DIALECT.dropping(connection, [TABLES.side, TABLES.source]) == [
        "DROP TABLE IF EXISTS [dbo].[sales_delayed_migrating], [dbo].[sales_delayed]"
    ]


def test_destinations_are_told_apart_byte_by_byte() -> None:
    destination = TABLES.source.c.destination
    statement = select(func.min(destination)).group_by(DIALECT.bytewise(destination))
    assert compiled(statement).endswith("GROUP BY destination COLLATE Latin1_General_100_BIN2")


def test_rights_are_tried_by_statements_that_find_nothing() -> None:
    locked, inserted, deleted = (compiled(statement) for statement in DIALECT.rights_checks(TABLES))
    assert "WITH (READPAST, UPDLOCK, ROWLOCK) WHERE :param_1 = :param_2" in locked
    assert inserted.startswith("INSERT INTO [dbo].[sales_delayed] (message_id, ")
    assert deleted == "DELETE FROM [dbo].[sales_delayed] WHERE :param_1 = :param_2"


def test_the_tables_of_a_run_can_be_created() -> None:
    runs, batches = compiled(CreateTable(runs_table("r", "dbo"))), compiled(CreateTable(batches_table("b", "dbo")))
    assert "CREATE TABLE [dbo].[r] ( run_id NVARCHAR(36) COLLATE Latin1_General_100_BIN2 NOT NULL" in runs
    assert "CREATE TABLE [dbo].[b] ( number INTEGER NOT NULL, run_id NVARCHAR(36)" in batches


def test_instants_without_a_zone_are_utc() -> None:
    dialect = mssql.dialect()
    east = datetime.fromisoformat("2040-01-01T01:02:03.000004+02:00")
    plain, zoned = Instant(mssql.DATETIME2(6)), Instant(mssql.DATETIMEOFFSET())
    assert plain.process_bind_param(east, dialect) == datetime(2039, 12, 31, 23, 2, 3, 4)  # noqa: DTZ001 - that is meant
    assert zoned.process_bind_param(east, dialect) == east
    assert plain.process_result_value(datetime(2040, 1, 1), dialect) == datetime(2040, 1, 1, tzinfo=UTC)  # noqa: DTZ001 - that is meant
    assert str(zoned.process_result_value(east, dialect)) == "2039-12-31 23:02:03.000004+00:00"
    assert plain.process_result_value("0000-00-00", dialect) == "0000-00-00"
    assert compiled(select(literal(east, plain))).startswith("SELECT :param_1")
