"""Targets that are brokers: queues and native delays."""

import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from typing_extensions import override

from delaystore import cascades
from delaystore.cascades import BrokerClient, FindingKind
from delaystore.errors import TransportError, TransportSetupError, UnsupportedMessageError
from delaystore.message import DelayedMessage
from delaystore.migrations.abc import MigrationTarget, Problem
from delaystore.text import DEFAULT_EXCHANGE, parse_address, queue_or_none
from delaystore.transports.abc import Outcome, OutcomeKind
from delaystore.transports.rabbitmq import RabbitMQTransport
from delaystore.transports.rabbitmq.native import CascadeDelay, delay_named
from delaystore.transports.rabbitmq.parameters import take_parameter
from delaystore.transports.rabbitmq.queues import exists, queue_exists
from delaystore.transports.rabbitmq.topology import Exchange, topology_named

_SEND_TIMEOUT: Final = 30.0
"""Seconds that the broker has to confirm a batch, however small."""
_SLOWEST: Final = 200
"""Messages a second that any broker confirms."""
_CONNECTING: Final = 3.0
"""Seconds to wait for a connection before the sender learns that there is none, and can be asked to stop."""
_POLL: Final = 0.02
"""Seconds between two checks whether there is a connection."""


class BrokerTarget(MigrationTarget):
    """A broker. `url`: `amqp[s]://...`; its parameter `management=URL` adds checks that need the management API.

    Raises ConfigurationError for a URL that cannot work.
    """

    def __init__(self, url: str, delays: str | None = None) -> None:
        url, management = take_parameter(url, "management")
        self._native = None if delays is None else delay_named(delays)
        self._transport = RabbitMQTransport(url, delays=self._native, connection_name="delaystore migrate")
        self._broker = BrokerClient(url, management)

    @override
    def check(self, destinations: Mapping[str, int]) -> Sequence[Problem]:
        try:
            problems = list(self.infrastructure_problems())
            for destination, count in destinations.items():
                obstacle = self._obstacle(destination)
                if obstacle is not None:
                    problems.append(Problem(f"destination {destination!r}", obstacle, messages=count))
        except TransportError as error:
            return [Problem(self.label, str(error))]
        return problems

    @override
    def refusals(self, messages: Sequence[DelayedMessage]) -> Sequence[str | None]:
        """What AMQP would not carry unchanged; no connection is needed."""
        return [self._refusal(message) for message in messages]

    @override
    def send(self, messages: Sequence[DelayedMessage], now: datetime) -> Sequence[Outcome]:
        if (reason := self._unavailable()) is not None:
            return [Outcome(OutcomeKind.UNCONFIRMED, reason)] * len(messages)
        answers: dict[int, Outcome] = {}
        suited: list[int] = []
        for position, refusal in enumerate(self.refusals(messages)):
            if refusal is None:
                suited.append(position)
            else:
                answers[position] = Outcome(OutcomeKind.NOT_DELAYABLE, refusal)
        outcomes = self.forward([messages[position] for position in suited], now)
        answers.update(zip(suited, outcomes, strict=True))
        return [answers[position] for position in range(len(messages))]

    @override
    def close(self) -> None:
        self._transport.close()
        self._broker.close()

    @abstractmethod
    def infrastructure_problems(self) -> Sequence[Problem]:
        """Faults of anything except the destinations. Raises TransportError where the broker does not answer."""

    @abstractmethod
    def destination_obstacle(self, destination: str) -> str | None:
        """Why nothing can be sent there; None: something can. Raises UnsupportedMessageError, TransportError."""

    @abstractmethod
    def forward(self, messages: Sequence[DelayedMessage], now: datetime) -> Sequence[Outcome]:
        """Send messages that AMQP carries unchanged: an outcome for each."""

    def timeout(self, messages: Sequence[DelayedMessage]) -> float:
        """Seconds that the broker has to confirm these."""
        return _SEND_TIMEOUT + len(messages) / _SLOWEST

    def _refusal(self, message: DelayedMessage) -> str | None:
        try:
            self._transport.check(message)
        except UnsupportedMessageError as error:
            return str(error)
        return None

    def _unavailable(self) -> str | None:
        """Why nothing can be sent, after waiting a moment for a connection."""
        end = time.monotonic() + _CONNECTING
        while (reason := self._transport.unavailable()) is not None and time.monotonic() < end:
            time.sleep(_POLL)
        return reason

    def _obstacle(self, destination: str) -> str | None:
        try:
            return self.destination_obstacle(destination)
        except UnsupportedMessageError as error:
            return str(error)


