"""`setup` compares what is there with what must be: it makes what is missing, and reports the rest."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from secrets import token_hex

import pytest
from sqlalchemy import create_engine, event, text

from delaystore import DelayedDelivery, DelayedDeliverySettings
from delaystore.message import OnKey
from delaystore.stores import SqlDelayedMessageStore
from delaystore.stores.sql.bulk_partitions import PartitionLimits
from delaystore.stores.sql.comparison import expected_tables
from delaystore.stores.sql.dialects import store_dialect_of
from tests.dispatching import wait_until
from tests.integration.cli import CommandLine
from tests.integration.sql_stores import message, opened
from tests.servers import PostgreSQLDatabases

pytestmark = pytest.mark.long_runs("mariadb")

OPERATING_SUFFIXES = ("destinations", "dispatchers", "activity", "operations", "changes")


def change(store: SqlDelayedMessageStore, *statements: str) -> None:
    with store.engine.begin() as connection:
        for each in statements:
            connection.execute(text(each))


def drop_index(store: SqlDelayedMessageStore, name: str, table: str) -> None:
    on_table = f" ON {table}" if store.engine.dialect.name in ("mysql", "mariadb") else ""
    change(store, f"DROP INDEX {name}{on_table}")


def repaired(store: SqlDelayedMessageStore) -> tuple[list[str], Sequence[str]]:
    """What `repair` has made, and what it has left."""
    made: list[str] = []
    return made, store.repair(made.append)


def works(store: SqlDelayedMessageStore) -> None:
    """Messages with a key and without are stored, dispatched, and reported."""
    delivery = DelayedDelivery("sales", store, settings=DelayedDeliverySettings(automatic_setup=False))
    for _ in range(2):
        delivery.send("billing", b"x", delay=60, key="k", on_key=OnKey.REPLACE)
    assert delivery.send("billing", b"x", delay=60)
    store.store(message(store.now() - timedelta(seconds=9)))
    with store.transaction() as transaction:
        assert transaction.remove_many(transaction.fetch_due(store.now(), 10))
    assert store.count_failing(10) == 0
    assert delivery.operations.overview(10).problem is None


def test_tables_as_they_are_made_have_no_defect(store: SqlDelayedMessageStore) -> None:
    assert repaired(store) == ([], [])
    assert (store.defects(), store.blocking_defects()) == ([], [])


@pytest.mark.parametrize("beside", OPERATING_SUFFIXES)
def test_a_missing_table_is_reported_and_made(store: SqlDelayedMessageStore, beside: str) -> None:
    name = f"sales_delayed_{beside}"
    kept = message(store.now(), 60)
    store.store(kept)
    change(store, f"DROP TABLE {name}")
    (defect,) = store.defects()
    assert defect.startswith(f"the table '{name}' is missing; run `delaystore setup`")
    (obstacle,) = store.blocking_defects()
    assert name in obstacle
    made, left = repaired(store)
    assert (made[0], left) == (f"making the table '{name}'", [])
    assert (store.defects(), store.blocking_defects()) == ([], [])
    assert store.get(kept.message_id) == kept
    works(store)


def test_all_but_the_version_may_be_missing(store: SqlDelayedMessageStore) -> None:
    names = [table.name for table in expected_tables(store.table, store_dialect_of(store.engine))]
    change(store, *(f"DROP TABLE {name}" for name in names))
    assert len(store.defects()) == len(names)
    assert repaired(store)[1] == []
    works(store)


@pytest.mark.long_runs
def test_a_missing_index_is_made(store: SqlDelayedMessageStore) -> None:
    tables = expected_tables(store.table, store_dialect_of(store.engine))
    indexes = [(str(index.name), table.name) for table in tables for index in table.indexes]
    assert len(indexes) >= 4
    for name, table in indexes:
        drop_index(store, name, table)
        assert [f"the index '{name}' of the table '{table}' is missing" in each for each in store.defects()] == [True]
        assert list(store.blocking_defects()) == (store.defects() if name.endswith("_keys") else [])
        assert repaired(store) == ([f"making the index '{name}' of the table '{table}'"], [])
    works(store)


@pytest.mark.long_runs
@pytest.mark.parametrize("how", ["missing", "empty"])
def test_a_version_that_is_gone_is_reported_and_made(
    store: SqlDelayedMessageStore, database_url: str, run: CommandLine, how: str
) -> None:
    arguments = ("--store", database_url, "--endpoint", "sales")
    change(store, "DROP TABLE sales_delayed_version" if how == "missing" else "DELETE FROM sales_delayed_version")
    told = f"the table 'sales_delayed_version' is {how}; run `delaystore setup`"
    (defect,) = store.defects()
    assert defect.startswith(told)
    assert store.blocking_defects() == [defect]
    assert run("setup", *arguments, "--check").out == f"not ready: {defect}\n"
    health = run("health", *arguments)
    assert (health.code, health.out) == (1, f"unhealthy: {defect}\n")
    assert run("setup", *arguments).code == 0
    assert (store.defects(), store.blocking_defects()) == ([], [])
    works(store)


@pytest.mark.long_runs("mariadb", "sqlite")
def test_a_message_table_without_its_primary_key_is_reported(
    store: SqlDelayedMessageStore, database_url: str, run: CommandLine
) -> None:
    arguments = ("--store", database_url, "--endpoint", "sales")
    if store.engine.dialect.name == "sqlite":
        change(
            store,
            "CREATE TABLE copied AS SELECT * FROM sales_delayed",
            "DROP TABLE sales_delayed",
            "ALTER TABLE copied RENAME TO sales_delayed",
        )
        store.repair(lambda _: None)
    elif store.engine.dialect.name == "postgresql":
        change(store, "ALTER TABLE sales_delayed DROP CONSTRAINT sales_delayed_pkey")
    else:
        change(store, "ALTER TABLE sales_delayed DROP PRIMARY KEY")
    told = "the table 'sales_delayed' has no primary key (message_id); "
    (obstacle,) = store.blocking_defects()
    assert obstacle.startswith(told)
    assert obstacle in store.defects()
    assert f"not ready: {told}" in run("setup", *arguments, "--check").out
    health = run("health", *arguments)
    assert (health.code, health.out) == (1, f"unhealthy: {obstacle}\n")


def test_a_role_that_only_reads_messages_is_told_what_it_cannot_see(
    postgresql: PostgreSQLDatabases, postgresql_url: str, run: CommandLine
) -> None:
    role = f"monitor_{token_hex(4)}"
    url = postgresql.create_role(role, "m0nitor", postgresql_url)
    arguments = ("--store", url, "--endpoint", "sales")
    with opened(postgresql_url) as store:
        change(store, f"GRANT SELECT ON sales_delayed, sales_delayed_version TO {role}")
        store.store(message(store.now(), 60))
        with opened(url) as theirs:
            assert theirs.blocking_defects() == []
            seen = DelayedDelivery("sales", theirs).operations.overview(10)
        assert (seen.problem, seen.store_problem, seen.destinations) == (None, None, None)
        assert seen.waiting is not None
        assert seen.waiting.messages == 1
        assert any(
            "which destinations are paused or limited: the database does not allow it" in each for each in seen.wrong
        )
        health = run("health", *arguments)
        assert (health.code, health.out) == (0, "healthy: 1 waiting, nothing is overdue\n")
        change(store, "DROP TABLE sales_delayed_activity", "DROP INDEX sales_delayed_keys")
        told = run("health", *arguments).out
        assert "sales_delayed_activity" in told
        assert "the index 'sales_delayed_keys' of the table 'sales_delayed' is missing" in told
        change(store, f"REVOKE SELECT ON sales_delayed FROM {role}")
        refused = run("health", *arguments)
        assert (refused.code, refused.out) == (2, "")
        assert refused.err.startswith(
            "error: the database does not allow it: permission denied for table sales_delayed;"
        )


def test_columns_of_a_later_release_are_made(store: SqlDelayedMessageStore) -> None:
    """As where the version was restored from a newer backup than the table."""
    drop_index(store, "sales_delayed_failing", "sales_delayed")
    if store.engine.dialect.name in ("mysql", "mariadb"):
        change(store, "ALTER TABLE sales_delayed DROP COLUMN failing_at")
    change(store, "ALTER TABLE sales_delayed DROP COLUMN failures", "ALTER TABLE sales_delayed DROP COLUMN failures_of")
    assert any("the column 'failures' of the table 'sales_delayed' is missing" in each for each in store.defects())
    assert "failures" in store.blocking_defects()[0]
    assert repaired(store)[1] == []
    works(store)


def test_an_index_of_another_definition_is_reported(store: SqlDelayedMessageStore) -> None:
    drop_index(store, "sales_delayed_due", "sales_delayed")
    change(store, "CREATE INDEX sales_delayed_due ON sales_delayed (next_attempt)")
    made, (left,) = repaired(store)
    assert made == []
    assert left.startswith(
        "the index 'sales_delayed_due' of the table 'sales_delayed' is another one; drop it, and run"
    )
    drop_index(store, "sales_delayed_due", "sales_delayed")
    assert repaired(store)[1] == []


def test_keys_that_are_there_twice_are_reported(store: SqlDelayedMessageStore) -> None:
    drop_index(store, "sales_delayed_keys", "sales_delayed")
    for number in range(2):
        store.store(message(store.now(), 60, f"m{number}"))
    change(store, "UPDATE sales_delayed SET message_key = 'k'")
    assert "have the same message_key; cancel all of them but one" in repaired(store)[1][0]
    store.cancel("m1")
    assert repaired(store)[1] == []


@pytest.mark.long_runs("mariadb", "sqlite")
def test_a_column_that_must_be_given_is_reported(store: SqlDelayedMessageStore) -> None:
    change(store, "DROP TABLE sales_delayed_changes", "CREATE TABLE sales_delayed_changes (other INT NOT NULL)")
    made, left = repaired(store)
    assert made == [
        "making the column 'message_key' of the table 'sales_delayed_changes'",
        "making the index 'sales_delayed_changes_id' of the table 'sales_delayed_changes'",
    ]
    assert any("the column 'made_by' of the table 'sales_delayed_changes' is missing; restore" in each for each in left)
    assert any("the column 'other' of the table 'sales_delayed_changes' is not delaystore's" in each for each in left)
    assert any("'sales_delayed_changes' has no primary key (made_at, change_id)" in each for each in left)


@pytest.mark.long_runs("mariadb", "sqlite")
def test_eight_processes_repair_at_once(database_url: str) -> None:
    with opened(database_url) as store:
        change(store, "DROP TABLE sales_delayed_destinations")
        drop_index(store, "sales_delayed_keys", "sales_delayed")

    def repair(_: int) -> Sequence[str]:
        with opened(database_url) as each:
            return repaired(each)[1]

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(repair, range(8))) == [[]] * 8
    with opened(database_url) as store:
        assert store.defects() == []


def test_setup_says_what_it_makes_and_check_changes_nothing(
    store: SqlDelayedMessageStore, database_url: str, run: CommandLine
) -> None:
    arguments = ("--store", database_url, "--endpoint", "sales")
    assert run("setup", *arguments, "--check").code == 0
    change(store, "DROP TABLE sales_delayed_destinations")
    for _ in range(2):
        checked = run("setup", *arguments, "--check")
        assert checked.code == 1
        assert checked.out.startswith("not ready: the table 'sales_delayed_destinations' is missing; run")
    health = run("health", *arguments)
    assert health.code == 1
    assert health.out.startswith("unhealthy: the store's tables are missing or out of date")
    made = run("setup", *arguments)
    assert made.code == 0
    assert made.err == "making the table 'sales_delayed_destinations'\n"
    assert made.out == "ready: the store of endpoint 'sales'\n"
    assert run("health", *arguments).code == 0


def test_check_finds_no_tables_and_makes_none(database_url: str, run: CommandLine) -> None:
    with opened(database_url) as store:
        store.remove_infrastructure()
        assert store.defects() == [
            "the table 'sales_delayed' is missing; run `delaystore setup` as a user who may change the tables"
        ]
        checked = run("setup", "--store", database_url, "--endpoint", "sales", "--check")
        assert checked.code == 1
        assert store.defects() != []


def test_check_looks_for_queues(store: SqlDelayedMessageStore, database_url: str, run: CommandLine) -> None:
    arguments = ("--store", database_url, "--endpoint", "sales", "--transport", database_url, "--queue", "billing")
    checked = run("setup", *arguments, "--check")
    assert checked.code == 1
    assert checked.out.splitlines() == [
        f"not ready: the queue '{name}' is missing; run `delaystore setup`" for name in ("error", "billing")
    ]
    assert run("setup", *arguments).code == 0
    assert run("setup", *arguments, "--check").code == 0


def test_an_invalid_index_is_made_again(postgresql_url: str) -> None:
    with opened(postgresql_url) as store:
        invalid_index_of_keys(store)
        (defect,) = store.defects()
        assert defect.startswith("the index sales_delayed_keys of the table sales_delayed is invalid, as CREATE INDEX")
        assert repaired(store)[1] == []
        works(store)


KEYS_INDEX = "CREATE UNIQUE INDEX CONCURRENTLY sales_delayed_keys ON sales_delayed (message_key)"


@contextmanager
def being_built(url: str, create: str, table: str) -> Iterator[None]:
    """An index, for the block: its building waits for a transaction that has written to `table`."""
    engine, others = create_engine(url), create_engine(url, isolation_level="AUTOCOMMIT")

    def build() -> None:
        with others.connect() as connection:
            connection.execute(text(create))

    name = create.split()[create.split().index("CONCURRENTLY") + 1]
    invalid = text("SELECT NOT indisvalid FROM pg_index WHERE indexrelid = to_regclass(:name)")
    with ThreadPoolExecutor(1) as thread, others.connect() as asking:
        with engine.begin() as writing:
            writing.execute(text(f"UPDATE {table} SET failure_count = failure_count"))
            built = thread.submit(build)
            wait_until(lambda: asking.execute(invalid, {"name": name}).scalar() or False, "it is being built")
            yield
        built.result()
    engine.dispose()
    others.dispose()


def test_an_index_that_is_being_built_is_left_alone(
    postgresql: PostgreSQLDatabases, postgresql_url: str, run: CommandLine
) -> None:
    arguments = ("--store", postgresql_url, "--endpoint", "sales")
    role = f"reader_{token_hex(4)}"
    url = postgresql.create_role(role, "r3ader", postgresql_url)
    with opened(postgresql_url) as store:
        change(store, f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {role}", "DROP INDEX sales_delayed_keys")
        store.store(message(store.now(), 60))
        told = "the index sales_delayed_keys of the table sales_delayed is being built, and not used before; wait until"
        with being_built(postgresql_url, f"{KEYS_INDEX} WHERE message_key IS NOT NULL", "sales_delayed"):
            number = index_number(store, "sales_delayed_keys")
            made, (left,) = repaired(store)
            assert made == []
            assert left.startswith(told)
            assert run("setup", *arguments, "--check").out.startswith(f"not ready: {told}")
            assert run("setup", *arguments).out.startswith(f"not ready: {told}")
            assert run("health", *arguments).out.startswith(f"unhealthy: {told}")
            with opened(url) as theirs:
                assert theirs.defects() == store.defects()
        assert store.defects() == []
        assert index_number(store, "sales_delayed_keys") == number
        works(store)


def test_an_index_that_becomes_valid_while_its_table_is_waited_for_is_kept(postgresql_url: str) -> None:
    with opened(postgresql_url) as store:
        invalid_index_of_keys(store)
        change(store, "ANALYZE sales_delayed")  # or an estimate reads the table, and locks its indexes
        number = index_number(store, "sales_delayed_keys")

        rebuilding = ["SET LOCAL lock_timeout = '5s'", "REINDEX INDEX sales_delayed_keys"]

        def rebuild(_connection: object, _cursor: object, statement: str, *_: object) -> None:
            if statement.startswith(("LOCK TABLE ONLY", "DROP INDEX")) and rebuilding:
                statements = rebuilding[:]
                rebuilding.clear()
                change(store, *statements)

        event.listen(store.engine, "before_cursor_execute", rebuild)
        assert repaired(store)[1] == []
        assert not rebuilding
        assert index_number(store, "sales_delayed_keys") == number


def invalid_index_of_keys(store: SqlDelayedMessageStore) -> None:
    """As CREATE INDEX CONCURRENTLY leaves it where two messages have one key, one of which is cancelled then."""
    for number in range(2):
        store.store(message(store.now(), 60, f"m{number}"))
    change(store, "DROP INDEX sales_delayed_keys", "UPDATE sales_delayed SET message_key = 'k'")
    fails_to_build(store, f"{KEYS_INDEX} WHERE message_key IS NOT NULL")
    store.cancel("m1")


def fails_to_build(store: SqlDelayedMessageStore, create: str) -> None:
    single = store.engine.execution_options(isolation_level="AUTOCOMMIT")
    with single.connect() as connection, pytest.raises(Exception, match="could not create unique index"):
        connection.execute(text(create))


def index_number(store: SqlDelayedMessageStore, name: str) -> object:
    with store.engine.connect() as connection:
        return connection.execute(text("SELECT to_regclass(:name)::oid"), {"name": name}).scalar()


def test_an_index_of_a_bulk_partition_that_is_being_built_or_is_yours_is_left_alone(
    postgresql_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SqlDelayedMessageStore, "partition_limits", PartitionLimits(fewest_rows=100, smallest_table=0))
    with opened(postgresql_url) as store:
        store.store_many([message(store.now(), 60) for _ in range(100)])
        with store.engine.connect() as connection:
            partition = connection.execute(
                text("SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'sales_delayed'::regclass")
            ).scalar_one()
            due = connection.execute(
                text(
                    "SELECT indexrelid::regclass::text FROM pg_index WHERE indrelid = CAST(:partition AS regclass) "
                    "AND indpred IS NULL AND NOT indisprimary"
                ),
                {"partition": partition},
            ).scalar_one()
        change(store, f"DROP INDEX {due}")
        fails_to_build(store, f"CREATE UNIQUE INDEX CONCURRENTLY yours ON {partition} (destination)")
        yours = index_number(store, "yours")
        create = f"CREATE INDEX CONCURRENTLY again ON {partition} (next_attempt, message_id)"
        with being_built(postgresql_url, create, partition):
            number = index_number(store, "again")
            made, (left,) = repaired(store)
            assert made == []
            assert left.startswith(f"the index again of the table {partition} is being built")
        assert store.defects() == []
        assert (index_number(store, "again"), index_number(store, "yours")) == (number, yours)


def test_what_bulk_partitions_lack_is_made(postgresql_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = PartitionLimits(fewest_rows=100, smallest_table=0)
    monkeypatch.setattr(SqlDelayedMessageStore, "partition_limits", limits)
    with opened(postgresql_url) as store:
        store.store_many([message(store.now(), 60) for _ in range(100)])
        with store.engine.connect() as connection:
            partitions = (
                "SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = "
            )
            (partition,) = connection.execute(text(f"{partitions} 'sales_delayed'::regclass")).scalars()
            found = "SELECT indexrelid::regclass::text FROM pg_index WHERE NOT indisprimary AND indrelid = "
            indexes = connection.execute(text(f"{found} '{partition}'::regclass")).scalars().all()
        assert len(indexes) == 2
        assert store.defects() == []
        change(store, *(f"DROP INDEX {index}" for index in indexes))
        assert [f"of the bulk partition {partition} is missing" in each for each in store.defects()] == [True, True]
        made, left = repaired(store)
        assert (len(made), left) == (2, [])
        works(store)


def test_columns_and_indexes_that_were_made_before_an_upgrade_are_as_they_must_be(postgresql_url: str) -> None:
    """As docs/how-to/upgrade.md says it for many millions of messages."""
    with opened(postgresql_url) as store:
        change(
            store,
            "ALTER TABLE sales_delayed DROP COLUMN message_key, DROP COLUMN first_sent",
            'ALTER TABLE sales_delayed ADD COLUMN message_key TEXT COLLATE "C", ADD COLUMN first_sent TIMESTAMPTZ',
            "CREATE UNIQUE INDEX sales_delayed_keys ON sales_delayed (message_key) WHERE message_key IS NOT NULL",
            "DROP INDEX sales_delayed_failing",
            "CREATE INDEX sales_delayed_failing ON sales_delayed (next_attempt, message_id) WHERE failure_count > 0",
        )
        assert store.defects() == []


def test_another_collation_and_an_unlogged_table_are_reported(postgresql_url: str) -> None:
    with opened(postgresql_url) as store:
        change(store, 'ALTER TABLE sales_delayed ALTER COLUMN destination TYPE varchar COLLATE "en-x-icu"')
        change(store, "ALTER TABLE sales_delayed SET UNLOGGED")
        unlogged, collation = store.defects()
        assert "is UNLOGGED, so that a crash of PostgreSQL empties it" in unlogged
        assert "the column destination of the table sales_delayed does not compare text byte by byte" in collation
        assert store.blocking_defects() == [unlogged]


def test_a_role_that_may_not_repair_gets_the_defects(postgresql: PostgreSQLDatabases, postgresql_url: str) -> None:
    role = f"reader_{token_hex(4)}"
    url = postgresql.create_role(role, "r3ader", postgresql_url)
    with opened(postgresql_url) as store:
        change(store, f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {role}", "DROP INDEX sales_delayed_keys")
        with opened(url) as theirs:
            made, left = repaired(theirs)
            assert made == ["making the index 'sales_delayed_keys' of the table 'sales_delayed'"]
            assert left == theirs.defects() != []
