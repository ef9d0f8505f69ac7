"""Behind a pooler that shares sessions: no wake-ups and no prepared statements, and everything arrives all the same."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from sqlalchemy import Engine, create_engine, make_url, text
from sqlalchemy.ext.asyncio import AsyncEngine

from delaystore import AsyncDelayedDelivery, AsyncSqlDelayedMessageStore, DelayedDelivery, DelayedDeliverySettings
from delaystore.errors import StoreError
from delaystore.settings import TransactionMode
from delaystore.stores import SqlDelayedMessageStore
from delaystore.stores.abc import ManagementOutcome
from delaystore.stores.sql.engine import create_async_store_engine, create_store_engine
from delaystore.transports import InMemoryTransport
from tests.dispatching import wait_until
from tests.integration.sql_stores import message, opened
from tests.integration.test_async_delivery import with_driver
from tests.servers import HAProxy, PgBouncer, PostgreSQLDatabases

StartServer = Callable[[Callable[[], Any]], Any]
CHOSEN = "?prepare_threshold=5"
"""In a URL: that statements are prepared, whatever is between."""


@pytest.fixture(params=[False, True], ids=["plain", "carrying"])
def pooler(postgresql: PostgreSQLDatabases, start_server: StartServer, request: pytest.FixtureRequest) -> PgBouncer:
    """It knows nothing of prepared statements, or carries them from session to session."""
    pooler: PgBouncer = start_server(lambda: PgBouncer(postgresql.url, carries_prepared=request.param))
    if request.param and not pooler.can_carry_prepared:
        pytest.skip("pgbouncer carries prepared statements from 1.21 on")
    return pooler


@pytest.fixture
def pooled_url(pooler: PgBouncer, postgresql_url: str) -> str:
    """An empty database, behind the pooler."""
    return pooler.url_of(postgresql_url)


@pytest.fixture(params=["ISO, MDY", "German, DMY"])
def store(
    postgresql: PostgreSQLDatabases, pooler: PgBouncer, request: pytest.FixtureRequest
) -> Iterator[SqlDelayedMessageStore]:
    """In databases that write times in one way or another."""
    url = postgresql.create_database(settings={"datestyle": request.param})
    yield SqlDelayedMessageStore(pooler.url_of(url))
    postgresql.drop_database(url)


def test_messages_are_found_by_polling(store: SqlDelayedMessageStore) -> None:
    transport = InMemoryTransport()
    transport.declare("billing")
    settings = DelayedDeliverySettings(poll_interval=timedelta(seconds=0.1))
    with DelayedDelivery("sales", store, transport, settings) as delivery:
        for _ in range(50):
            delivery.send("billing", b"pay", delay=0.2)
        kept = delivery.send("billing", b"pay", delay=3600)
        received: list[object] = []

        def all_received() -> bool:
            with transport.receive("billing", limit=50) as messages:
                received.extend(messages)
            return len(received) == 50

        wait_until(all_received)
        assert delivery.health().subscription_alive is False
        assert delivery.cancel(kept) is ManagementOutcome.DONE


def test_two_dispatchers_of_two_workers_deliver_each_message_once(
    postgresql_url: str, pooled_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """What one could not settle, as its session did not know its statements, the other would deliver once more."""
    transport = InMemoryTransport()
    transport.declare("billing")
    settings = DelayedDeliverySettings(batch_size=20, poll_interval=timedelta(seconds=0.1))
    with opened(postgresql_url) as direct, ExitStack() as stack:
        now = direct.now()
        sent = [message(now) for _ in range(4000)]
        direct.store_many(sent)
        for _ in range(2):
            store = SqlDelayedMessageStore(pooled_url)
            stack.enter_context(DelayedDelivery("sales", store, transport, settings))
        wait_until(lambda: direct.count() == 0)
    with transport.receive("billing", limit=2 * len(sent)) as received:
        arrived = Counter(each.message_id for each in received)
    assert arrived.total() - len(arrived) == 0
    assert arrived.keys() == {each.message_id for each in sent}
    assert "prepared statement" not in caplog.text


@pytest.mark.long_runs("psycopg")
@pytest.mark.parametrize("option", ["", "?prepare_threshold=none"])
@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
def test_many_tasks_send_at_once(pooled_url: str, driver: str, option: str) -> None:
    async def program() -> None:
        store = AsyncSqlDelayedMessageStore(with_driver(pooled_url, driver) + option)
        async with AsyncDelayedDelivery("sales", store, InMemoryTransport()) as delivery:

            async def send() -> None:
                for _ in range(20):
                    await delivery.send("billing", b"pay", delay=3600)
                    await delivery.send_many([message(datetime.now(UTC), 3600)])

            await asyncio.gather(*(send() for _ in range(10)))
            assert await delivery.count() == 400

    asyncio.run(program())


@pytest.mark.parametrize("mode", ["transaction", "session"])
def test_statements_are_prepared_unless_a_pooler_is_between(
    postgresql: PostgreSQLDatabases, postgresql_url: str, start_server: StartServer, mode: Any
) -> None:
    pooler: PgBouncer = start_server(lambda: PgBouncer(postgresql.url, mode))
    proxy: HAProxy = start_server(lambda: HAProxy([make_url(postgresql_url).port or 5432]))
    for url in (postgresql_url, proxy.url_of(postgresql_url)):
        assert prepared_of(create_store_engine(url))
        for driver in ("psycopg", "asyncpg"):
            assert asyncio.run(prepared_by(create_async_store_engine(with_driver(url, driver))))
    url = pooler.url_of(postgresql_url)
    assert not prepared_of(create_store_engine(url))
    assert not prepared_of(create_store_engine(postgresql_url + "?prepare_threshold=none"))
    for driver in ("psycopg", "asyncpg"):
        assert not asyncio.run(prepared_by(create_async_store_engine(with_driver(url, driver))))
    assert prepared_of(create_store_engine(url + CHOSEN))  # last: it leaves them in the pooler's session


def test_through_a_serializable_role_a_connection_is_prepared_all_the_same(
    postgresql: PostgreSQLDatabases, pooler: PgBouncer
) -> None:
    url = postgresql.create_database(settings={"default_transaction_isolation": "serializable"})
    for each in (url, pooler.url_of(url)):
        assert bool(prepared_of(create_store_engine(each))) is (each == url)
    postgresql.drop_database(url)


_QUESTION = text("SELECT 1")
_PREPARED = text("SELECT name FROM pg_prepared_statements")


def prepared_of(engine: Engine) -> Sequence[object]:
    """What a session has prepared that was asked the same several times."""
    with engine.connect() as connection:
        for _ in range(10):
            connection.execute(_QUESTION)
        prepared = connection.execute(_PREPARED).all()
    engine.dispose()
    return prepared


async def prepared_by(engine: AsyncEngine) -> Sequence[object]:
    async with engine.connect() as connection:
        for _ in range(10):
            await connection.execute(_QUESTION)
        prepared = (await connection.execute(_PREPARED)).all()
    await engine.dispose()
    return prepared


@pytest.mark.parametrize("pooler", [True], ids=["carrying"], indirect=True)
@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
def test_what_the_pooler_carries_may_be_prepared(pooler: PgBouncer, postgresql_url: str, driver: str) -> None:
    """More tasks than sessions, so that each is served by several."""

    async def program() -> None:
        store = AsyncSqlDelayedMessageStore(with_driver(pooler.url_of(postgresql_url), driver) + CHOSEN)
        async with AsyncDelayedDelivery("sales", store, InMemoryTransport()) as delivery:

            async def send() -> None:
                for _ in range(20):
                    await delivery.send("billing", b"pay", delay=3600)

            await asyncio.gather(*(send() for _ in range(10)))
            assert await delivery.count() == 200

    asyncio.run(program())


@pytest.mark.parametrize("pooler", [False], ids=["plain"], indirect=True)
@pytest.mark.parametrize("own_engine", [False, True])
def test_where_statements_are_prepared_all_the_same_the_error_says_how_not_to(
    pooled_url: str, own_engine: bool
) -> None:
    plain = make_url(pooled_url).set(drivername="postgresql").render_as_string(hide_password=False)
    database = create_engine(pooled_url) if own_engine else pooled_url + CHOSEN
    with closing(SqlDelayedMessageStore(database)) as store:
        store.initialize("sales", TransactionMode.NONE)
        store.setup_infrastructure()
        for _ in range(10):  # until the driver prepares the statement, in the one session that there is
            store.store(message(store.now(), 3600))
        with psycopg.connect(plain, prepare_threshold=None) as other:
            other.execute("SELECT 1")  # in that session, which its transaction keeps
            with pytest.raises(
                StoreError, match=r"write \?prepare_threshold=none in the URL, .*={'prepare_threshold': None}"
            ):
                store.store(message(store.now(), 3600))
        assert store.count() == 10
    if isinstance(database, Engine):
        database.dispose()