class DirectTarget(BrokerTarget):
    """The destinations themselves. Only due messages can go there."""

    @property
    @override
    def label(self) -> str:
        return f"RabbitMQ at {self._broker.broker.label}"

    @property
    @override
    def maximum(self) -> timedelta | None:
        return timedelta(0)  # nothing can wait there

    @override
    def infrastructure_problems(self) -> Sequence[Problem]:
        self._broker.version()
        return []

    @override
    def destination_obstacle(self, destination: str) -> str | None:
        address = parse_address(destination)
        if address.exchange == DEFAULT_EXCHANGE:
            return None if queue_exists(self._broker.connections, address.routing_key) else _missing("queue")
        return None if exists(self._broker.connections, Exchange(address.exchange)) else _missing("exchange")

    @override
    def forward(self, messages: Sequence[DelayedMessage], now: datetime) -> Sequence[Outcome]:
        """Publish due messages; messages that are not due yet are NOT_DELAYABLE."""
        due = [message for message in messages if message.due_time <= now]
        outcomes = iter(self._transport.send(due, None, self.timeout(due)))
        early = Outcome(OutcomeKind.NOT_DELAYABLE, "not due yet")
        return [next(outcomes) if message.due_time <= now else early for message in messages]


def _missing(kind: str) -> str:
    return f"there is no such {kind}; start the endpoint once, or declare it"


class NativeTarget(BrokerTarget):
    """The native delays called `delays` (see `delay_named`). A cascade is created where it is missing."""

    def __init__(self, url: str, delays: str) -> None:
        super().__init__(url, delays)
        self._name = delays
        self._topology = topology_named(delays) if isinstance(self._native, CascadeDelay) else None

    @property
    @override
    def label(self) -> str:
        return f"{self._name} on RabbitMQ at {self._broker.broker.label}"

    @property
    @override
    def maximum(self) -> timedelta | None:
        return self._transport.longest_native_delay

    @override
    def infrastructure_problems(self) -> Sequence[Problem]:
        """Obstacles to creating the cascade; as warnings, its missing and odd parts."""
        if self._topology is None:
            self._broker.version()
            return []
        found = cascades.verify(self._broker, self._topology)
        problems = [Problem(finding.subject, finding.text) for finding in found.blocking]
        missing = sum(finding.kind is FindingKind.MISSING for finding in found.findings)
        if missing:
            text = f"{missing} of its parts are missing, and will be declared"
            problems.append(Problem(self.label, text, fatal=False))
        problems += (
            Problem(finding.subject, finding.text, fatal=False)
            for finding in found.findings
            if not finding.blocks and finding.kind is not FindingKind.MISSING
        )
        return problems

    @override
    def destination_obstacle(self, destination: str) -> str | None:
        queue = queue_or_none(destination)
        if queue is None:
            return "is an exchange; native delays lead to queues: another store can keep these"
        if self._topology is not None:
            self._topology.check_address(queue)
        if not queue_exists(self._broker.connections, queue):
            return "there is no such queue; start the endpoint once, or declare it"
        return None

    @override
    def set_up(self, destinations: Mapping[str, int]) -> None:
        """Create the cascade, and bind the destinations that exist; messages for others are UNROUTABLE later."""
        if self._topology is None:
            return
        creation = cascades.create(self._broker, self._topology)
        reachable = [name for name in destinations if self._obstacle(name) is None]
        for result in cascades.bind(self._broker, self._topology, [str(queue_or_none(name)) for name in reachable]):
            if result.failure is not None:
                raise TransportSetupError(
                    f"destination {result.destination!r} cannot be bound to {self._name} on {creation.broker}: "
                    f"{result.failure}"
                )

    @override
    def forward(self, messages: Sequence[DelayedMessage], now: datetime) -> Sequence[Outcome]:
        return self._transport.send_delayed(messages, now, self.timeout(messages))
