"""SQL Server's statements, compiled and compared. Not run against a server: the test machines have none."""

import re

import pytest
from sqlalchemy import ClauseElement, create_mock_engine, delete, update
from sqlalchemy.dialects import mssql
from sqlalchemy.schema import CreateIndex, CreateTable

from delaystore.stores.sql.dialects.base import NEW_TIMES
from delaystore.stores.sql.dialects.mssql import SqlServerDialect, unless_locked
from delaystore.stores.sql.schema import delayed_table
from delaystore.stores.sql.statements import Statements

TABLE = delayed_table("sales_delayed", "dbo", leases=False)
COLUMNS = ", ".join(
    f"[dbo].[sales_delayed].{name}"
    for name in (
        "message_id", "destination", "due_time", "next_attempt", "failure_count", "headers", "properties", "body",
    )
)  # fmt: skip
ORDER = "ORDER BY [dbo].[sales_delayed].next_attempt, [dbo].[sales_delayed].message_id"


@pytest.fixture
def statements() -> Statements:
    engine = create_mock_engine("mssql+pyodbc://", executor=lambda *_: None)
    return Statements(TABLE, SqlServerDialect(engine))  # type: ignore[arg-type] - only its dialect's name is read


def compiled(statement: ClauseElement) -> str:
    return re.sub(r"\s+", " ", str(statement.compile(dialect=mssql.dialect())))


def test_a_fetch_passes_over_locked_rows_and_locks_only_what_it_returns(statements: Statements) -> None:
    assert compiled(statements.due) == (
        f"SELECT TOP (:limit) {COLUMNS} FROM [dbo].[sales_delayed] WITH (READPAST, UPDLOCK, ROWLOCK) "
        f"WHERE [dbo].[sales_delayed].next_attempt <= :at {ORDER}"
    )


def test_a_fetch_behind_the_mark_compares_no_tuples(statements: Statements) -> None:
    assert compiled(statements.due_behind) == (
        f"SELECT TOP (:limit) {COLUMNS} FROM [dbo].[sales_delayed] WITH (READPAST, UPDLOCK, ROWLOCK) "
        "WHERE [dbo].[sales_delayed].next_attempt <= :at AND [dbo].[sales_delayed].next_attempt >= :mark_time "
        "AND ([dbo].[sales_delayed].next_attempt > :mark_time OR [dbo].[sales_delayed].message_id > :mark_id) "
        f"{ORDER}"
    )


def test_increment_and_insert(statements: Statements) -> None:
    assert compiled(statements.increment).startswith(
        "UPDATE [dbo].[sales_delayed] SET next_attempt=:new_next_attempt, "
        "failure_count=([dbo].[sales_delayed].failure_count + "
    )
    assert compiled(statements.insert).startswith("INSERT INTO [dbo].[sales_delayed] (message_id, destination, ")


def test_cancel_and_reschedule_pass_over_a_locked_row() -> None:
    assert compiled(unless_locked(delete(TABLE), TABLE)) == (
        "DELETE FROM [dbo].[sales_delayed] WITH (READPAST, ROWLOCK) WHERE [dbo].[sales_delayed].message_id = :id"
    )
    assert compiled(unless_locked(update(TABLE).values(NEW_TIMES), TABLE)) == (
        "UPDATE [dbo].[sales_delayed] WITH (READPAST, ROWLOCK) SET due_time=:new_due_time, "
        "next_attempt=:new_due_time, failure_count=:failure_count WHERE [dbo].[sales_delayed].message_id = :id"
    )


def test_buckets_are_grouped_by_no_alias(statements: Statements) -> None:
    assert compiled(statements.buckets).endswith("AS numbered GROUP BY numbered.number ORDER BY numbered.number")


def test_the_table_keeps_exact_text_and_microseconds() -> None:
    create = compiled(CreateTable(TABLE))
    assert "message_id NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NOT NULL" in create
    assert "due_time DATETIME2(6) NOT NULL" in create
    assert "body VARBINARY(max) NOT NULL" in create
    (index,) = TABLE.indexes
    assert compiled(CreateIndex(index)) == (
        "CREATE INDEX sales_delayed_due ON [dbo].[sales_delayed] (next_attempt, message_id)"
    )
