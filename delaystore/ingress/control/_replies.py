"""Publishing answers, until the result of each is known."""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from delaystore.errors import UnsupportedMessageError
from delaystore.ingress.control._protocol import Answer
from delaystore.message import new_message_id
from delaystore.text import DEFAULT_EXCHANGE, REJECTED_PROPERTIES, REJECTED_REASON, parse_address
from delaystore.transports.abc import Outcome, OutcomeKind
from delaystore.transports.rabbitmq.copies import Copy, copy_with_reason
from delaystore.transports.rabbitmq.publisher import BatchPublisher
from delaystore.transports.rabbitmq.raw import (
    MalformedPropertiesError,
    RawDelivery,
    RawProperties,
    TableEntry,
    text_value,
)


@dataclass(slots=True)
class ControlState:
    """Counts of requests, and present problems. Written by one thread, read by any."""

    requests: int = 0
    answered: int = 0
    unanswered: int = 0
    rejected: int = 0
    store: str | None = None
    """Why the store does nothing; None: it works."""
    replies: str | None = None
    """Why answers wait to be published; None: none do."""


_BY: Final = "by the control queue"


def sender_of(properties: RawProperties) -> str:
    """In whose name its changes are noted.

    The user_id is true: RabbitMQ takes no message with another one than its sender's. An app_id may be anything.
    """
    try:
        user, application = properties.text("user_id"), properties.text("app_id")
    except MalformedPropertiesError:
        user = application = None
    if user:
        return f"{_printable(user)}, {_BY}"
    if application:
        return f"application {_printable(application)}, {_BY}"
    return f"an unknown sender, {_BY}"


def _printable(name: str) -> str:
    return "".join(character if character.isprintable() else "?" for character in name)


_DIRECT: Final = "amq.rabbitmq.reply-to."
"""How the names begin by which RabbitMQ leads answers to a consumer without a queue. They count as no route."""
_PERSISTENT: Final = b"\x02"


def answer_copy(request: RawDelivery, answer: Answer) -> Copy | None:
    """The answer as a message; None: the request names no queue for it."""
    properties = request.properties
    try:
        reply_to = properties.text("reply_to")
        if not reply_to:
            return None
        address = parse_address(reply_to)
    except (MalformedPropertiesError, UnsupportedMessageError):
        return None
    fields = {
        "content_type": _short("application/json"),
        "delivery_mode": _PERSISTENT,
        "message_id": _short(new_message_id()),  # by which it is known if it comes back
    }
    correlation = properties.fields.get("correlation_id", properties.fields.get("message_id"))
    if correlation is not None:
        fields["correlation_id"] = correlation
    is_direct = address.exchange == DEFAULT_EXCHANGE and address.routing_key.startswith(_DIRECT)
    return Copy(address, RawProperties.of(fields), answer.body, mandatory=not is_direct)


def request_copy(request: RawDelivery, problem: str, queue: str) -> Copy:
    """The request as a message for the rejected queue, with the reason."""
    said = [TableEntry(REJECTED_REASON.encode(), text_value(problem))]
    return copy_with_reason(queue, request.properties, request.body, said, REJECTED_PROPERTIES)


def wants_answer(properties: RawProperties) -> bool:
    """Whether the request names a queue for the answer."""
    try:
        return bool(properties.text("reply_to"))
    except MalformedPropertiesError:
        return False


def _short(text: str) -> bytes:
    encoded = text.encode()
    return bytes((len(encoded),)) + encoded


_TIMEOUT: Final = 5.0
"""Seconds for the confirms of one batch."""
_RETRIED_FOR: Final = 5.0
"""Seconds for which an unavailable queue is tried."""
_PAUSE: Final = 1.0
"""Seconds before an answer is published again."""

logger = logging.getLogger("delaystore.ingress.control")


@dataclass(slots=True)
class Reply:
    """An answer that is to be published. `copy`: the message; None: there is none, or it is published."""

    request: RawDelivery
    answer: Answer
    copy: Copy | None
    is_rejected: bool = False
    """Whether the copy is one of the request, for the rejected queue."""
    since: float = field(default_factory=time.monotonic)
    next_try: float = 0.0


class Replies:
    """Answers that are on their way. Used by one thread. `rejected`: the queue for errors without an answer."""

    def __init__(self, publisher: BatchPublisher, rejected: str, state: ControlState) -> None:
        self._publisher = publisher
        self._rejected = rejected
        self._state = state
        self._open: list[Reply] = []
        state.replies = None
        self.is_rejected_missing = False
        """Whether the broker has no queue any more for rejected requests."""

    @property
    def due_in(self) -> float | None:
        """Seconds until an answer is to be published; None: nothing is owed."""
        first = min((reply.next_try for reply in self._open), default=None)
        return None if first is None else max(0.0, first - time.monotonic())

    @property
    def size(self) -> int:
        """Bytes of the answers that are owed."""
        return sum(len(reply.answer.body) for reply in self._open)

    def add(self, request: RawDelivery, answer: Answer) -> None:
        """Owe `answer` to the sender of `request`."""
        self._state.requests += 1
        reply = Reply(request, answer, answer_copy(request, answer))
        if reply.copy is None:
            self._note_undeliverable(reply, "it has no reply_to that can be read")
        self._open.append(reply)

    def publish(self) -> Sequence[int]:
        """Publish owed answers; returns the tags of the requests that can be acknowledged."""
        now = time.monotonic()
        due = [reply for reply in self._open if reply.next_try <= now]
        copies = [reply.copy for reply in due if reply.copy is not None]
        outcomes = iter(self._publisher.publish(copies, _TIMEOUT) if copies else ())
        for reply in due:
            if reply.copy is not None:
                self._settle(reply, next(outcomes))
        done = [reply.request.tag for reply in self._open if reply.copy is None]
        self._open = [reply for reply in self._open if reply.copy is not None]
        if not self._open:
            self._state.replies = None
        return done

    def _settle(self, reply: Reply, outcome: Outcome) -> None:
        if outcome.kind is OutcomeKind.DELIVERED:
            reply.copy = None
            if reply.is_rejected:
                self._state.rejected += 1
            else:
                self._state.answered += 1
        elif reply.is_rejected or outcome.kind is OutcomeKind.UNCONFIRMED or self._may_recover(reply, outcome):
            self.is_rejected_missing |= reply.is_rejected and outcome.kind is OutcomeKind.UNROUTABLE
            reply.next_try = time.monotonic() + _PAUSE
            what = f"the queue {self._rejected!r} takes no requests" if reply.is_rejected else "answers are not taken"
            self._state.replies = f"{what}: {outcome.reason}"
        else:
            self._note_undeliverable(reply, outcome.reason)

    def _may_recover(self, reply: Reply, outcome: Outcome) -> bool:
        return outcome.kind is OutcomeKind.UNAVAILABLE and time.monotonic() - reply.since < _RETRIED_FOR

    def _note_undeliverable(self, reply: Reply, reason: str) -> None:
        """The answer cannot be sent: a request in error goes to the rejected queue; changes stay."""
        problem, reply.copy = reply.answer.problem, None
        if problem is not None:
            logger.warning("rejected a request (%s): %s", sender_of(reply.request.properties), problem)
            reply.copy, reply.is_rejected, reply.next_try = (
                request_copy(reply.request, problem, self._rejected),
                True,
                0.0,
            )
        elif wants_answer(reply.request.properties):
            self._state.unanswered += 1
            logger.info("handled a request (%s) but cannot answer it: %s", sender_of(reply.request.properties), reason)
