"""Reading an incoming message by the rules of its ingress."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from delaystore.errors import ConfigurationError, InvalidMessageError
from delaystore.ingress.reading.content import (
    DEATHS,
    CountFrom,
    IncomingContent,
    count_hop,
    note_hop,
    read_content,
    start_of,
    undo_deaths,
)
from delaystore.ingress.reading.destinations import AllowedDestinations, DestinationRule
from delaystore.ingress.reading.forms.abc import Delay, DelayForm
from delaystore.ingress.reading.forms.due_time import latest_delivery
from delaystore.ingress.reading.forms.naming import usual_forms
from delaystore.ingress.reading.forms.nservicebus import is_timeout
from delaystore.ingress.reading.incoming import IncomingMessage, RejectedMessageError, SagaCleared
from delaystore.ingress.settings import QUEUE_ENDING, expired_of
from delaystore.message import NOTHING, DelayedMessage, new_message_id
from delaystore.text import DEFAULT_EXCHANGE, without_carbon_copies
from delaystore.transports.shared import without_floats

MOST_BODY_BYTES: Final = 16 * 1024 * 1024
"""The default limit of RabbitMQ 4."""


@dataclass(frozen=True, kw_only=True)
class ReadingRules:
    """How an ingress reads incoming messages.

    Attributes:
        ingress_queue: The queue that messages are published to. Its name identifies the headers that its
            dead-lettering added.
        destination: Where messages go that do not name a destination by their delay form.
        forms: Tried in this order; the first that fits is taken. A message that none fits is due at once. Empty:
            `usual_forms`.
        exchange: The one that leads to the queue. None: as the queue's name has it.
        allow_destination: Which destinations a message may name, as `patterns` of AllowedDestinations.
        own: Queues and exchanges of delaystore itself, as `own` of AllowedDestinations.
        count_from: From when delays count.
        most_body_bytes: A larger body is rejected.
        check: The transport's check, which raises InvalidMessageError. It is called only for messages that the
            transport could refuse.

    Raises:
        ConfigurationError: The rules cannot work.

    """

    ingress_queue: str
    destination: DestinationRule
    forms: tuple[DelayForm, ...] = ()
    exchange: str | None = None
    allow_destination: tuple[str, ...] | None = None
    own: frozenset[str] = frozenset()
    count_from: CountFrom = CountFrom.RECEIVED
    most_body_bytes: int = MOST_BODY_BYTES
    check: Callable[[DelayedMessage], None]
    forms_are_usual: bool = field(default=False, init=False)
    """Whether no forms were given. A message that needs one which is off then is rejected."""
    allowed: AllowedDestinations = field(init=False)
    """Which destinations a message may name."""

    def __post_init__(self) -> None:
        if type(self.most_body_bytes) is not int or self.most_body_bytes < 1:
            raise ConfigurationError(f"most_body_bytes must be a whole number from 1, not {self.most_body_bytes!r}")
        if not self.ingress_queue:
            raise ConfigurationError("ingress_queue must name a queue")
        if self.exchange is None and self.ingress_queue.endswith(QUEUE_ENDING):
            object.__setattr__(self, "exchange", self.ingress_queue.removesuffix(QUEUE_ENDING))
        if not self.forms:
            object.__setattr__(self, "forms", usual_forms(self.ingress_queue, self.exchange or ""))
            object.__setattr__(self, "forms_are_usual", True)
        allowed = AllowedDestinations(
            queue=self.ingress_queue, exchange=self.exchange, patterns=self.allow_destination, own=self.own
        )
        object.__setattr__(self, "allowed", allowed)


_SURE_TO_FIT: Final = 32 * 1024
"""Bytes of properties that fit a frame however they are written again: a number of one byte takes five then."""
_PLAIN: Final = frozenset({str, int, bool, bytes, type(None)})
"""Types of headers that RabbitMQ's transport carries."""
_CHECKED: Final = frozenset({"CC", "BCC", "expiration", "reply_to"})
"""Headers and properties that RabbitMQ itself understands, and may refuse."""


