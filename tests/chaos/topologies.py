"""The topologies there are."""

from collections.abc import Callable, Mapping
from typing import Final

from tests.chaos.brokers import OneRabbitMQ, ThreeRabbitMQ
from tests.chaos.databases import (
    MARIADB_SETTINGS,
    POSTGRESQL_SETTINGS,
    AsynchronousFailOver,
    FailOver,
    FullDisk,
    OneServer,
    SQLiteFile,
    clocks_apart,
)
from tests.chaos.proxied import ProxiedFailOver, ProxiedRabbitMQ
from tests.chaos.topology import Topology
from tests.servers import MariaDB, PostgreSQL, RabbitMQ


def _postgresql() -> OneServer:
    return OneServer(PostgreSQL(POSTGRESQL_SETTINGS))


def _mariadb() -> OneServer:
    return OneServer(MariaDB(MARIADB_SETTINGS))


def _rabbitmq() -> OneRabbitMQ:
    return OneRabbitMQ(RabbitMQ(management=True))


TOPOLOGIES: Final[Mapping[str, Callable[[], Topology]]] = {
    "single": lambda: Topology("single", _postgresql(), _rabbitmq()),
    "mariadb": lambda: Topology("mariadb", _mariadb(), _rabbitmq()),
    "cluster": lambda: Topology("cluster", _postgresql(), ThreeRabbitMQ()),
    "fail-over": lambda: Topology("fail-over", FailOver(), _rabbitmq()),
    "fail-over-asynchronous": lambda: Topology("fail-over-asynchronous", AsynchronousFailOver(), _rabbitmq()),
    "full-disk": lambda: Topology("full-disk", FullDisk(), _rabbitmq()),
    "clocks-apart": lambda: Topology("clocks-apart", FailOver(clocks_apart(0, -4, 3)), _rabbitmq()),
    "proxied": lambda: Topology("proxied", ProxiedFailOver(), ProxiedRabbitMQ()),
    "production": lambda: Topology("production", FailOver(), ThreeRabbitMQ()),
    "ingress": lambda: Topology("ingress", _postgresql(), _rabbitmq(), through_ingress=True),
    "ingress-production": lambda: Topology("ingress-production", FailOver(), ThreeRabbitMQ(), through_ingress=True),
    "sqlite-rabbitmq": lambda: Topology("sqlite-rabbitmq", SQLiteFile(), _rabbitmq()),
    "exactly-once": lambda: Topology("exactly-once", _postgresql()),
    "exactly-once-mariadb": lambda: Topology("exactly-once-mariadb", _mariadb()),
    "exactly-once-fail-over": lambda: Topology("exactly-once-fail-over", FailOver()),
    "sqlite": lambda: Topology("sqlite", SQLiteFile()),
}
"""By name; those called exactly-once have the queues in the database, and so has `sqlite`. To those
called ingress messages are published.
"""
