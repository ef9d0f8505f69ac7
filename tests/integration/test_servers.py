"""The private servers do what the fault tests rely on."""

import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pika
import psutil
import pytest
from pika.exceptions import AMQPConnectionError, ProbableAuthenticationError
from sqlalchemy import URL, create_engine, make_url, text
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.pool import NullPool

from tests.servers import MariaDB, PostgreSQL, RabbitMQ, ServerFailedError
from tests.servers.server import Server

pytestmark = pytest.mark.long  # the tests' own servers, which the fault tests use all the time
DatabaseServer = PostgreSQL | MariaDB


@pytest.fixture(params=["private_postgresql", "private_mariadb"])
def database_server(request: pytest.FixtureRequest) -> DatabaseServer:
    found: DatabaseServer = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def database_url(database_server: DatabaseServer) -> Iterator[str]:
    url = database_server.create_database()
    yield url
    database_server.resume()
    database_server.start()
    database_server.drop_database(url)


@pytest.fixture
def vhost_url(private_rabbitmq: RabbitMQ) -> Iterator[str]:
    url = private_rabbitmq.create_vhost()
    yield url
    private_rabbitmq.resume()
    private_rabbitmq.start()
    private_rabbitmq.delete_vhost(url)


def run_sql(url: str | URL, statement: str) -> list[tuple[object, ...]]:
    engine = create_engine(url, poolclass=NullPool)
    with engine.begin() as connection:
        result = connection.execute(text(statement))
        return [tuple(row) for row in result] if result.returns_rows else []


def with_wrong_password(url: str) -> URL:
    return make_url(url).set(password="wrong")


def publish(url: str, queue: str, body: bytes) -> None:
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare(queue, durable=True, arguments={"x-queue-type": "quorum"})
        channel.basic_publish("", queue, body, pika.BasicProperties(delivery_mode=2), mandatory=True)


def consume_one(url: str, queue: str) -> bytes | None:
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        body: bytes | None = connection.channel().basic_get(queue, auto_ack=True)[2]
        return body


def eventually(condition: Callable[[], bool], seconds: float = 60) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def test_a_database_keeps_what_was_committed_when_its_server_is_killed(
    database_server: DatabaseServer, database_url: str
) -> None:
    run_sql(database_url, "CREATE TABLE kept (number INTEGER)")
    run_sql(database_url, "INSERT INTO kept VALUES (7)")
    database_server.kill()
    assert not database_server.running
    with pytest.raises(OperationalError):
        run_sql(database_url, "SELECT number FROM kept")
    database_server.start()
    assert run_sql(database_url, "SELECT number FROM kept") == [(7,)]


def test_a_database_keeps_what_was_committed_when_its_server_stops(
    database_server: DatabaseServer, database_url: str
) -> None:
    run_sql(database_url, "CREATE TABLE kept (number INTEGER)")
    database_server.stop()
    assert not database_server.running
    database_server.start()
    assert run_sql(database_url, "SELECT number FROM kept") == []


def test_a_database_refuses_a_wrong_password(database_url: str) -> None:
    with pytest.raises(OperationalError, match=r"(?i)password|access denied"):
        run_sql(with_wrong_password(database_url), "SELECT 1")


def test_a_role_without_rights_can_log_in_but_not_create_a_table(
    database_server: DatabaseServer, database_url: str
) -> None:
    poor_url = database_server.create_role("poor", "poor-password", database_url)
    with pytest.raises(DBAPIError, match=r"(?i)denied"):
        run_sql(poor_url, "CREATE TABLE forbidden (number INTEGER)")


def test_each_database_is_empty_and_apart(database_server: DatabaseServer, database_url: str) -> None:
    run_sql(database_url, "CREATE TABLE here (number INTEGER)")
    other_url = database_server.create_database()
    run_sql(other_url, "CREATE TABLE here (number INTEGER)")
    database_server.drop_database(other_url)
    with pytest.raises(OperationalError):
        run_sql(other_url, "SELECT 1")


@pytest.mark.long
def test_a_queue_keeps_its_messages_when_the_broker_is_killed(private_rabbitmq: RabbitMQ, vhost_url: str) -> None:
    publish(vhost_url, "kept", b"body")
    private_rabbitmq.sync_queues()
    private_rabbitmq.kill()
    assert not private_rabbitmq.running
    with pytest.raises(AMQPConnectionError):
        consume_one(vhost_url, "kept")
    private_rabbitmq.start()
    assert consume_one(vhost_url, "kept") == b"body"


