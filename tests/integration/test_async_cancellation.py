"""AsyncDelayedDelivery whose tasks are cancelled, wherever they wait: what is acknowledged afterwards is stored."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import suppress
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from delaystore import AsyncDelayedDelivery, AsyncSqlDelayedMessageStore
from delaystore.errors import DuplicateKeyError, KeyInUseError
from delaystore.message import OnKey
from tests.integration.sql_stores import message
from tests.integration.test_async_delivery import DRIVERS, with_driver
from tests.long import long

DAY = 86_400.0
Operation = Callable[[AsyncDelayedDelivery, str], Coroutine[Any, Any, object]]


async def send(delivery: AsyncDelayedDelivery, name: str) -> None:
    await delivery.send("billing", b"", delay=DAY, message_id=name)


async def replace(delivery: AsyncDelayedDelivery, name: str) -> None:
    await delivery.send("billing", b"", delay=DAY, message_id=name, key="basket", on_key="replace")


async def send_many(delivery: AsyncDelayedDelivery, name: str) -> None:
    now = await delivery.get("first")
    assert now is not None
    await delivery.send_many([message(now.due_time, n, f"{name}-{n}") for n in range(3)])


async def reschedule(delivery: AsyncDelayedDelivery, _name: str) -> None:
    await delivery.reschedule("first", delay=DAY)


OPEN = text(
    "SELECT pid, state, query FROM pg_stat_activity "
    "WHERE datname = current_database() AND pid <> pg_backend_pid() AND xact_start IS NOT NULL"
)
"""Transactions of others."""
OPERATIONS: list[Operation] = [send, replace, send_many, reschedule]


class CancelledAt:
    """Awaits `work`, and cancels its task when that waits for the `step`th time."""

    def __init__(self, work: Coroutine[Any, Any, object], step: int) -> None:
        self._work, self._step = work, step
        self.waits = 0

    def __await__(self) -> Generator[Any, Any, object]:
        task = asyncio.current_task()
        assert task is not None
        go_on: Callable[[Any], Any] = self._work.send
        given: Any = None
        while True:
            try:
                waits_for = go_on(given)
            except StopIteration as end:
                return end.value
            self.waits += 1
            if self.waits == self._step:
                task.cancel()
            try:
                given, go_on = (yield waits_for), self._work.send
            except BaseException as error:
                given, go_on = error, self._work.throw


async def cancelled_at_each_step(
    delivery: AsyncDelayedDelivery, operation: Operation, check: Callable[[], Awaitable[None]]
) -> None:
    """Cancel `operation` at the first thing that it waits for, at the second, and so on; then `check` each time."""
    for step in range(1, 200):
        attempt = CancelledAt(operation(delivery, f"{operation.__name__} {step}"), step)

        async def run(work: Awaitable[object] = attempt) -> None:
            with suppress(asyncio.CancelledError):
                await work

        await asyncio.create_task(run())
        await check()
        if attempt.waits < step:
            return
    raise AssertionError("it never ended")


@pytest.fixture
def url(request: pytest.FixtureRequest) -> str:
    """An empty database, by the driver that the parameter names."""
    return with_driver(request.getfixturevalue(DRIVERS[request.param]), request.param)


@pytest.mark.long_runs("theirs")
@pytest.mark.parametrize(
    ("url", "whose"),
    [("psycopg", "ours"), ("psycopg", "theirs"), ("asyncpg", "ours"), ("aiomysql", "theirs"), ("asyncmy", "theirs")],
    indirect=["url"],
)
def test_a_cancellation_leaves_connections_as_they_were(url: str, whose: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is sent next is stored, and what the engine's owner does next is undone by a rollback."""
    monkeypatch.setattr("psycopg.waiting.MAX_BUSY_TIME", 0, raising=False)  # what needs no answer is waited for, too

    async def program() -> None:
        engine = create_async_engine(url, pool_size=1, max_overflow=0, pool_timeout=5)
        store = AsyncSqlDelayedMessageStore(url if whose == "ours" else engine)
        async with (
            AsyncDelayedDelivery("sales", store) as delivery,
            AsyncDelayedDelivery("sales", AsyncSqlDelayedMessageStore(url)) as others,
        ):

            async def check() -> None:
                pool: Any = store.engine.sync_engine.pool
                assert pool.checkedout() == 0
                if whose == "theirs":
                    await deleted_and_rolled_back(engine)
                    assert await others.get("first") is not None
                assert await others.get(await delivery.send("billing", b"", delay=DAY)) is not None

            await delivery.send("billing", b"", delay=DAY, message_id="first")
            for operation in OPERATIONS:
                await cancelled_at_each_step(delivery, operation, check)
        await engine.dispose()

    asyncio.run(program())


async def deleted_and_rolled_back(engine: AsyncEngine) -> None:
    async with engine.connect() as connection:
        await connection.execute(text("DELETE FROM sales_delayed"))
        await connection.rollback()


@pytest.mark.parametrize("url", ["psycopg", long("asyncpg")], indirect=True)
def test_tasks_cancelled_at_random_lose_nothing_that_was_acknowledged(url: str) -> None:
    chance = random.Random(1)
    acknowledged: set[str] = set()

    async def one(delivery: AsyncDelayedDelivery, name: str) -> None:
        async with asyncio.timeout(chance.expovariate(20) if chance.random() < 0.5 else None):
            if chance.random() < 0.5:
                acknowledged.add(await delivery.send("billing", b"", delay=DAY, message_id=name))
            else:
                rule, key = chance.choice(list(OnKey)), f"basket {chance.randrange(3)}"
                await delivery.send("billing", b"", delay=DAY, key=key, on_key=rule)

    async def task(delivery: AsyncDelayedDelivery, number: int) -> None:
        for turn in range(6):
            with suppress(TimeoutError, DuplicateKeyError, KeyInUseError):
                await one(delivery, f"{number}-{turn}")

    async def program() -> None:
        engine = create_async_engine(url, pool_size=3, max_overflow=0)
        async with AsyncDelayedDelivery("sales", AsyncSqlDelayedMessageStore(engine)) as delivery:
            await asyncio.gather(*(task(delivery, number) for number in range(50)))
            assert engine.sync_engine.pool.checkedout() == 0  # type: ignore[attr-defined]
            waiting = (await delivery.list(limit=1000)).messages
        assert acknowledged
        assert acknowledged <= {each.message_id for each in waiting}
        keys = [each.key for each in waiting if each.key is not None]
        assert len(keys) == len(set(keys))
        async with engine.connect() as connection:
            assert (await connection.execute(OPEN)).all() == []
        await engine.dispose()

    asyncio.run(program())
