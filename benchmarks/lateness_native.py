"""Lateness of a burst that waits in RabbitMQ: in a cascade, or in the delayed-message plugin."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Final

import pika

from benchmarks.arena import Arena
from benchmarks.bench import BODY_BYTES, DUE
from benchmarks.cascades import BATCH, QUEUE, cascade
from benchmarks.lateness import GRACE, LEAD, Lateness, summary
from benchmarks.programs import ROOT
from delaystore.message import DelayedMessage, new_message_id
from delaystore.transports.rabbitmq.topology import NSERVICEBUS_V2, SKIPPING, CascadeTopology
from tests.servers import RabbitMQ

CASCADES: Final = {"v2 cascade": NSERVICEBUS_V2, "skipping cascade": SKIPPING}
PUBLISHED_PER_SECOND: Final = (2_000, 500, 100)
"""Cautious guesses of how fast messages enter RabbitMQ; the next where one was not cautious enough."""
PADDING: Final = b"x" * (BODY_BYTES - DUE.size)
_EXCHANGE: Final = "delayed"
_MILLISECOND: Final = timedelta(milliseconds=1)

Publish = Callable[[list[datetime]], None]
"""Publishes a batch of messages that are due at these times."""


def lateness_in_cascade(arena: Arena, topology: CascadeTopology, count: int, span: timedelta) -> Lateness:
    """Lateness of `count` messages that are due evenly over `span`, published into the cascade before."""

    def attempt(per_second: int) -> Lateness | None:
        with cascade(arena, topology) as made:
            return _measured(made.url, lambda due: made.send([_message(each) for each in due]), count, span, per_second)

    return _first_that_fits(attempt)


def lateness_in_plugin(broker: RabbitMQ, count: int, span: timedelta) -> Lateness:
    """The same for the delayed-message plugin, which `broker` must have. Each delay is computed as it is published."""

    def attempt(per_second: int) -> Lateness | None:
        url = broker.create_vhost()
        try:
            with _plugin_exchange(url, per_second) as publish:
                return _measured(url, publish, count, span, per_second / 1.2)
        finally:
            broker.delete_vhost(url)

    return _first_that_fits(attempt)


def _first_that_fits(attempt: Callable[[int], Lateness | None]) -> Lateness:
    """The result of the first attempt that publishes everything before the first message is due."""
    for guess in PUBLISHED_PER_SECOND:
        found = attempt(guess)
        if found is not None:
            return found
    raise RuntimeError(f"publishing takes longer than expected: less than {PUBLISHED_PER_SECOND[-1]} messages a second")


def _measured(url: str, publish: Publish, count: int, span: timedelta, per_second: float) -> Lateness | None:
    """The first is due once all should have been published. None: by then they were not."""
    consumer = subprocess.Popen(
        (sys.executable, "-m", "benchmarks.consumer", str(count)),
        cwd=ROOT,
        env=os.environ | {"DELAYSTORE_TRANSPORT": url, "BENCHMARK_QUEUE": QUEUE},
        stdout=subprocess.PIPE,
    )
    try:
        start = datetime.now(UTC) + LEAD + timedelta(seconds=count / per_second)
        for first in range(0, count, BATCH):
            publish([start + span * number / count for number in range(first, min(first + BATCH, count))])
        if datetime.now(UTC) >= start:
            return None
        printed, _ = consumer.communicate(timeout=GRACE)
    finally:
        consumer.kill()
        consumer.wait()
    return summary(json.loads(printed))


@contextmanager
def _plugin_exchange(url: str, per_second: int) -> Iterator[Publish]:
    """An exchange of the plugin with a quorum queue; messages are published into it at a steady pace."""
    parameters = pika.URLParameters(url)
    parameters.heartbeat = 0
    with pika.BlockingConnection(parameters) as connection:
        channel = connection.channel()
        channel.exchange_declare(_EXCHANGE, "x-delayed-message", durable=True, arguments={"x-delayed-type": "direct"})
        channel.queue_declare(QUEUE, durable=True, arguments={"x-queue-type": "quorum"})
        channel.queue_bind(QUEUE, _EXCHANGE, QUEUE)

        def publish(due_times: list[datetime]) -> None:
            began = time.monotonic()
            for number, due_time in enumerate(due_times):
                time.sleep(max(0.0, began + number / per_second - time.monotonic()))
                delay = -((datetime.now(UTC) - due_time) // _MILLISECOND)
                properties = pika.BasicProperties(headers={"x-delay": delay}, delivery_mode=2)
                channel.basic_publish(_EXCHANGE, QUEUE, _body(due_time), properties)

        yield publish


def _message(due_time: datetime) -> DelayedMessage:
    return DelayedMessage(message_id=new_message_id(), destination=QUEUE, due_time=due_time, body=_body(due_time))


def _body(due_time: datetime) -> bytes:
    return DUE.pack(round(due_time.timestamp() * 1_000_000)) + PADDING
