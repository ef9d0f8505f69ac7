"""A private pgbouncer in front of a PostgreSQL."""

import re
import subprocess
from collections.abc import Sequence
from typing import Final, Literal

from sqlalchemy import make_url

from tests.servers.ports import free_port
from tests.servers.programs import find_program
from tests.servers.server import Server, listens

POOL_SIZES: Final = {"transaction": 3, "session": 100}
_FIRST_TO_CARRY: Final = (1, 21)


class PgBouncer(Server):
    """Forwards to the server of `url`, any database.

    `mode`: with "transaction" a few sessions serve all clients; with "session" a client keeps its own until it leaves.
    `carries_prepared`: whether a statement that a client has prepared is known in each session. Releases before 1.21
    cannot; from 1.24 on they do so unless told otherwise.
    """

    _account = "postgres"

    def __init__(
        self, url: str, mode: Literal["transaction", "session"] = "transaction", *, carries_prepared: bool = False
    ) -> None:
        self._mode = mode
        self._carries_prepared = carries_prepared
        self._program = find_program("pgbouncer", "/usr/sbin")
        self._upstream = make_url(url)
        self.port = free_port()
        super().__init__()

    @property
    def can_carry_prepared(self) -> bool:
        """Whether this release knows how to."""
        told = subprocess.run([self._program, "--version"], capture_output=True, text=True, check=True).stdout
        version = re.search(r"(\d+)\.(\d+)", told)
        assert version is not None, told
        return (int(version[1]), int(version[2])) >= _FIRST_TO_CARRY

    def url_of(self, database_url: str) -> str:
        """The URL of a database of the upstream server, through the pooler."""
        return make_url(database_url).set(port=self.port).render_as_string(hide_password=False)

    def _prepare(self) -> None:
        users = self._write("users", f'"{self._upstream.username}" "{self._upstream.password}"\n')
        settings = {
            "listen_addr": "127.0.0.1",
            "listen_port": self.port,
            "unix_socket_dir": "",
            "auth_type": "scram-sha-256",
            "auth_file": users,
            "pool_mode": self._mode,
            "default_pool_size": POOL_SIZES[self._mode],
            "max_client_conn": 200,
            "server_login_retry": 1,
        }
        if self.can_carry_prepared:
            settings["max_prepared_statements"] = 100 if self._carries_prepared else 0
        lines = "\n".join(f"{name} = {value}" for name, value in settings.items())
        upstream = f"* = host=127.0.0.1 port={self._upstream.port}"
        self._configuration = self._write("pgbouncer.ini", f"[databases]\n{upstream}\n[pgbouncer]\n{lines}\n")

    def _command(self) -> Sequence[str]:
        return [self._program, str(self._configuration)]

    def _answers(self) -> bool:
        return listens(self.port)
