"""Messages that wait in a cascade, for tests that move them."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pika

from delaystore.cascades.moving.broker_cascade import BrokerCascade
from delaystore.transports.rabbitmq.declaring import declare
from delaystore.transports.rabbitmq.delay_headers import DELAY_IN_SECONDS, TIME_SENT, time_sent_text
from delaystore.transports.rabbitmq.topology import CascadeTopology, topology_named
from tests.integration.cascades import channel_to

QUORUM = {"x-queue-type": "quorum"}
Taken = tuple[str, Any, Any, bytes]
"""Queue, method, properties, body."""


def declare_cascades(url: str, *names: str) -> None:
    for name in names:
        with BrokerCascade(url, topology_named(name), name) as place:
            declare(place.connections, place.cascade.layout().parts)


def nservicebus_headers(delay: int, sent: datetime | None = None) -> dict[str, Any]:
    return {TIME_SENT: time_sent_text(sent or datetime.now(UTC)), DELAY_IN_SECONDS: delay}


def put(channel: Any, cascade: CascadeTopology, delay: float, address: str, **properties: Any) -> None:
    """One message into the cascade, its body its id."""
    to = cascade.route(delay, address)
    body = str(properties.get("message_id", "")).encode()
    properties.setdefault("delivery_mode", 2)
    channel.basic_publish(to.exchange, to.routing_key, body, pika.BasicProperties(**properties), mandatory=True)


def put_many(url: str, cascade: CascadeTopology, numbers: Iterable[int], address: str) -> None:
    """Messages spread over the higher levels, so that none falls due in a test; each with its number as id."""
    with channel_to(url) as channel:
        for number in numbers:
            delay = 4000 + number * 7919 % 10_000_000
            put(channel, cascade, delay, address, message_id=str(number), headers=nservicebus_headers(delay))
        channel.queue_declare("", exclusive=True)  # an answer shows that all before it has arrived


def take_all(url: str, queues: Iterable[str], *, raw: bool = False, give_back: bool = False) -> list[Taken]:
    """Everything in the queues; `give_back`: it returns to them, as redelivered."""
    found: list[Taken] = []
    with channel_to(url, raw=raw) as channel:
        for queue in queues:
            count = channel.queue_declare(queue, passive=True).method.message_count
            if not count:
                continue
            came = len(found) + count
            take = partial(_note, found, queue)
            tag = channel.basic_consume(queue, take, auto_ack=not give_back)
            deadline = datetime.now(UTC) + timedelta(seconds=60)
            while len(found) < came and datetime.now(UTC) < deadline:
                channel.connection.process_data_events(time_limit=1)
            channel.basic_cancel(tag)
    return found


def _note(found: list[Taken], queue: str, _channel: Any, method: Any, properties: Any, body: bytes) -> None:
    found.append((queue, method, properties, body))


def level_queues(name: str) -> list[str]:
    cascade = topology_named(name)
    return [cascade.level(number) for number in range(cascade.levels)]
