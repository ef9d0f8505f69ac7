"""What a workload runs on: servers, and the faults they can have."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Final

from delaystore.settings import TransactionMode
from tests.chaos.faults import Fault


class Part(ABC):
    """A database or a broker: one server or several."""

    asynchronous: ClassVar[bool] = False
    """Whether a promotion may lose the last seconds of what was acknowledged, as asynchronous standbys do."""
    clock_offset: float = 0.0
    """Seconds by which the database's clock is ahead of this machine's, at the start."""
    url: str
    """What delaystore is given; set by `start`."""

    @property
    def consumer_urls(self) -> Sequence[str]:
        """Where consumers connect to, in turn."""
        return [self.url]

    @abstractmethod
    def start(self) -> None:
        """Start it, and wait until it answers."""

    @abstractmethod
    def close(self) -> None:
        """End it. May be called twice, and without `start`."""

    @abstractmethod
    def faults(self) -> Sequence[Fault]:
        """What can happen to it. A fault after which another server, or another clock, is the database's says so by
        what `begin` or `end` returns: {"promotion": True, "offset": seconds}.
        """

    def queues_declared(self) -> None:  # noqa: B027 - most need nothing
        """Called once the workload has declared its queues: make sure that a crash of the broker keeps them."""


class Topology:
    """A database, and a broker; None: the database has the queues too, and no message may arrive twice.

    `through_ingress`: messages are published to the broker, and reach the database by an ingress.
    """

    def __init__(self, name: str, database: Part, broker: Part | None = None, *, through_ingress: bool = False) -> None:
        self.name: Final = name
        self.through_ingress: Final = through_ingress
        self.database: Final = database
        self.broker: Final = broker or database
        self.mode: Final = TransactionMode.RECEIVE_ONLY if broker else TransactionMode.TRANSACTION_SCOPE
        self._parts = [database, broker] if broker else [database]

    def start(self) -> None:
        """Start all servers."""
        for part in self._parts:
            part.start()

    def close(self) -> None:
        """End all servers. May be called twice, and without `start`."""
        for part in self._parts:
            part.close()

    def faults(self) -> Sequence[Fault]:
        """What can happen to the servers."""
        return [fault for part in self._parts for fault in part.faults()]
