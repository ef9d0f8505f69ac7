"""One destination for all."""

from dataclasses import dataclass

from typing_extensions import override

from delaystore.ingress.arrival import Arrival
from delaystore.ingress.reading.content import Content
from delaystore.ingress.reading.destinations.abc import DestinationRule
from delaystore.ingress.reading.destinations.allowed import leads_back


@dataclass(frozen=True, slots=True)
class FixedDestination(DestinationRule):
    """All messages go to `to`: a queue's name, or an address."""

    to: str

    @override
    def destination(self, arrival: Arrival, content: Content) -> str:
        return self.to

    @override
    def leads_back(self, exchange: str | None, queue: str) -> bool:
        return leads_back(self.to, queue, exchange)
