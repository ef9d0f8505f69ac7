"""Private servers for tests and benchmarks, on loopback, in temporary directories: databases and RabbitMQ."""

from tests.servers.errors import ServerError, ServerFailedError, ServerMissingError
from tests.servers.haproxy import HAProxy
from tests.servers.mariadb import MariaDB, MariaDBDatabases
from tests.servers.mysql import MySQL
from tests.servers.pgbouncer import PgBouncer
from tests.servers.postgresql import PostgreSQL, PostgreSQLDatabases
from tests.servers.postgresql_replication import PostgreSQLReplication
from tests.servers.prometheus import Prometheus
from tests.servers.proxy import Proxy
from tests.servers.rabbitmq import RabbitMQ
from tests.servers.rabbitmq_cluster import RabbitMQCluster
from tests.servers.shifted_clock import ShiftedClock
from tests.servers.small_disk import SmallDisk
from tests.servers.vhosts import RabbitMQVhosts

__all__ = [
    "HAProxy",
    "MariaDB",
    "MariaDBDatabases",
    "MySQL",
    "PgBouncer",
    "PostgreSQL",
    "PostgreSQLDatabases",
    "PostgreSQLReplication",
    "Prometheus",
    "Proxy",
    "RabbitMQ",
    "RabbitMQCluster",
    "RabbitMQVhosts",
    "ServerError",
    "ServerFailedError",
    "ServerMissingError",
    "ShiftedClock",
    "SmallDisk",
]
