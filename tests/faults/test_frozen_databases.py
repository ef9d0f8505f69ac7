"""A database that keeps its connections and says nothing: every call has an end, is told of, and loses nothing."""

import logging
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
from typing_extensions import override

from delaystore import breakers
from delaystore.delivery import DelayedDelivery
from delaystore.errors import DuplicateMessageError, StoreError, StoreUnavailableError
from delaystore.message import DelayedMessage
from delaystore.settings import DelayedDeliverySettings, TransactionMode
from delaystore.stores import SqlDelayedMessageStore
from delaystore.transports import InMemoryTransport, SqlQueueTransport
from delaystore.transports.abc import DELIVERED, Outcome, OutcomeKind
from tests.faults.patience import wait_until
from tests.integration.sql_stores import message
from tests.long import long
from tests.servers import MariaDB, PostgreSQL

Database = PostgreSQL | MariaDB
HASTY = DelayedDeliverySettings(
    store_timeout=2,  # type: ignore[arg-type]
    time_to_trigger_store_circuit_breaker=1,  # type: ignore[arg-type]
    time_to_trigger_fetch_circuit_breaker=1,  # type: ignore[arg-type]
)
SECOND = timedelta(seconds=1)


@pytest.fixture(params=["private_postgresql", long("private_mariadb")])
def database(request: pytest.FixtureRequest) -> Database:
    server = request.getfixturevalue(request.param)
    assert isinstance(server, Database)
    return server


@pytest.fixture
def url(database: Database) -> Iterator[str]:
    url = database.create_database()
    yield url
    database.resume()
    database.drop_database(url)


@pytest.fixture
def delivery(url: str) -> Iterator[DelayedDelivery]:
    """Sends only; the clock has been asked and a connection is open."""
    with DelayedDelivery("sales", SqlDelayedMessageStore(url), settings=HASTY) as delivery:
        delivery.send("billing", b"", delay=3600, message_id="first")
        yield delivery


@contextmanager
def frozen(database: Database) -> Iterator[None]:
    database.pause()
    try:
        yield
    finally:
        database.resume()


def locking(database: Database, table: str) -> str:
    return f"LOCK TABLES {table} WRITE" if isinstance(database, MariaDB) else f"LOCK TABLE {table}"


def test_a_send_ends_and_may_be_repeated(database: Database, delivery: DelayedDelivery) -> None:
    with frozen(database), pytest.raises(StoreUnavailableError, match="within 2 s; the message 'again' may be stored"):
        delivery.send("billing", b"", delay=3600, message_id="again")
    with suppress(DuplicateMessageError):  # if the server has stored it once it went on
        delivery.send("billing", b"", delay=3600, message_id="again")
    assert sorted(each.message_id for each in delivery.list().messages) == ["again", "first"]


@pytest.mark.long
def test_whatever_is_asked_about_one_message_ends(database: Database, delivery: DelayedDelivery) -> None:
    with frozen(database):
        for ask in (delivery.get, delivery.cancel, partial(delivery.reschedule, at=datetime.now(UTC))):
            with pytest.raises(StoreUnavailableError):
                ask("first")
    assert delivery.count() in (0, 1)  # the server may cancel it when it goes on


@pytest.mark.long
def test_the_breaker_triggers_while_a_send_is_in_progress(database: Database, url: str) -> None:
    settings = DelayedDeliverySettings(store_timeout=60, time_to_trigger_store_circuit_breaker=1)
    with (
        DelayedDelivery("sales", SqlDelayedMessageStore(url), settings=settings) as delivery,
        ThreadPoolExecutor() as pool,
    ):
        delivery.send("billing", b"", delay=3600)
        with frozen(database):
            sending = pool.submit(delivery.send, "billing", b"", delay=3600)
            wait_until(lambda: delivery.health().breakers["store"] == "triggered", "the breaker triggers")
            assert not sending.done()
        sending.result(60)
        assert delivery.health().breakers["store"] == "disarmed"


def test_health_answers_and_keeps_one_thread(database: Database, url: str) -> None:
    transport = InMemoryTransport(auto_declare=True)
    settings = DelayedDeliverySettings(store_timeout=60)
    with DelayedDelivery("sales", SqlDelayedMessageStore(url), transport, settings) as delivery:
        wait_until(lambda: delivery.health().healthy, "all is well")
        with frozen(database):
            for _ in range(3):
                health = delivery.health(SECOND)
                assert health.store == "the store does not answer within 1 s"
                assert not health.healthy
            asking = [each for each in threading.enumerate() if each.name == "delaystore-question"]
            assert len(asking) <= 1
        wait_until(lambda: delivery.health().healthy, "all is well again")


def test_a_dispatcher_stops_and_delivers_later(database: Database, url: str) -> None:
    transport = InMemoryTransport(auto_declare=True)
    with DelayedDelivery("sales", SqlDelayedMessageStore(url), transport, HASTY) as delivery:
        delivery.send_many([message(delivery._store.now(), n / 10, f"{n:02}") for n in range(20)])
        with frozen(database):
            wait_until(lambda: delivery.health(SECOND).breakers["fetch"] == "triggered", "the breaker triggers")
            assert delivery.stop(30)
        delivery.start()
        wait_until(lambda: delivery.count() == 0, "all are delivered")
        with transport.receive("billing", 100) as received:
            assert sorted(each.message_id for each in received) == [f"{n:02}" for n in range(20)]


