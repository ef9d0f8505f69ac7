"""RabbitMQ without a delay, for what is due."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from delaystore.message import DelayedMessage
from delaystore.migrations.abc import Problem
from delaystore.migrations.targets.broker import BrokerTarget
from delaystore.transports.abc import Outcome, OutcomeKind
from delaystore.transports.rabbitmq.address import DEFAULT_EXCHANGE, parse_address
from delaystore.transports.rabbitmq.administration.declaring import exchange_exists, queue_exists


class DirectTarget(BrokerTarget):
    """The destinations themselves. Only what is due can go there."""

    def __init__(self, url: str) -> None:
        super().__init__(url)

    @property
    def label(self) -> str:
        """Host, port and virtual host."""
        return f"RabbitMQ at {self._broker.broker.label}"

    @property
    def maximum(self) -> timedelta | None:
        """None at all."""
        return timedelta(0)

    def infrastructure(self) -> Sequence[Problem]:
        """Nothing is needed but the broker."""
        self._broker.version()
        return []

    def destination_obstacle(self, destination: str) -> str | None:
        """Its queue, or its exchange, must exist."""
        address = parse_address(destination)
        if address.exchange == DEFAULT_EXCHANGE:
            return None if queue_exists(self._broker.connections, address.routing_key) else _missing("queue")
        return None if exchange_exists(self._broker.connections, address.exchange) else _missing("exchange")

    def forward(self, messages: Sequence[DelayedMessage], now: datetime) -> Sequence[Outcome]:
        """Publish what is due; UNSUITED: the rest."""
        due = [message for message in messages if message.due_time <= now]
        outcomes = iter(self._transport.send(due, None, self.timeout(due)))
        early = Outcome(OutcomeKind.UNSUITED, "not due yet")
        return [next(outcomes) if message.due_time <= now else early for message in messages]


def _missing(kind: str) -> str:
    return f"there is no such {kind}; start the endpoint once, or declare it"
