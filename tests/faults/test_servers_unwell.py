"""PostgreSQL and RabbitMQ are there, but do not answer, or will not."""

import re
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta

import psycopg
import pytest
from sqlalchemy import make_url

from delaystore.delivery import DelayedDelivery
from delaystore.dispatcher import Dispatcher
from delaystore.errors import StoreUnavailableError
from delaystore.message import DelayedMessage
from delaystore.settings import DelayedDeliverySettings, TransactionMode
from delaystore.stores.abc import DelayedMessageStore
from delaystore.stores.sql import SqlDelayedMessageStore
from delaystore.testing import RecordingTransport
from delaystore.transports import Transport, open_transport
from delaystore.transports.abc import Outcome
from tests.faults.arrivals import assert_arrived, drain
from tests.faults.backlog import DESTINATION, ENDPOINT, ids, message, messages
from tests.faults.patience import PATIENCE, wait_until
from tests.faults.scale import scaled
from tests.faults.sender import Sender
from tests.servers import PostgreSQL, RabbitMQ

BATCH = 200
WORKERS = 2
AT_RISK = WORKERS * BATCH
"""Messages that a dispatcher may send again after an outage: they arrived, but nobody heard the confirms."""

LOST_CONNECTION = re.compile("the connection to RabbitMQ at .* was lost")
"""In the log, after each such outage."""

ANSWER = timedelta(seconds=2)
"""How long a batch waits for RabbitMQ."""


@pytest.fixture
def store_url(private_postgresql: PostgreSQL) -> str:
    return private_postgresql.create_database()


@pytest.fixture
def transport(private_rabbitmq: RabbitMQ) -> Transport:
    transport = open_transport(private_rabbitmq.create_vhost())
    transport.declare(DESTINATION)
    return transport


@pytest.fixture
def delivery(store_url: str, transport: Transport) -> Iterator[DelayedDelivery]:
    """A delivery between the two servers, its dispatcher running."""
    settings = DelayedDeliverySettings(batch_size=BATCH, max_body_bytes=1024, dispatch_timeout=ANSWER)
    with DelayedDelivery(ENDPOINT, SqlDelayedMessageStore(store_url), transport, settings) as delivery:
        yield delivery


def failure_counts(delivery: DelayedDelivery) -> set[int]:
    return {waiting.failure_count for waiting in delivery.list(limit=100_000).messages}


@pytest.mark.long
def test_rabbitmq_raises_its_memory_alarm(
    delivery: DelayedDelivery, transport: Transport, private_rabbitmq: RabbitMQ
) -> None:
    sent = messages(scaled(2000, 50_000))
    with Sender(delivery) as sender:
        sender.await_more(100)
        private_rabbitmq.ctl("set_vm_memory_high_watermark", "0")
        try:
            delivery.send_many(sent)
            wait_until(lambda: "blocks publishers" in (delivery.health().transport or ""), "dispatch pauses")
            wait_until(lambda: delivery.health().breakers["dispatch"] != "disarmed", "the batch under way is given up")
            waiting = delivery.count()
            sender.await_more(200)
            assert delivery.count() >= waiting + 200
            assert failure_counts(delivery) == {0}
        finally:
            private_rabbitmq.ctl("set_vm_memory_high_watermark", "0.4")
    wait_until(lambda: delivery.count() == 0, "everything flows again")
    delivery.stop()
    assert sender.doubtful == []
    assert_arrived(drain(transport, DESTINATION), ids(sent) + sender.acknowledged, duplicates=AT_RISK)
    assert not drain(transport, "error")