class IncomingReader:
    """Makes messages for the store of incoming messages. It has no state; several threads may share it."""

    def __init__(self, rules: ReadingRules) -> None:
        self._rules = rules
        self._publish_exchanges: frozenset[str | bytes | None] = frozenset()
        """Exchanges that publishers use: no ingress forwards to them."""
        if rules.destination.routed_by_publishers:
            self._publish_exchanges = frozenset({rules.exchange, DEFAULT_EXCHANGE, expired_of(rules.ingress_queue)})

    def read(self, incoming: IncomingMessage, now: datetime) -> DelayedMessage | SagaCleared:
        """Read an incoming message.

        Args:
            incoming: The message.
            now: When it was received, aware. Where nothing better is known, delays count from it.

        Returns:
            The message to store, or the timeouts to cancel instead. A message that is due already has a due time in
            the past.

        Raises:
            RejectedMessageError: It is neither. The text says why.

        """
        rules = self._rules
        if len(incoming.body) > rules.most_body_bytes:
            raise RejectedMessageError(
                f"its body has {len(incoming.body)} bytes; at most {rules.most_body_bytes} are taken"
            )
        content = read_content(incoming.properties)
        if DEATHS in content.headers:
            undo_deaths(content, rules.ingress_queue)
        start = start_of(content, now, rules.count_from)
        delay = self._delay(content, start)
        if isinstance(delay, SagaCleared):
            return delay
        for name, problem in content.problems.items():
            raise RejectedMessageError(f"header {name!r} {problem}")
        hops = count_hop(content.headers, incoming, asks_again=delay.taken_off)
        destination = delay.destination or rules.destination.destination(incoming, content)
        if delay.destination is not None or not rules.destination.routed_by_publishers:
            content.headers = dict(without_carbon_copies(content.headers))
        try:
            if delay.destination is not None or rules.destination.named_by_publishers:
                self._check_allowed(destination)
            if hops or (delay.destination is None and incoming.exchange not in self._publish_exchanges):
                note_hop(content.headers, hops, destination)
            return self._message(incoming, content, delay, destination)
        except InvalidMessageError as error:
            raise RejectedMessageError(str(error)) from None

    def _check_allowed(self, destination: str) -> None:
        objection = self._rules.allowed.objection(destination)
        if objection is not None:
            raise RejectedMessageError(objection)

    def _delay(self, content: IncomingContent, start: datetime) -> Delay | SagaCleared:
        for form in self._rules.forms:
            delay = form.read(content, start)
            if delay is not None:
                return delay
        if self._rules.forms_are_usual and is_timeout(content, start):
            raise RejectedMessageError(
                "it is a timeout of NServiceBus, and the delay format nservicebus is not enabled; name it in "
                "delay_headers (--delay-headers)"
            )
        return Delay(start)

    def _message(
        self, incoming: IncomingMessage, content: IncomingContent, delay: Delay, destination: str
    ) -> DelayedMessage:
        not_after = latest_delivery(content, delay.due_time)
        message = DelayedMessage(
            message_id=delay.message_id or content.message_id or new_message_id(),
            destination=destination,
            due_time=delay.due_time,
            not_after=not_after,
            body=incoming.body,
            headers=content.headers or NOTHING,
            properties=content.properties or NOTHING,
        )
        if not _surely_carried(content):
            self._rules.check(without_floats(message))
        return message


def _surely_carried(content: IncomingContent) -> bool:
    """Whether no check is needed, which costs as much as all the rest."""
    return (
        content.size <= _SURE_TO_FIT
        and _PLAIN.issuperset(map(type, content.headers.values()))
        and _CHECKED.isdisjoint(content.headers)
        and _CHECKED.isdisjoint(content.properties)
    )
