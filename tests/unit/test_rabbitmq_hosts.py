"""Several hosts, and several addresses of one: whichever fails, and however, the next one is tried.

The hosts are listeners of our own: no real broker refuses a login on one node only, or stops in the middle of a
handshake, on demand.
"""

import logging
import re
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from typing import Any

import pytest
from pika import spec

from delaystore.errors import ConfigurationError, TransportUnavailableError
from delaystore.transports import RabbitMQTransport, open_transport
from delaystore.transports.rabbitmq.blocking import BlockingConnections, open_connection
from delaystore.transports.rabbitmq.nodes import Nodes, nodes_of
from delaystore.transports.rabbitmq.parameters import broker_from_url
from tests.dispatching import wait_until
from tests.servers import Proxy
from tests.servers.ports import free_port
from tests.servers.scripted_broker import HANDSHAKE, Answer, ScriptedBroker

LONG = 60.0
HURRIED = 0.3
_REFUSED = {spec.Connection.StartOk: lambda _: spec.Connection.Close(403, "ACCESS_REFUSED - wrong password", 0, 0)}
_NO_HOST = {spec.Connection.Open: lambda _: spec.Connection.Close(530, "NOT_ALLOWED - vhost 'x' is down", 0, 0)}
_STOPS: Mapping[type, Answer] = {kind: answer for kind, answer in HANDSHAKE.items() if kind is not spec.Connection.Open}
Start = Callable[..., ScriptedBroker]


