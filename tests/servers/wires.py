"""What connects the nodes of an Erlang cluster: relays, which can be held, and port mappers that lead to them."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations

from tests.servers.loop_thread import LoopThread
from tests.servers.port_mapper import PortMapper
from tests.servers.relay import Relay


@dataclass(frozen=True)
class Endpoint:
    """A node: its name without the host, the port for other nodes, and the port where it asks for theirs."""

    name: str
    port: int
    mapper_port: int


class Wires:
    """From each of some nodes to each other one."""

    def __init__(self, nodes: Sequence[Endpoint]) -> None:
        self._relays = {(one.name, other.name): Relay(other.port) for one, other in permutations(nodes, 2)}
        registered: dict[str, int] = {}
        self._mappers = [PortMapper(node.mapper_port, registered, self._ways(node)) for node in nodes]
        self._thread: LoopThread | None = None

    def start(self) -> None:
        """Connect them. Nothing happens if they are."""
        if self._thread is None:
            self._thread = LoopThread()
            self._thread.run(self._listen())

    def close(self) -> None:
        """End all connections. May be called twice."""
        if self._thread is not None:
            self._thread.run(self._end())
            self._thread.close()
            self._thread = None

    def hold(self, one: Endpoint, other: Endpoint) -> None:
        """Let nothing pass between two nodes, neither way. What is sent meanwhile passes after heal()."""
        self._pass(one.name, other.name, passing=False)

    def heal(self) -> None:
        """Let everything pass."""
        for one, other in self._relays:
            self._pass(one, other, passing=True)

    def _pass(self, one: str, other: str, *, passing: bool) -> None:
        async def change() -> None:
            for ends in ((one, other), (other, one)):
                for flow in (self._relays[ends].requests, self._relays[ends].answers):
                    (flow.passing.set if passing else flow.passing.clear)()

        if self._thread is not None:
            self._thread.run(change())

    async def _listen(self) -> None:
        for relay in self._relays.values():
            await relay.listen()
        for mapper in self._mappers:
            await mapper.listen()

    async def _end(self) -> None:
        for mapper in self._mappers:
            mapper.close()
        for relay in self._relays.values():
            await relay.close()

    def _ways(self, node: Endpoint) -> dict[str, int]:
        return {other: relay.port for (one, other), relay in self._relays.items() if one == node.name}
