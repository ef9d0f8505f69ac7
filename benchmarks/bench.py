"""One store and one queue, filled and watched."""

import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Final, Self
from uuid import uuid4

import pika
import psycopg

from benchmarks.filling import DESTINATION
from delaystore.message import DelayedMessage, new_message_id
from delaystore.settings import TransactionMode
from delaystore.stores import SqlDelayedMessageStore

BODY_BYTES: Final = 200
DUE: Final = struct.Struct(">q")
"""The due time as a body begins with it: microseconds since 1970."""
_PADDING: Final = b"x" * (BODY_BYTES - DUE.size)
ENDPOINT: Final = "bench"
PATIENCE: Final = 300.0
"""Seconds after which a measurement has failed."""
LOOK_EVERY: Final = 0.02
"""Seconds between two looks at the queue; each costs the broker next to nothing."""


def message_due(due_time: datetime, destination: str) -> DelayedMessage:
    """A message whose body tells when it is due."""
    return DelayedMessage(
        message_id=new_message_id(),
        destination=destination,
        due_time=due_time,
        body=DUE.pack(round(due_time.timestamp() * 1_000_000)) + _PADDING,
    )


class Bench:
    """A store that is set up, and a quorum queue that is empty."""

    def __init__(self, store_url: str, transport_url: str, checkpoint: Callable[[], None]) -> None:
        self.store_url = store_url
        self.transport_url = transport_url
        self.dsn = store_url.replace("postgresql+psycopg://", "postgresql://", 1)
        self.table = f"{ENDPOINT}_delayed"
        self.queue = f"bench-{uuid4()}"
        self.store = SqlDelayedMessageStore(store_url)
        self._checkpoint = checkpoint

    def __enter__(self) -> Self:
        self.store.initialize(ENDPOINT, TransactionMode.RECEIVE_ONLY)
        self.store.setup_infrastructure()
        self.database = psycopg.connect(self.dsn, autocommit=True)
        parameters = pika.URLParameters(self.transport_url)
        parameters.heartbeat = 0
        self._broker = pika.BlockingConnection(parameters)
        self._channel = self._broker.channel()
        self._declare()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._channel.queue_delete(self.queue)
        self._broker.close()
        self.database.close()
        self.store.close()

    @property
    def environment(self) -> Mapping[str, str]:
        """What a program needs to know, kept off its command line for the passwords."""
        return {
            "DELAYSTORE_STORE": self.store_url,
            "DELAYSTORE_TRANSPORT": self.transport_url,
            "DELAYSTORE_BROKER": self.transport_url,
            "DELAYSTORE_ENDPOINT": ENDPOINT,
            "BENCHMARK_DSN": self.dsn,
            "BENCHMARK_TABLE": self.table,
            "BENCHMARK_QUEUE": self.queue,
        }

    def messages(self, count: int, first: datetime, span: timedelta = timedelta(0)) -> Iterator[DelayedMessage]:
        """`count` messages for the queue, the first due at `first`, the others spread over `span`."""
        for number in range(count):
            yield message_due(first + span * number / count, self.queue)

    def load_waiting(self, count: int) -> None:
        """Store messages that are due in a month, over a month."""
        month = timedelta(days=30)
        self.store.store_many(self.messages(count, self.store.now() + month, month))
        self.settle()

    def settle(self) -> None:
        """Clean up after loading, so that no round meets the database's own housekeeping."""
        self.database.execute(f"VACUUM (ANALYZE) {self.table}")
        self._checkpoint()

    def forget_sent(self) -> None:
        """Delete what waits, and leave what `fill` put there."""
        self.database.execute(f"DELETE FROM {self.table} WHERE destination <> %s", (DESTINATION,))
        self.settle()

    @contextmanager
    def old_snapshot(self) -> Iterator[None]:
        """A transaction that could still see what was there before the block, and so pins it."""
        with psycopg.connect(self.dsn) as connection:
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            connection.execute("SELECT 1")
            yield
            connection.rollback()

    def clear(self) -> None:
        """Empty store and queue; the queue is made anew."""
        self.database.execute(f"TRUNCATE {self.table}")
        self.clear_queue()
        self._checkpoint()

    def clear_queue(self) -> None:
        """An empty queue of the same name: a purged quorum queue would still carry its log."""
        self._channel.queue_delete(self.queue)
        self._declare()

    def depth(self, queue: str | None = None) -> int:
        """How many messages are in the queue, or in another one."""
        depth: int = self._channel.queue_declare(queue or self.queue, passive=True).method.message_count
        return depth

    def bind(self, exchange: str) -> None:
        """Have all that is published to a topic exchange come into the queue."""
        self._channel.queue_bind(self.queue, exchange, "#")

    def delete(self, exchanges: Sequence[str], queues: Sequence[str]) -> None:
        """Delete exchanges and queues."""
        for exchange in exchanges:
            self._channel.exchange_delete(exchange)
        for queue in queues:
            self._channel.queue_delete(queue)

    def nothing_due(self) -> bool:
        """Whether all that is due has left the store."""
        query = f"SELECT EXISTS (SELECT FROM {self.table} WHERE next_attempt <= now())"
        row: tuple[Any, ...] = self.database.execute(query).fetchall()[0]
        return not row[0]

    def await_dispatched(self, depth: int, meanwhile: Callable[[], object] = lambda: None) -> None:
        """Wait until the queue holds `depth` messages and nothing due is in the store; look at `meanwhile` each time.

        TimeoutError, with the numbers, when that takes too long.
        """
        deadline = time.monotonic() + PATIENCE
        while self.depth() < depth or not self.nothing_due():
            meanwhile()
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.depth()} of {depth} messages arrived within {PATIENCE:g} s")
            time.sleep(LOOK_EVERY)

    def _declare(self) -> None:
        self._channel.queue_declare(self.queue, durable=True, arguments={"x-queue-type": "quorum"})