def test_the_broker_refuses_a_wrong_password(private_rabbitmq: RabbitMQ) -> None:
    parameters = pika.URLParameters(private_rabbitmq.url)
    parameters.credentials = pika.PlainCredentials("delaystore", "wrong")
    with pytest.raises(ProbableAuthenticationError):
        pika.BlockingConnection(parameters)


@pytest.mark.long
def test_rabbitmqctl_speaks_to_the_private_broker_alone(private_rabbitmq: RabbitMQ, vhost_url: str) -> None:
    assert private_rabbitmq.vhost_name(vhost_url) in private_rabbitmq.ctl("list_vhosts").splitlines()
    with pytest.raises(ServerFailedError, match="no_such_command"):
        private_rabbitmq.ctl("no_such_command")


def test_an_emptied_broker_has_its_default_virtual_host_alone(private_rabbitmq: RabbitMQ) -> None:
    for url in (private_rabbitmq.url, private_rabbitmq.create_vhost()):
        with pika.BlockingConnection(pika.URLParameters(url)) as connection:
            connection.channel().queue_declare("left")
    private_rabbitmq.empty()
    assert [vhost["name"] for vhost in private_rabbitmq.request("GET", "/api/vhosts")] == ["/"]  # type: ignore[attr-defined]
    with pika.BlockingConnection(pika.URLParameters(private_rabbitmq.url)) as connection:
        connection.channel().queue_declare("left", durable=True)  # refused if it were still there, as it is another


@pytest.fixture(params=["private_postgresql", "private_mariadb", "private_rabbitmq"])
def server(request: pytest.FixtureRequest) -> Server:
    found: Server = request.getfixturevalue(request.param)
    return found


def test_a_paused_server_accepts_connections_and_says_nothing_until_it_resumes(server: Server) -> None:
    server.pause()
    assert all(psutil.Process(pid).status() == psutil.STATUS_STOPPED for pid in server.pids)
    with socket.create_connection(("127.0.0.1", _port(server)), timeout=0.5) as connection:
        connection.sendall(b"AMQP\x00\x00\x09\x01")
        with pytest.raises(TimeoutError):
            connection.recv(1)
    server.resume()
    assert eventually(server._answers)


def test_a_server_listens_on_loopback_only(server: Server) -> None:
    listening = [
        connection.laddr.ip
        for pid in server.pids
        for connection in psutil.Process(pid).net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    ]
    assert listening
    assert set(listening) <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}


@pytest.mark.long_runs("RabbitMQ")
@pytest.mark.parametrize("make", [PostgreSQL, MariaDB, RabbitMQ])
def test_closing_leaves_no_process_and_no_file(
    start_server: Callable[[Callable[[], Server]], Server], make: Callable[[], Server]
) -> None:
    server = start_server(make)
    pids, directory = server.pids, server.directory
    assert pids
    server.close()
    assert eventually(lambda: not any(psutil.pid_exists(pid) for pid in pids))
    assert not directory.exists()


@pytest.mark.long
@pytest.mark.usefixtures("private_rabbitmq")  # which skips where there is no RabbitMQ
def test_servers_end_with_a_test_process_that_is_killed(tmp_path: Path) -> None:
    script = (
        "import time; from tests.servers import RabbitMQ\n"
        "server = RabbitMQ(); server.start(); print(server.directory, *server.pids, flush=True); time.sleep(600)"
    )
    root = Path(__file__).parents[2]
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, cwd=root) as process:
        assert process.stdout is not None
        directory, *pids = process.stdout.readline().split()
        assert pids
        os.kill(process.pid, signal.SIGKILL)
    assert eventually(lambda: not any(psutil.pid_exists(int(pid)) for pid in pids))
    assert eventually(lambda: not Path(directory).exists())


def test_the_tls_listener_demands_a_client_certificate(rabbitmq: RabbitMQ) -> None:
    if not isinstance(rabbitmq, RabbitMQ):
        pytest.skip("the broker is not ours: DELAYSTORE_TEST_RABBITMQ_URL is set")
    files = rabbitmq.certificates
    trusting = ssl.create_default_context(cafile=files.ca_file)
    parameters = pika.URLParameters(rabbitmq.tls_url)
    parameters.ssl_options = pika.SSLOptions(trusting, "localhost")
    with pytest.raises(AMQPConnectionError):
        pika.BlockingConnection(parameters)
    trusting.load_cert_chain(files.client_cert, files.client_key)
    with pika.BlockingConnection(parameters) as connection:
        assert connection.is_open


def _port(server: Server) -> int:
    assert isinstance(server, PostgreSQL | MariaDB | RabbitMQ)
    port = urlsplit(server.url).port
    assert port is not None
    return port
