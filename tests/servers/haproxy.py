"""A private haproxy: carries TCP to the first of some servers that is well."""

from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

from tests.servers.ports import free_port
from tests.servers.postgresql_replication import CHECKER
from tests.servers.programs import find_program
from tests.servers.server import Server, listens

CHECK_SECONDS: Final = 0.5
"""Between two looks at a server; it is down after two in vain."""
# What RabbitMQ answers to a protocol header begins with a method frame: connection.start.
RABBITMQ_CHECK: Final = (
    "option tcp-check",
    "tcp-check send-binary 414d515000000901",
    "tcp-check expect binary 01",
)


def _message(kind: bytes, content: bytes) -> str:
    return (kind + (len(content) + 4).to_bytes(4, "big") + content).hex()


_LOGIN: Final = bytes((0, 3, 0, 0)) + f"user\0{CHECKER}\0database\0postgres\0\0".encode()
# One of the servers of PostgreSQLReplication is well if it answers "f" to this question.
PRIMARY_CHECK: Final = (
    "option tcp-check",
    f"tcp-check send-binary {_message(b'', _LOGIN)}",
    f"tcp-check send-binary {_message(b'Q', b'SELECT pg_is_in_recovery()' + bytes(1))}",
    f"tcp-check send-binary {_message(b'X', b'')}",
    f"tcp-check expect binary {_message(b'D', bytes((0, 1, 0, 0, 0, 1)) + b'f')}",
)


class HAProxy(Server):
    """Leads to the servers on `targets`, ports of the loopback interface.

    `check`: haproxy's lines that tell whether a server is well; none: it takes connections. `first_only`: clients go to
    the first that is well, else to all in turn. `shutdown_sessions`: connections to a server that is found to be down
    are ended; else they stay, for as long as haproxy's timeouts.
    """

    _account = "haproxy"

    def __init__(
        self,
        targets: Sequence[int],
        *,
        check: Sequence[str] = (),
        first_only: bool = False,
        shutdown_sessions: bool = False,
    ) -> None:
        self._program = find_program("haproxy", "/usr/sbin")
        self._targets = targets
        self._check = check
        self._first_only = first_only
        self._shutdown_sessions = shutdown_sessions
        self.port = free_port()
        super().__init__()

    def url_of(self, url: str) -> str:
        """The URL of a server, through the proxy."""
        parts = urlsplit(url)
        user = parts.netloc.rpartition("@")[0]
        return parts._replace(netloc=f"{user}@127.0.0.1:{self.port}").geturl()

    def _prepare(self) -> None:
        milliseconds = int(CHECK_SECONDS * 1000)
        options = f"check inter {milliseconds}ms fall 2 rise 1"
        if self._shutdown_sessions:
            options += " on-marked-down shutdown-sessions"
        lines = [
            "global",
            "defaults",
            "  mode tcp",
            "  timeout connect 2s",
            "  timeout check 2s",
            "  timeout client 1h",
            "  timeout server 1h",
            "listen servers",
            f"  bind 127.0.0.1:{self.port}",
            f"  balance {'first' if self._first_only else 'roundrobin'}",
            *(f"  {line}" for line in self._check),
            *(f"  server node{n} 127.0.0.1:{port} {options}" for n, port in enumerate(self._targets)),
        ]
        self._configuration = self._write("haproxy.cfg", "\n".join(lines) + "\n")

    def _command(self) -> Sequence[str]:
        return [self._program, "-db", "-f", str(self._configuration)]

    def _answers(self) -> bool:
        return listens(self.port)
