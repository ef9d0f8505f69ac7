"""Databases whose administrators have set what PostgreSQL lets them set: all that delaystore does there works.

Or it says in one line which setting keeps it from working.
"""

import csv
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from secrets import token_hex

import pytest
from sqlalchemy import create_engine, text

from delaystore import DelayedDelivery
from delaystore.dispatcher import Dispatcher
from delaystore.errors import StorePermissionError, StoreSetupError, StoreUnavailableError
from delaystore.migrations.runner import RunSettings
from delaystore.migrations.runner import run as migrate
from delaystore.migrations.sources import open_source
from delaystore.migrations.targets import open_target
from delaystore.settings import DelayedDeliverySettings, TransactionMode
from delaystore.stores import SqlDelayedMessageStore
from delaystore.stores.sql.bulk_partitions import PartitionLimits
from delaystore.testing import RecordingTransport
from tests.integration.cli import CommandLine
from tests.integration.sql_stores import connected, message, opened
from tests.servers import PostgreSQLDatabases

DUE = 300
PAUSE = 0.4
"""Seconds that a transaction, and a session, is idle; longer than the limits below."""
SHORT = "150ms"
SETTINGS: dict[str, Mapping[str, str]] = {
    "nothing hidden": {"client_min_messages": "error", "row_security": "off"},
    "serializable": {"default_transaction_isolation": "serializable", "default_transaction_deferrable": "on"},
    "repeatable read": {"default_transaction_isolation": "repeatable read"},
    "no waiting for locks": {"lock_timeout": "1ms"},
    "statements in time": {"statement_timeout": "10s"},
    "idle sessions": {"idle_session_timeout": SHORT},
    "idle transactions": {"idle_in_transaction_session_timeout": SHORT},
    "transactions in time": {"transaction_timeout": SHORT},
    "another schema": {"search_path": "app"},
}


@pytest.fixture(params=SETTINGS)
def url(request: pytest.FixtureRequest, postgresql: PostgreSQLDatabases, postgresql_url: str) -> Iterator[str]:
    """An empty database with these settings, where the server has them."""
    settings = SETTINGS[request.param]
    engine = create_engine(postgresql_url)
    with engine.connect() as connection:
        known = text("SELECT current_setting(:name, true)")
        missing = [name for name in settings if connection.execute(known, {"name": name}).scalar() is None]
    engine.dispose()
    if missing:
        pytest.skip(f"this PostgreSQL has no {missing[0]}")
    url = postgresql.create_database(settings=settings)
    with connected(url) as connection:
        connection.execute(text("CREATE SCHEMA app"))
    yield url
    postgresql.drop_database(url)


def dispatched(url: str) -> list[str]:
    """What two dispatchers have forwarded."""

    def dispatch(_: int) -> list[str]:
        with opened(url) as store:
            transport = RecordingTransport()
            Dispatcher(store, transport, DelayedDeliverySettings(batch_size=50)).dispatch_due()
            return [each.message_id for each in transport.sent]

    with ThreadPoolExecutor(2) as pool:
        return [message_id for sent in pool.map(dispatch, range(2)) for message_id in sent]


@pytest.mark.long_runs("idle sessions", "nothing hidden", "repeatable read", "statements in time")
def test_all_that_is_done_with_a_store_works(
    url: str, run: CommandLine, tmp_path: Path, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SqlDelayedMessageStore, "partition_limits", PartitionLimits(fewest_rows=DUE, smallest_table=0))
    ends = ("--store", url, "--endpoint", "sales")
    assert run("setup", *ends).code == 0
    assert run("setup", *ends, "--check").code == 0
    assert run("send", *ends, "billing", "pay", "--delay", "1h", "--message-id", "sent").code == 0
    engine = create_engine(url)
    with opened(url) as store:
        with engine.connect() as connection:
            store.enlist(connection).store(message(store.now(), 60, "undone"))
            connection.rollback()
        assert store.get("undone") is None
        with store.transaction() as transaction:
            transaction.store(message(store.now(), 60, "slow"))
            time.sleep(PAUSE)
        time.sleep(PAUSE)
        assert store.cancel("slow").name == "DONE"
        assert store.store_many([message(store.now(), -1, f"due-{number}") for number in range(DUE)]) == DUE
        with store.transaction() as transaction:
            assert len(transaction.fetch_due(store.now(), 5)) == 5
            time.sleep(PAUSE)  # as while the broker confirms
            transaction.next()
    assert sorted(dispatched(url)) == sorted(f"due-{number}" for number in range(DUE))
    path = tmp_path / "more.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([["message_id", "delay", "body"], ["loaded", "3600", "x"]])
    loaded = run("send", *ends, "billing", "--file", str(path))
    assert loaded.code == 0, loaded.err
    with closing(open_source(url)) as source, closing(open_target(sqlite_url, "sales")) as target:
        migrate(source, target, "sales", RunSettings(batch_size=1))
    with opened(sqlite_url) as store:
        assert {each.message_id for each in store.list().messages} == {"sent", "loaded"}
    engine.dispose()


