"""What a workload runs on: servers, and the faults they can have."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from delaystore.settings import TransactionMode
from tests.chaos.faults import Fault


class Topology(ABC):
    """Servers of our own. `start` sets the URLs; `close` may be called twice, and without `start`."""

    name: ClassVar[str]
    mode: ClassVar[TransactionMode] = TransactionMode.RECEIVE_ONLY
    """TRANSACTION_SCOPE: no message may arrive twice."""
    asynchronous: ClassVar[bool] = False
    """Whether a promotion may lose the last seconds of what was acknowledged, as asynchronous standbys do."""
    store_url: str
    transport_url: str

    @property
    def consumer_urls(self) -> Sequence[str]:
        """Where consumers connect to, in turn."""
        return [self.transport_url]

    @property
    def clock_offset(self) -> float:
        """Seconds by which the database's clock is ahead of this machine's, at the start."""
        return 0.0

    @abstractmethod
    def start(self) -> None:
        """Start the servers, and wait until they answer."""

    @abstractmethod
    def close(self) -> None:
        """End them."""

    @abstractmethod
    def faults(self) -> Sequence[Fault]:
        """What can happen to the servers. A fault that changes the primary or its clock says so in what `begin`
        returns: {"offset": seconds, "promotion": True}.
        """

    def queues_declared(self) -> None:  # noqa: B027 - most need nothing
        """Called once the workload has declared its queues: make sure that a crash of the broker keeps them."""
