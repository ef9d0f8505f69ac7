"""Dramatiq's delayed messages wait in a store, and arrive as Dramatiq would have published them."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import dramatiq
import pika
import pytest
from dramatiq.brokers.rabbitmq import RabbitmqBroker
from dramatiq.middleware import Middleware, Pipelines, Retries
from dramatiq.results import Results
from dramatiq.results.backends import StubBackend
from sqlalchemy import create_engine
from sqlalchemy.orm import Session

from delaystore import DelayedDelivery, RabbitMQTransport, TransactionMode
from delaystore.errors import ConfigurationError
from delaystore.integrations.dramatiq import StoringRabbitmqBroker
from delaystore.stores import SqlDelayedMessageStore
from tests.dispatching import PATIENCE, wait_until
from tests.integration.cascades import taken
from tests.integration.test_documents import ROOT

QUEUE = "notes"
AT_ONCE = timedelta(0)


class Signals(Middleware):
    """Notes what middleware is told about enqueuing."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str, int | None]] = []

    def before_enqueue(self, broker: Any, message: Any, delay: int | None) -> None:
        self.told.append(("before", message.queue_name, delay))

    def after_enqueue(self, broker: Any, message: Any, delay: int | None) -> None:
        self.told.append(("after", message.queue_name, delay))


@pytest.fixture
def delivery(sqlite_url: str, rabbitmq_url: str) -> Iterator[DelayedDelivery]:
    with closing(DelayedDelivery("notes", SqlDelayedMessageStore(sqlite_url), RabbitMQTransport(rabbitmq_url))) as one:
        yield one


@contextmanager
def storing(
    delivery: DelayedDelivery, url: str, *middleware: Middleware, threshold: timedelta = AT_ONCE, **options: Any
) -> Iterator[StoringRabbitmqBroker]:
    broker = StoringRabbitmqBroker(delivery, threshold=threshold, url=url, middleware=list(middleware), **options)
    with closing(broker):
        yield broker


@contextmanager
def working(broker: RabbitmqBroker) -> Iterator[None]:
    worker = dramatiq.Worker(broker, worker_timeout=50, worker_threads=2)
    worker.start()
    try:
        yield
    finally:
        worker.stop()


def noting(broker: RabbitmqBroker, **options: Any) -> tuple[Any, list[str]]:
    """An actor, and what it was called with."""
    noted: list[str] = []

    @dramatiq.actor(broker=broker, queue_name=QUEUE, actor_name="note", **options)
    def note(line: str, *_: Any) -> str:
        noted.append(line)
        return line * 2

    return note, noted


def failing(broker: RabbitmqBroker, **options: Any) -> tuple[Any, list[int]]:
    """An actor that fails, and a line for each call."""
    calls: list[int] = []

    @dramatiq.actor(broker=broker, queue_name=QUEUE, actor_name="fails", **options)
    def fails(*_: Any) -> None:
        calls.append(len(calls))
        raise dramatiq.Retry("again")

    return fails, calls


def test_it_arrives_as_dramatiq_would_have_published_it(delivery: DelayedDelivery, rabbitmq_url: str) -> None:
    signals = Signals()
    with storing(delivery, rabbitmq_url, signals, max_priority=5) as broker, delivery:
        note, _ = noting(broker)
        message = note.message_with_options(args=("one",), broker_priority=3)
        RabbitmqBroker.enqueue(broker, message)
        undelayed, body = taken(rabbitmq_url, QUEUE)
        signals.told.clear()
        sent = broker.enqueue(message, delay=200)
        assert sent.message_id == message.message_id
        assert signals.told == [("before", f"{QUEUE}.DQ", 200), ("after", f"{QUEUE}.DQ", 200)]
        assert taken(rabbitmq_url, QUEUE) == ({**undelayed, "message_id": message.message_id}, body)


