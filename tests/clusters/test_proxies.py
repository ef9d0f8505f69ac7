"""The private proxies and poolers do what the tests of clusters rely on."""

from collections.abc import Callable
from typing import Any

import pika
import psycopg
from sqlalchemy import make_url

from tests.faults.patience import wait_until
from tests.servers import HAProxy, PgBouncer, PostgreSQLReplication, RabbitMQCluster
from tests.servers.haproxy import PRIMARY_CHECK, RABBITMQ_CHECK

Start = Callable[[Callable[[], Any]], Any]


def plain(url: str) -> str:
    return make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)


def holds(condition: Callable[[], bool]) -> bool:
    try:
        return condition()
    except psycopg.OperationalError:
        return False


def node_of(url: str) -> str:
    """Who takes writes behind a URL."""
    with psycopg.connect(url, connect_timeout=10) as connection:
        row = connection.execute("SELECT pg_is_in_recovery(), current_setting('cluster_name')").fetchone()
        assert row is not None
        return "a standby" if row[0] else str(row[1])


def test_haproxy_leads_to_the_primary_and_ends_connections_to_the_old_one(
    postgresql_replication: PostgreSQLReplication, replicated_url: str, start_server: Start
) -> None:
    old, new = postgresql_replication.primary, postgresql_replication.standbys[0]
    ports = [node.port for node in postgresql_replication.nodes]
    proxy: HAProxy = start_server(lambda: HAProxy(ports, check=PRIMARY_CHECK, shutdown_sessions=True))
    url = proxy.url_of(plain(replicated_url))
    # at first it takes every node for well, and leads to one after the other
    wait_until(lambda: holds(lambda: {node_of(url) for _ in ports} == {old.name}), "it leads to the primary alone")
    with psycopg.connect(url, autocommit=True) as connection:
        postgresql_replication.promote(new)
        wait_until(lambda: holds(lambda: node_of(url) == new.name), "it leads to the new primary")
        wait_until(lambda: not holds(lambda: bool(connection.execute("SELECT 1"))), "the old connection has ended")


def test_haproxy_leads_to_the_nodes_that_are_up(
    rabbitmq_cluster: RabbitMQCluster, cluster_vhost: str, start_server: Start
) -> None:
    ports = [node.port for node in rabbitmq_cluster.nodes]
    proxy: HAProxy = start_server(lambda: HAProxy(ports, check=RABBITMQ_CHECK, first_only=True))
    rabbitmq_cluster.nodes[0].kill()
    parameters = pika.URLParameters(proxy.url_of(cluster_vhost))
    parameters.connection_attempts, parameters.retry_delay = 50, 0.2
    with pika.BlockingConnection(parameters) as connection:
        connection.channel().queue_declare("queue", durable=True, arguments={"x-queue-type": "quorum"})


def test_a_pooler_keeps_a_session_to_its_client(
    postgresql_replication: PostgreSQLReplication, replicated_url: str, start_server: Start
) -> None:
    pooler: PgBouncer = start_server(lambda: PgBouncer(replicated_url, mode="session"))
    with psycopg.connect(plain(pooler.url_of(replicated_url)), autocommit=True) as connection:
        connection.execute("SET application_name = 'kept'")
        with psycopg.connect(plain(pooler.url_of(replicated_url)), autocommit=True) as other:
            assert other.execute("SHOW application_name").fetchone() != ("kept",)
        assert connection.execute("SHOW application_name").fetchone() == ("kept",)
