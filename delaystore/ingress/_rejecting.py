"""Putting aside what cannot be stored."""

import logging
from collections.abc import Sequence
from typing import Final

from delaystore.address import DEFAULT_EXCHANGE, Address
from delaystore.headers import REJECTED_PROPERTIES, REJECTED_REASON
from delaystore.ingress._entry import Entry, Fate
from delaystore.ingress.arrival import Arrival
from delaystore.transports.abc import OutcomeKind
from delaystore.transports.rabbitmq.raw.aside import put_aside
from delaystore.transports.rabbitmq.raw.copies import Copy, CopyPublisher
from delaystore.transports.rabbitmq.raw.tables import Entry as Header
from delaystore.transports.rabbitmq.raw.tables import bytes_value, text_value

EXCHANGE: Final = "delaystore.rejected-exchange"
"""The exchange that it was published to."""
ROUTING_KEY: Final = "delaystore.rejected-routing-key"
_TIMEOUT: Final = 15.0
"""Seconds for the confirms of one batch."""
_LONGEST_REASON: Final = 1000
"""Characters."""

logger = logging.getLogger("delaystore.ingress")


class Rejecting:
    """Publishes copies of messages, with the reason, to the rejected queue."""

    def __init__(self, publisher: CopyPublisher, queue: str) -> None:
        self._publisher = publisher
        self._queue = queue

    def reject(self, entries: Sequence[Entry]) -> str | None:
        """Give each entry whose copy is confirmed its fate. Why others are left without; None: there are none."""
        copies = [_copy(entry.arrival, entry.objection or "", self._queue) for entry in entries]
        trouble = None
        for entry, outcome in zip(entries, self._publisher.publish(copies, _TIMEOUT), strict=True):
            if outcome.kind is OutcomeKind.DELIVERED:
                entry.fate = Fate.REJECTED
                logger.warning("a message of %r was rejected: %s", entry.arrival.queue, entry.objection)
            else:
                trouble = f"the queue {self._queue!r} takes no rejected messages: {outcome.reason}"
        return trouble


def _copy(arrival: Arrival, reason: str, queue: str) -> Copy:
    said = [
        Header(REJECTED_REASON.encode(), text_value(reason[:_LONGEST_REASON])),
        Header(EXCHANGE.encode(), _name(arrival.exchange)),
        Header(ROUTING_KEY.encode(), _name(arrival.routing_key)),
    ]
    return Copy(
        Address(DEFAULT_EXCHANGE, queue), put_aside(arrival.properties, said, REJECTED_PROPERTIES), arrival.body
    )


def _name(name: str | bytes) -> bytes:
    return text_value(name) if isinstance(name, str) else bytes_value(name)