def test_what_is_delayed_waits_in_the_store_can_be_cancelled_and_reaches_the_worker(
    delivery: DelayedDelivery, rabbitmq_url: str
) -> None:
    with storing(delivery, rabbitmq_url, threshold=timedelta(seconds=0.5)) as broker, working(broker), delivery:
        note, noted = noting(broker)
        unwanted = note.send_with_options(args=("unwanted",), delay=timedelta(days=1))
        note.send_with_options(args=("below the threshold",), delay=100)
        note.send_with_options(args=("stored",), delay=1000)
        assert [one.destination for one in delivery.list().messages] == [QUEUE, QUEUE]
        assert delivery.cancel(unwanted.message_id) == "done"
        wait_until(lambda: len(noted) == 2)
    assert noted == ["below the threshold", "stored"]


def test_retries_wait_in_the_store(delivery: DelayedDelivery, rabbitmq_url: str) -> None:
    with storing(delivery, rabbitmq_url, Retries(min_backoff=300, max_retries=3)) as broker, working(broker), delivery:
        fails, calls = failing(broker)
        message = fails.send()
        wait_until(lambda: len(calls) == 4)
        wait_until(lambda: broker.get_queue_message_counts(QUEUE) == (0, 0, 1))
    assert message.message_id in taken_from_dead_letters(rabbitmq_url)
    assert delivery.count() == 0


def taken_from_dead_letters(url: str) -> str:
    with closing(pika.BlockingConnection(pika.URLParameters(url))) as connection:
        _, _, body = connection.channel().basic_get(f"{QUEUE}.XQ", auto_ack=True)
        assert body is not None
        return body.decode()


def test_pipelines_groups_and_results_work_with_delays(delivery: DelayedDelivery, rabbitmq_url: str) -> None:
    backend = StubBackend()
    middleware = (Results(backend=backend, store_results=True), Pipelines())
    with storing(delivery, rabbitmq_url, *middleware) as broker, working(broker), delivery:
        note, noted = noting(broker)
        group = dramatiq.group([note.message("a"), note.message("b")], broker=broker).run(delay=300)
        last = note.message_with_options(args=("d",), delay=300)
        steps = dramatiq.pipeline([note.message("c"), last], broker=broker).run(delay=300)
        assert sorted(group.get_results(block=True, timeout=30_000)) == ["aa", "bb"]
        assert steps.get_result(block=True, timeout=30_000) == "dd"
    assert sorted(noted) == ["a", "b", "c", "d"]


def test_in_a_transaction_everything_is_sent_with_it_or_not_at_all(
    delivery: DelayedDelivery, rabbitmq_url: str, sqlite_url: str
) -> None:
    delivery.setup_infrastructure()
    engine = create_engine(sqlite_url)
    with storing(delivery, rabbitmq_url) as broker:
        note, noted = noting(broker)
        with Session(engine) as session:
            with broker.messages_in(session):
                note.send("undone")
                note.send_with_options(args=("undone",), delay=10)
            session.rollback()
        with Session(engine) as session, session.begin(), broker.messages_in(session):
            note.send("done")
        assert delivery.count() == 1
        with delivery, working(broker):
            wait_until(lambda: noted == ["done"])
    engine.dispose()


@pytest.mark.parametrize(("waiting", "count"), [(1, 2), (2, 1), (3, 1)])
def test_a_retry_whose_id_is_taken_is_stored_unless_it_is_there(
    delivery: DelayedDelivery, rabbitmq_url: str, waiting: int, count: int
) -> None:
    with storing(delivery, rabbitmq_url) as broker:
        note, _ = noting(broker)
        message = note.message("one").copy(options={"retries": 2})
        broker.enqueue(message.copy(options={"retries": waiting, "traceback": "another"}), delay=3_600_000)
        broker.enqueue(message, delay=3_600_000)
        assert delivery.count() == count
        assert (message.encode() in {one.body for one in delivery.list().messages}) == (count == 2)


