"""Looking at what waits in a queue, and leaving it there."""

from collections.abc import Mapping
from typing import Any, Final

from delaystore.transports.rabbitmq.blocking import BlockingConnections
from delaystore.transports.rabbitmq.held import QueueState
from delaystore.transports.rabbitmq.logs import quiet_pika

_DEFAULT_LIMIT: Final = 20
"""Of quorum queues, since RabbitMQ 4.0 (https://www.rabbitmq.com/docs/quorum-queues#poison-message-handling)."""
_FIRST_WITH_LIMIT: Final = 4


def routing_keys(connections: BlockingConnections, queue: str, limit: int) -> list[str]:
    """The routing keys of the first messages of `queue`, `limit` at most.

    All go back when all have been read, and whatever happens: the channel's end returns them. A classic queue has
    them in their old places then; a quorum queue puts them at its end. While they are looked at, other consumers of
    the queue get later ones. Raises pika's ChannelClosedByBroker if there is no such queue, or no permission.
    """
    keys: list[str] = []
    with connections.channel() as channel, quiet_pika():
        last = None
        while len(keys) < limit:
            method, _, _ = channel.basic_get(queue)
            if method is None:
                break
            keys.append(method.routing_key)
            last = method.delivery_tag
        if last is not None:
            channel.basic_nack(last, multiple=True, requeue=True)
    return keys


def delivery_limit(version: str, queue: QueueState | None) -> int | None:
    """How often a message of `queue` may be looked at before the broker drops it; None: without end.

    `queue` None: nothing is known of it, and it is taken for a quorum queue. Each look counts as a delivery there.
    """
    if queue is not None and queue.type != "quorum":
        return None
    limits = [] if queue is None else _given_limits(queue)
    if limits:
        return None if min(limits) < 0 else min(limits)
    major = version.partition(".")[0]
    has_default = not major.isdigit() or int(major) >= _FIRST_WITH_LIMIT
    return _DEFAULT_LIMIT if has_default else None


def _given_limits(queue: QueueState) -> list[int]:
    given: list[tuple[Mapping[str, Any], str]] = [
        (queue.arguments, "x-delivery-limit"),
        (queue.policy_definition, "delivery-limit"),
    ]
    return [source[name] for source, name in given if name in source]
