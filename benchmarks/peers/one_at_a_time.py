"""Migrating as simple tools do: one basic.get, one confirmed publish and one acknowledgement at a time."""

from datetime import UTC, datetime
from typing import Any

import pika

from delaystore.transports.rabbitmq.delay_headers import due_time
from delaystore.transports.rabbitmq.topology import CascadeTopology


def migrate_one_at_a_time(url: str, source: CascadeTopology, target: CascadeTopology, most: int) -> int:
    """Move up to `most` messages, the highest level first; how many it were."""
    parameters = pika.URLParameters(url)
    parameters.heartbeat = 0
    connection = pika.BlockingConnection(parameters)
    reading, publishing = connection.channel(), connection.channel()
    publishing.confirm_delivery()
    moved = 0
    for level in reversed(range(source.levels)):
        while moved < most and _move_one(reading, publishing, source, level, target):
            moved += 1
    connection.close()
    return moved


def _move_one(reading: Any, publishing: Any, source: CascadeTopology, level: int, target: CascadeTopology) -> bool:
    """Move one; False: the level is empty."""
    method, properties, body = reading.basic_get(source.level(level))
    if method is None:
        return False
    due, key = due_time(properties.headers), source.read_key(method.routing_key)
    if due is None or key is None:
        raise ValueError("a message of another kind is in the way")
    to = target.route(due - datetime.now(UTC), key.address)
    publishing.basic_publish(to.exchange, to.routing_key, body, properties, mandatory=True)
    reading.basic_ack(method.delivery_tag)
    return True