def test_a_database_that_is_set_read_only_is_told_by_its_setting(
    postgresql: PostgreSQLDatabases, run: CommandLine
) -> None:
    url = postgresql.create_database(settings={"default_transaction_read_only": "on"})
    refused = run("setup", "--store", url, "--endpoint", "sales")
    assert refused.code != 0
    assert "default_transaction_read_only on for this role or database, switch it off" in refused.err
    assert "\n" not in refused.err.strip()
    postgresql.drop_database(url)


def test_without_a_schema_in_the_search_path_one_is_asked_for(
    postgresql: PostgreSQLDatabases, run: CommandLine
) -> None:
    url = postgresql.create_database(settings={"search_path": ""})
    refused = run("setup", "--store", url, "--endpoint", "sales")
    assert refused.code != 0
    assert "there is no schema for the store's tables" in refused.err
    assert "setup`" not in refused.err
    checked = run("setup", "--store", url, "--endpoint", "sales", "--check")
    assert checked.code == 1
    assert checked.out.startswith("not ready: there is no schema for the store's tables; create one")
    with opened(url, schema="public") as store:
        store.store(message(store.now(), 60))
        assert store.count() == 1
    assert run("setup", "--store", url, "--endpoint", "sales", "--schema", "public", "--check").code == 0
    postgresql.drop_database(url)


def test_a_schema_that_is_missing_is_to_be_created(postgresql_url: str, run: CommandLine) -> None:
    arguments = ("setup", "--store", postgresql_url, "--schema", "app_prod", "--endpoint", "sales")
    said = "the schema 'app_prod' does not exist; create it with CREATE SCHEMA app_prod, or correct its name"
    assert run(*arguments).err == f"error: {said}\n"
    checked = run(*arguments, "--check")
    assert (checked.code, checked.out) == (1, f"not ready: {said}\n")
    store = SqlDelayedMessageStore(postgresql_url, schema="app_prod")
    store.initialize("sales", TransactionMode.NONE)
    with pytest.raises(StoreSetupError, match="CREATE SCHEMA app_prod"):
        store.setup_infrastructure()
    store.close()


def test_statements_that_take_too_long_name_the_limit(postgresql: PostgreSQLDatabases) -> None:
    url = postgresql.create_database(settings={"statement_timeout": "100ms"})
    with opened(url) as store, connected(url) as connection:
        connection.execute(text("LOCK TABLE sales_delayed"))
        with pytest.raises(StoreUnavailableError, match="statement_timeout, transaction_timeout"):
            store.count()
    postgresql.drop_database(url)


def test_row_level_security_hides_no_message(
    postgresql: PostgreSQLDatabases, postgresql_url: str, run: CommandLine
) -> None:
    role = f"worker_{token_hex(4)}"
    url = postgresql.create_role(role, "w0rker", postgresql_url)
    with opened(postgresql_url) as owner:
        owner.store(message(owner.now(), -1))
        with owner.engine.begin() as connection:
            connection.execute(text(f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {role}"))
            connection.execute(text("ALTER TABLE sales_delayed ENABLE ROW LEVEL SECURITY"))
        assert owner.count() == 1
    with opened(url) as store:
        for ask in (store.count, store.status, lambda: store.store(message(store.now()))):
            with pytest.raises(StorePermissionError, match="row level security would hide rows from this role"):
                ask()
        with pytest.raises(StorePermissionError, match="row level security"), store.transaction() as transaction:
            transaction.fetch_due(store.now(), 5)
        assert any("DISABLE ROW LEVEL SECURITY" in each for each in store.blocking_defects())
        assert any("the table sales_delayed from this role" in each for each in store.defects())
    engine = create_engine(url)
    theirs = SqlDelayedMessageStore(engine)
    delivery = DelayedDelivery("sales", theirs)
    assert "row level security" in str(delivery.operations.overview(10).blocking_defects)
    with pytest.raises(StorePermissionError, match="row level security"), theirs.transaction() as transaction:
        transaction.fetch_due(theirs.now(), 5)
    for command in ("health", "count"):
        told = run(command, "--store", url, "--endpoint", "sales")
        assert told.code != 0
        assert "row level security" in told.out + told.err
    engine.dispose()


def test_a_callers_own_policies_apply_once_it_says_so(postgresql: PostgreSQLDatabases, postgresql_url: str) -> None:
    role = f"tenant_{token_hex(4)}"
    url = postgresql.create_role(role, "t3nant", postgresql_url)
    with opened(postgresql_url) as owner:
        owner.store(message(owner.now(), -1))
        with owner.engine.begin() as connection:
            for statement in (
                "CREATE TABLE orders (tenant TEXT)",
                f"INSERT INTO orders VALUES ('{role}'), ('another')",
                "CREATE POLICY own ON orders USING (tenant = current_user)",
                "ALTER TABLE orders ENABLE ROW LEVEL SECURITY",
                f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {role}",
            ):
                connection.execute(text(statement))
    count = text("SELECT count(*) FROM orders")
    with opened(url) as store:
        remedy = r'table "orders"\); .* for a table of your own, execute SET LOCAL row_security = on'
        with pytest.raises(StorePermissionError, match=remedy), store.transaction() as transaction:
            transaction.connection.execute(count)
        with store.transaction() as transaction:
            due = transaction.fetch_due(store.now(), 5)
            transaction.connection.execute(text("SET LOCAL row_security = on"))
            assert transaction.connection.execute(count).scalar() == 1
            assert transaction.remove_many(due) == 1
        assert store.count() == 0
