"""A destination that each message names."""

from dataclasses import dataclass
from typing import ClassVar

from typing_extensions import override

from delaystore.address import parse_address
from delaystore.errors import UnsupportedMessageError
from delaystore.headers import DESTINATION
from delaystore.ingress.arrival import Arrival
from delaystore.ingress.reading.content import Content, text_of
from delaystore.ingress.reading.destinations.abc import DestinationRule
from delaystore.ingress.reading.rejection import RejectedArrivalError


@dataclass(frozen=True, slots=True)
class HeaderDestination(DestinationRule):
    """A message goes where its header `name` says: a queue's name, or an address. The header stays."""

    name: str = DESTINATION
    named_by_publishers: ClassVar[bool] = True

    @override
    def destination(self, arrival: Arrival, content: Content) -> str:
        to = text_of(content.headers, self.name)
        if to is None:
            raise RejectedArrivalError(f"it has no destination: there is no header {self.name}")
        try:
            parse_address(to)
        except UnsupportedMessageError as error:
            raise RejectedArrivalError(f"header {self.name}: {error}") from None
        return to

    @override
    def leads_back(self, exchange: str | None, queue: str) -> bool:
        return False  # some may; these are rejected one by one
