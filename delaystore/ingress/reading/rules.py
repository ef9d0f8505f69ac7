"""How an ingress reads what arrives."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from delaystore.errors import ConfigurationError
from delaystore.ingress.names import QUEUE_ENDING
from delaystore.ingress.reading.counting import CountFrom
from delaystore.ingress.reading.destinations.abc import DestinationRule
from delaystore.ingress.reading.destinations.allowed import AllowedDestinations
from delaystore.ingress.reading.forms.abc import DelayForm
from delaystore.ingress.reading.forms.naming import usual_forms
from delaystore.message import DelayedMessage

MOST_BODY_BYTES: Final = 16 * 1024 * 1024
"""What RabbitMQ 4 takes, unless told otherwise."""


@dataclass(frozen=True, kw_only=True)
class ReadingRules:
    """How an ingress reads what arrives.

    `ingress_queue`: the queue that messages are published to, by whose name is known what its dead-lettering added.
    `destination`: where messages go that do not say it by their form. `forms`: tried in this order; the first that fits
    is taken, and a message that none fits is due at once; none: `usual_forms`. `exchange`: the one that leads to the
    queue; None: as the queue's name has it. `allow_destination`, `own`: which destinations a message may name, as
    `patterns` and `own` of AllowedDestinations. `count_from`: from when delays count. `most_body_bytes`: a larger body
    is rejected. `check`: the transport's own check, which raises InvalidMessageError; it is asked only about messages
    that it could refuse.

    Raises ConfigurationError for what cannot work.
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
        self.allowed()

    def allowed(self) -> AllowedDestinations:
        """Which destinations a message may name."""
        return AllowedDestinations(
            queue=self.ingress_queue, exchange=self.exchange, patterns=self.allow_destination, own=self.own
        )