def test_a_dispatcher_that_hears_nothing_at_its_start_tells_of_it(database: Database, url: str) -> None:
    """It waits for somebody's lock at the first thing it asks; a server that freezes at that moment looks the same."""
    store = SqlDelayedMessageStore(url)
    with DelayedDelivery("sales", store) as delivery:
        delivery.send("billing", b"", delay=0)
        with store.engine.connect() as holder:
            holder.exec_driver_sql(locking(database, "sales_delayed_destinations"))
            transport = InMemoryTransport(auto_declare=True)
            with DelayedDelivery("sales", SqlDelayedMessageStore(url), transport, HASTY) as dispatching:
                wait_until(lambda: dispatching.health(SECOND).breakers["fetch"] == "triggered", "the breaker triggers")
                holder.invalidate()
                wait_until(lambda: delivery.count() == 0, "it is delivered")


@pytest.mark.long
def test_a_slow_send_is_told_while_it_goes_on(
    database: Database, url: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here it waits for somebody's lock of the table; a synchronous standby that is gone looks the same."""
    monkeypatch.setattr(breakers, "SLOW", 0.5)
    monkeypatch.setattr("delaystore.dispatcher.health.SLOW_CALL_ALARM", timedelta(seconds=1))
    store = SqlDelayedMessageStore(url)
    with DelayedDelivery("sales", store) as delivery, ThreadPoolExecutor() as pool:
        with store.engine.connect() as holder:
            holder.exec_driver_sql(locking(database, "sales_delayed"))
            with caplog.at_level(logging.WARNING, "delaystore.dispatcher"):
                sending = [pool.submit(delivery.send, "billing", b"", delay=3600) for _ in range(3)]
                wait_until(lambda: (delivery.health().slow_store_call or timedelta(0)) > SECOND, "the sends are slow")
            told = [each.getMessage() for each in caplog.records if "has not answered" in each.getMessage()]
            if isinstance(database, MariaDB):
                holder.exec_driver_sql("UNLOCK TABLES")
        for each in sending:
            each.result(30)
        assert delivery.health().slow_store_call is None
    assert len(told) == 1
    assert "storing a message" in told[0]


def test_many_may_take_as_long_as_they_do(url: str) -> None:
    settings = DelayedDeliverySettings(store_timeout=1)
    with DelayedDelivery("sales", SqlDelayedMessageStore(url), settings=settings) as delivery:
        now = delivery._store.now()

        def slowly() -> Iterator[object]:
            for n in range(5):
                time.sleep(0.5)
                yield message(now, 3600, f"{n}")

        assert delivery.send_many(slowly()) == 5  # type: ignore[arg-type]


@pytest.mark.long
def test_a_commit_that_waits_for_a_standby_leaves_nothing_behind(start_server: object) -> None:
    """Each such commit would keep a process of the server, until no connection is left."""
    server: PostgreSQL = start_server(lambda: PostgreSQL({"fsync": "off"}))  # type: ignore[operator]
    url = server.create_database()
    with closing(SqlDelayedMessageStore(url)) as store:
        store.initialize("sales", TransactionMode.NONE)
        store.setup_infrastructure()
    server.stop()
    server.settings["synchronous_standby_names"] = "gone"
    server.start()
    settings = DelayedDeliverySettings(store_timeout=1, automatic_setup=False)
    store = SqlDelayedMessageStore(url)
    with DelayedDelivery("sales", store, settings=settings) as delivery:
        for _ in range(3):
            try:
                delivery.send("billing", b"", delay=3600)
            except StoreError:
                continue  # that it may not be on the standby
        with store.engine.connect() as connection:
            waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
            assert connection.exec_driver_sql(waiting).scalar_one() == 0
        assert delivery.count() == 3


class NativelyDelaying(InMemoryTransport):
    """Takes all that it is to delay."""

    @property
    @override
    def longest_native_delay(self) -> timedelta | None:
        return timedelta(days=1)

    @override
    def send_delayed(self, messages: Sequence[DelayedMessage], now: datetime, timeout: float) -> Sequence[Outcome]:
        return [DELIVERED] * len(messages)


@pytest.mark.long
def test_a_native_send_ends_that_only_asks_for_the_time(
    database: Database, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("delaystore.stores.sql._parts.FRESH_FOR", 0.0)
    store = SqlDelayedMessageStore(url)
    with (
        DelayedDelivery("sales", store, NativelyDelaying(), HASTY, native=True) as delivery,
        ThreadPoolExecutor() as pool,
    ):
        assert delivery.stop(30)
        later = store.now() + timedelta(hours=1)
        with frozen(database):
            sending = pool.submit(delivery.send, "billing", b"", at=later)
            with pytest.raises(StoreUnavailableError, match="within 2 s"):
                sending.result(30)


@pytest.mark.long
def test_a_batch_for_queues_in_a_frozen_database_has_an_end(
    database: Database, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("delaystore.transports.sql_queue._transport.UNANSWERED", 1.0)
    with closing(SqlQueueTransport(url)) as transport, ThreadPoolExecutor() as pool:
        transport.declare("billing")
        batch = [message(datetime.now(UTC), 0, "waiting")]
        with frozen(database):
            sending = pool.submit(transport.send, batch, None, 1.0)
            with suppress(TimeoutError):
                sending.result(30)
            ended = sending.done()
        assert ended
        assert sending.result()[0].kind is OutcomeKind.UNCONFIRMED
        assert transport.send(batch, None, 30)[0].kind is OutcomeKind.DELIVERED
