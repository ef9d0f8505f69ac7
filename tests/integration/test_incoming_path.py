"""What a consumer gets behind the real path: published, taken from the ingress queue, read, forwarded."""

import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from delaystore.text import Address
from delaystore.transports.abc import OutcomeKind
from delaystore.transports.rabbitmq.copies import Copy
from delaystore.transports.rabbitmq.parameters import broker_from_url
from delaystore.transports.rabbitmq.publisher import BatchPublisher
from delaystore.transports.rabbitmq.raw import text_of
from tests.incoming import array, bytes_value, incoming_message, raw_text, table, text_value, typed
from tests.integration.cascades import channel_to
from tests.integration.cli import PATIENCE
from tests.integration.ingress_path import NAMES, IngressPath, entries, version_of
from tests.servers import RabbitMQ, RabbitMQVhosts


@pytest.fixture
def path(rabbitmq: RabbitMQVhosts, rabbitmq_url: str) -> Iterator[IngressPath]:
    with closing(IngressPath(rabbitmq_url, rabbitmq.management_url or "")) as path:
        yield path


def test_headers_and_properties_arrive_byte_for_byte(path: IngressPath) -> None:
    headers = {
        "text": text_value("\u20ac"),
        "bytes": bytes_value(b"\x00\xff"),
        "true": typed("t", True),
        "void": typed("V"),
        "int": typed("I", -5),
        "long": typed("l", 2**40),
        "time": typed("T", 1801386000),
        "decimal": typed("D", 2, 1234),
        "float": typed("d", 0.1),
        "floats": array(typed("d", 1e300), table({"a": typed("d", -1.0)})),
        "table": table({"a": typed("I", 1), "b": array(text_value("c"))}),
        "CC": array(text_value("copy")),
    }
    sent = incoming_message(
        {"x-delay": typed("I", 5000), **headers},
        content_type="application/json",
        content_encoding="gzip",
        correlation_id="c-1",
        reply_to="answers",
        type="Shop.Order",
        priority=9,
        expiration="60000",
        app_id="shop",
        delivery_mode=1,
        timestamp=1801386000123,
        message_id="m-1",
    ).properties
    path.publish(sent)
    before = datetime.now(UTC)
    message, got = path.forward()
    assert before + timedelta(seconds=4) < message.due_time < before + timedelta(seconds=6)
    assert (got.exchange, got.routing_key, got.body) == ("orders.out", "key.1", b"body")
    assert entries(got) == {"x-delay": typed("I", -5000), **headers}
    assert {name: value for name, value in got.properties.fields.items() if name != "headers"} == {
        name: value for name, value in sent.fields.items() if name != "headers"
    }


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (typed("l", 5000), typed("I", -5000)),
        (typed("s", 5000), typed("I", -5000)),
        (typed("d", 5000.5), typed("I", -5000)),
        (text_value("5000"), typed("I", -5000)),
        (typed("l", 2**32), typed("l", -(2**32))),
        (raw_text(b"0"), text_value("0")),
    ],
)
def test_x_delay_arrives_negated(path: IngressPath, value: bytes, written: bytes) -> None:
    path.publish(incoming_message({"x-delay": value}).properties)
    assert entries(path.forward()[1]) == {"x-delay": written}


def test_a_message_that_expired_in_the_ingress_queue_gets_its_expiration_back(path: IngressPath) -> None:
    path.publish(incoming_message({"x-delay": 5000, "a": "b"}, expiration="1500", message_id="m-1").properties)
    taken = path.take(NAMES.expired)
    assert {"x-death", "x-first-death-queue"} <= entries(taken).keys()
    assert "expiration" not in taken.properties.fields
    message = path.read(taken)
    assert message.destination == "/exchanges/orders.out/key.1"
    assert (message.headers, message.properties) == ({"x-delay": -5000, "a": "b"}, {"expiration": "1500"})


def test_a_message_that_died_elsewhere_before_says_so_still(path: IngressPath, rabbitmq: RabbitMQVhosts) -> None:
    with channel_to(path.url) as channel:
        channel.queue_declare("before", durable=True, arguments={"x-dead-letter-exchange": NAMES.exchange})
    sent = incoming_message({"x-delay": 5000}, expiration="1").properties
    path.publish(sent, Address("", "before"))
    first = path.read(path.take(NAMES.queue))
    assert first.headers["x-death"][0]["queue"] == first.headers["x-first-death-queue"] == "before"
    assert first.properties == {}
    policy = {"pattern": "^orders.ingress$", "definition": {"message-ttl": 100}, "apply-to": "queues"}
    rabbitmq.request("PUT", f"/api/policies/{rabbitmq.vhost_name(path.url)}/ttl", policy)
    path.publish(sent, Address("", "before"))
    taken = path.take(NAMES.expired)
    assert entries(taken)["x-death"].count(b"orders.ingress") == 1
    again = path.read(taken)
    assert _without_times(again.headers) == _without_times(first.headers)
    assert again.properties == {}


