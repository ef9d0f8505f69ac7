"""MariaDB and MySQL on several hosts, some of which take no writes."""

import time
from collections.abc import Iterator
from typing import Any

import pymysql
import pytest
from sqlalchemy import make_url

from delaystore.errors import StoreUnavailableError
from delaystore.settings import TransactionMode
from delaystore.stores import SqlDelayedMessageStore
from tests.conftest import MARIADB_SETTINGS
from tests.integration.sql_stores import message
from tests.servers import MariaDB

NAME = "delaystore_hosts"


def administer(server: MariaDB, *statements: str) -> None:
    """Run statements on `server` as a user who may write to it though it is read-only."""
    url = make_url(server.admin_url)
    who: dict[str, Any] = {"user": url.username, "password": url.password}
    with pymysql.connect(host=url.host, port=url.port or 0, **who) as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


@pytest.fixture(scope="module")
def other() -> Iterator[MariaDB]:
    with MariaDB(MARIADB_SETTINGS) as server:
        yield server


@pytest.fixture
def servers(private_mariadb: MariaDB, other: MariaDB) -> Iterator[list[MariaDB]]:
    """Two servers with the same database, as replication would make them; the first takes no writes."""
    both = [private_mariadb, other]
    for server in both:
        administer(
            server,
            f"CREATE DATABASE {NAME} CHARACTER SET utf8mb4",
            f"CREATE USER {NAME}@'%' IDENTIFIED BY 'secret'",
            f"GRANT ALL PRIVILEGES ON {NAME}.* TO {NAME}@'%'",
        )
    administer(both[0], "SET GLOBAL read_only = 1")
    yield both
    for server in both:
        server.resume()
        server.start()
        administer(server, "SET GLOBAL read_only = 0", f"DROP DATABASE {NAME}", f"DROP USER {NAME}@'%'")


def store_on(*servers: MariaDB, query: str = "") -> SqlDelayedMessageStore:
    hosts = ",".join(f"127.0.0.1:{server.port}" for server in servers)
    scheme = make_url(servers[0].url).drivername
    store = SqlDelayedMessageStore(f"{scheme}://{NAME}:secret@{hosts}/{NAME}{query}")
    store.initialize("sales", TransactionMode.NONE)
    return store


def port_of(store: SqlDelayedMessageStore) -> int:
    """The port of the server that the store's next connection leads to."""
    with store.engine.connect() as connection:
        return int(connection.exec_driver_sql("SELECT @@port").scalar_one())


def test_a_server_that_takes_no_writes_is_passed_over(servers: list[MariaDB]) -> None:
    store = store_on(*servers)
    assert port_of(store) == servers[1].port
    assert f"127.0.0.1:{servers[0].port},127.0.0.1:{servers[1].port}/" in repr(store)
    store.setup_infrastructure()
    store.store(message(store.now(), 3600))
    administer(servers[0], "SET GLOBAL read_only = 0")
    administer(servers[1], "SET GLOBAL read_only = 1")
    with pytest.raises(StoreUnavailableError, match=r"is read-only, as a standby is .*name all hosts in the URL"):
        store.store(message(store.now(), 3600))
    assert port_of(store) == servers[0].port
    store.close()


def test_a_dead_server_is_passed_over_and_the_last_that_answered_is_asked_first(servers: list[MariaDB]) -> None:
    store = store_on(*servers, query="?connect_timeout=2")
    servers[0].pause()
    assert port_of(store) == servers[1].port
    store.engine.dispose()
    asked_again = time.monotonic()
    assert port_of(store) == servers[1].port
    assert time.monotonic() - asked_again < 2
    servers[0].resume()
    administer(servers[0], "SET GLOBAL read_only = 0")
    servers[1].kill()
    with pytest.raises(StoreUnavailableError):
        store.count()
    assert port_of(store) == servers[0].port
    store.close()


def test_why_no_server_can_be_used_is_said_of_each(servers: list[MariaDB]) -> None:
    store = store_on(*servers)
    servers[1].kill()
    with pytest.raises(StoreUnavailableError) as raised:
        store.setup_infrastructure()
    read_only, dead = (f"127.0.0.1:{server.port}: " for server in servers)
    assert f"no host takes writes ({read_only}it is read-only; {dead}" in str(raised.value)
    store.close()


def test_a_server_that_takes_no_writes_any_more_costs_its_connections(servers: list[MariaDB]) -> None:
    administer(servers[0], "SET GLOBAL read_only = 0")
    store = store_on(servers[0])
    store.setup_infrastructure()
    with store.engine.connect() as one, store.engine.connect() as other:
        before = {connection.exec_driver_sql("SELECT CONNECTION_ID()").scalar() for connection in (one, other)}
    administer(servers[0], "SET GLOBAL read_only = 1")
    with pytest.raises(StoreUnavailableError, match="the database is read-only, as a standby is"):
        store.store(message(store.now(), 3600))
    administer(servers[0], "SET GLOBAL read_only = 0")
    with store.engine.connect() as one, store.engine.connect() as other:
        after = {connection.exec_driver_sql("SELECT CONNECTION_ID()").scalar() for connection in (one, other)}
    assert not before & after
    store.close()


def test_a_server_that_is_frozen_does_not_hold_a_connection_up_for_minutes(servers: list[MariaDB]) -> None:
    store: Any = store_on(servers[1], query="?connect_timeout=1")
    assert port_of(store) == servers[1].port
    store.engine.dispose()
    servers[1].pause()
    began = time.monotonic()
    with pytest.raises(StoreUnavailableError):
        store.count()
    assert time.monotonic() - began < 60
    store.close()
