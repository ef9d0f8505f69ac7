"""Looking into queues of RabbitMQ loses nothing, whatever their delivery limit."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pika
import pytest

from delaystore.errors import TransportSetupError
from delaystore.transports import RabbitMQTransport
from delaystore.transports.abc import DELIVERED
from tests.dispatching import message
from tests.servers import RabbitMQVhosts

COUNT = 12


@pytest.fixture
def transport(rabbitmq_url: str) -> Iterator[RabbitMQTransport]:
    opened = RabbitMQTransport(rabbitmq_url)
    yield opened
    opened.close()


def declare(url: str, arguments: dict[str, Any]) -> None:
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        connection.channel().queue_declare("error", durable=True, arguments=arguments)


def looked_at(transport: RabbitMQTransport) -> list[str]:
    ids: list[str] = []
    with transport.open_queue("error") as opened:
        while taken := opened.take(5):
            ids += [one.message.message_id for one in taken]
    return ids


@pytest.mark.parametrize("limit", [1, 2, 5, None])
def test_a_queue_with_a_delivery_limit_is_looked_at_as_often_as_one_likes(
    transport: RabbitMQTransport, rabbitmq_url: str, limit: int | None
) -> None:
    declare(rabbitmq_url, {"x-queue-type": "quorum"} | ({} if limit is None else {"x-delivery-limit": limit}))
    batch = [
        message(f"m{number:02}", destination="error", headers={"n": number, "b": b"\0"}, properties={"type": "t"})
        for number in range(COUNT)
    ]
    assert transport.send(batch, None, 10) == [DELIVERED] * COUNT
    for _ in range(8):
        assert looked_at(transport) == [message.message_id for message in batch]
    with transport.receive("error", COUNT, 5) as found:
        assert [dict(message.headers) for message in found] == [dict(message.headers) for message in batch]
        assert [message.properties["type"] for message in found] == ["t"] * COUNT


def test_a_queue_that_drops_whatever_is_given_back_is_not_looked_into(
    transport: RabbitMQTransport, rabbitmq_url: str
) -> None:
    declare(rabbitmq_url, {"x-queue-type": "quorum", "x-delivery-limit": 0})
    assert transport.send([message("a", destination="error")], None, 10) == [DELIVERED]
    with pytest.raises(TransportSetupError, match="delivery limit of 0"):
        looked_at(transport)
    assert transport.depth("error") == 1


def test_the_order_of_more_messages_than_a_channel_has_consumers_for_stays(transport: RabbitMQTransport) -> None:
    transport.declare("error")
    batch = [message(f"m{number:04}", destination="error") for number in range(400)]
    assert transport.send(batch, None, 10) == [DELIVERED] * len(batch)
    for _ in range(2):
        assert looked_at(transport) == [message.message_id for message in batch]


def test_large_messages_are_taken_few_at_a_time(transport: RabbitMQTransport) -> None:
    transport.declare("error")
    batch = [message(f"m{number:02}", destination="error", body=bytes(6 * 2**20)) for number in range(20)]
    assert transport.send(batch, None, 60) == [DELIVERED] * len(batch)
    with transport.open_queue("error") as opened:
        sizes = []
        while taken := opened.take(100):
            sizes.append(len(taken))
    assert sum(sizes) == 20
    assert max(sizes[1:]) <= 2


def test_an_exchange_is_known_to_be_missing_only(transport: RabbitMQTransport) -> None:
    assert transport.reaches("/exchanges/amq.topic/any") is None
    assert transport.reaches("/exchanges/missing/any") is False


def test_who_may_only_read_and_write_looks_without_loss(rabbitmq: RabbitMQVhosts, rabbitmq_url: str) -> None:
    """Its limit may not be asked for, and counts as 20."""
    declare(rabbitmq_url, {"x-queue-type": "quorum", "x-delivery-limit": 20})
    batch = [message(f"m{number}", destination="error") for number in range(3)]
    with rabbitmq.user(rabbitmq_url, write=".*", read=".*") as url, closing(RabbitMQTransport(url)) as transport:
        assert transport.send(batch, None, 10) == [DELIVERED] * 3
        for _ in range(25):
            assert looked_at(transport) == ["m0", "m1", "m2"]
