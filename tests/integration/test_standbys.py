"""A PostgreSQL with a standby: URLs with several hosts, servers that take no writes, fail-overs."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from psycopg.sql import SQL, Identifier
from sqlalchemy import create_engine, make_url, text

from delaystore.errors import StoreUnavailableError
from delaystore.settings import TransactionMode
from delaystore.stores import SqlDelayedMessageStore
from delaystore.transports.abc import OutcomeKind
from delaystore.transports.sql_queue import SqlQueueTransport
from tests.integration.cli import CommandLine
from tests.integration.sql_stores import message, opened
from tests.servers import PostgreSQLReplication
from tests.servers.ports import free_port
from tests.servers.postgresql import connect
from tests.servers.postgresql_replication import PostgreSQLNode
from tests.servers.proxy import Proxy


@pytest.fixture(scope="module")
def database(postgresql_replication: PostgreSQLReplication) -> Iterator[str]:
    """The URL of a database on the primary, with the tables of the endpoint `sales`, that the standbys have too."""
    url = postgresql_replication.primary.create_database()
    with opened(url):
        for node in postgresql_replication.standbys:
            postgresql_replication.await_streaming(node)
    yield url
    postgresql_replication.primary.drop_database(url)


@pytest.fixture
def primary(postgresql_replication: PostgreSQLReplication) -> PostgreSQLNode:
    return postgresql_replication.primary


@pytest.fixture
def standby(postgresql_replication: PostgreSQLReplication) -> PostgreSQLNode:
    """The asynchronous one: nobody waits for it."""
    return postgresql_replication.standbys[1]


def at(url: str, *ports: int, query: str = "") -> str:
    """`url` with these ports of this computer for its host."""
    hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
    parts = make_url(url)
    return f"{parts.drivername}://{parts.username}:{parts.password}@{hosts}/{parts.database}{query}"


def store_on(database: Any) -> SqlDelayedMessageStore:
    store = SqlDelayedMessageStore(database)
    store.initialize("sales", TransactionMode.NONE)
    return store


def test_of_several_hosts_the_one_that_takes_writes_is_used(
    database: str, primary: PostgreSQLNode, standby: PostgreSQLNode, capsys: pytest.CaptureFixture[str]
) -> None:
    url = at(database, standby.port, primary.port)
    with opened(url) as store:
        store.store(message(store.now(), 3600, "by the library"))
        assert f"127.0.0.1:{standby.port},127.0.0.1:{primary.port}/" in repr(store)
        assert str(store.engine.url.password) not in repr(store)
    run = CommandLine(capsys, {})
    sent = ["--delay", "3600", "--message-id", "by command"]
    assert run("send", "--store", url, "--endpoint", "sales", "billing", "x", *sent).code == 0
    with opened(database) as store:
        assert store.get("by the library")
        assert store.get("by command")
        transport = SqlQueueTransport(url)
        assert transport.shares_transaction_with(store)
        transport.close()


def test_a_standby_can_be_asked_for(database: str, primary: PostgreSQLNode, standby: PostgreSQLNode) -> None:
    store = store_on(at(database, primary.port, standby.port, query="?target_session_attrs=standby"))
    with store.engine.connect() as connection:
        assert connection.execute(text("SELECT pg_is_in_recovery()")).scalar() is True
    store.close()


def test_a_frozen_host_costs_its_time_limit_once(
    database: str, primary: PostgreSQLNode, standby: PostgreSQLNode
) -> None:
    store = store_on(at(database, standby.port, primary.port, query="?connect_timeout=2"))
    standby.pause()
    try:
        store.store(message(store.now(), 3600))
        store.engine.dispose()
        standby_is_asked_again = time.monotonic()
        store.store(message(store.now(), 3600))
        assert time.monotonic() - standby_is_asked_again < 2
    finally:
        standby.resume()
        store.close()


def test_without_a_server_that_takes_writes_the_error_says_so(database: str, standby: PostgreSQLNode) -> None:
    store = store_on(at(database, standby.port, standby.port))
    with pytest.raises(StoreUnavailableError, match="session is read-only"):
        store.store(message(store.now(), 3600))
    store.close()


def test_each_host_is_named_with_its_reason(database: str, standby: PostgreSQLNode) -> None:
    """The last one alone would be a standby that is well, and hide that the primary is down."""
    closed = free_port()
    store = store_on(at(database, closed, standby.port))
    reasons = f"now: 127.0.0.1:{closed}: Connection refused; 127.0.0.1:{standby.port}: session is read-only; check host"
    with pytest.raises(StoreUnavailableError, match=reasons):
        store.store(message(store.now(), 3600))
    store.close()


@pytest.fixture(params=["a URL", "a URL of a serializable database", "an Engine", "an Engine of an isolation level"])
def through_proxy(
    request: pytest.FixtureRequest,
    database: str,
    postgresql_replication: PostgreSQLReplication,
    primary: PostgreSQLNode,
    standby: PostgreSQLNode,
) -> Iterator[tuple[SqlDelayedMessageStore, Proxy]]:
    """A store whose pool has three connections, which a proxy led to the standby, and now leads to the primary."""
    if request.param == "a URL of a serializable database":
        set_isolation(postgresql_replication, database, "serializable")
    with Proxy(standby.port) as proxy:
        url = at(database, proxy.port)
        engine = create_engine(url)
        if request.param == "an Engine of an isolation level":
            engine = engine.execution_options(isolation_level="SERIALIZABLE")
        store = store_on(url if request.param.startswith("a URL") else engine)
        waiting = [store.engine.connect() for _ in range(3)]
        for connection in waiting:
            connection.close()
        proxy.switch(primary.port)
        yield store, proxy
        store.engine.dispose()
        engine.dispose()
    if request.param == "a URL of a serializable database":
        set_isolation(postgresql_replication, database, "read committed")


def set_isolation(replication: PostgreSQLReplication, database: str, level: str) -> None:
    """What sessions of the database begin with, on the standbys too."""
    with connect(make_url(database)) as connection:
        name = Identifier(make_url(database).database or "")
        connection.execute(SQL("ALTER DATABASE {} SET default_transaction_isolation = {}").format(name, level))
    for node in replication.standbys:
        replication.await_streaming(node)


@pytest.mark.long_runs(after=8)
@pytest.mark.parametrize(
    "write",
    [
        lambda store: store.store(message(store.now(), 3600)),
        lambda store: store.store_many([message(store.now(), 3600)]),
        lambda store: store.fetch_due(store.now(), 1),
        lambda store: store.cancel("nobody"),
    ],
    ids=["store", "store_many", "fetch_due", "cancel"],
)
def test_a_pool_does_not_stay_on_a_standby(
    through_proxy: tuple[SqlDelayedMessageStore, Proxy], write: Callable[[SqlDelayedMessageStore], object]
) -> None:
    store, _ = through_proxy
    with pytest.raises(StoreUnavailableError, match=r"read-only, as a standby.* add target_session_attrs=read-write"):
        write(store)
    for _ in range(3):
        write(store)


def test_a_sql_queue_does_not_stay_on_a_standby(
    database: str, primary: PostgreSQLNode, standby: PostgreSQLNode
) -> None:
    direct = SqlQueueTransport(database)
    direct.declare("billing")
    with Proxy(standby.port) as proxy:
        transport = SqlQueueTransport(at(database, proxy.port))
        with opened(database) as store:
            sent = message(store.now())
        (outcome,) = transport.send([sent], None, 5)
        assert outcome.kind is OutcomeKind.UNCONFIRMED
        assert "read-only, as a standby" in outcome.reason
        proxy.switch(primary.port)
        (outcome,) = transport.send([sent], None, 5)
        assert outcome.kind is OutcomeKind.DELIVERED
        transport.close()
    direct.close()


def test_engines_leave_a_standby_whatever_engines_were_there_before(database: str) -> None:
    """The address in memory of a former engine is used again, while its dialect may live on."""
    dialects = []
    for _ in range(500):
        engine = create_engine(database)
        SqlQueueTransport(engine)
        assert len(list(engine.dialect.dispatch.handle_error)) == 2
        dialects.append(engine.dialect)


def test_somebodys_own_transaction_keeps_its_connection(
    database: str, primary: PostgreSQLNode, standby: PostgreSQLNode
) -> None:
    engine = create_engine(at(database, standby.port))
    store = store_on(engine)
    with engine.connect() as connection:
        with pytest.raises(StoreUnavailableError, match="read-only, as a standby"):
            store.enlist(connection).store(message(store.now()))
        assert not connection.invalidated
        connection.rollback()
        assert connection.execute(text("SELECT 1")).scalar() == 1
    engine.dispose()


def test_senders_go_on_after_a_fail_over(
    replicated_url: str, postgresql_replication: PostgreSQLReplication, primary: PostgreSQLNode
) -> None:
    with opened(postgresql_replication.url_of_all(replicated_url)) as store:
        sent = [message(store.now(), 3600, str(number)) for number in range(3)]
        store.store(sent[0])
        primary.kill()
        with pytest.raises(StoreUnavailableError):
            store.store(sent[1])
        postgresql_replication.promote(postgresql_replication.standbys[0])
        store.store(sent[1])
        store.store(sent[2])
        assert {one.message_id for one in store.list().messages} == {"0", "1", "2"}
