"""Putting aside what cannot be stored."""

import logging
import time
from collections.abc import Callable, Sequence
from typing import Final

from delaystore.errors import TransportError
from delaystore.headers import REJECTED_REASON
from delaystore.ingress._entry import Entry, Fate
from delaystore.transports.abc import OutcomeKind
from delaystore.transports.rabbitmq.copies import Copy, CopyPublisher, rejected_copy
from delaystore.transports.rabbitmq.raw import Entry as Header
from delaystore.transports.rabbitmq.raw import bytes_value, text_value

EXCHANGE: Final = "delaystore.rejected-exchange"
"""The exchange that it was published to."""
ROUTING_KEY: Final = "delaystore.rejected-routing-key"
_TIMEOUT: Final = 3.0
"""Seconds for the confirms of one batch. What is confirmed later counts as well, and is not published again."""
_ASKING: Final = 1.0
"""Seconds for that of the message that asks whether a silent queue takes messages again; good ones wait as long."""
_LONGEST_PAUSE: Final = 30.0
"""Seconds between two such questions; each pause is twice the last."""
_FIRST_PAUSE: Final = 1.0
_LONGEST_REASON: Final = 1000
"""Characters."""

logger = logging.getLogger("delaystore.ingress")


class Rejecting:
    """Publishes copies of messages, with the reason, to the rejected queue.

    A queue that takes none is asked with one message at a time, and seldom, as the good ones wait meanwhile. `declare`
    makes the queue anew where it is gone; raises TransportError where that cannot be.
    """

    def __init__(self, publisher: CopyPublisher, queue: str, declare: Callable[[], None]) -> None:
        self._publisher = publisher
        self._queue = queue
        self._declare = declare
        self._pause = 0.0
        """Seconds between two questions; 0: the queue takes messages."""
        self._asks_at = 0.0
        self._gone = False
        """Whether there was no such queue."""
        self._trouble: str | None = None

    def reject(self, entries: Sequence[Entry]) -> str | None:
        """Give each entry whose copy is confirmed its fate. Why others are left without; None: there are none."""
        waiting = [entry for entry in entries if not self._is_under_way(entry)]
        if waiting and self._pause and time.monotonic() >= self._asks_at:
            self._ask(waiting[0])
            waiting = waiting[1:]
        if waiting and not self._pause:
            self._publish(waiting, _TIMEOUT)
        return None if all(entry.fate is Fate.REJECTED for entry in entries) else self._trouble

    def _is_under_way(self, entry: Entry) -> bool:
        """Whether its copy may still be confirmed, or is."""
        arrived = entry.copy_late is not None and entry.copy_late.arrived
        if arrived:
            self._note_rejected(entry)
            self._pause = 0.0
        return arrived is not False

    def _ask(self, entry: Entry) -> None:
        try:
            if self._gone:
                self._declare()
        except TransportError as error:
            self._rest(str(error))
        else:
            self._publish([entry], _ASKING)

    def _publish(self, entries: Sequence[Entry], timeout: float) -> None:
        outcomes = self._publisher.publish([_copy(entry, self._queue) for entry in entries], timeout)
        for entry, outcome in zip(entries, outcomes, strict=True):
            entry.copy_late = outcome.late
            if outcome.kind is OutcomeKind.DELIVERED:
                self._note_rejected(entry)
            else:
                self._trouble = f"the queue {self._queue!r} takes no rejected messages: {outcome.reason}"
        kinds = {outcome.kind for outcome in outcomes}
        self._gone = OutcomeKind.UNROUTABLE in kinds
        if self._gone or (OutcomeKind.DELIVERED not in kinds and any(kind.passes for kind in kinds)):
            self._rest(self._trouble)
        else:
            self._pause = 0.0

    def _rest(self, trouble: str | None) -> None:
        self._trouble = trouble
        self._pause = min(2 * self._pause, _LONGEST_PAUSE) or _FIRST_PAUSE
        self._asks_at = time.monotonic() + self._pause

    def _note_rejected(self, entry: Entry) -> None:
        entry.fate, entry.copy_late = Fate.REJECTED, None
        _log(entry, self._queue)


def _log(entry: Entry, queue: str) -> None:
    message_id = entry.arrival.properties.message_id
    which = "a message without an id" if message_id is None else f"the message {message_id!r}"
    logger.warning("%s of %r was rejected, and is in %r: %s", which, entry.arrival.queue, queue, entry.objection)


def _copy(entry: Entry, queue: str) -> Copy:
    arrival, reason = entry.arrival, entry.objection or ""
    said = [
        Header(REJECTED_REASON.encode(), text_value(reason[:_LONGEST_REASON])),
        Header(EXCHANGE.encode(), _name(arrival.exchange)),
        Header(ROUTING_KEY.encode(), _name(arrival.routing_key)),
    ]
    return rejected_copy(queue, arrival.properties, arrival.body, said)


def _name(name: str | bytes) -> bytes:
    return text_value(name) if isinstance(name, str) else bytes_value(name)
