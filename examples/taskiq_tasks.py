"""taskiq's delayed tasks and retries wait in a store; its workers stay as they are.

Run it with `python examples/taskiq_tasks.py amqp://localhost`. The queues `taskiq` and `taskiq.dead_letter` stay. In an
application the store is a server's, such as `postgresql+asyncpg://localhost/app`, and workers are started by
`taskiq worker`.
"""

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from taskiq import SmartRetryMiddleware
from taskiq.api import run_receiver_task

from delaystore import AsyncDelayedDelivery, AsyncSqlDelayedMessageStore, RabbitMQTransport
from delaystore.integrations.taskiq import StoringAioPikaBroker


async def main(broker_url: str, store_url: str) -> None:
    """Send a delayed task, one in a transaction, one that is retried, and cancel one."""
    delivery = AsyncDelayedDelivery("emails", AsyncSqlDelayedMessageStore(store_url), RabbitMQTransport(broker_url))
    broker = StoringAioPikaBroker(delivery, broker_url)
    broker.add_middlewares(SmartRetryMiddleware(default_delay=1, default_retry_label=True))
    done: list[str] = []
    all_done = asyncio.Event()

    def note(line: str) -> None:
        done.append(line)
        if len(done) == 4:
            all_done.set()

    @broker.task("remind")
    async def remind(address: str) -> None:
        note(f"reminded {address}")

    @broker.task("confirm")
    async def confirm(address: str) -> None:
        if f"no answer for {address}" not in done:
            note(f"no answer for {address}")
            raise ConnectionError
        note(f"confirmed {address}")

    async with delivery, working(broker):
        await remind.kicker().with_labels(delay=1).kiq("ada@example.org")
        await confirm.kiq("bob@example.org")
        unwanted = await remind.kicker().with_labels(delay=3 * 86_400).kiq("eve@example.org")
        print("cancelled:", (await delivery.cancel(unwanted.task_id)).value)
        engine = create_async_engine(store_url)
        async with AsyncSession(engine) as session, session.begin():
            with broker.messages_in(session):
                await remind.kiq("cid@example.org")  # if the transaction is rolled back, nothing is sent
        await engine.dispose()
        await asyncio.wait_for(all_done.wait(), 60)
    print(*sorted(done), sep="\n")


@asynccontextmanager
async def working(broker: StoringAioPikaBroker) -> AsyncIterator[None]:
    """A worker within this process, for the time of a block."""
    broker.is_worker_process = True
    await broker.startup()
    receiver = asyncio.create_task(run_receiver_task(broker))
    try:
        yield
    finally:
        receiver.cancel()
        await asyncio.gather(receiver, return_exceptions=True)
        await broker.shutdown()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(main(sys.argv[1], f"sqlite+aiosqlite:///{Path(directory) / 'app.db'}"))
