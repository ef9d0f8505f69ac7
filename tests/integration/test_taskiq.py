"""taskiq's delayed tasks wait in a store, and arrive as taskiq would have published them."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pika
import pytest
from aio_pika import ExchangeType
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from taskiq import AsyncTaskiqDecoratedTask, SmartRetryMiddleware, TaskiqMiddleware, TaskiqResult
from taskiq.api import run_receiver_task
from taskiq.brokers.inmemory_broker import InmemoryResultBackend
from taskiq.exceptions import SendTaskError
from taskiq_aio_pika import Exchange, Queue, QueueType

from delaystore import (
    AsyncDelayedDelivery,
    AsyncSqlDelayedMessageStore,
    DelayedDelivery,
    RabbitMQTransport,
    TransactionMode,
)
from delaystore.integrations.taskiq import StoringAioPikaBroker
from delaystore.stores import SqlDelayedMessageStore
from tests.dispatching import PATIENCE, wait_until
from tests.integration.cascades import taken
from tests.integration.test_documents import ROOT

QUEUE = "taskiq"


@pytest.fixture
def delivery(sqlite_url: str, rabbitmq_url: str) -> Iterator[DelayedDelivery]:
    with closing(DelayedDelivery("notes", SqlDelayedMessageStore(sqlite_url), RabbitMQTransport(rabbitmq_url))) as one:
        yield one


@asynccontextmanager
async def started(broker: StoringAioPikaBroker, *middlewares: TaskiqMiddleware) -> AsyncIterator[list[str]]:
    """With the task `note`, whose calls are in the list."""
    noted: list[str] = []

    @broker.task("note")
    async def note(line: str) -> str:
        noted.append(line)
        if line == "fails":
            raise ConnectionError("no answer")
        return line * 2

    broker.with_result_backend(InmemoryResultBackend()).add_middlewares(*middlewares)
    broker.is_worker_process = True  # it may consume, too
    await broker.startup()
    try:
        yield noted
    finally:
        await broker.shutdown()


@asynccontextmanager
async def working(broker: StoringAioPikaBroker) -> AsyncIterator[None]:
    """A worker within this process."""
    receiver = asyncio.create_task(run_receiver_task(broker))
    try:
        yield
    finally:
        receiver.cancel()
        await asyncio.gather(receiver, return_exceptions=True)


def the_task(broker: StoringAioPikaBroker) -> AsyncTaskiqDecoratedTask[Any, Any]:
    task = broker.find_task("note")
    assert task is not None
    return task


async def until(condition: Callable[[], Any]) -> None:
    await asyncio.to_thread(wait_until, condition)


def test_it_arrives_as_taskiq_would_have_published_it(delivery: DelayedDelivery, rabbitmq_url: str) -> None:
    async def test() -> None:
        exchange = Exchange(name="my tasks", type=ExchangeType.DIRECT)
        queues = [Queue(name="slow"), Queue(name="quick", routing_key="a/b", max_priority=5, type=QueueType.CLASSIC)]
        broker = StoringAioPikaBroker(delivery, rabbitmq_url, exchange=exchange, task_queues=queues)
        async with started(broker):
            note = the_task(broker)
            kicker = note.kicker().with_labels(queue_name="a/b", priority=3, flag=True).with_task_id("one")
            await kicker.kiq("a line")
            (undelayed, body) = await asyncio.to_thread(taken, rabbitmq_url, "quick")
            await kicker.with_labels(delay=0.2).kiq("a line")
            (delayed, delayed_body) = await asyncio.to_thread(taken, rabbitmq_url, "quick")
            headers = {**undelayed["headers"], "delay": "0.2"}
            assert delayed == {**undelayed, "message_id": "one", "headers": headers}
            received, was = (broker.formatter.loads(each) for each in (delayed_body, body))
            assert received.labels.pop("delay") == "0.2"
            received.labels_types, was.labels_types = None, None
            assert received == was

    with delivery:
        asyncio.run(test())


def test_what_is_delayed_waits_in_the_store_can_be_cancelled_and_reaches_the_worker(
    delivery: DelayedDelivery, rabbitmq_url: str
) -> None:
    async def test() -> None:
        broker = StoringAioPikaBroker(delivery, rabbitmq_url)
        async with started(broker) as noted, working(broker):
            note = the_task(broker)
            unwanted = await note.kicker().with_labels(delay=86_400).kiq("unwanted")
            assert (await asyncio.to_thread(delivery.cancel, unwanted.task_id)) == "done"
            task = await note.kicker().with_labels(delay=0.3).kiq("stored")
            await note.kiq("at once")
            result: TaskiqResult[Any] = await task.wait_result(timeout=PATIENCE)
            assert result.return_value == "storedstored"
            assert noted == ["at once", "stored"]

    with delivery:
        asyncio.run(test())


def test_retries_wait_in_the_store(delivery: DelayedDelivery, rabbitmq_url: str) -> None:
    async def test() -> None:
        broker = StoringAioPikaBroker(delivery, rabbitmq_url)
        retries = SmartRetryMiddleware(default_delay=0.2, default_retry_count=3, default_retry_label=True)
        async with started(broker, retries) as noted, working(broker):
            note = the_task(broker)
            task = await note.kiq("fails")
            result: TaskiqResult[Any] = await task.wait_result(timeout=PATIENCE)
            assert result.is_err
            assert noted == ["fails"] * 3

    with delivery:
        asyncio.run(test())


def test_in_a_transaction_everything_is_sent_with_it_or_not_at_all(
    delivery: DelayedDelivery, rabbitmq_url: str, sqlite_url: str
) -> None:
    engine = create_engine(sqlite_url)

    async def test() -> None:
        broker = StoringAioPikaBroker(delivery, rabbitmq_url)
        async with started(broker) as noted:
            note = the_task(broker)
            with Session(engine) as session:
                with broker.messages_in(session):
                    await note.kiq("undone")
                    await note.kicker().with_labels(delay=0.1).kiq("undone")
                session.rollback()
            with Session(engine) as session, session.begin(), broker.messages_in(session):
                await note.kiq("done")
            assert delivery.count() == 1
            async with working(broker):
                delivery.start()
                await until(lambda: noted == ["done"])

    delivery.setup_infrastructure()
    asyncio.run(test())
    engine.dispose()


def test_an_async_delivery_is_awaited(delivery: DelayedDelivery, rabbitmq_url: str, sqlite_url: str) -> None:
    async def test() -> None:
        url = sqlite_url.replace("sqlite:", "sqlite+aiosqlite:")
        engine = create_async_engine(url)
        transport = RabbitMQTransport(rabbitmq_url)
        awaited = AsyncDelayedDelivery("notes", AsyncSqlDelayedMessageStore(url), transport)
        broker = StoringAioPikaBroker(awaited, rabbitmq_url)
        async with awaited, started(broker) as noted, working(broker):
            note = the_task(broker)
            for retries in (2, 1, 3):
                await note.kicker().with_task_id("one").with_labels(delay=3600, _retries=retries).kiq("a line")
            assert await awaited.count() == 2
            async with AsyncSession(engine) as session:
                with broker.messages_in(session):
                    await note.kiq("undone")
                await session.rollback()
            async with AsyncSession(engine) as session, session.begin():
                with broker.messages_in(session):
                    await note.kicker().with_labels(delay=0.1).kiq("done")
            await until(lambda: noted == ["done"])
        await engine.dispose()

    asyncio.run(test())
    assert delivery.count() == 2


@pytest.mark.parametrize(("waiting", "count"), [(1, 2), (2, 1), (3, 1)])
def test_a_retry_whose_id_is_taken_is_stored_unless_it_is_there(
    delivery: DelayedDelivery, rabbitmq_url: str, waiting: int, count: int
) -> None:
    async def test() -> None:
        async with started(broker):
            for retries in (waiting, 2):
                note = the_task(broker)
                await note.kicker().with_task_id("one").with_labels(delay=3600, _retries=retries).kiq("a line")

    broker = StoringAioPikaBroker(delivery, rabbitmq_url)
    asyncio.run(test())
    assert delivery.count() == count


def test_what_a_dispatcher_is_just_removing_stands_for_nothing(
    delivery: DelayedDelivery, rabbitmq_url: str, sqlite_url: str
) -> None:
    async def test() -> None:
        async with started(broker):
            note = the_task(broker)
            await note.kicker().with_task_id("one").with_labels(delay=0).kiq("a line")
            (claimed,) = dispatched.fetch_due(dispatched.now(), 10)
            await note.kicker().with_task_id("one").with_labels(delay=0).kiq("a line")
            assert dispatched.remove(claimed)

    broker = StoringAioPikaBroker(delivery, rabbitmq_url)
    with closing(SqlDelayedMessageStore(sqlite_url)) as dispatched:
        dispatched.initialize("notes", TransactionMode.NONE)
        asyncio.run(test())
    assert delivery.count() == 1


@pytest.mark.long
def test_a_retry_that_was_stored_before_its_worker_died_is_stored_once(
    delivery: DelayedDelivery, rabbitmq_url: str, sqlite_url: str, tmp_path: Path
) -> None:
    async def kick() -> None:
        broker = StoringAioPikaBroker(delivery, rabbitmq_url)

        @broker.task("fails")
        async def fails() -> None: ...

        await broker.startup()
        await fails.kicker().with_task_id("one").kiq()
        await broker.shutdown()

    notes = tmp_path / "notes"
    environment = os.environ | {"BROKER": rabbitmq_url, "STORE": sqlite_url, "NOTES": str(notes)}
    delivery.setup_infrastructure()
    asyncio.run(kick())
    command = [sys.executable, "-m", "taskiq", "worker", "tests.integration.taskiq_worker:broker", "--workers=1"]
    with subprocess.Popen(command, env=environment, cwd=ROOT) as process:
        try:
            wait_until(lambda: notes.exists() and notes.read_text() == "called\n" * 2)
        finally:
            process.terminate()
            process.wait(PATIENCE)
    with closing(pika.BlockingConnection(pika.URLParameters(rabbitmq_url))) as connection:
        assert connection.channel().queue_declare(QUEUE, passive=True).method.message_count == 0
    assert [one.message_id for one in delivery.list().messages] == ["one"]


def test_what_the_store_does_not_take_is_told_the_caller(rabbitmq_url: str) -> None:
    async def test() -> None:
        async with started(broker):
            note = the_task(broker)
            with pytest.raises(SendTaskError):
                await note.kicker().with_labels(delay=3600).kiq("a line")

    delivery = DelayedDelivery("notes", SqlDelayedMessageStore("postgresql+psycopg://nobody@127.0.0.1:1/nothing"))
    broker = StoringAioPikaBroker(delivery, rabbitmq_url)
    with closing(delivery):
        asyncio.run(test())