@pytest.mark.long
def test_what_a_dispatcher_is_just_removing_stands_for_nothing(
    delivery: DelayedDelivery, rabbitmq_url: str, sqlite_url: str
) -> None:
    """An actor may enqueue its own message again while that is still in the store."""
    with storing(delivery, rabbitmq_url) as broker, closing(SqlDelayedMessageStore(sqlite_url)) as dispatched:
        dispatched.initialize("notes", TransactionMode.NONE)
        note, _ = noting(broker)
        message = note.message("one")
        broker.enqueue(message, delay=0)
        (claimed,) = dispatched.fetch_due(dispatched.now(), 10)
        broker.enqueue(message, delay=3_600_000)
        assert dispatched.remove(claimed)
        (left,) = delivery.list().messages
    assert left.body == message.encode()


@pytest.mark.long
def test_a_retry_that_was_stored_before_its_worker_died_is_stored_once(
    delivery: DelayedDelivery, rabbitmq_url: str, sqlite_url: str, tmp_path: Path
) -> None:
    notes = tmp_path / "notes"
    environment = os.environ | {"BROKER": rabbitmq_url, "STORE": sqlite_url, "NOTES": str(notes)}
    delivery.setup_infrastructure()
    with storing(delivery, rabbitmq_url) as broker:
        fails, _ = failing(broker)
        message = fails.send("called")
        with worker_process(environment | {"DIE_AFTER_RETRY": "1"}) as worker:
            worker.wait(PATIENCE)
        assert delivery.get(message.message_id) is not None
        with worker_process(environment):
            wait_until(lambda: notes.read_text() == "called\n" * 2)
        assert broker.get_queue_message_counts(QUEUE) == (0, 0, 0)
    assert [one.message_id for one in delivery.list().messages] == [message.message_id]


@contextmanager
def worker_process(environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """A `dramatiq` of its own; told to stop at the end, when it finishes what it is doing."""
    command = [
        sys.executable,
        "-m",
        "dramatiq",
        "tests.integration.dramatiq_worker:broker",
        "--processes=1",
        "--threads=1",
    ]
    with subprocess.Popen(command, env=environment, cwd=ROOT) as process:
        try:
            yield process
        finally:
            process.terminate()
            process.wait(PATIENCE)


def test_what_the_store_does_not_take_waits_in_dramatiqs_delay_queue(
    rabbitmq_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    delivery = DelayedDelivery("notes", SqlDelayedMessageStore("postgresql+psycopg://nobody@127.0.0.1:1/nothing"))
    with closing(delivery), storing(delivery, rabbitmq_url) as broker:
        note, _ = noting(broker)
        note.send_with_options(args=("one",), delay=3_600_000)
        assert broker.get_queue_message_counts(QUEUE) == (0, 1, 0)
    assert "waits in Dramatiq's delay queue: " in caplog.text


def test_a_delay_that_no_store_can_keep_is_left_to_dramatiq(
    delivery: DelayedDelivery, rabbitmq_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with storing(delivery, rabbitmq_url) as broker:
        note, _ = noting(broker)
        note.send_with_options(args=("one",), delay=10**20)
        assert broker.get_queue_message_counts(QUEUE) == (0, 1, 0)
    assert "out of range" in caplog.text


def test_storing_goes_on_while_rabbitmq_is_down(delivery: DelayedDelivery, caplog: pytest.LogCaptureFixture) -> None:
    with storing(delivery, "amqp://127.0.0.1:1") as broker:
        note, _ = noting(broker)
        for _ in range(2):
            note.send_with_options(args=("one",), delay=3_600_000)
    assert delivery.count() == 2
    assert caplog.text.count("its worker will declare it") == 1


def test_a_negative_threshold_is_refused(delivery: DelayedDelivery) -> None:
    with pytest.raises(ConfigurationError, match="negative"):
        StoringRabbitmqBroker(delivery, threshold=timedelta(seconds=-1))
