"""What programs written for the delayed-message plugin do, whatever their library and language."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Sent:
    """A message to publish. `properties`: by AMQP's names."""

    body: str
    key: str
    headers: Mapping[str, Any]
    properties: Mapping[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Arrived:
    """What a consumer is given. `properties`: those that are set, by AMQP's names; `at`: by time.time()."""

    body: str
    key: str
    exchange: str
    redelivered: bool
    headers: Mapping[str, Any]
    properties: Mapping[str, Any]
    at: float


class Client(ABC):
    """A library, used as its documents say."""

    @abstractmethod
    def publish(self, url: str, exchange: str, messages: Sequence[Sent]) -> None:
        """Publish, mandatory, and wait for the confirms."""

    @abstractmethod
    def consume(self, url: str, queue: str, count: int) -> list[Arrived]:
        """So many messages of the queue, acknowledged; fewer where no more come."""

    @abstractmethod
    def work(self, url: str, exchange: str, queue: str, delay: int) -> list[Any]:
        """What a worker for the plugin sees that tries a message three times: its headers x-delay, the first aside.

        After a failure it publishes a message to the exchange anew, with all its headers and properties, and `delay` in
        milliseconds. How often it has tried it writes into a header.
        """
