"""Endpoints of NServiceBus 5 send timeouts to a queue as ever: delaystore reads it in place of the timeout manager."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import uuid4

import pika
import pytest

from delaystore.text import DEFAULT_EXCHANGE, Address
from delaystore.transports.abc import OutcomeKind
from delaystore.transports.rabbitmq.copies import Copy
from delaystore.transports.rabbitmq.parameters import broker_from_url
from delaystore.transports.rabbitmq.publisher import BatchPublisher
from delaystore.transports.rabbitmq.raw import text_value
from tests.faults.patience import wait_until
from tests.incoming import incoming_message
from tests.ingress.service import Service
from tests.integration.ingress_path import IngressPath, entries
from tests.servers import PostgreSQLDatabases, RabbitMQVhosts

ENDPOINT, TIMEOUTS = "Sales", "Sales.Timeouts"
BODY: Final = b'\xef\xbb\xbf<?xml version="1.0" ?>\r\n<RemorseIsOver><Note>\xc3\xa9\x00</Note></RemorseIsOver>'
PROPERTIES: Final = {
    "content_type": "text/xml",
    "type": "Sales.RemorseIsOver",
    "correlation_id": "0f2b3a52-5d3c-4ab8-9df4-a65700f3ecf6",
    "reply_to": ENDPOINT,
    "delivery_mode": 2,
}
"""As its RabbitMQ transport fills them."""


def wire_time(time: datetime) -> str:
    """As NServiceBus writes times."""
    return time.strftime("%Y-%m-%d %H:%M:%S:%f Z")


def timeout_headers(message_id: str, due: datetime, **others: str) -> dict[str, str]:
    """Of a timeout that a saga's or another handler has asked for; `others`: without the prefix."""
    names = {
        "MessageId": message_id,
        "CorrelationId": PROPERTIES["correlation_id"],
        "ConversationId": "8a0e1a52-6d0b-4d0d-8f43-a65700f3ecf6",
        "MessageIntent": "Send",
        "Version": "5.2.26",
        "TimeSent": wire_time(datetime.now(UTC)),
        "OriginatingEndpoint": ENDPOINT,
        "OriginatingMachine": "SRV-1",
        "ContentType": "text/xml",
        "EnclosedMessageTypes": "Sales.RemorseIsOver, Sales, Version=1.0.0.0, Culture=neutral",
        "IsSagaTimeoutMessage": "True",
        "Timeout.RouteExpiredTimeoutTo": ENDPOINT,
        "Timeout.Expire": wire_time(due),
    } | others
    return {f"NServiceBus.{name}": str(value) for name, value in names.items()} | {"$.diagnostics.hostid": "1f2e3d"}


class Endpoint:
    """An NServiceBus endpoint, as RabbitMQ sees it."""

    def __init__(self, service: Service, management: str) -> None:
        self.service = service
        self.path = IngressPath(service.url, management)
        self._publisher = BatchPublisher(broker_from_url(service.url))

    def close(self) -> None:
        self._publisher.close()
        self.path.close()

    def send(self, headers: dict[str, str], **properties: Any) -> None:
        """To its timeout manager, with the broker's confirm."""
        raw = incoming_message({name: text_value(value) for name, value in headers.items()}, **PROPERTIES | properties)
        copy = Copy(Address(DEFAULT_EXCHANGE, TIMEOUTS), raw.properties, BODY)
        assert self._publisher.publish([copy], 30)[0].kind is OutcomeKind.DELIVERED

    def waiting(self) -> list[str]:
        """The ids of the timeouts that wait."""
        with self.service.delivery() as delivery:
            return [one.message_id for one in delivery.list().messages]


