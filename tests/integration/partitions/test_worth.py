"""When rows get a partition, and whose it is."""

import re
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from sqlalchemy import Connection, Table, create_engine, make_url, text

from delaystore.stores import SqlDelayedMessageStore
from delaystore.stores.sql import _keyed
from delaystore.stores.sql.rows import to_row
from tests.integration.partitions import ROWS
from tests.integration.sql_stores import message, opened
from tests.servers.postgresql import PostgreSQLDatabases


def owners(store: SqlDelayedMessageStore) -> list[str]:
    """The owners of the partitions."""
    found = "SELECT pg_get_userbyid(relowner) FROM pg_class WHERE relname ~ '_shelf_[0-9a-f]{20}$'"
    with store.engine.connect() as connection:
        return list(connection.execute(text(found)).scalars())


def store_many(store: SqlDelayedMessageStore, count: int) -> None:
    assert store.store_many(message(store.now(), 60) for _ in range(count)) == count


def execute(store: SqlDelayedMessageStore, statement: str) -> None:
    with store.engine.begin() as connection:
        connection.exec_driver_sql(statement)


def test_the_more_partitions_there_are_the_more_rows_one_takes(
    store: SqlDelayedMessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or a few small ones, in which something waits for a year, would leave no place."""
    monkeypatch.setattr(SqlDelayedMessageStore, "partition_limits", replace(store.partition_limits, most_partitions=3))
    for rows, partitions in [(ROWS, 1), (4 * ROWS - 1, 1), (4 * ROWS, 2), (16 * ROWS, 3), (64 * ROWS, 3)]:
        store_many(store, rows)
        assert len(owners(store)) == partitions
    assert store.count() == (1 + 4 + 4 + 16 + 64) * ROWS - 1


def test_there_are_no_more_partitions_than_there_may_be(
    store: SqlDelayedMessageStore, other: SqlDelayedMessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though a place was free for each when it was begun."""
    monkeypatch.setattr(SqlDelayedMessageStore, "partition_limits", replace(store.partition_limits, most_partitions=1))

    def fill(connection: Connection, table: Table) -> int:
        connection.execute(table.insert(), [to_row(message(store.now(), 60)) for _ in range(ROWS)])
        return ROWS

    with store.partitions.filled(fill, ROWS) as one, other.partitions.filled(fill, ROWS) as another:
        for partition in (one, another):
            with store.transaction() as transaction:
                partition.move_in(transaction.connection)
    assert len(owners(store)) == 1
    assert store.count() == 2 * ROWS


def test_a_bulk_store_drops_empty_partitions(store: SqlDelayedMessageStore) -> None:
    """Those who dispatch from them may have no right to."""
    for _ in range(3):
        store_many(store, ROWS)
        assert len(owners(store)) == 1
        with store.transaction() as transaction:
            transaction.remove_many(transaction.fetch_due(store.now().replace(year=9000), 100))


def test_a_column_that_the_database_computes_may_be_added(store: SqlDelayedMessageStore) -> None:
    execute(store, "ALTER TABLE sales_delayed ADD COLUMN a TEXT GENERATED ALWAYS AS (destination) STORED")
    store_many(store, ROWS)
    assert len(owners(store)) == 1
    with store.engine.connect() as connection:
        connection.exec_driver_sql("SELECT FROM sales_delayed")  # for longer than a partition is worth
        store_many(store, ROWS)
    assert len(owners(store)) == 1
    assert store.count() == 2 * ROWS


def test_large_bodies_are_not_kept_to_be_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_keyed, "LOOK_AHEAD", 1000)
    messages = (message(datetime.now(UTC), body=b"x" * 400) for _ in range(ROWS))
    looked_at = _keyed.Messages(messages, ROWS)
    assert (len(looked_at.first), looked_at.are_kept) == (3, False)
    assert len(list(looked_at)) == ROWS


def test_a_role_that_has_the_owners_rights_makes_partitions_of_the_owners(
    store: SqlDelayedMessageStore, postgresql: PostgreSQLDatabases, postgresql_url: str
) -> None:
    owner = make_url(postgresql_url).username
    assert owner is not None
    url = postgresql.create_role("heir_of_the_owner", "secret", postgresql_url, member_of=owner)
    with opened(url) as heir:
        store_many(heir, ROWS)
    assert owners(store) == [owner]
    with store.transaction() as transaction:
        transaction.remove_many(transaction.fetch_due(store.now().replace(year=9000), 100))
    store.clean_up()
    assert owners(store) == []


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TRIGGER a BEFORE UPDATE ON sales_delayed FOR EACH ROW "
        "EXECUTE FUNCTION suppress_redundant_updates_trigger()",
        "CREATE PUBLICATION a FOR TABLE sales_delayed",
    ],
)
def test_what_looks_at_the_rows_of_the_table_alone_sees_all(
    store: SqlDelayedMessageStore, statement: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "delaystore.stores")
    execute(store, statement)
    store_many(store, ROWS)
    assert owners(store) == []
    assert re.search("sales_delayed gets no partition: it (has triggers|is published)", caplog.text)
    assert store.count() == ROWS


def test_a_trigger_that_is_gone_does_not_matter(store: SqlDelayedMessageStore) -> None:
    """PostgreSQL notes that a table has triggers until its next VACUUM."""
    trigger = "BEFORE UPDATE ON sales_delayed FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()"
    execute(store, f"CREATE TRIGGER a {trigger}")
    execute(store, "DROP TRIGGER a ON sales_delayed")
    store_many(store, ROWS)
    assert len(owners(store)) == 1


def test_a_session_keeps_its_limits(store: SqlDelayedMessageStore, postgresql_url: str) -> None:
    """It goes back to the caller's pool."""
    engine = create_engine(f"{postgresql_url}?options=-cidle_session_timeout%3D7min")
    with opened(engine) as limited:
        store_many(limited, ROWS)
        with engine.connect() as connection:
            assert connection.exec_driver_sql("SHOW idle_session_timeout").scalar() == "7min"
    engine.dispose()
