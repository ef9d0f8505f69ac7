"""Messages of AMQP 1.0 publishers, as RabbitMQ hands them to the ingress: RabbitMQ 4 itself, 3 by its plugin.

The client is qpid-proton, which is no dependency, as it has to be compiled: pip install python-qpid-proton.
"""

from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from tests.incoming import text_value, typed
from tests.integration.ingress_path import IngressPath, entries, version_of
from tests.servers import RabbitMQ, RabbitMQVhosts

proton = pytest.importorskip("proton", reason="qpid-proton is not installed")
proton_utils = pytest.importorskip("proton.utils")

Publish = Callable[..., None]
MS = timedelta(milliseconds=1)
BEGIN = datetime.now(UTC)
IN_AN_HOUR = (int(BEGIN.timestamp()) + 3600) * 1000 + 123


@pytest.fixture(scope="module")
def amqp1_broker(rabbitmq: RabbitMQVhosts) -> Iterator[RabbitMQVhosts]:
    """A broker that takes AMQP 1.0."""
    if version_of(rabbitmq.url) >= (4, 0):
        yield rabbitmq
    else:
        with RabbitMQ(management=True, plugins=("rabbitmq_amqp1_0",)) as broker:
            yield broker


@pytest.fixture
def path(amqp1_broker: RabbitMQVhosts) -> Iterator[IngressPath]:
    url = amqp1_broker.create_vhost()
    with closing(IngressPath(url, amqp1_broker.management_url or "")) as path:
        yield path
    amqp1_broker.delete_vhost(url)


@pytest.fixture
def is_4(amqp1_broker: RabbitMQVhosts) -> bool:
    return version_of(amqp1_broker.url) >= (4, 0)


@pytest.fixture
def publish(path: IngressPath, is_4: bool) -> Publish:
    def publish(annotations: dict[str, Any], **fields: Any) -> None:
        parts = urlsplit(path.url)
        vhost = RabbitMQVhosts.vhost_name(path.url)
        url = f"amqp://{parts.username}:{quote(parts.password or '')}@{parts.hostname}:{parts.port}"
        connection = proton_utils.BlockingConnection(url, allowed_mechs="PLAIN", virtual_host=f"vhost:{vhost}")
        try:
            sender = connection.create_sender("/exchanges/orders/key.1" if is_4 else "/exchange/orders/key.1")
            named = {proton.symbol(name): value for name, value in annotations.items()}
            sender.send(proton.Message(body=b"body", inferred=True, durable=True, annotations=named, **fields))
        finally:
            connection.close()

    return publish


@pytest.mark.parametrize("kind", ["ulong", "int", "uint", "int32", "short"])
def test_a_delay_of_any_whole_number(path: IngressPath, publish: Publish, is_4: bool, kind: str) -> None:
    number: Any = 5000 if kind == "int" else getattr(proton, kind)(5000)
    before = datetime.now(UTC)
    publish({"x-opt-delivery-delay": number}, id="m-1")
    message, got = path.forward()
    assert before + 5000 * MS <= message.due_time <= datetime.now(UTC) + 5000 * MS
    assert (message.message_id, message.body, got.body) == ("m-1", b"body", b"body")
    if is_4:
        assert message.headers["x-opt-delivery-delay"] == 5000
    else:
        assert b"x-opt-delivery-delay" in message.headers["x-amqp-1.0-message-annotations"]


def test_a_delivery_time_as_a_number(path: IngressPath, publish: Publish) -> None:
    publish({"x-opt-delivery-time": IN_AN_HOUR, "x-opt-delivery-delay": 5})
    assert path.forward()[0].due_time == datetime.fromtimestamp(IN_AN_HOUR // 1000, UTC) + 123 * MS


def test_a_delivery_time_as_a_timestamp_is_never_early(path: IngressPath, publish: Publish, is_4: bool) -> None:
    publish({"x-opt-delivery-time": proton.timestamp(IN_AN_HOUR)})
    exact = datetime.fromtimestamp(IN_AN_HOUR // 1000, UTC) + 123 * MS
    expected = exact.replace(microsecond=999_000) if is_4 else exact
    assert path.forward()[0].due_time == expected


def test_an_x_delay_may_be_an_annotation_or_a_property_of_the_application(
    path: IngressPath, publish: Publish, is_4: bool
) -> None:
    if not is_4:
        pytest.skip("RabbitMQ 3 hands annotations and properties of the application on in sections")
    for fields in ({"annotations": {"x-delay": proton.int32(77)}}, {"properties": {"x-delay": proton.int32(77)}}):
        publish(fields.pop("annotations", {}), **fields)
        assert entries(path.forward()[1])["x-delay"] == typed("I", -77)


def test_what_it_carries_arrives(path: IngressPath, publish: Publish, is_4: bool) -> None:
    publish(
        {"x-opt-delivery-delay": 5},
        properties={"shop": "Berlin", "ratio": 0.1},
        priority=7,
        ttl=60,
        correlation_id="c-1",
    )
    message, got = path.forward()
    assert message.properties.items() >= {"priority": 7, "expiration": "60000", "correlation_id": "c-1"}.items()
    if is_4:
        named = {"shop": text_value("Berlin"), "ratio": typed("d", 0.1)}
        assert entries(got) == {"x-opt-delivery-delay": typed("I", 5), **named}