def _without_times(headers: Mapping[str, Any]) -> Mapping[str, Any]:
    deaths = [{name: value for name, value in death.items() if name != "time"} for death in headers["x-death"]]
    return {**headers, "x-death": deaths}


def test_what_a_quorum_queue_counts_is_left_behind(path: IngressPath) -> None:
    path.publish(incoming_message({"x-delay": 5000}).properties)
    with channel_to(path.url, raw=True) as channel:
        for _ in range(2):
            method, _, _ = channel.basic_get(NAMES.queue)
            channel.basic_nack(method.delivery_tag)
            time.sleep(0.2)
    it = path.take(NAMES.queue)
    assert it.redelivered
    assert {"x-delivery-count", "x-acquired-count"} & entries(it).keys()
    message = path.read(it)
    assert message.headers == {"x-delay": -5000}


def test_a_user_is_told_by_a_header_and_no_broker_refuses_it(path: IngressPath, rabbitmq: RabbitMQVhosts) -> None:
    with rabbitmq.user(path.url, write=".*", configure=".*", read=".*") as url:
        user = url.partition("//")[2].partition(":")[0]
        with closing(BatchPublisher(broker_from_url(url))) as publisher:
            copy = Copy(Address(NAMES.exchange, "k"), incoming_message({"x-delay": 5}, user_id=user).properties, b"")
            assert publisher.publish([copy], PATIENCE)[0].kind is OutcomeKind.DELIVERED
    _, got = path.forward()
    assert entries(got) == {"x-delay": typed("I", -5), "delaystore.user-id": text_value(user)}
    assert "user_id" not in got.properties.fields


def test_a_timeout_of_nservicebus_5_arrives_as_its_timeout_manager_would_send_it(path: IngressPath) -> None:
    saga, due = "0f5c7f4e-5f7b-4d67-9a3c-2a1b0c9d8e7f", "2127-01-31 09:00:00:000001 Z"
    headers: dict[str, str | bytes] = {
        "NServiceBus.MessageId": "c7b6-1",
        "NServiceBus.CorrelationId": "c7b6-0",
        "NServiceBus.MessageIntent": "Send",
        "NServiceBus.Version": "5.2.26",
        "NServiceBus.TimeSent": "2027-01-31 08:59:59:000000 Z",
        "NServiceBus.IsSagaTimeoutMessage": "True",
        "NServiceBus.SagaId": saga.upper(),
        "NServiceBus.SagaType": "Shop.OrderSaga, Shop",
        "NServiceBus.EnclosedMessageTypes": "Shop.OrderTimeout, Shop",
        "NServiceBus.ContentType": "text/xml",
        "NServiceBus.Timeout.RouteExpiredTimeoutTo": "end",
        "NServiceBus.Timeout.Expire": due,
        "CorrId": typed("V"),
    }
    sent = {
        "message_id": "c7b6-1",
        "correlation_id": "c7b6-0",
        "reply_to": "Sales",
        "type": "Shop.OrderTimeout",
        "content_type": "text/xml",
    }
    path.publish(incoming_message(headers, delivery_mode=2, **sent).properties)
    message, got = path.forward()
    assert (message.destination, message.due_time) == ("end", datetime(2127, 1, 31, 9, 0, 0, 1, tzinfo=UTC))
    assert (got.exchange, got.routing_key, got.body) == ("", "end", b"body")
    added = {"NServiceBus.TimeSent": due, "NServiceBus.RelatedToTimeoutId": f"{saga}/c7b6-1"}
    assert {name: text_of(value) for name, value in entries(got).items()} == {
        **headers,
        **added,
        "CorrId": None,
    }
    texts = {name: got.properties.text(name) for name in sent}
    assert texts == {**sent, "message_id": f"{saga}/c7b6-1"}


def test_a_delay_counts_from_when_the_broker_received_the_message(rabbitmq: RabbitMQVhosts, rabbitmq_url: str) -> None:
    if version_of(rabbitmq_url) < (3, 12):
        pytest.skip("RabbitMQ has message interceptors from 3.12 on")
    interceptor = "message_interceptors.incoming.set_header_timestamp.overwrite = true"
    with (
        RabbitMQ(management=True, configuration=(interceptor,)) as broker,
        closing(IngressPath(broker.url, broker.management_url or "")) as path,
    ):
        begin = datetime.now(UTC)
        path.publish(incoming_message({"x-delay": 60_000, "timestamp_in_ms": typed("l", 10**12 + 1)}).properties)
        end = datetime.now(UTC)
        time.sleep(2)
        message, got = path.forward()
        assert begin - timedelta(milliseconds=1) < message.due_time - timedelta(seconds=60) < end
        assert {"timestamp_in_ms", "x-delay"} <= entries(got).keys()
