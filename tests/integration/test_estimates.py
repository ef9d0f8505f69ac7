"""How many messages wait, and in how much space, told without reading them."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Engine, event, make_url, text

from delaystore.delivery import DelayedDelivery
from delaystore.settings import TransactionMode
from delaystore.stores import SqlDelayedMessageStore
from delaystore.stores.abc import Count
from delaystore.stores.sql import _statements
from delaystore.text import time_text
from tests.dispatching import wait_until
from tests.integration.cli import CommandLine
from tests.integration.sql_stores import message, opened

pytestmark = pytest.mark.long_runs("mariadb")

MANY, MORE = 3000, 1000
CHILD = '"more: 50% of \\ them"'
"""A name of every kind of sign."""


@pytest.fixture
def environment(database_url: str) -> dict[str, str]:
    return {"DELAYSTORE_STORE": database_url, "DELAYSTORE_ENDPOINT": "sales"}


@pytest.fixture(autouse=True)
def few_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_statements, "COUNTED", 100)


@pytest.fixture
def filled(store: SqlDelayedMessageStore) -> SqlDelayedMessageStore:
    """Many wait, and the database's statistics know it."""
    now = store.now()
    store.store_many(message(now, 3600 + number) for number in range(MANY))
    if make_url(store.engine.url).get_backend_name() != "sqlite":
        vacuum = "VACUUM ANALYZE" if store.engine.name == "postgresql" else "ANALYZE TABLE"
        execute(store.engine, f"{vacuum} sales_delayed")
    return store


@pytest.fixture
def postgresql_store(postgresql_url: str) -> Iterator[SqlDelayedMessageStore]:
    """A store that no autovacuum looks at, with many messages."""
    with opened(postgresql_url) as store:
        execute(store.engine, "ALTER TABLE sales_delayed SET (autovacuum_enabled = false)")
        store.store_many(message(store.now(), 3600 + number) for number in range(MANY))
        yield store


def execute(engine: Engine, statement: str) -> None:
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text(statement.replace(":", r"\:")))


def add_child(engine: Engine) -> None:
    """A table that inherits from the store's, with messages of its own, which no statistics know."""
    options = "WITH (autovacuum_enabled = false)"
    execute(engine, f"CREATE TABLE {CHILD} (LIKE sales_delayed INCLUDING ALL) INHERITS (sales_delayed) {options}")
    columns = "destination, due_time, next_attempt, failure_count, headers, properties, body"
    copied = f"SELECT 'x' || message_id, {columns} FROM sales_delayed LIMIT {MORE}"
    execute(engine, f"INSERT INTO {CHILD} {copied}")


def test_many_are_estimated_and_the_command_line_says_so(
    filled: SqlDelayedMessageStore, database_url: str, run: CommandLine
) -> None:
    estimated = filled.estimate_count()
    assert DelayedDelivery("sales", filled).estimate_count().exact is estimated.exact
    assert 0.5 * MANY < estimated.messages < 2 * MANY
    counted = run("count", "--json").document
    health = run("health", "--json").document
    assert counted["exact"] is health["exact"] is estimated.exact is database_url.startswith("sqlite")
    assert 0.5 * MANY < counted["count"] < 2 * MANY
    assert 0.5 * MANY < health["waiting"] < 2 * MANY
    if not estimated.exact:
        assert run("count").out.startswith("about ")
        assert run("count").out.endswith(" (estimated; --exact counts)\n")
        assert "(estimated) waiting" in run("health").out
    assert run("count", "--exact").out == f"{MANY}\n"
    assert run("count", "--exact", "--json").document == {"count": MANY, "exact": True}
    assert run("count", "--destination", "billing", "--json").document == {"count": MANY, "exact": True}
    assert run("count", "--per", "day", "--json").document["exact"] is True


def test_few_are_counted_whatever_the_statistics_say(filled: SqlDelayedMessageStore) -> None:
    now = filled.now()
    with filled.transaction() as transaction:
        transaction.remove_many(transaction.fetch_due(now.replace(year=now.year + 1), MANY - 100))
    assert filled.estimate_count() == Count(100, exact=True)


def test_the_status_tells_sizes(filled: SqlDelayedMessageStore, run: CommandLine, database_url: str) -> None:
    told = run("status", "--json")
    assert told.code == 0
    document = told.document
    first = filled.status().first_due
    assert first is not None
    assert (document["healthy"], document["oldest_overdue"]) == (True, None)
    assert document["first_due"] == first.isoformat()
    (size,) = document["tables"]
    assert size["data_bytes"] > 100 * MANY
    if database_url.startswith("sqlite"):
        assert size["name"] == make_url(database_url).database
        assert document["waiting"] == MANY
    else:
        assert size["name"] == "sales_delayed"
        assert size["index_bytes"] > 0
        assert 0.5 * MANY < size["rows"] < 2 * MANY
    lines = run("status").out
    assert "health       healthy\n" in lines
    assert f"first due    {time_text(first)}, in " in lines
    assert re.search(r"\d [KM]iB", lines)
    filled.store(message(filled.now(), -3600))
    told = run("status")
    assert told.code == 1
    assert "health       unhealthy: the oldest message is overdue for 1h\n" in told.out


