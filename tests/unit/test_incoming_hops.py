"""Messages that RabbitMQ itself brings back to an ingress, and those that a program publishes again."""

from datetime import UTC, datetime
from typing import Any

import pytest

from delaystore.ingress.reading.content import MOST
from delaystore.ingress.reading.destinations import parse_destination
from delaystore.ingress.reading.incoming import IncomingMessage, RejectedMessageError
from delaystore.ingress.reading.reader import IncomingReader, ReadingRules
from delaystore.message import DelayedMessage
from delaystore.text import parse_address
from delaystore.transports.rabbitmq.properties import amqp_properties, check_message
from delaystore.transports.rabbitmq.raw import RawProperties
from tests.incoming import incoming_message

NOW = datetime(2027, 1, 31, 9, tzinfo=UTC)
LOOP = "RabbitMQ has brought it back from there 20 times, without a program in between: correct the bindings"


def reader(destination: str, queue: str = "E.ingress", **rules: Any) -> IncomingReader:
    rule = parse_destination(destination, "--destination")
    return IncomingReader(ReadingRules(ingress_queue=queue, destination=rule, check=check_message, **rules))


def read(reader: IncomingReader, it: IncomingMessage) -> DelayedMessage:
    message = reader.read(it, NOW)
    assert isinstance(message, DelayedMessage)
    return message


def forwarded(message: DelayedMessage, **others: Any) -> IncomingMessage:
    """The message as it comes to an ingress queue, published with the address that it was forwarded to, or `others`."""
    exchange, key = parse_address(message.destination)
    properties = RawProperties(b"".join(amqp_properties(message).encode()))
    return IncomingMessage("q", exchange, key, properties, message.body, False, 1)._replace(**others)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"x-delay": 5000},
        {"x-opt-delivery-delay": 1},
        {"x-opt-delivery-delay": 1000},
        {"x-opt-delivery-delay": 5000},
        {"x-opt-delivery-time": 4_000_000_000_000},
        {"delaystore.due-time": "2027-01-31T09:30:00Z"},
    ],
    ids=str,
)
@pytest.mark.parametrize("destination", ["/exchanges/OUT", "/exchanges/OUT/k", "elsewhere", "header"])
def test_what_only_bindings_bring_back_ends(destination: str, headers: dict[str, Any]) -> None:
    ingress = reader(destination)
    message = read(ingress, incoming_message({**headers, "delaystore.destination": "elsewhere"}))
    rounds = 0
    with pytest.raises(RejectedMessageError, match=LOOP):
        while rounds < 3 * MOST:
            message = read(ingress, forwarded(message))
            rounds += 1
    assert MOST <= rounds <= MOST + 1


@pytest.mark.parametrize("first", ["/exchanges/B/k", "B.ingress", "/exchanges/A.out"])
def test_a_loop_over_several_ingresses_ends(first: str) -> None:
    """Each forwards to where the other one reads: directly, or as their output exchanges are bound to the other."""
    ingresses = [reader(first, "A.ingress"), reader("/exchanges/B.out", "B.ingress")]
    message = read(ingresses[0], incoming_message({"x-delay": 5}, queue="A.ingress"))
    rounds = 0
    with pytest.raises(RejectedMessageError, match=LOOP):
        while rounds < 5 * MOST:
            message = read(ingresses[(rounds + 1) % 2], forwarded(message))
            rounds += 1
    assert rounds <= 3 * MOST


@pytest.mark.parametrize("destination", ["/exchanges/OUT", "/exchanges/OUT/k", "elsewhere", "header"])
@pytest.mark.parametrize("asks_again", [True, False])
def test_a_consumer_may_publish_a_message_again_as_often_as_it_likes(destination: str, asks_again: bool) -> None:
    """As it came, to the exchange that it was sent to at first; and where its output exchange leads back."""
    ingress = reader(destination)
    message = read(ingress, incoming_message({"x-delay": 5, "delaystore.destination": "elsewhere"}))
    for number in range(3 * MOST):
        if asks_again:
            message = DelayedMessage(
                message_id=message.message_id,
                destination=message.destination,
                due_time=NOW,
                body=b"",
                headers={**message.headers, "x-delay": 5000},
            )
        to = {} if asks_again and number % 2 else {"exchange": "E", "routing_key": "key"}
        message = read(ingress, forwarded(message, **to))
        assert "delaystore.hops" not in message.headers


def test_a_chain_of_ingresses_is_no_loop_and_a_fresh_publish_begins_again() -> None:
    message = read(reader("/exchanges/B/k"), incoming_message())
    for number in range(1, 6):
        message = read(reader(f"/exchanges/B{number}/k"), forwarded(message))
        assert message.headers["delaystore.hops"] == number
    message = read(reader("/exchanges/B/k"), forwarded(message, exchange="E", routing_key="key"))
    assert message.headers == {"delaystore.forwarded-to": "/exchanges/B/k"}


@pytest.mark.parametrize("exchange", ["E", "", "E.ingress.expired"])
def test_what_goes_from_the_ingress_exchange_to_its_output_exchange_gets_no_header(exchange: str) -> None:
    message = read(reader("/exchanges/OUT"), incoming_message()._replace(exchange=exchange))
    assert not message.headers


@pytest.mark.parametrize("noted", [3, "", "/nowhere/x", ["E"]])
def test_what_others_write_into_these_headers_harms_nothing(noted: Any) -> None:
    message = DelayedMessage(
        message_id="a",
        destination="/exchanges/OUT/key",
        due_time=NOW,
        body=b"",
        headers={"delaystore.forwarded-to": noted, "delaystore.hops": "many"},
    )
    assert not read(reader("/exchanges/OUT"), forwarded(message, exchange="E")).headers
