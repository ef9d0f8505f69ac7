"""What health says of a real database: how long something is overdue, that it takes no writes, that it is silent."""

from collections.abc import Iterator
from datetime import timedelta

import pytest
from sqlalchemy import create_engine, make_url

from delaystore.dispatcher import Dispatcher
from delaystore.stores import SqlDelayedMessageStore
from delaystore.transports import InMemoryTransport
from tests.dispatching import wait_until
from tests.integration.cli import CommandLine
from tests.integration.sql_stores import message, opened
from tests.servers import MariaDB, PostgreSQL, PostgreSQLReplication

MINUTE = timedelta(minutes=1)


@pytest.fixture(params=["private_postgresql", "private_mariadb"])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    """An empty database on a server that may be paused."""
    server = request.getfixturevalue(request.param)
    assert isinstance(server, PostgreSQL | MariaDB)
    url = server.create_database()
    yield url
    server.resume()
    server.drop_database(url)


def failing_since_20_minutes(store: SqlDelayedMessageStore) -> None:
    """Ten messages, one of which gives way again and again; it comes in a minute."""
    now = store.now()
    store.store_many([message(now, 3600) for _ in range(9)])
    store.store(failed := message(now, -20 * 60))
    with store.transaction() as transaction:
        assert transaction.fetch_due(now, 10) == [failed]
        transaction.increment_failure_count(failed, now + MINUTE)


@pytest.mark.long_runs("mariadb", "sqlite")
def test_what_failed_is_overdue_since_it_was_due_though_many_others_come_first(
    store: SqlDelayedMessageStore, database_url: str, run: CommandLine
) -> None:
    """Its queue is full, and its next attempt is late; beside it there is traffic, a few seconds late."""
    now = store.now()
    store.store(failed := message(now, -80))
    with store.transaction() as transaction:
        assert transaction.fetch_due(now, 10) == [failed]
        transaction.increment_failure_count(failed, now + 11 * MINUTE)
    store.store_many([message(now, -3) for _ in range(1500)])
    overdue = Dispatcher(store, InMemoryTransport(auto_declare=True)).health().oldest_overdue
    assert overdue is not None
    assert overdue >= timedelta(seconds=80)
    told = run("health", "--store", database_url, "--endpoint", "sales", "--json", "--max-overdue", "60s")
    assert (told.code, told.document["oldest_overdue"] >= 80) == (1, True)


def test_what_a_paused_destination_keeps_is_not_overdue(store: SqlDelayedMessageStore) -> None:
    now = store.now()
    store.store_many([message(now, -3600, destination="closed") for _ in range(10)])
    store.pause("closed", by="test")
    dispatcher = Dispatcher(store, InMemoryTransport(auto_declare=True))
    assert dispatcher.dispatch_due().parked == 10
    health = dispatcher.health()
    assert (health.oldest_overdue, health.paused, health.parked_now, health.backlog) == (None, ["closed"], 10, 10)
    assert health.problems == ["the dispatcher of this process does not run"]


def test_a_message_that_gives_way_is_overdue_since_it_was_due(
    store: SqlDelayedMessageStore, database_url: str, run: CommandLine
) -> None:
    assert store.status().first_due is None
    dispatcher = Dispatcher(store, InMemoryTransport(auto_declare=True))
    failing_since_20_minutes(store)
    overdue = dispatcher.health().oldest_overdue
    assert overdue is not None
    assert 20 * MINUTE <= overdue < 25 * MINUTE
    assert store.status().read_only is None
    told = run("health", "--store", database_url, "--endpoint", "sales", "--json")
    assert told.code == 1
    assert told.document["oldest_overdue"] >= 20 * 60
    assert told.document["waiting"] == 10


def test_a_standby_is_not_healthy(
    postgresql_replication: PostgreSQLReplication, replicated_url: str, run: CommandLine
) -> None:
    with opened(replicated_url) as store:
        store.store(message(store.now(), 3600))
    standby = postgresql_replication.standbys[0]
    postgresql_replication.await_streaming(standby)
    followed = make_url(replicated_url).set(port=standby.port).render_as_string(hide_password=False)
    told = run("health", "--store", followed, "--endpoint", "sales")
    assert told.code == 1
    assert "unhealthy: the database is read-only, as a standby is" in told.out
    with opened(replicated_url) as primary:
        assert primary.status().read_only is None
    store = SqlDelayedMessageStore(followed)
    health = Dispatcher(store, InMemoryTransport(), endpoint="sales").health()
    store.close()
    assert health.store is not None
    assert "read-only" in health.store


def test_a_read_only_mariadb_is_not_healthy(private_mariadb: MariaDB, sqlite_url: str, run: CommandLine) -> None:
    url = private_mariadb.create_database()
    engine = create_engine(private_mariadb.admin_url)
    with opened(url), engine.connect() as administrator:
        administrator.exec_driver_sql("SET GLOBAL read_only = 1")
        try:
            told = run("health", "--store", url, "--endpoint", "sales", "--json")
            options = ["--store", url, "--endpoint", "sales", "--transport", sqlite_url]
            dispatching = run.refused("dispatch", "--fail-fast", *options)
        finally:
            administrator.exec_driver_sql("SET GLOBAL read_only = 0")
        assert told.code == 1
        assert "read-only" in told.document["store"]
        assert "read-only" in dispatching
        assert run("health", "--store", url, "--endpoint", "sales").code == 0
    engine.dispose()
    private_mariadb.drop_database(url)


@pytest.mark.long_runs("private_mariadb")
def test_a_database_that_freezes_is_unhealthy_in_time(
    url: str, request: pytest.FixtureRequest, run: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command has its connection when the server freezes: that is the longest wait."""
    server = request.getfixturevalue(request.node.callspec.params["url"])
    ask = SqlDelayedMessageStore.status

    def ask_late(store: SqlDelayedMessageStore) -> object:
        ask(store)
        server.pause()
        return ask(store)

    with opened(url):
        monkeypatch.setattr(SqlDelayedMessageStore, "status", ask_late)
        told = run("health", "--store", url, "--endpoint", "sales", "--timeout", "1")
        assert (told.code, told.out) == (1, "unhealthy: the store does not answer within 1 s\n")
        server.resume()
        monkeypatch.undo()
        wait_until(lambda: run("health", "--store", url, "--endpoint", "sales").code == 0, "it is healthy again")


def test_some_time_must_be_given(run: CommandLine, sqlite_url: str) -> None:
    line = run.refused("health", "--store", sqlite_url, "--endpoint", "sales", "--timeout", "0")
    assert "--timeout is 0" in line


def test_any_length_of_time_may_be_given(run: CommandLine, sqlite_url: str) -> None:
    with opened(sqlite_url):
        told = run("health", "--store", sqlite_url, "--endpoint", "sales", "--timeout", "9999999d")
    assert (told.code, told.out) == (0, "healthy: 0 waiting, nothing is overdue\n")
