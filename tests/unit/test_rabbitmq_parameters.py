"""URLs, addresses and log lines of RabbitMQ."""

import logging
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delaystore.errors import ConfigurationError, UnsupportedMessageError
from delaystore.text import Address, parse_address, queue_or_none
from delaystore.transports.rabbitmq import RabbitMQTransport
from delaystore.transports.rabbitmq.parameters import broker_from_url
from delaystore.transports.rabbitmq.pika_errors import quiet_pika
from tests.servers.certificates import Certificates


def test_a_url_says_where_and_who() -> None:
    parameters = broker_from_url("amqp://ann:p%40ss%2F@broker.example:5673/a%2Fb?heartbeat=7").hosts[0].parameters()
    assert (parameters.host, parameters.port, parameters.virtual_host) == ("broker.example", 5673, "a/b")
    assert (parameters.credentials.username, parameters.credentials.password) == ("ann", "p@ss/")
    assert parameters.heartbeat == 7
    assert parameters.ssl_options is None


@pytest.mark.parametrize("url", ["amqp://", "amqp://localhost", "amqp://localhost/", "AMQP://localhost:5672/%2F"])
def test_what_a_url_leaves_out_is_the_usual(url: str) -> None:
    parameters = broker_from_url(url).hosts[0].parameters()
    assert (parameters.host, parameters.port, parameters.virtual_host) == ("localhost", 5672, "/")
    assert (parameters.credentials.username, parameters.credentials.password) == ("guest", "guest")


def test_an_address_of_ipv6_may_be_given() -> None:
    assert broker_from_url("amqp://[::1]:5673").hosts[0].parameters().host == "::1"


def test_arguments_win_over_the_query() -> None:
    broker = broker_from_url("amqp://h?heartbeat=7&connection_name=url", heartbeat=0, connection_name="argument")
    assert broker.hosts[0].parameters().heartbeat == 0
    assert broker.hosts[0].parameters().client_properties == {"connection_name": "argument"}


@pytest.mark.parametrize(
    "url",
    [
        "http://ann:secret@h",
        "amqp:ann:secret@h",
        "amqp:/h",
        "amqp://ann:secret@h:port",
        "amqp://ann:sec/ret@h",
        "amqp://ann:secret@h:99999",
        "amqp://ann:secret@h:0",
        "amqp://ann:secret@h1,h2:0",
        "amqp://ann:secret@::1,h2",
        "amqp://ann:secret@[h",
        "amqp://ann:secret#@h",
        "amqp://ann:secret@h/a/b",
        "amqp://ann:secret@h?nonsense=secret",
        "amqp://ann:secret@h?heartbeat=secret",
        "amqp://ann:secret@h?heartbeat=-1",
        "amqp://ann:secret@h?heartbeat=1&heartbeat=2",
        "amqp://ann:secret@h?connection_timeout=0",
        "amqp://ann:secret@h?auth_mechanism=secret",
        "amqp://ann:secret@h?secret",
        "amqp://ann:secret@h?cafile=ca.pem",
        "amqps://ann:secret@h?cafile=/nonexistent/ca.pem",
        "amqps://ann:secret@h?keyfile=/nonexistent/key.pem",
    ],
)
def test_a_bad_url_is_refused_without_its_secrets(url: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        RabbitMQTransport(url)
    assert "sec" not in str(caught.value).replace("seconds", "").replace("/nonexistent", "")
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_nothing_shows_the_credentials() -> None:
    transport = RabbitMQTransport("amqp://ann:secret@broker.example/v")
    shown = repr(transport) + repr(vars(transport)) + repr(broker_from_url("amqp://ann:secret@h"))
    assert "secret" not in shown
    assert "ann" not in shown
    assert "broker.example:5672" in shown


def test_certificates_may_be_named_in_the_url(tmp_path: Path) -> None:
    files = Certificates.create(tmp_path)
    url = f"amqps://h?cacertfile={files.ca_file}&certfile={files.client_cert}&keyfile={files.client_key}"
    parameters = broker_from_url(url).hosts[0].parameters()
    assert parameters.port == 5671
    assert parameters.ssl_options.server_hostname == "h"
    assert len(parameters.ssl_options.context.get_ca_certs()) == 1


def test_a_key_that_does_not_fit_its_certificate_is_refused(tmp_path: Path) -> None:
    files = Certificates.create(tmp_path)
    with pytest.raises(ConfigurationError, match="client certificate"):
        RabbitMQTransport("amqps://h", client_certificate=str(files.client_cert), client_key=str(files.server_key))


def test_an_unknown_queue_type_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="queue_type must be one of quorum, classic"):
        RabbitMQTransport("amqp://h", queue_type="stream")


