"""The topologies there are."""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from delaystore.settings import TransactionMode
from tests.chaos.faults import Fault, killing, pausing
from tests.chaos.topology import Topology
from tests.servers import MariaDB, PostgreSQL, RabbitMQ

POSTGRESQL_SETTINGS = {"fsync": "off", "full_page_writes": "off"}  # a killed process loses nothing it has written
MARIADB_SETTINGS = {"innodb_flush_log_at_trx_commit": "2"}


class Single(Topology):
    """One PostgreSQL, one RabbitMQ; servers that are given are left running at the end."""

    name = "single"

    def __init__(self, postgresql: PostgreSQL | None = None, rabbitmq: RabbitMQ | None = None) -> None:
        self._postgresql = postgresql or PostgreSQL(POSTGRESQL_SETTINGS)
        self._rabbitmq = rabbitmq or RabbitMQ(management=True)
        self._own = [server for server in (self._postgresql, self._rabbitmq) if server not in (postgresql, rabbitmq)]

    def start(self) -> None:
        for server in self._own:
            server.start()
        self.store_url = self._postgresql.create_database()
        self.transport_url = self._rabbitmq.create_vhost()

    def close(self) -> None:
        for server in self._own:
            server.close()

    def faults(self) -> Sequence[Fault]:
        return [
            killing("postgresql", self._postgresql),
            pausing("postgresql", self._postgresql),
            killing("rabbitmq", self._rabbitmq),
            pausing("rabbitmq", self._rabbitmq, longest=20),
        ]

    def queues_declared(self) -> None:
        self._rabbitmq.sync_queues()


class ExactlyOnce(Topology):
    """One PostgreSQL, which has the queues too: nothing arrives twice."""

    name = "exactly-once"
    mode = TransactionMode.TRANSACTION_SCOPE

    def __init__(self) -> None:
        self._server: PostgreSQL | MariaDB = self._make_server()

    def _make_server(self) -> PostgreSQL | MariaDB:
        return PostgreSQL(POSTGRESQL_SETTINGS)

    def start(self) -> None:
        self._server.start()
        self.store_url = self.transport_url = self._server.create_database()

    def close(self) -> None:
        self._server.close()

    def faults(self) -> Sequence[Fault]:
        return [killing("database", self._server), pausing("database", self._server)]


class ExactlyOnceMariaDB(ExactlyOnce):
    """As above, on MariaDB."""

    name = "exactly-once-mariadb"

    def _make_server(self) -> PostgreSQL | MariaDB:
        return MariaDB(MARIADB_SETTINGS)


class SQLite(Topology):
    """One file, no server: claims are leases."""

    name = "sqlite"
    mode = TransactionMode.TRANSACTION_SCOPE

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="delaystore-")

    def start(self) -> None:
        self.store_url = self.transport_url = f"sqlite:///{Path(self._folder.name) / 'delaystore.db'}"

    def close(self) -> None:
        self._folder.cleanup()

    def faults(self) -> Sequence[Fault]:
        return []


TOPOLOGIES: Final[Mapping[str, type[Topology]]] = {
    each.name: each for each in (Single, ExactlyOnce, ExactlyOnceMariaDB, SQLite)
}