@pytest.fixture(scope="module", params=["classic", "quorum"])
def service(
    request: pytest.FixtureRequest, rabbitmq: RabbitMQVhosts, postgresql: PostgreSQLDatabases
) -> Iterator[Service]:
    """The queues of an endpoint, as it declares them, and delaystore in place of its timeout manager."""
    broker, store = rabbitmq.create_vhost(), postgresql.create_database()
    with pika.BlockingConnection(pika.URLParameters(broker)) as connection:
        for queue, kind in ((ENDPOINT, "classic"), (TIMEOUTS, request.param)):
            connection.channel().queue_declare(queue, durable=True, arguments={"x-queue-type": kind})
    with Service(store, broker, rabbitmq.management_url or "", queue=TIMEOUTS) as service:
        yield service
    rabbitmq.delete_vhost(broker)
    postgresql.drop_database(store)


@pytest.fixture
def endpoint(service: Service, rabbitmq: RabbitMQVhosts) -> Iterator[Endpoint]:
    endpoint = Endpoint(service, rabbitmq.management_url or "")
    yield endpoint
    endpoint.close()


@pytest.mark.long_runs("classic")
@pytest.mark.parametrize("of_a_saga", [True, False])
def test_a_timeout_becomes_what_the_timeout_manager_would_have_sent(endpoint: Endpoint, of_a_saga: bool) -> None:
    own, saga = str(uuid4()), str(uuid4())
    due = datetime.now(UTC) + timedelta(seconds=3)
    others = {"SagaId": saga.upper(), "SagaType": "Sales.Policy, Sales"} if of_a_saga else {}
    headers = timeout_headers(own, due, **others)
    endpoint.send(headers, message_id=own)
    found = endpoint.path.take(ENDPOINT)
    assert time.time() >= due.timestamp()
    timeout_id = f"{saga}/{own}" if of_a_saga else own
    changed = {"NServiceBus.TimeSent": wire_time(due), "NServiceBus.RelatedToTimeoutId": timeout_id}
    assert entries(found) == {name: text_value(value) for name, value in (headers | changed).items()}
    assert found.body == BODY
    assert found.routing_key == ENDPOINT
    expected = incoming_message({}, **PROPERTIES, message_id=timeout_id).properties.fields
    given = {name: value for name, value in found.properties.fields.items() if name != "headers"}
    assert given == {name: value for name, value in expected.items() if name != "headers"}


def test_a_timeout_that_is_due_is_sent_on_as_it_is(endpoint: Endpoint) -> None:
    own = str(uuid4())
    headers = timeout_headers(own, datetime.now(UTC) - timedelta(days=1))
    endpoint.send(headers, message_id=own)
    found = endpoint.path.take(ENDPOINT)
    assert entries(found) == {name: text_value(value) for name, value in headers.items()}
    assert found.body == BODY


@pytest.mark.long_runs("classic")
def test_a_saga_that_ends_clears_its_timeouts_and_no_others(endpoint: Endpoint) -> None:
    ended, other = str(uuid4()), str(uuid4())
    due = datetime.now(UTC) + timedelta(hours=1)
    for saga in (ended, ended, other):
        own = str(uuid4())
        endpoint.send(timeout_headers(own, due, SagaId=saga), message_id=own)
    wait_until(lambda: len(endpoint.waiting()) == 3, "all wait")
    cleared = {"NServiceBus.ClearTimeouts": "True", "NServiceBus.SagaId": ended, "NServiceBus.MessageIntent": "Send"}
    endpoint.send(cleared, message_id=str(uuid4()))
    wait_until(lambda: len(endpoint.waiting()) == 1, "those of the saga are gone")
    (left,) = endpoint.waiting()
    assert left.startswith(f"{other}/")
    endpoint.service.run("cancel", left)


def test_what_is_no_timeout_is_put_aside(endpoint: Endpoint) -> None:
    headers = timeout_headers("no-timeout", datetime.now(UTC))
    del headers["NServiceBus.Timeout.Expire"]
    endpoint.send(headers, message_id="no-timeout")
    found = endpoint.path.take(f"{TIMEOUTS}.rejected")
    assert found.body == BODY
    assert b"destination" in entries(found)["delaystore.rejected-reason"]
