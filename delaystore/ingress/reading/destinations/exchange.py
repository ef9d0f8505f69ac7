"""An exchange that takes the place of the one that messages were published to."""

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar
from urllib.parse import quote

from typing_extensions import override

from delaystore.ingress.arrival import Arrival
from delaystore.ingress.names import expired_of
from delaystore.ingress.reading.content import Content, shown
from delaystore.ingress.reading.destinations.abc import DestinationRule
from delaystore.ingress.reading.rejection import RejectedArrivalError


@dataclass(frozen=True, slots=True)
class ExchangeDestination(DestinationRule):
    """Messages go to `exchange` with the routing key that they were published with, as from the plugin."""

    exchange: str
    routed_by_publishers: ClassVar[bool] = True

    @override
    def destination(self, arrival: Arrival, content: Content) -> str:
        key = arrival.routing_key
        if isinstance(key, bytes):
            raise RejectedArrivalError(f"its routing key is no UTF-8: {shown(key)}")
        return _address(self.exchange, key)

    @override
    def leads_back(self, exchange: str | None, queue: str) -> bool:
        return self.exchange in (exchange, expired_of(queue))


@lru_cache(maxsize=4096)
def _address(exchange: str, key: str) -> str:
    address = f"/exchanges/{quote(exchange, safe='')}"
    return f"{address}/{quote(key, safe='')}" if key else address
