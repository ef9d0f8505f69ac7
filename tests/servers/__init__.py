"""Private servers for tests and benchmarks: PostgreSQL, MariaDB and RabbitMQ on loopback, in temporary directories."""

from tests.servers.errors import ServerError, ServerFailedError, ServerMissingError
from tests.servers.mariadb import MariaDB, MariaDBDatabases
from tests.servers.pgbouncer import PgBouncer
from tests.servers.postgresql import PostgreSQL, PostgreSQLDatabases
from tests.servers.rabbitmq import RabbitMQ
from tests.servers.vhosts import RabbitMQVhosts

__all__ = [
    "MariaDB",
    "MariaDBDatabases",
    "PgBouncer",
    "PostgreSQL",
    "PostgreSQLDatabases",
    "RabbitMQ",
    "RabbitMQVhosts",
    "ServerError",
    "ServerFailedError",
    "ServerMissingError",
]