@pytest.mark.long
def test_postgresql_stands_still(
    delivery: DelayedDelivery, transport: Transport, private_postgresql: PostgreSQL, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing comes twice for that. A busy machine may keep RabbitMQ silent, too, until its connection is given up."""
    sent = messages(20_000)
    with Sender(delivery) as sender:
        delivery.send_many(sent)
        private_postgresql.pause()
        time.sleep(scaled(3, 20))
        private_postgresql.resume()
        sender.await_more(100)
    wait_until(lambda: delivery.count() == 0, "everything flows again")
    delivery.stop()
    assert sender.doubtful == []
    lost = sum(LOST_CONNECTION.match(line) is not None for line in caplog.messages)
    assert_arrived(drain(transport, DESTINATION), ids(sent) + sender.acknowledged, duplicates=lost * AT_RISK)


class SlowTransport(RecordingTransport):
    """Takes messages, and answers when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.taken = threading.Event()
        self.may_answer = threading.Event()

    def send(
        self, messages: Sequence[DelayedMessage], transaction: DelayedMessageStore | None, timeout: float
    ) -> Sequence[Outcome]:
        self.taken.set()
        assert self.may_answer.wait(timeout)
        return super().send(messages, transaction, timeout)


def test_what_one_worker_sends_no_other_sends_when_postgresql_forgets_the_claims(store_url: str) -> None:
    transport = SlowTransport()
    transport.declare(DESTINATION)
    with closing(SqlDelayedMessageStore(store_url)) as store, ThreadPoolExecutor() as other_worker:
        store.initialize(ENDPOINT, TransactionMode.RECEIVE_ONLY)
        store.setup_infrastructure()
        store.store_many(sent := messages(2))  # no more than a first batch takes
        dispatcher = Dispatcher(store, transport, DelayedDeliverySettings(), endpoint=ENDPOINT)
        slow = other_worker.submit(dispatcher.dispatch_due)
        assert transport.taken.wait(PATIENCE)
        assert kill(store_url, "state = 'idle in transaction'")
        assert dispatcher.dispatch_due().fetched == 0
        transport.may_answer.set()
        with pytest.raises(StoreUnavailableError):
            slow.result(PATIENCE)
        assert dispatcher.dispatch_due().delivered == len(sent)
        assert store.count() == 0
    assert_arrived(drain(transport, DESTINATION), ids(sent))


@pytest.mark.long
def test_wake_ups_come_back_after_their_connection_was_killed(
    delivery: DelayedDelivery, transport: Transport, store_url: str
) -> None:
    elsewhere = DelayedDelivery(ENDPOINT, SqlDelayedMessageStore(store_url))
    for _ in range(scaled(2, 10)):
        wait_until(lambda: delivery.health().subscription_alive, "wake-ups arrive")
        assert kill(store_url, "query LIKE 'LISTEN %'") == 1
        sent = [elsewhere.send(DESTINATION, b"polled", delay=delay) for delay in (0, 0.5, 1)]
        # far less than the maximum sleep of 60 s, which is what a dispatcher that trusted the dead connection would do
        wait_until(lambda: delivery.count() == 0, "polling finds the messages", patience=30)
        assert_arrived(drain(transport, DESTINATION), sent)
    wait_until(lambda: delivery.health().subscription_alive, "wake-ups arrive again")
    elsewhere.close()


def kill(store_url: str, which: str) -> int:
    """End connections to PostgreSQL; how many there were."""
    statement = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {which}"
    url = make_url(store_url).set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(url) as connection:
        return len(connection.execute(statement).fetchall())


@pytest.mark.long
def test_an_early_message_of_another_process_wakes_a_sleeping_dispatcher(
    delivery: DelayedDelivery, transport: Transport, store_url: str
) -> None:
    delivery.send(DESTINATION, b"later", delay=3600)
    wait_until(lambda: delivery.health().subscription_alive, "wake-ups arrive")
    with DelayedDelivery(ENDPOINT, SqlDelayedMessageStore(store_url)) as elsewhere:
        for due_in in (0, 0.2, 2):
            early = message(due_in=due_in)
            elsewhere.send_many([early])
            wait_until(lambda: delivery.count() == 1, "the early message is gone", patience=30)
            assert_arrived(drain(transport, DESTINATION), ids([early]))
