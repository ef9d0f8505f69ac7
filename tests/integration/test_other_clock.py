"""A fail-over to a server whose clock is four seconds behind: never early, by the clock of whoever has the message."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import datetime, timedelta

import pytest
from sqlalchemy import create_engine, make_url
from typing_extensions import override

from delaystore.delivery import DelayedDelivery
from delaystore.errors import StoreError
from delaystore.message import DelayedMessage
from delaystore.settings import DelayedDeliverySettings, TransactionMode
from delaystore.stores import SqlDelayedMessageStore
from delaystore.stores.abc import DelayedMessageStore
from delaystore.transports import InMemoryTransport
from delaystore.transports.abc import Outcome
from tests.dispatching import wait_until
from tests.integration.sql_stores import message
from tests.servers import PostgreSQL, Proxy, ShiftedClock
from tests.servers.server import Server

BEHIND = 4
QUIET = DelayedDeliverySettings(automatic_setup=False)


class StandbyPostgreSQL(PostgreSQL):
    """Another server with the roles of `primary`, and a slow clock."""

    def __init__(self, primary: PostgreSQL) -> None:
        clock = ShiftedClock()
        clock.set(-BEHIND)
        super().__init__({"fsync": "off"}, clock=clock)
        self._url = primary._url.set(port=self.port)


class DatedTransport(InMemoryTransport):
    """Notes when each message came, by a clock that it is given."""

    def __init__(self) -> None:
        super().__init__(auto_declare=True)
        self.clock: Callable[[], datetime] | None = None
        self.early_by: dict[str, timedelta] = {}

    @override
    def send(
        self, messages: Sequence[DelayedMessage], transaction: DelayedMessageStore | None, timeout: float
    ) -> Sequence[Outcome]:
        if self.clock is not None:
            now = self.clock()
            self.early_by |= {each.message_id: each.due_time - now for each in messages}
        return super().send(messages, transaction, timeout)


@pytest.fixture
def standby(private_postgresql: PostgreSQL, start_server: Callable[[Callable[[], Server]], Server]) -> PostgreSQL:
    server = start_server(lambda: StandbyPostgreSQL(private_postgresql))
    assert isinstance(server, PostgreSQL)
    return server


@pytest.fixture
def proxy(private_postgresql: PostgreSQL) -> Iterator[Proxy]:
    with Proxy(private_postgresql.port) as proxy:
        yield proxy


def lead_to(proxy: Proxy, server: PostgreSQL) -> None:
    """End the connections, and lead new ones to `server`."""
    proxy.switch(server.port)
    proxy.cut()


@pytest.fixture
def url(private_postgresql: PostgreSQL, standby: PostgreSQL, proxy: Proxy) -> str:
    """Through the proxy; both servers have an empty database of that name."""
    created = make_url(private_postgresql.create_database())
    engine = create_engine(created.set(database="postgres", port=standby.port), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.exec_driver_sql(f'CREATE DATABASE "{created.database}"')
    engine.dispose()
    return created.set(port=proxy.port).render_as_string(hide_password=False)


def _store(url: str) -> SqlDelayedMessageStore:
    store = SqlDelayedMessageStore(url)
    store.initialize("sales", TransactionMode.NONE)
    return store


@contextmanager
def at(url: str, server: PostgreSQL) -> Iterator[SqlDelayedMessageStore]:
    """The store on that server itself."""
    with closing(_store(make_url(url).set(port=server.port).render_as_string(hide_password=False))) as store:
        store.setup_infrastructure()
        yield store


@pytest.mark.long
def test_nothing_is_early_after_a_fail_over(
    url: str, private_postgresql: PostgreSQL, standby: PostgreSQL, proxy: Proxy
) -> None:
    transport = DatedTransport()
    with at(url, private_postgresql) as before, at(url, standby) as after:
        assert timedelta(seconds=BEHIND - 1) < before.now() - after.now() < timedelta(seconds=BEHIND + 1)
        with DelayedDelivery("sales", SqlDelayedMessageStore(url), transport, QUIET) as delivery:
            delivery.send("billing", b"", delay=0)
            wait_until(lambda: delivery.count() == 0, "the first is forwarded")
            after.store_many([message(after.now(), 1 + n / 20, f"{n:02}") for n in range(60)])
            transport.clock = after.now
            lead_to(proxy, standby)
            wait_until(lambda: after.count() == 0, "the others are forwarded")
    assert len(transport.early_by) == 60
    assert max(transport.early_by.values()) < timedelta(seconds=0.5)  # which two readings of one clock may differ by


def test_a_delay_counts_from_now_after_a_fail_over(
    url: str, private_postgresql: PostgreSQL, standby: PostgreSQL, proxy: Proxy
) -> None:
    with (
        at(url, private_postgresql),
        at(url, standby) as after,
        DelayedDelivery("sales", SqlDelayedMessageStore(url), settings=QUIET) as delivery,
    ):
        delivery.send("billing", b"", delay=60)
        lead_to(proxy, standby)
        asked = after.now()
        stored = after.get(_sent(lambda: delivery.send("billing", b"", delay=60)))
        assert stored is not None
        counted_from = stored.due_time - timedelta(seconds=60)
        assert asked - timedelta(seconds=1) < counted_from < after.now() + timedelta(seconds=1)


def _sent(send: Callable[[], str]) -> str:
    for _ in range(10):
        with suppress(StoreError):
            return send()
    return send()