short_strings = st.text(min_size=1).filter(lambda text: len(text.encode()) <= 255)
names = st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), min_size=1, max_size=63)


def percent_encoded(text: str) -> str:
    return "".join(f"%{byte:02X}" for byte in text.encode())


def test_a_plain_name_is_a_queue() -> None:
    assert parse_address("billing") == Address("", "billing")


def test_a_plain_name_is_not_decoded() -> None:
    assert parse_address("50%25 a/b") == Address("", "50%25 a/b")


def test_an_exchange_may_come_without_a_routing_key() -> None:
    assert parse_address("/exchanges/events") == Address("events", "")
    assert parse_address("/exchanges/events/") == Address("events", "")


@given(names)
def test_every_queue_can_be_addressed(name: str) -> None:
    assert parse_address(f"/queues/{percent_encoded(name)}") == Address("", name)


@given(names, short_strings)
def test_every_exchange_and_routing_key_can_be_addressed(exchange: str, key: str) -> None:
    address = f"/exchanges/{percent_encoded(exchange)}/{percent_encoded(key)}"
    assert parse_address(address) == Address(exchange, key)


@pytest.mark.parametrize(
    "malformed",
    [
        "/",
        "/queues",
        "/queues/",
        "/queues/a/b",
        "/exchanges",
        "/exchanges//key",
        "/exchanges/a/b/c",
        "/topics/a",
        "//a",
    ],
)
def test_what_is_no_address_is_refused(malformed: str) -> None:
    with pytest.raises(UnsupportedMessageError, match="is no address"):
        parse_address(malformed)


def test_what_decodes_to_no_text_is_refused() -> None:
    with pytest.raises(UnsupportedMessageError, match="UTF-8"):
        parse_address("/queues/%FF")


@pytest.mark.parametrize("address", ["/queues/{}", "/exchanges/{}/key", "/exchanges/name/{}"])
def test_names_beyond_a_short_string_are_refused(address: str) -> None:
    assert parse_address(address.format("%C3%A9" * 127))
    with pytest.raises(UnsupportedMessageError, match="256 bytes"):
        parse_address(address.format("%C3%A9" * 128))


def test_an_exchange_is_no_queue() -> None:
    assert queue_or_none("/queues/a%2Fb") == "a/b"
    assert queue_or_none("/exchanges/a/b") is None


@pytest.mark.parametrize("address", ["a\nb", "a\r", "\t", "\x7f", "é\x85", "/queues/a%0Ab", "/exchanges/a%0D/key"])
def test_a_name_with_a_control_character_is_refused(address: str) -> None:
    with pytest.raises(UnsupportedMessageError, match="control character") as caught:
        parse_address(address)
    assert str(caught.value).isprintable()


def test_what_is_no_text_is_refused() -> None:
    with pytest.raises(UnsupportedMessageError, match="UTF-8"):
        parse_address("\udcff")


PIKA = logging.getLogger("pika.channel")


def test_pika_is_quiet_about_our_connections_only(caplog: pytest.LogCaptureFixture) -> None:
    with quiet_pika():
        PIKA.error("ours")
        beside = threading.Thread(target=PIKA.error, args=("theirs, in another thread",))
        beside.start()
        beside.join()
    PIKA.error("theirs")
    assert [record.getMessage() for record in caplog.records] == ["theirs, in another thread", "theirs"]


def test_whoever_debugs_pika_sees_all(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "pika")
    with quiet_pika():
        PIKA.error("ours")
    assert [record.getMessage() for record in caplog.records] == ["ours"]