def test_tables_that_inherit_are_of_the_store(postgresql_store: SqlDelayedMessageStore) -> None:
    execute(postgresql_store.engine, "ANALYZE sales_delayed")
    add_child(postgresql_store.engine)
    parent, child = postgresql_store.sizes()
    assert (parent.name, child.name) == ("sales_delayed", CHILD)
    assert parent.rows == MANY
    assert child.rows == MORE  # all of its few pages are looked at
    assert postgresql_store.estimate_count() == Count(MANY + MORE, exact=False)


@pytest.mark.parametrize(
    ("rows", "pages"), [(-1, 0), (0, 0), (0, 10)], ids=["never analyzed", "PostgreSQL 13", "empty"]
)
def test_where_no_statistics_know_the_rows_a_few_pages_are_looked_at(
    postgresql_store: SqlDelayedMessageStore, postgresql: Any, rows: int, pages: int
) -> None:
    url = make_url(postgresql.admin_url).set(database=postgresql_store.engine.url.database)
    with opened(url.render_as_string(hide_password=False)) as administrator:
        believed = f"UPDATE pg_class SET reltuples = {rows}, relpages = {pages} WHERE relname = 'sales_delayed'"
        execute(administrator.engine, believed)
    assert postgresql_store.estimate_count() == Count(MANY, exact=False)


def test_dead_rows_are_told_of(postgresql_store: SqlDelayedMessageStore) -> None:
    execute(postgresql_store.engine, "ANALYZE sales_delayed")
    execute(postgresql_store.engine, "UPDATE sales_delayed SET failure_count = 1")
    postgresql_store.engine.dispose()  # a session tells of what it did at its end, if not sooner
    wait_until(lambda: postgresql_store.sizes()[0].dead_rows == MANY, "the dead rows are known")


def test_what_may_not_be_read_is_counted(postgresql_store: SqlDelayedMessageStore, postgresql: Any) -> None:
    """A role reads what a table inherits by its right to the table alone."""
    add_child(postgresql_store.engine)
    owner_url = postgresql_store.engine.url.render_as_string(hide_password=False)
    url = postgresql.create_role("estimates_reader", "secret", owner_url)
    for table in ("sales_delayed", "sales_delayed_version"):
        execute(postgresql_store.engine, f"GRANT SELECT ON {table} TO estimates_reader")
    reader = SqlDelayedMessageStore(url)
    reader.initialize("sales", TransactionMode.NONE)
    assert reader.estimate_count() == Count(MANY + MORE, exact=True)
    reader.close()


def test_a_schema_and_a_table_of_one_s_own_have_sizes_too(postgresql_store: SqlDelayedMessageStore) -> None:
    execute(postgresql_store.engine, 'CREATE SCHEMA "my: schema"')
    url = postgresql_store.engine.url.render_as_string(hide_password=False)
    with opened(url, schema="my: schema", table="waiting room") as store:
        (size,) = store.sizes()
        assert (size.name, size.rows) == ('"my: schema"."waiting room"', 0)


def test_a_table_that_is_locked_is_unhealthy_in_time(
    postgresql_store: SqlDelayedMessageStore, capsys: pytest.CaptureFixture[str]
) -> None:
    url = postgresql_store.engine.url.render_as_string(hide_password=False)
    ask = ("status", "--store", url, "--endpoint", "sales", "--timeout", "1")
    run = CommandLine(capsys, {})
    with postgresql_store.engine.begin() as connection:
        connection.exec_driver_sql("LOCK TABLE sales_delayed")
        told, document = run(*ask), run(*ask, "--json").document
    reason = "the store does not answer within 1 s"
    assert (told.code, told.out) == (1, f"endpoint     sales\nhealth       unhealthy: {reason}\n")
    assert (document["healthy"], document["store"], document["tables"]) == (False, reason, None)


def test_an_estimate_reads_no_table(postgresql_store: SqlDelayedMessageStore) -> None:
    execute(postgresql_store.engine, "ANALYZE sales_delayed")
    read: list[str] = []
    event.listen(postgresql_store.engine, "before_cursor_execute", lambda *arguments: read.append(arguments[2]))
    with postgresql_store.transaction() as transaction:
        transaction.sizes()
    (statement,) = read
    assert "sales_delayed" not in statement
    assert "pg_class" in statement
