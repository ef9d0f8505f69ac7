"""RabbitMQ's management API: a real one, and servers that are none."""

import json
import ssl
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pika
import pytest
import trustme

from delaystore.cascades import BrokerClient, bind, check_deletion, create, delete, verify
from delaystore.cascades.management import Management, ManagementRefusedError
from delaystore.cascades.snapshot import NO_PERMISSIONS, Permissions, Policy
from delaystore.errors import ConfigurationError, TransportError, TransportUnavailableError
from delaystore.transports.rabbitmq.parameters import broker_from_url
from delaystore.transports.rabbitmq.topology import NSERVICEBUS_V2, Binding, DestinationKind
from tests.servers import RabbitMQVhosts
from tests.servers.certificates import Certificates

BROKER = broker_from_url("amqp://user:s3cret@localhost/sales")
Answer = tuple[int, str, bytes]


@pytest.fixture
def serve() -> Iterator[Callable[..., str]]:
    """Starts HTTP servers that always give one answer; their URLs."""
    running: list[ThreadingHTTPServer] = []

    def start(
        status: int, content_type: str, body: bytes, context: ssl.SSLContext | None = None, location: str | None = None
    ) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(status)
                self.send_header("Content-Type", content_type)
                self.send_header("Content-Length", str(len(body)))
                if location is not None:
                    self.send_header("Location", location)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *arguments: Any) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if context is not None:
            server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}).start()
        running.append(server)
        return f"{'http' if context is None else 'https'}://127.0.0.1:{server.server_port}"

    yield start
    for server in running:
        server.shutdown()
        server.server_close()


def test_it_reads_what_a_virtual_host_holds(management: Management, rabbitmq_url: str) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(rabbitmq_url))
    channel = connection.channel()
    channel.exchange_declare("größe/x", "topic", durable=True, arguments={"alternate-exchange": "lost"})
    channel.queue_declare("tasks", durable=True, arguments={"x-queue-type": "quorum", "x-message-ttl": 1000})
    channel.queue_bind("tasks", "größe/x", "#.a b")
    connection.close()
    exchange = management.exchanges()["größe/x"]
    assert (exchange.type, exchange.durable, exchange.internal) == ("topic", True, False)
    assert exchange.arguments == {"alternate-exchange": "lost"}
    queue = management.queues()["tasks"]
    assert (queue.type, queue.durable, queue.arguments["x-message-ttl"]) == ("quorum", True, 1000)
    binding = Binding("größe/x", "tasks", DestinationKind.QUEUE, "#.a b")
    assert list(management.bindings()) == [binding]
    assert list(management.bindings("größe/x")) == [binding]
    assert list(management.bindings("nobody")) == []
    assert management.message_counts() == {"tasks": 0}
    assert management.version()[0].isdigit()
    assert management.permissions() == Permissions(".*", ".*", ".*")
    flags = management.feature_flags()
    assert flags is not None
    assert flags["stream_queue"]


def test_policies_are_set_changed_and_deleted(management: Management) -> None:
    policy = Policy(name="a policy/ß", pattern="^x$", definition={"alternate-exchange": "y"}, apply_to="exchanges")
    assert management.policy(policy.name) is None
    assert not management.delete_policy(policy.name)
    management.set_policy(policy)
    assert management.policy(policy.name) == policy
    changed = Policy(name=policy.name, pattern="^z$", definition={"alternate-exchange": "y"}, priority=3)
    management.set_policy(changed)
    assert list(management.policies()) == [changed]
    assert management.delete_policy(policy.name)
    assert list(management.policies()) == []


def test_what_only_an_administrator_sees_is_none_for_others(
    rabbitmq: RabbitMQVhosts, management: Management, rabbitmq_url: str
) -> None:
    name = rabbitmq.new_vhost_name()
    rabbitmq.request("PUT", f"/api/users/{name}", {"password": "p", "tags": "management"})
    host = urlsplit(rabbitmq_url).netloc.rpartition("@")[2]
    broker = broker_from_url(f"amqp://{name}:p@{host}/{quote(management.virtual_host)}")
    assert rabbitmq.management_url is not None
    try:
        with Management(rabbitmq.management_url, broker) as own:
            assert (own.feature_flags() is None) == own.version().startswith("3.")
            assert own.permissions() is None
            with pytest.raises(TransportError, match="permissions in"):
                own.exchanges()
        administrator = urlsplit(rabbitmq_url).netloc.rpartition("@")[0]
        with Management(rabbitmq.management_url.replace("//", f"//{administrator}@"), broker) as lent:
            assert lent.permissions() == NO_PERMISSIONS
    finally:
        rabbitmq.request("DELETE", f"/api/users/{name}")


