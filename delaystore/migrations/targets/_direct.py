"""RabbitMQ without a delay, for what is due."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from typing_extensions import override

from delaystore.address import DEFAULT_EXCHANGE, parse_address
from delaystore.message import DelayedMessage
from delaystore.migrations.abc import Problem
from delaystore.migrations.targets._broker import BrokerTarget
from delaystore.transports.abc import Outcome, OutcomeKind
from delaystore.transports.rabbitmq.queues import exists, queue_exists
from delaystore.transports.rabbitmq.topology import Exchange


class DirectTarget(BrokerTarget):
    """The destinations themselves. Only what is due can go there."""

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
        """Publish what is due; the rest is UNSUITED."""
        due = [message for message in messages if message.due_time <= now]
        outcomes = iter(self._transport.send(due, None, self.timeout(due)))
        early = Outcome(OutcomeKind.UNSUITED, "not due yet")
        return [next(outcomes) if message.due_time <= now else early for message in messages]


def _missing(kind: str) -> str:
    return f"there is no such {kind}; start the endpoint once, or declare it"
