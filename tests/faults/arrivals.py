"""What arrived at a destination, counted."""

from collections import Counter
from collections.abc import Collection
from typing import Any

import pika

from delaystore.transports.abc import ReceivedMessage, Transport


def declare(rabbitmq_url: str, queue: str, **arguments: Any) -> None:
    """A classic queue with arguments of our own."""
    connection = pika.BlockingConnection(pika.URLParameters(rabbitmq_url))
    connection.channel().queue_declare(queue, durable=True, arguments={f"x-{k}": v for k, v in arguments.items()})
    connection.close()


def receive_all(transport: Transport, queue: str, timeout: float = 1.0) -> list[ReceivedMessage]:
    """Everything in `queue`, taken out of it; nothing may be arriving any more."""
    arrived: list[ReceivedMessage] = []
    while True:
        with transport.receive(queue, 5000, timeout) as messages:
            arrived += messages
        if not messages:
            return arrived


def drain(transport: Transport, queue: str) -> Counter[str]:
    """How often each message_id is in `queue`, which is empty afterwards."""
    return Counter(message.message_id for message in receive_all(transport, queue))


def assert_arrived(arrived: Counter[str], sent: Collection[str], *, duplicates: int = 0) -> None:
    """Each of `sent` is among `arrived`, and nothing else; at most `duplicates` are there once more than they should.

    Prints the count, so that a campaign's log tells it.
    """
    lost = set(sent) - set(arrived)
    strange = set(arrived) - set(sent)
    repeated = sum(arrived.values()) - len(arrived)
    print(f"sent {len(sent)}, lost {len(lost)}, duplicated {repeated} (allowed {duplicates})")  # noqa: T201 - see above
    assert not lost, f"{len(lost)} of {len(sent)} messages were lost, such as {sorted(lost)[:3]}"
    assert not strange, f"{len(strange)} messages arrived that were never sent, such as {sorted(strange)[:3]}"
    assert repeated <= duplicates, f"{repeated} duplicates; at most {duplicates} are allowed"
