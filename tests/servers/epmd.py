"""A port mapper for Erlang's nodes that outlives each of them, as one that a node started would not."""

from collections.abc import Sequence

from tests.servers.ports import free_port
from tests.servers.programs import find_program
from tests.servers.server import Server, listens


class Epmd(Server):
    """Erlang's own epmd, on `port`."""

    _account = "rabbitmq"

    def __init__(self) -> None:
        self._program = find_program("epmd")
        self.port = free_port()
        super().__init__()

    def _prepare(self) -> None:
        pass

    def _command(self) -> Sequence[str]:
        return [self._program, "-port", str(self.port), "-address", "127.0.0.1"]

    def _answers(self) -> bool:
        return listens(self.port)
