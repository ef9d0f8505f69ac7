"""Cascades on a broker, and what comes out of them, by bare pika."""

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import pika
from pika import exceptions

from delaystore.transports.rabbitmq.declaring import declare_part
from delaystore.transports.rabbitmq.pika_internals import RawConnection
from delaystore.transports.rabbitmq.topology import CascadeTopology, Layout
from tests.dispatching import wait_until

PATIENCE = 60.0


@dataclass(frozen=True)
class IncomingMessage:
    """A message that arrived; `at` by time.time()."""

    queue: str
    at: float
    method: Any
    properties: Any
    body: bytes


@contextmanager
def channel_to(url: str, *, raw: bool = False) -> Iterator[Any]:
    """A blocking channel in confirm mode; `raw`: properties are read undecoded."""
    parameters = pika.URLParameters(url)
    parameters.heartbeat = 0
    connection = pika.BlockingConnection(parameters, _impl_class=RawConnection if raw else None)
    try:
        channel = connection.channel()
        channel.confirm_delivery()
        yield channel
    finally:
        with suppress(exceptions.AMQPConnectionError):  # a test may have killed the broker
            connection.close()


def declare(channel: Any, layout: Layout) -> None:
    """Declare the layout as it is."""
    for part in layout.parts:
        declare_part(channel, part)


def make_queue(channel: Any, name: str, queue_type: str = "quorum", **arguments: Any) -> None:
    """A durable queue."""
    channel.queue_declare(name, durable=True, arguments={"x-queue-type": queue_type, **arguments})


def make_destination(channel: Any, topology: CascadeTopology, name: str) -> None:
    """A queue that the cascade leads to."""
    make_queue(channel, name)
    declare(channel, Layout(bindings=topology.destination_bindings(name)))


def send(channel: Any, topology: CascadeTopology, delay: float, address: str, body: bytes, **properties: Any) -> None:
    """Publish into the cascade, mandatory; the channel waits for the confirm."""
    exchange, key = topology.route(delay, address)
    channel.basic_publish(exchange, key, body, pika.BasicProperties(delivery_mode=2, **properties), mandatory=True)


def arrivals(channel: Any, queues: Iterable[str], count: int, patience: float = PATIENCE) -> list[IncomingMessage]:
    """The next `count` messages of the queues, in the order of arrival; AssertionError with what came, if too few."""
    found: list[IncomingMessage] = []
    channel.basic_qos(prefetch_count=1000)

    def taking(queue: str) -> Any:
        def take(_channel: Any, method: Any, properties: Any, body: bytes) -> None:
            found.append(IncomingMessage(queue, time.time(), method, properties, body))
            channel.basic_ack(method.delivery_tag)

        return take

    tags = [channel.basic_consume(queue, taking(queue)) for queue in queues]
    deadline = time.monotonic() + patience
    while len(found) < count and time.monotonic() < deadline:
        channel.connection.process_data_events(time_limit=0.1)
    for tag in tags:
        channel.basic_cancel(tag)
    assert len(found) >= count, f"{len(found)} of {count} messages arrived within {patience:g} s"
    return found


def ready(channel: Any, queue: str) -> int:
    """How many messages are ready in the queue."""
    count: int = channel.queue_declare(queue, passive=True).method.message_count
    return count


def taken(url: str, queue: str) -> tuple[dict[str, Any], bytes]:
    """Take the next message from the queue; return the properties that are set, and the body."""
    with channel_to(url) as channel:
        found: list[Any] = []
        wait_until(lambda: found.append(channel.basic_get(queue, auto_ack=True)) or found[-1][0] is not None)
        _, properties, body = found[-1]
        assert isinstance(body, bytes)
        return {name: value for name, value in vars(properties).items() if value is not None}, body


def leave_only(channel: Any, queue: str, count: int, patience: float = PATIENCE) -> None:
    """Wait until the queue holds `count` messages; AssertionError if it does not come to that."""
    wait_until(lambda: ready(channel, queue) == count, f"{count} messages in {queue!r}", patience)
