"""TLS is verified without being asked for: who signed the certificate, and for whom it is."""

import os
import ssl
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from delaystore.cascades import BrokerClient
from delaystore.errors import ConfigurationError, TransportUnavailableError
from delaystore.message import DelayedMessage
from delaystore.transports import RabbitMQTransport
from delaystore.transports.abc import DELIVERED
from delaystore.transports.rabbitmq.parameters import broker_from_url
from tests.servers import RabbitMQ, RabbitMQVhosts
from tests.servers.certificates import Certificates

NEVER_MIND = ["verify=verify_none", "verify=0", "ssl_options={}", "insecure=true", "check_hostname=false"]
"""What a URL might say to turn the checks off."""


@pytest.fixture
def broker(rabbitmq: RabbitMQVhosts) -> RabbitMQ:
    """A broker with TLS; its certificate is for localhost and 127.0.0.1."""
    if not isinstance(rabbitmq, RabbitMQ):
        pytest.skip("a broker given by DELAYSTORE_TEST_RABBITMQ_URL has no certificates of ours")
    return rabbitmq


@pytest.fixture
def others(tmp_path: Path) -> Certificates:
    """Those of an authority that did not sign the broker's."""
    return Certificates.create(tmp_path)


def query(files: Certificates, ca_file: Path) -> str:
    return f"?cafile={ca_file}&certfile={files.client_cert}&keyfile={files.client_key}"


def refused(url: str, match: str) -> None:
    """Both ways to AMQP refuse it: the transport, and the administration of cascades."""
    transport = RabbitMQTransport(url)
    try:
        with pytest.raises(TransportUnavailableError, match=match):
            transport.declare("tls")
    finally:
        transport.close()
    with BrokerClient(url) as client, pytest.raises(TransportUnavailableError, match=match):
        client.version()


def test_the_right_broker_is_taken(broker: RabbitMQ) -> None:
    with BrokerClient(broker.tls_url + query(broker.certificates, broker.certificates.ca_file)) as client:
        assert client.version()


def test_a_body_of_many_frames_arrives_through_it(broker: RabbitMQ) -> None:
    body = os.urandom(5 * 1024 * 1024 + 1)
    url = broker.tls_url + query(broker.certificates, broker.certificates.ca_file)
    with closing(RabbitMQTransport(url)) as transport:
        transport.declare("tls-large")
        message = DelayedMessage(
            message_id="large", destination="tls-large", due_time=datetime(2027, 1, 1, tzinfo=UTC), body=body
        )
        (outcome,) = transport.send([message], None, 30)
        assert outcome is DELIVERED
        with transport.receive("tls-large", 1, timeout=30) as (received,):
            assert received.body == body


def test_another_authority_is_refused(broker: RabbitMQ, others: Certificates) -> None:
    refused(broker.tls_url + query(broker.certificates, others.ca_file), "certificate was not accepted")


def test_the_systems_authorities_do_not_know_it(broker: RabbitMQ) -> None:
    refused(broker.tls_url, "certificate was not accepted")


def test_a_certificate_for_another_host_is_refused(broker: RabbitMQ) -> None:
    """127.1 is the same address by another name, which the certificate does not have."""
    files = broker.certificates
    url = broker.tls_url.replace("127.0.0.1", "127.1") + query(files, files.ca_file)
    refused(url, "(?i)certificate was not accepted.*127.1")
    named = broker.tls_url + query(files, files.ca_file) + "&server_name_indication=other.example"
    refused(named, "(?i)certificate was not accepted.*other.example")


@pytest.mark.parametrize("parameter", NEVER_MIND)
@pytest.mark.parametrize("scheme", ["amqp", "amqps"])
def test_no_parameter_turns_it_off(scheme: str, parameter: str) -> None:
    with pytest.raises(ConfigurationError, match="unknown parameter"):
        broker_from_url(f"{scheme}://localhost/?{parameter}")


@pytest.mark.parametrize("name", ["", "&server_name_indication=", "&server_name_indication=disable"])
def test_every_context_verifies(name: str) -> None:
    options = broker_from_url(f"amqps://localhost/?heartbeat=5{name}").hosts[0].parameters().ssl_options
    assert options.context.verify_mode is ssl.CERT_REQUIRED
    assert options.context.check_hostname
    assert options.server_hostname in ("localhost", "disable")
