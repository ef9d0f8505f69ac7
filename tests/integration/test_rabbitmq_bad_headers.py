"""A message whose headers nobody here can read, in the error queue: the others are seen and replayed, and it can go."""

import struct
from collections.abc import Iterator

import pika
import pytest
from pika import spec
from typing_extensions import override

from delaystore.errors import TransportError
from delaystore.operations import ErrorFilter, ErrorQueue
from delaystore.transports import RabbitMQTransport
from delaystore.transports.abc import DELIVERED
from tests.dispatching import message, received

IN_MILLISECONDS = 1_763_960_000_000


def short(text: bytes) -> bytes:
    return bytes([len(text)]) + text


def table(*entries: tuple[bytes, bytes]) -> bytes:
    body = b"".join(short(name) + value for name, value in entries)
    return struct.pack(">I", len(body)) + body


def nested(levels: int) -> bytes:
    inner = table()
    for _ in range(levels):
        inner = table((b"n", b"F" + inner))
    return b"F" + inner


BAD = {
    "a time in milliseconds": table((b"sent", b"T" + struct.pack(">Q", IN_MILLISECONDS))),
    "a thousand levels": table((b"deep", nested(1_000))),
    "a name that is no text": table((b"\xff\xfe", b"t\x01"), (b"NServiceBus.FailedQ", b"S\0\0\0\x07billing")),
    "such a name within": table((b"deep", b"F" + table((b"\xff", b"t\x01")))),
}


class Raw(spec.BasicProperties):  # type: ignore[misc] # pika's class is untyped here
    """Headers as bytes, and a message id."""

    def __init__(self, headers: bytes, message_id: bytes) -> None:
        super().__init__()
        self._encoded = headers + short(message_id)

    @override
    def encode(self) -> list[bytes]:
        flags = spec.BasicProperties.FLAG_HEADERS | spec.BasicProperties.FLAG_MESSAGE_ID
        return [struct.pack(">H", flags), self._encoded]


@pytest.fixture
def transport(rabbitmq_url: str) -> Iterator[RabbitMQTransport]:
    opened = RabbitMQTransport(rabbitmq_url)
    opened.declare("billing")
    opened.declare_error_queue("error")
    yield opened
    opened.close()


@pytest.mark.parametrize("headers", BAD.values(), ids=BAD)
def test_it_hides_no_other_message_and_can_be_discarded(
    transport: RabbitMQTransport, rabbitmq_url: str, headers: bytes
) -> None:
    good = [message(i, destination="error", headers={"NServiceBus.FailedQ": "billing"}) for i in ("a", "b")]
    assert transport.send(good[:1], None, 10) == [DELIVERED]
    with pika.BlockingConnection(pika.URLParameters(rabbitmq_url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.basic_publish("", "error", b"body", Raw(headers, b"bad"))
    assert transport.send(good[1:], None, 10) == [DELIVERED]
    queue = ErrorQueue(transport, "error")
    for _ in range(3):
        page = queue.messages()
        assert [one.message_id for one in page.messages] == ["a", "bad", "b"]
        assert [one.obstacle is None for one in page.messages] == [True, False, True]
    assert sum(group.stuck for group in queue.groups().groups) == 1
    report = queue.replay(destination="billing")
    assert (report.done, sum(report.left.values()), report.problem) == (2, 1, None)
    assert [one.message_id for one in received(transport, "billing", 2)] == ["a", "b"]
    assert queue.discard(ErrorFilter(message_id="bad")).done == 1
    assert transport.depth("error") == 0


def test_a_receiver_is_told_and_loses_nothing(transport: RabbitMQTransport, rabbitmq_url: str) -> None:
    with pika.BlockingConnection(pika.URLParameters(rabbitmq_url)) as connection:
        connection.channel().basic_publish("", "billing", b"body", Raw(BAD["a time in milliseconds"], b"bad"))
    for _ in range(2):
        with pytest.raises(TransportError, match="headers cannot be read"), transport.receive("billing", 1, 5):
            pass
    assert transport.depth("billing") == 1
