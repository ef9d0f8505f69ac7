"""What a destination rule is."""

from abc import ABC, abstractmethod

from delaystore.ingress.arrival import Arrival
from delaystore.ingress.reading.content import Content


class DestinationRule(ABC):
    """Where messages go that do not say it by their delay form."""

    @abstractmethod
    def destination(self, arrival: Arrival, content: Content) -> str:
        """A queue's name or an address. Raises RejectedArrivalError where there is none."""

    @abstractmethod
    def leads_back(self, exchange: str | None, queue: str) -> bool:
        """Whether whatever is forwarded comes to the ingress queue `queue` again, to which `exchange` leads, if any."""
