"""The configuration of an ingress: the options of `delaystore ingress run`."""

from collections.abc import Callable
from datetime import timedelta
from typing import Annotated, Final
from urllib.parse import quote

from delaystore.errors import ConfigurationError
from delaystore.ingress.reading.content import CountFrom
from delaystore.ingress.reading.destinations import AllowedDestinations, DestinationRule, parse_destination
from delaystore.ingress.reading.forms.abc import DelayForm
from delaystore.ingress.reading.forms.naming import is_for_timeouts, parse_forms
from delaystore.ingress.reading.reader import MOST_BODY_BYTES, ReadingRules
from delaystore.ingress.settings import IngressNames, IngressOnDuplicate, IngressOnRepeat, IngressSettings
from delaystore.message import DelayedMessage
from delaystore.server.configuration.tables import Positive, Table
from delaystore.server.configuration.values import NameList, Secret, Span, Url

_DEFAULTS: Final = IngressSettings(queue="any")
_SOME_NAME: Final = "no exchange has this name"


class IngressConfiguration(Table, frozen=True, kw_only=True):
    """One ingress. The name of its table is the exchange that programs publish to, unless it says another or a queue.

    `broker` None: the endpoint's transport's.
    """

    exchange: str | None = None
    queue: str | None = None
    broker: Annotated[Secret, Url("amqp", "amqps")] | None = None
    destination: str | None = None
    delay_headers: Annotated[tuple[str, ...], NameList()] | None = None
    allow_destination: Annotated[tuple[str, ...], NameList()] | None = None
    count_from: CountFrom = CountFrom.RECEIVED
    on_duplicate: IngressOnDuplicate = IngressOnDuplicate.BOTH
    on_repeat: IngressOnRepeat = IngressOnRepeat.DELIVER
    direct_below: Annotated[timedelta, Span(zero=True)] = _DEFAULTS.direct_below
    rejected_queue: str | None = None
    batch_size: Positive = _DEFAULTS.batch_size
    prefetch: Positive = _DEFAULTS.prefetch
    memory_bytes: Positive = _DEFAULTS.memory_bytes
    max_body_bytes: Positive = MOST_BODY_BYTES

    def __post_init__(self) -> None:
        self.settings(_SOME_NAME)
        self.destination_rule(_SOME_NAME)
        self.delay_forms()
        AllowedDestinations(queue=_SOME_NAME, patterns=self.allow_destination)

    def settings(self, name: str) -> IngressSettings:
        """The settings of the ingress whose table has that name; ConfigurationError begins with the key."""
        return IngressSettings(
            queue=self._queue(name),
            rejected_queue=self.rejected_queue or "",
            on_duplicate=self.on_duplicate,
            on_repeat=self.on_repeat,
            direct_below=self.direct_below,
            batch_size=self.batch_size,
            prefetch=self.prefetch,
            memory_bytes=self.memory_bytes,
        )

    def rules(
        self, name: str, check: Callable[[DelayedMessage], None], own: frozenset[str] = frozenset()
    ) -> ReadingRules:
        """How the ingress whose table has that name reads messages.

        `check`: the transport's own. `own`: delaystore's own queues and exchanges, beside those of this ingress.
        """
        return ReadingRules(
            ingress_queue=self._queue(name),
            exchange=self._exchange(name),
            destination=self.destination_rule(name),
            forms=self.delay_forms(),
            allow_destination=self.allow_destination,
            own=own | self.own_names(name),
            count_from=self.count_from,
            most_body_bytes=self.max_body_bytes,
            check=check,
        )

    def destination_rule(self, name: str) -> DestinationRule:
        """Where messages go that do not say it; ConfigurationError begins with the key."""
        exchange = self._exchange(name)
        rule = parse_destination(self.destination or self._usual_destination(exchange), "destination")
        if rule.leads_back(exchange, self._queue(name)):
            raise ConfigurationError(
                f"destination {self.destination!r} leads back to the ingress queue: messages would loop; name another"
            )
        return rule

    def delay_forms(self) -> tuple[DelayForm, ...]:
        """How messages say when they are due, if it is given; ConfigurationError begins with the key."""
        return () if self.delay_headers is None else parse_forms(self.delay_headers, "delay_headers")

    def lets_publishers_name(self, name: str) -> bool:
        """Whether messages may name their destination, at the ingress whose table has that name."""
        rules = self.rules(name, lambda _: None)
        return rules.destination.named_by_publishers or any(form.reaches_others for form in rules.forms)

    def own_names(self, name: str) -> frozenset[str]:
        """The exchanges and queues of the ingress whose table has that name."""
        settings, exchange = self.settings(name), self._exchange(name)
        own = {settings.queue, settings.rejected_queue, settings.expired_queue}
        return frozenset(own if exchange is None else own | {exchange})

    def _usual_destination(self, exchange: str | None) -> str:
        if exchange is not None:
            return f"/exchanges/{quote(IngressNames.of(exchange).out, safe='')}"
        if is_for_timeouts(self.queue or "") or any(form.reaches_others for form in self.delay_forms()):
            return "header"
        raise ConfigurationError(
            'destination is missing: where do messages of a queue without an exchange go? write "header" if publishers '
            "may name it, /exchanges/NAME, or a queue"
        )

    def _exchange(self, name: str) -> str | None:
        return name if self.exchange is None and self.queue is None else self.exchange

    def _queue(self, name: str) -> str:
        exchange = self._exchange(name)
        return self.queue or "" if exchange is None else IngressNames.of(exchange, queue=self.queue).queue
