"""A delay cascade on a virtual host of its own, with one destination."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pika

from benchmarks.arena import Arena
from benchmarks.bench import PATIENCE
from delaystore.message import DelayedMessage
from delaystore.transports import RabbitMQTransport
from delaystore.transports.rabbitmq.declaring import declare_part
from delaystore.transports.rabbitmq.topology import CascadeTopology, Layout

BATCH: Final = 1000
"""Messages published before the confirms are awaited; the dispatcher's batch."""
QUEUE: Final = "destination"


class Cascade:
    """A cascade with nothing in it, and our transport to it."""

    def __init__(self, url: str, topology: CascadeTopology) -> None:
        self.url = url
        self.topology = topology
        self.transport = RabbitMQTransport(url, delays=topology)
        parameters = pika.URLParameters(url)
        parameters.heartbeat = 0
        self._connection = pika.BlockingConnection(parameters)
        self._channel: Any = self._connection.channel()
        self._channel.queue_declare(QUEUE, durable=True, arguments={"x-queue-type": "quorum"})
        destination = Layout(bindings=topology.destination_bindings(QUEUE))
        for part in (topology.layout() + destination).parts:
            declare_part(self._channel, part)

    def close(self) -> None:
        """End the connections."""
        self.transport.close()
        self._connection.close()

    def waiting(self) -> int:
        """How many messages wait in the levels."""
        return sum(self._depth(self.topology.level(level)) for level in range(self.topology.levels))

    def clear(self) -> None:
        """Throw away what waits."""
        for level in range(self.topology.levels):
            self._channel.queue_purge(self.topology.level(level))

    def send(self, messages: Sequence[DelayedMessage]) -> None:
        """Publish by our transport, in batches; RuntimeError if one is not confirmed."""
        for first in range(0, len(messages), BATCH):
            now = datetime.now(UTC)
            for outcome in self.transport.send_delayed(messages[first : first + BATCH], now, PATIENCE):
                if outcome.reason:
                    raise RuntimeError(f"a message was not taken: {outcome.kind} {outcome.reason}")

    def check(self, count: int) -> None:
        """RuntimeError unless `count` messages wait, or come to, within a moment."""
        deadline = time.monotonic() + 10
        while (found := self.waiting()) != count:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{found} messages wait in the cascade, not {count}")
            time.sleep(0.1)

    def _depth(self, queue: str) -> int:
        depth: int = self._channel.queue_declare(queue, passive=True).method.message_count
        return depth


@contextmanager
def cascade(arena: Arena, topology: CascadeTopology) -> Iterator[Cascade]:
    """A cascade that exists while the block runs."""
    url = arena.rabbitmq.create_vhost()
    try:
        made = Cascade(url, topology)
        try:
            yield made
        finally:
            made.close()
    finally:
        arena.rabbitmq.delete_vhost(url)


def delay_of(number: int) -> timedelta:
    """From 10 minutes to 2 hours, so that many levels take part, and nothing is due while it is measured."""
    return timedelta(seconds=600 + number * 7919 % 6600)
