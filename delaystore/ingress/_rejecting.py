"""Putting aside what cannot be stored."""

import logging
from collections.abc import Sequence
from typing import Final

from delaystore.errors import TransportError
from delaystore.headers import REJECTED_REASON
from delaystore.ingress._entry import Entry, Fate
from delaystore.ingress.arrival import Arrival
from delaystore.transports.abc import OutcomeKind
from delaystore.transports.rabbitmq.raw.aside import rejected_copy
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
        """Give each entry whose copy is confirmed its fate. Why others are left without; None: there are none.

        Raises TransportError where the queue is gone: it is declared when an ingress begins.
        """
        copies = [_copy(entry.arrival, entry.objection or "", self._queue) for entry in entries]
        trouble = None
        outcomes = self._publisher.publish(copies, _TIMEOUT)
        for entry, outcome in zip(entries, outcomes, strict=True):
            if outcome.kind is OutcomeKind.DELIVERED:
                entry.fate = Fate.REJECTED
                _log(entry, self._queue)
            else:
                trouble = f"the queue {self._queue!r} takes no rejected messages: {outcome.reason}"
        if any(outcome.kind is OutcomeKind.UNROUTABLE for outcome in outcomes):
            raise TransportError(f"the queue {self._queue!r} for rejected messages is gone; it is declared again")
        return trouble


def _log(entry: Entry, queue: str) -> None:
    message_id = entry.arrival.properties.message_id
    which = "a message without an id" if message_id is None else f"the message {message_id!r}"
    logger.warning("%s of %r was rejected, and is in %r: %s", which, entry.arrival.queue, queue, entry.objection)


def _copy(arrival: Arrival, reason: str, queue: str) -> Copy:
    said = [
        Header(REJECTED_REASON.encode(), text_value(reason[:_LONGEST_REASON])),
        Header(EXCHANGE.encode(), _name(arrival.exchange)),
        Header(ROUTING_KEY.encode(), _name(arrival.routing_key)),
    ]
    return rejected_copy(queue, arrival.properties, arrival.body, said)


def _name(name: str | bytes) -> bytes:
    return text_value(name) if isinstance(name, str) else bytes_value(name)