def test_a_wrong_password_is_told_from_a_missing_tag(rabbitmq: RabbitMQVhosts, rabbitmq_url: str) -> None:
    assert rabbitmq.management_url is not None
    with (
        rabbitmq.user(rabbitmq_url, configure=".*") as untagged,
        Management(rabbitmq.management_url, broker_from_url(untagged)) as management,
        pytest.raises(ManagementRefusedError, match="Not management user; give the user the tag management"),
    ):
        management.version()
    wrong = rabbitmq.management_url.replace("//", "//delaystore:wrong@")
    with (
        Management(wrong, broker_from_url(rabbitmq_url)) as management,
        pytest.raises(TransportUnavailableError, match="refused the login; check user name and password"),
    ):
        management.version()


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ((200, "text/html", b"<h1>Welcome</h1>"), "something that RabbitMQ would not"),
        ((200, "application/json", b"{}"), "something that RabbitMQ would not"),
        ((200, "application/json", b"[1]"), "something that RabbitMQ would not"),
        ((200, "application/json", b"null"), "something that RabbitMQ would not"),
        ((404, "text/html", b"nothing here"), "404 Not Found"),
        ((500, "application/json", json.dumps({"reason": "two\n\nlines"}).encode()), "500 two lines"),
        ((302, "text/html", b""), "302 Found"),
    ],
)
def test_a_server_that_is_no_management_api_is_one_sentence(
    serve: Callable[..., str], answer: Answer, says: str
) -> None:
    with Management(serve(*answer), BROKER) as management:
        asked: list[Callable[[], object]] = [
            management.version,
            management.cluster_name,
            management.feature_flags,
            management.permissions,
            management.exchanges,
            management.queues,
            management.message_counts,
            management.bindings,
            management.policies,
        ]
        sentences = []
        for ask in asked:
            try:
                ask()
            except TransportError as error:
                sentences.append(str(error))
    assert len(sentences) >= 2  # an empty object is an empty list to those who count nothing
    for sentence in sentences:
        assert says in sentence
        assert "check its URL" in sentence
        assert "\n" not in sentence


def test_https_trusts_whom_the_amqp_connection_trusts(serve: Callable[..., str], tmp_path: Path) -> None:
    certificates = Certificates.create(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.server_cert, certificates.server_key)
    url = serve(200, "application/json", b'{"rabbitmq_version": "4.1.0"}', context)
    trusting = broker_from_url(f"amqps://localhost?cacertfile={quote(str(certificates.ca_file))}")
    with Management(url, trusting) as management:
        assert management.version() == "4.1.0"
    with Management(url, BROKER) as management, pytest.raises(TransportUnavailableError, match=r"(?i)certificate"):
        management.version()


def test_https_is_refused_to_another_host(serve: Callable[..., str], tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("other.example").configure_cert(context)
    url = serve(200, "application/json", b'{"rabbitmq_version": "4.1.0"}', context)
    trusting = broker_from_url(f"amqps://localhost?cacertfile={quote(str(tmp_path / 'ca.pem'))}")
    with Management(url, trusting) as management, pytest.raises(TransportUnavailableError, match="not valid for"):
        management.version()


def test_https_trusts_the_authorities_that_openssl_is_given(
    serve: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a private authority where AMQP itself is not encrypted."""
    certificates = Certificates.create(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.server_cert, certificates.server_key)
    url = serve(200, "application/json", b'{"rabbitmq_version": "4.1.0"}', context)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates.ca_file))
    with Management(url, BROKER) as management:
        assert management.version() == "4.1.0"


def test_a_redirect_is_not_followed(serve: Callable[..., str]) -> None:
    """Whoever it leads to would be believed."""
    elsewhere = serve(200, "application/json", b'{"rabbitmq_version": "4.1.0"}')
    url = serve(302, "text/html", b"", location=f"{elsewhere}/api/overview")
    with Management(url, BROKER) as management, pytest.raises(TransportError, match="302"):
        management.version()


def test_the_api_of_another_broker_is_refused(serve: Callable[..., str], rabbitmq_url: str) -> None:
    url = serve(200, "application/json", b'{"cluster_name": "another"}')
    with BrokerClient(rabbitmq_url, url) as broker:
        for ask in (create, verify, delete, check_deletion):
            with pytest.raises(ConfigurationError, match=r"'another'.*give the API of the same broker"):
                ask(broker, NSERVICEBUS_V2)
        with pytest.raises(ConfigurationError, match="'another'"):
            bind(broker, NSERVICEBUS_V2, ["billing"])


@pytest.mark.parametrize(
    "url",
    ["", "localhost:15672", "amqp://localhost", "http://", "http://u:s3cret@h:port", "http://h/?q", "http://h#f"],
)
def test_a_url_that_cannot_work_is_refused_without_its_secrets(url: str) -> None:
    with pytest.raises(ConfigurationError) as failure:
        Management(url, BROKER)
    assert "s3cret" not in str(failure.value)


def test_no_password_is_in_what_people_read() -> None:
    with Management("http://other:s3cret@127.0.0.1:1/prefix/", BROKER) as management:
        assert repr(management) == "<Management 127.0.0.1:1>"
        with pytest.raises(TransportUnavailableError) as failure:
            management.version()
    assert "s3cret" not in str(failure.value)
    assert "cannot be reached" in str(failure.value)
