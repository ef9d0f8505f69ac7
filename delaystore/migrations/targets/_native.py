"""RabbitMQ's native delays: a cascade, as a rule."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from typing_extensions import override

from delaystore import cascades
from delaystore.address import queue_or_none
from delaystore.cascades import FindingKind
from delaystore.errors import TransportSetupError
from delaystore.message import DelayedMessage
from delaystore.migrations.abc import Problem
from delaystore.migrations.targets._broker import BrokerTarget
from delaystore.transports.abc import Outcome
from delaystore.transports.rabbitmq.native import CascadeDelay
from delaystore.transports.rabbitmq.queues import queue_exists
from delaystore.transports.rabbitmq.topology import topology_named


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
        """What keeps the cascade from being created; as warnings, what is missing of it, or odd about it."""
        if self._topology is None:
            self._broker.version()
            return []
        found = cascades.verify(self._broker, self._topology)
        problems = [Problem(finding.subject, finding.text) for finding in found.hindrances]
        missing = sum(finding.kind is FindingKind.MISSING for finding in found.findings)
        if missing:
            text = f"{missing} of its parts are missing, and will be declared"
            problems.append(Problem(self.label, text, fatal=False))
        problems += (
            Problem(finding.subject, finding.text, fatal=False)
            for finding in found.findings
            if not finding.hinders and finding.kind is not FindingKind.MISSING
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
