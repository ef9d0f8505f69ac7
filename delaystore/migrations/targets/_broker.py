"""What targets on a RabbitMQ broker have in common."""

import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from typing_extensions import override

from delaystore.cascades import BrokerClient
from delaystore.errors import TransportError, UnsupportedMessageError
from delaystore.message import DelayedMessage
from delaystore.migrations.abc import MigrationTarget, Problem
from delaystore.transports.abc import Outcome, OutcomeKind
from delaystore.transports.rabbitmq import RabbitMQTransport
from delaystore.transports.rabbitmq.native import delay_named
from delaystore.transports.rabbitmq.parameters import take_parameter

_SEND_TIMEOUT: Final = 30.0
"""Seconds that the broker has to confirm a batch, however small."""
_SLOWEST: Final = 200
"""Messages a second that any broker confirms."""
_CONNECTING: Final = 3.0
"""Seconds to wait for a connection before the sender is told that there is none, and can be asked to stop."""
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
            return [Outcome(OutcomeKind.UNSETTLED, reason)] * len(messages)
        answers: dict[int, Outcome] = {}
        suited: list[int] = []
        for position, refusal in enumerate(self.refusals(messages)):
            if refusal is None:
                suited.append(position)
            else:
                answers[position] = Outcome(OutcomeKind.UNSUITED, refusal)
        outcomes = self.forward([messages[position] for position in suited], now)
        answers.update(zip(suited, outcomes, strict=True))
        return [answers[position] for position in range(len(messages))]

    @override
    def close(self) -> None:
        self._transport.close()
        self._broker.close()

    @abstractmethod
    def infrastructure_problems(self) -> Sequence[Problem]:
        """What is wrong with anything but the destinations. Raises TransportError where the broker does not answer."""

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
