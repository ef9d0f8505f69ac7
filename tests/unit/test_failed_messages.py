"""What the dispatcher puts into the error queue is read back: why it is there, and the message as it was sent."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from typing_extensions import override

from delaystore import DelayedDeliverySettings
from delaystore.dispatcher.error_queue import ErrorQueueCopies, Failure
from delaystore.errors import InvalidMessageError, UnsupportedMessageError
from delaystore.message import DelayedMessage, UnreadableMessage
from delaystore.operations.failed_message import failed_message
from delaystore.testing._kit._base import NOON, a_message, exactly, messages
from delaystore.text import EXCEPTION_TYPE, HEADERS_IN_BODY, REJECTED_REASON, UNDECODED
from delaystore.transports import InMemoryTransport
from delaystore.transports.abc import ReceivedMessage

FAILED_AT = datetime(2026, 11, 24, 5, 50, 12, 123456, tzinfo=UTC)
HEADERS: Mapping[str, Any] = {
    "text": "ü",
    "one": 1,
    "yes": True,
    "bytes": b"\0\xff",
    "instant": NOON,
    "list": [1, {"deep": [None]}],
    "NServiceBus.EnclosedMessageTypes": "Shop.Invoice",
}
PROPERTIES: Mapping[str, Any] = {"content_type": "application/json", "priority": 4, "expiration": "60000"}


class Narrow(InMemoryTransport):
    """A transport that cannot carry much."""

    def __init__(self, *, longest: int = 10**9, types: tuple[type, ...] = (), headers: int = 10**9) -> None:
        super().__init__(auto_declare=True)
        self._longest, self._types, self._headers = longest, types, headers

    @override
    def check(self, message: DelayedMessage) -> None:
        if any(len(value) > self._longest for value in message.headers.values() if isinstance(value, str)):
            raise UnsupportedMessageError("a header is too long")
        if any(isinstance(value, self._types) for value in (*message.headers.values(), *message.properties.values())):
            raise UnsupportedMessageError("a header is of another type")
        if len(message.headers) > self._headers:
            raise UnsupportedMessageError("too many headers")


def copied(message: DelayedMessage, transport: InMemoryTransport, reason: str = "no such queue") -> ReceivedMessage:
    """`message` as it is in the error queue."""
    queue = ErrorQueueCopies(transport, DelayedDeliverySettings(error_queue="error"))
    copy = queue.copy(Failure(message, "Unroutable", reason), FAILED_AT)
    return ReceivedMessage(message_id=copy.message_id, body=copy.body, headers=copy.headers, properties=copy.properties)


def assert_same(original: DelayedMessage, message: DelayedMessage) -> None:
    assert replace(original, headers={}, properties={}) == replace(
        message, headers={}, properties={}, failure_count=0, next_attempt=message.due_time
    )
    assert exactly(original.headers) == exactly(message.headers)
    assert exactly(original.properties) == exactly(message.properties)


@pytest.mark.parametrize(
    "transport",
    [Narrow(), Narrow(longest=350), Narrow(types=(bytes, datetime, list)), Narrow(types=(int, bytes), longest=400)],
    ids=["plain", "shortened", "text", "text for numbers"],
)
def test_each_form_of_a_copy_is_read_back(transport: InMemoryTransport) -> None:
    message = a_message("a", headers=HEADERS, properties=PROPERTIES, body=b"{}", failure_count=3)
    failed = failed_message(copied(message, transport, "x" * 1000))
    assert (failed.message_id, failed.destination, failed.kind) == ("a", "billing", "Unroutable")
    assert failed.reason == "x" * len(failed.reason)
    assert failed.reason
    assert (failed.failed_at, failed.due_time, failed.size) == (FAILED_AT, NOON, 2)
    assert failed.obstacle is None
    assert_same(failed.original(), message)


def test_headers_in_the_body_are_read_back() -> None:
    message = a_message("a", headers={f"h{n}": n for n in range(20)}, properties=PROPERTIES, body=b"\0body\n")
    received = copied(message, Narrow(headers=8))
    assert received.body != message.body
    failed = failed_message(received)
    assert (failed.destination, failed.kind, failed.failures, failed.size) == ("billing", "Unroutable", 1, 6)
    assert_same(failed.original(), message)


@pytest.mark.parametrize("headers", [10**9, 8], ids=["as text", "in the body"])
def test_a_damaged_row_is_shown_and_not_sent_again(headers: int) -> None:
    message = UnreadableMessage(
        message_id="a",
        destination="billing",
        due_time=NOON,
        body=b"",
        headers={"delaystore.raw-headers": "{broken", **{f"h{n}": "x" for n in range(9 if headers == 8 else 0)}},
        reason="headers are no JSON",
    )
    queue = ErrorQueueCopies(Narrow(headers=headers), DelayedDeliverySettings())
    copy = queue.copy(Failure(message, "Unreadable", message.reason), FAILED_AT)
    failed = failed_message(ReceivedMessage(message_id="a", body=copy.body, headers=copy.headers, properties={}))
    assert (failed.kind, failed.reason) == ("Unreadable", "headers are no JSON")
    assert failed.headers["delaystore.raw-headers"] == "{broken"
    with pytest.raises(InvalidMessageError, match="damaged row"):
        failed.original()


@settings(max_examples=50)
@given(messages())
def test_any_message_is_sent_again_as_it_was(message: DelayedMessage) -> None:
    for transport in (Narrow(), Narrow(types=(bytes, dict, float)), Narrow(headers=9, types=(list,))):
        assert_same(failed_message(copied(message, transport)).original(), message)


def test_a_message_of_nservicebus_goes_back_to_where_it_failed() -> None:
    headers = {
        "NServiceBus.MessageId": "m",
        "NServiceBus.FailedQ": "sales",
        "NServiceBus.TimeOfFailure": "2026-11-24 05:50:12:123456 Z",
        "NServiceBus.ExceptionInfo.ExceptionType": "System.InvalidOperationException",
        "NServiceBus.ExceptionInfo.Message": "no such order: 42",
        "NServiceBus.ExceptionInfo.StackTrace": "at Sales...",
        "NServiceBus.ExceptionInfo.Source": "Sales",
        "NServiceBus.Retries": "3",
        "delaystore.expiration": "of somebody else",
    }
    failed = failed_message(
        ReceivedMessage(message_id="m", body=b"<x/>", headers=headers, properties={"expiration": "5"})
    )
    assert (failed.destination, failed.kind) == ("sales", "System.InvalidOperationException")
    assert (failed.reason, failed.failed_at, failed.failures) == ("no such order: 42", FAILED_AT, 0)
    original = failed.original()
    assert dict(original.headers) == {"NServiceBus.MessageId": "m", "delaystore.expiration": "of somebody else"}
    assert (original.properties, original.body) == ({"expiration": "5"}, b"<x/>")


def test_of_a_message_of_somebody_else_nothing_may_be_known() -> None:
    failed = failed_message(ReceivedMessage(message_id="", body=b"\xff", headers={}, properties={}))
    assert (failed.destination, failed.kind, failed.reason, failed.failed_at) == (None, "", "", None)
    with pytest.raises(InvalidMessageError, match="the message does not name its destination"):
        failed.original()
    with pytest.raises(InvalidMessageError, match="no message id"):
        failed.original("billing")


@pytest.mark.parametrize(
    "changed",
    [
        {"delaystore.raw-headers": "{broken"},
        {"delaystore.raw-properties": "[]"},
        {"delaystore.headers-in-body": 5},
        {"delaystore.headers-in-body": "x"},
    ],
)
def test_what_nobody_can_read_is_not_sent_again(changed: Mapping[str, Any]) -> None:
    received = copied(a_message("a", body=b"short of JSON"), Narrow())
    failed = failed_message(replace(received, headers={**received.headers, **changed}))
    with pytest.raises(InvalidMessageError, match="cannot be read"):
        failed.original()


@pytest.mark.parametrize("field", ["headers", "properties"])
def test_what_a_sql_queue_could_not_decode_is_not_sent_otherwise_than_it_was(field: str) -> None:
    fields: dict[str, Any] = {"headers": {}, "properties": {}, field: {UNDECODED: "<xml/>"}}
    failed = failed_message(ReceivedMessage(message_id="m", body=b"", **fields))
    with pytest.raises(InvalidMessageError, match="no JSON"):
        failed.original("billing")


@pytest.mark.parametrize("body", [b"[" * 200_000, b'{"headers":' * 50_000], ids=["lists", "objects"])
def test_what_somebody_nests_deeply_hides_no_other_message(body: bytes) -> None:
    headers = {EXCEPTION_TYPE: "delaystore.Refused", HEADERS_IN_BODY: len(body)}
    failed = failed_message(ReceivedMessage(message_id="m", body=body, headers=headers, properties={}))
    assert failed.obstacle is not None
    with pytest.raises(InvalidMessageError, match="cannot be read"):
        failed.original("billing")


def test_what_an_ingress_rejected_says_why() -> None:
    headers = {REJECTED_REASON: "header x-delay is 'soon'", "x-delay": "soon"}
    failed = failed_message(ReceivedMessage(message_id="a", body=b"pay", headers=headers, properties={}))
    assert (failed.kind, failed.reason, failed.destination) == ("Rejected", "header x-delay is 'soon'", None)
    later = {**headers, EXCEPTION_TYPE: "Oops"}
    again = failed_message(ReceivedMessage(message_id="a", body=b"pay", headers=later, properties={}))
    assert again.kind == "Oops", "the last failure counts"


@pytest.mark.parametrize(
    "transport",
    [Narrow(), Narrow(types=(list,)), Narrow(headers=9)],
    ids=["plain", "as text", "in the body"],
)
def test_copies_that_the_program_asked_for_are_sent_by_a_replay(transport: InMemoryTransport) -> None:
    message = a_message("a", headers={"CC": ["audit"], "BCC": ["law"], **{f"h{n}": n for n in range(9)}})
    received = copied(message, transport)
    assert received.headers.keys().isdisjoint({"CC", "BCC"})
    failed = failed_message(received)
    assert_same(failed.original(), message)
    assert failed.original("elsewhere").headers["delaystore.cc"] == ["audit"]


def test_a_forged_mark_of_copies_is_not_sent_after_a_dead_letter() -> None:
    """A publisher wrote all but x-death; its consumer's queue dead-lettered the message into the error queue."""
    headers = {
        EXCEPTION_TYPE: "delaystore.Refused",
        "NServiceBus.FailedQ": "orders",
        "delaystore.failed-cc": ["sales.control"],
        "x-death": [{"queue": "orders", "reason": "rejected"}],
    }
    failed = failed_message(ReceivedMessage(message_id="a", body=b"pay", headers=headers, properties={}))
    assert "CC" not in failed.headers
    with pytest.raises(InvalidMessageError, match="dead-lettered it, so its header delaystore"):
        failed.original()


@pytest.mark.parametrize(
    "forged",
    [
        {"delaystore.headers-in-body": 5},
        {"delaystore.headers-in-body": 15},
        {"delaystore.raw-headers": '{"CC":["x"]}'},
        {"delaystore.raw-properties": '{"expiration":"1"}'},
        {"delaystore.unread-headers": "no"},
        {"delaystore.expiration": "1"},
        {"delaystore.failed-cc": ["x"]},
    ],
    ids=str,
)
@pytest.mark.parametrize("transport", [Narrow(), Narrow(headers=8)], ids=["plain", "in the body"])
def test_a_senders_own_marks_change_nothing_in_a_replay(forged: Mapping[str, Any], transport: Narrow) -> None:
    own = {"tenant": "a", "price": 3}
    message = a_message("a", headers={**own, **forged}, body=b'{"headers":{}}\nhello')
    assert_same(failed_message(copied(message, transport)).original(), replace(message, headers=own))