@pytest.fixture(autouse=True)
def in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short deadlines in place of ours, and the first host of the URL in place of any."""
    monkeypatch.setattr("delaystore.transports.rabbitmq.nodes.NODE_TIMEOUT", HURRIED)
    monkeypatch.setattr("random.choice", lambda hosts: hosts[0])


@pytest.fixture
def start() -> Iterator[Start]:
    with ExitStack() as stack:
        yield lambda *answers, **options: stack.enter_context(ScriptedBroker(*answers, **options))


def can_send(transport: RabbitMQTransport) -> None:
    wait_until(lambda: transport.unavailable() is None, transport.unavailable)


def failures_text(records: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in records.records if record.name.startswith("delaystore")]


FAILING: Mapping[str, tuple[Callable[[Start], str], str]] = {
    "frozen": (lambda start: start(greets=False).place, "no answer to the connection attempt within 0.3 s"),
    "frozen in the handshake": (lambda start: start(_STOPS).place, "no answer to the connection attempt within 0.3 s"),
    "down": (lambda _: f"127.0.0.1:{free_port()}", "Connection refused"),
    "refusing the login": (lambda start: start(_REFUSED).place, "login refused; check user name and password"),
    "without the virtual host": (
        lambda start: start({**HANDSHAKE, **_NO_HOST}).place,
        "access to the virtual host refused (NOT_ALLOWED - vhost 'x' is down)",
    ),
    "of an unknown name": (lambda _: "host.invalid:5672", "its name cannot be looked up"),
}


@pytest.mark.parametrize(("failing", "reason"), FAILING.values(), ids=FAILING)
def test_a_host_that_fails_gives_way_to_the_next(
    start: Start, caplog: pytest.LogCaptureFixture, failing: Callable[[Start], str], reason: str
) -> None:
    caplog.set_level(logging.INFO, "delaystore")
    bad, good = failing(start), start().place
    with closing(RabbitMQTransport(f"amqp://ann:secret@{bad},{good}/sales")) as transport:
        can_send(transport)
    vhost = "(virtual host 'sales')"
    assert failures_text(caplog)[-1] == f"connected to RabbitMQ at {good} {vhost}"
    assert [line for line in failures_text(caplog)[:-1] if line.startswith(f"RabbitMQ at {bad}") and reason in line]
    connection = open_connection(broker_from_url(f"amqp://ann:secret@{bad},{good}/sales"))
    assert connection.node.label == f"{good} {vhost}"
    connection.close()
    assert "secret" not in caplog.text


def test_urls_of_several_hosts_each_have_their_own_login(start: Start) -> None:
    logins: list[bytes] = []

    def note(start_ok: Any) -> Any:
        logins.append(start_ok.response)
        return spec.Connection.Close(403, "ACCESS_REFUSED", 0, 0)

    places = [start({**HANDSHAKE, spec.Connection.StartOk: note}).place for _ in range(2)]
    urls = [f"amqp://{user}@{place}" for user, place in zip(["ann:one", "bob:two"], places, strict=True)]
    with closing(RabbitMQTransport(urls)) as transport, pytest.raises(match="login refused"):
        transport.declare("q")
    assert logins == [b"\0ann\0one", b"\0bob\0two"]


def test_each_host_is_named_with_its_reason_where_these_differ(start: Start) -> None:
    refusing, silent = start(_REFUSED).place, start(greets=False).place
    with pytest.raises(TransportUnavailableError) as caught:
        open_connection(broker_from_url(f"amqp://{refusing},{silent}?connection_timeout=1"))
    reasons = {
        refusing: "login refused; check user name and password",
        silent: "no answer to the connection attempt within 1 s",
    }
    told = "; ".join(f"{place}: {reasons[place]}" for place in sorted(reasons))  # whichever was tried first
    assert str(caught.value) == f"RabbitMQ at {refusing}, {silent} cannot be reached: {told}"


def test_the_last_host_is_waited_for_longer(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("delaystore.transports.rabbitmq.nodes.LAST_NODE_TIMEOUT", 2 * HURRIED)
    places = [start(greets=False).place for _ in range(2)]
    with pytest.raises(TransportUnavailableError) as caught:
        open_connection(broker_from_url(f"amqp://{','.join(places)}"))
    assert sorted(re.findall(r"within (0\.\d) s", str(caught.value))) == ["0.3", "0.6"]
    with pytest.raises(TransportUnavailableError, match=r"reached: no answer to the connection attempt within 0\.6 s$"):
        open_connection(broker_from_url(f"amqp://{places[0]}"))


def test_a_name_is_connected_to_by_each_of_its_addresses(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine's own names have one address each, so the answer of its resolver is made up; the sockets are real."""
    frozen = start(greets=False)
    port = int(frozen.place.rpartition(":")[2])
    start(place=("127.0.0.2", port))
    two = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in ("127.0.0.1", "127.0.0.2")]
    real = socket.getaddrinfo

    def look_up(host: Any, *rest: Any, **more: Any) -> Sequence[Any]:
        return two if host == "rabbit.example" else real(host, *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    broker = broker_from_url(f"amqp://rabbit.example:{port}")
    connection = open_connection(broker)
    assert connection.node.label == f"rabbit.example:{port} at 127.0.0.2"
    connection.close()
    with closing(RabbitMQTransport(f"amqp://rabbit.example:{port}")) as transport:
        can_send(transport)


def test_a_name_server_that_does_not_answer_holds_nothing_up_for_long(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("delaystore.transports.rabbitmq.nodes.LOOK_UP", HURRIED)
    real = socket.getaddrinfo

    def look_up(host: Any, *rest: Any, **more: Any) -> Any:
        if host == "rabbit.example":
            time.sleep(4 * HURRIED)
        return real(host, *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    nodes = nodes_of(broker_from_url(f"amqp://rabbit.example,{start().place}"))
    assert nodes.unknown == {"rabbit.example:5672": "its name could not be looked up within 0.3 s"}
    assert len(nodes.found) == 1


def test_a_machine_without_ipv6_goes_on_with_the_other_addresses(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    real = socket.socket

    class WithoutIPv6(real):  # type: ignore[misc, valid-type]
        def __init__(self, family: int = -1, *rest: Any, **more: Any) -> None:
            if family == socket.AF_INET6:
                raise OSError(97, "Address family not supported by protocol")
            super().__init__(family, *rest, **more)

    monkeypatch.setattr(socket, "socket", WithoutIPv6)
    with closing(RabbitMQTransport(f"amqp://[::1]:5672,{start().place}")) as transport:
        can_send(transport)
    with closing(RabbitMQTransport("amqp://[::1]:5672")) as transport:
        wait_until(lambda: "not supported by protocol" in str(transport.unavailable()), transport.unavailable)


def nodes_at(*places: str) -> Nodes:
    return nodes_of(broker_from_url(f"amqp://{','.join(places)}"))


def test_nodes_take_turns() -> None:
    nodes = nodes_at("127.0.0.1:1", "127.0.0.1:2", "[::1]:3")
    a, b, c = nodes.found
    assert [node.label for node in (a, b, c)] == ["127.0.0.1:1", "127.0.0.1:2", "[::1]:3"]
    assert nodes.in_turn(first=b) == [b, c, a]
    assert nodes.in_turn(last=b) == [c, a, b]
    assert nodes.in_turn(last=c) == [a, b, c]
    gone = nodes_at("127.0.0.1:4").found[0]
    assert nodes.in_turn(first=gone) == nodes.in_turn(last=gone) == [a, b, c]


def test_any_host_may_be_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    nodes = nodes_at("127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3")
    assert {nodes.in_turn()[0].label for _ in range(200)} == {"127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"}


def test_a_connection_leads_where_the_last_one_worked_and_away_from_where_it_failed(start: Start) -> None:
    first, second = start(), start()
    connections = BlockingConnections(broker_from_url(f"amqp://{first.place},{second.place}"), answer=HURRIED)

    def node() -> str:
        with connections.channel() as channel:
            return str(channel.connection.node.label)

    assert node() == first.place
    with (
        pytest.raises(TransportUnavailableError, match=f"{first.place} was lost: no answer"),
        connections.channel() as channel,
    ):
        channel.queue_declare("q", passive=True)
    assert node() == second.place
    connections.close()
    assert node() == second.place
    connections.close()


def test_a_connection_that_ends_while_it_is_idle_is_made_again_to_the_same_node(start: Start) -> None:
    """A broker ends it where nobody answers heartbeats; another node may be a frozen one."""
    with Proxy(port_of(start())) as first, Proxy(port_of(start())) as second:
        connections = BlockingConnections(broker_from_url(f"amqp://127.0.0.1:{first.port},127.0.0.1:{second.port}"))
        for _ in range(2):
            with connections.channel() as channel:
                assert channel.connection.node.label == f"127.0.0.1:{first.port}"
            first.cut()
        connections.close()


def port_of(broker: ScriptedBroker) -> int:
    return int(broker.place.rpartition(":")[2])


MISTAKES = [
    "amqp://ann:secret@h1:1,h2:port",
    "amqp://ann:secret@h1,",
    "amqp://ann:secret@,h1",
    "amqp://ann:secret@h1,:5672",
    "amqp://ann:secret@h1, h2",
    "amqp://ann:secret@h1,[::1",
    "amqp://ann:secret@h1,bob:secret@h2",
    "amqp://ann:secret@h1,h2/a/b",
    "amqp://ann:secret@h1,h2?heartbeat=secret",
]


@pytest.mark.parametrize("url", MISTAKES)
def test_a_bad_list_of_hosts_is_refused_without_its_secrets(url: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        open_transport(url)
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("urls", "says"),
    [
        ([], "no AMQP URL is given"),
        (["amqp://h1/sales", "amqp://h2/billing"], "differ in their virtual host"),
        (["amqp://h1?delays=a", "amqp://h2?delays=b"], "differ in their parameter delays"),
    ],
)
def test_urls_that_are_not_one_broker_are_refused(urls: Sequence[str], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        RabbitMQTransport(urls)


def test_all_hosts_are_named_and_each_has_its_server_name() -> None:
    broker = broker_from_url("amqps://ann:se,cret@h1,h2:5673,[::1]:5674,h1/sales")
    assert broker.label == "h1:5671, h2:5673, [::1]:5674 (virtual host 'sales')"
    assert [host.parameters().ssl_options.server_hostname for host in broker.hosts] == ["h1", "h2", "::1"]
    assert broker.login == ("ann", "se,cret")
    assert "cret" not in repr(broker) + repr(broker.hosts)
