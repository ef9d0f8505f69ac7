"""What a destination rule is."""

from abc import ABC, abstractmethod
from typing import ClassVar

from delaystore.ingress.arrival import Arrival
from delaystore.ingress.reading.content import Content


class DestinationRule(ABC):
    """Where messages go that do not say it by their delay form."""

    named_by_publishers: ClassVar[bool] = False
    """Whether each message names its own destination."""
    routed_by_publishers: ClassVar[bool] = False
    """Whether messages keep what they were published with for RabbitMQ to route by: routing key and CC."""

    @abstractmethod
    def destination(self, arrival: Arrival, content: Content) -> str:
        """A queue's name or an address. Raises RejectedArrivalError where there is none."""

    @abstractmethod
    def leads_back(self, exchange: str | None, queue: str) -> bool:
        """Whether whatever is forwarded comes to the ingress queue `queue` again, to which `exchange` leads, if any."""
