"""The error queue on every transport: looked into, sent again, discarded; what a dispatcher put there, and others."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from delaystore import DelayedDeliverySettings
from delaystore.dispatcher.error_queue import ErrorQueueCopies as Copies
from delaystore.dispatcher.error_queue import Failure
from delaystore.errors import ConfigurationError, TransportError
from delaystore.message import DelayedMessage
from delaystore.operations import ErrorFilter, ErrorQueue
from delaystore.testing import RecordingTransport
from delaystore.transports import InMemoryTransport, RabbitMQTransport, SqlQueueTransport, Transport
from delaystore.transports.abc import DELIVERED, ReceivedMessage
from tests.dispatching import NOON, message, received

FAILED_AT = datetime(2026, 11, 24, 5, 50, tzinfo=UTC)
SECOND = timedelta(seconds=1)
TRANSPORTS = ("memory", "classic", "quorum", "sqlite", "postgresql", "mariadb")
EXPIRATION = {"expiration": "3600000"}


@pytest.fixture(params=TRANSPORTS)
def transport(request: pytest.FixtureRequest) -> Iterator[Transport]:
    """One of each kind, with a queue billing and an error queue."""
    opened: Transport
    if request.param == "memory":
        opened = InMemoryTransport()
    elif request.param in ("classic", "quorum"):
        opened = RabbitMQTransport(request.getfixturevalue("rabbitmq_url"), queue_type=request.param)
    else:
        opened = SqlQueueTransport(request.getfixturevalue(f"{request.param}_url"))
    opened.declare("billing")
    opened.declare_error_queue("error")
    yield opened
    opened.close()


def failed(transport: Transport, messages: Sequence[DelayedMessage], kind: str = "Refused", reason: str = "") -> None:
    """Put copies of `messages` into the error queue, as a dispatcher does; a second apart."""
    queue = Copies(transport, DelayedDeliverySettings(error_queue="error"))
    copies = [
        queue.copy(Failure(message, kind, reason or f"full with {number} messages"), FAILED_AT + number * SECOND)
        for number, message in enumerate(messages)
    ]
    assert list(transport.send(copies, None, 30)) == [DELIVERED] * len(copies)


def batch(count: int, destination: str = "billing", **fields: Any) -> list[DelayedMessage]:
    return [message(f"{destination}-{number:04}", destination=destination, **fields) for number in range(count)]


def ids(messages: Sequence[Any]) -> list[str]:
    return [message.message_id for message in messages]


def assert_delivered(arrived: Sequence[ReceivedMessage], messages: Sequence[DelayedMessage]) -> None:
    assert ids(arrived) == ids(messages)
    for one, original in zip(arrived, messages, strict=True):
        assert one.body == original.body
        properties = {name: one.properties.get(name) for name in original.properties}
        for found, sent in ((one.headers, original.headers), (properties, original.properties)):
            assert repr(sorted(found.items())) == repr(sorted(sent.items()))  # of the same types, too


def test_looking_changes_nothing(transport: Transport) -> None:
    messages = batch(150, headers={"n": 1})
    failed(transport, messages)
    queue = ErrorQueue(transport, "error")
    for _ in range(3):
        assert queue.depth() == 150
        groups = queue.groups()
        assert [(group.destination, group.kind, group.count) for group in groups.groups] == [
            ("billing", "Refused", 150)
        ]
        assert (groups.groups[0].first, groups.groups[0].last) == (FAILED_AT, FAILED_AT + 149 * SECOND)
        assert groups.complete
        assert ids(queue.messages(limit=5).messages) == ids(messages[:5])
        found = queue.get("billing-0077")
        assert found is not None
        assert (found.headers, found.body, found.due_time) == ({"n": 1}, b"billing-0077", NOON)
    assert queue.get("nobody") is None
    assert ids(queue.messages(limit=1000).messages) == ids(messages)


def test_pages_and_bounded_looks(transport: Transport) -> None:
    messages = batch(30)
    failed(transport, messages)
    queue = ErrorQueue(transport, "error")
    first = queue.messages(limit=20)
    assert (ids(first.messages), first.next_skip) == (ids(messages[:20]), 20)
    second = queue.messages(limit=20, skip=20)
    assert (ids(second.messages), second.next_skip) == (ids(messages[20:]), None)
    some = queue.groups(examine=10)
    assert (some.groups[0].count, some.depth, some.examined, some.complete) == (10, 30, 10, False)
    assert ids(queue.messages(ErrorFilter(since=FAILED_AT + 28 * SECOND)).messages) == ids(messages[28:])


def test_what_is_sent_again_is_what_was_sent(transport: Transport) -> None:
    headers = {"text": "ü", "one": 1, "yes": True, "instant": NOON, "list": [1, {"deep": [None]}], "bytes": b"\0"}
    properties = {"content_type": "text/plain", "priority": 4, "reply_to": "answers", **EXPIRATION}
    messages = batch(3, headers=headers, properties=properties, body=b"\0\xff" * 70_000)
    failed(transport, messages)
    report = ErrorQueue(transport, "error").replay()
    assert (report.done, report.examined, report.depth, report.good) == (3, 3, 3, True)
    assert report.destinations == {"billing": 3}
    assert_delivered(received(transport, "billing", 3), messages)
    assert transport.depth("error") == 0


def test_a_float_stays_one(transport: Transport) -> None:
    failed(transport, batch(1, headers={"ratio": 1.5, "list": [{"n": -0.25}]}))
    queue = ErrorQueue(transport, "error")
    found = queue.get("billing-0000")
    assert found is not None
    assert found.original().headers == {"ratio": 1.5, "list": [{"n": -0.25}]}
    assert queue.replay().good
    assert transport.depth("billing") == 1


def test_what_does_not_match_keeps_its_place(transport: Transport) -> None:
    transport.declare("sales")
    messages = [message for pair in zip(batch(250), batch(250, "sales"), strict=True) for message in pair]
    failed(transport, messages)
    notes: list[tuple[str, str, int]] = []
    queue = ErrorQueue(transport, "error", note=lambda *note: notes.append(note))
    report = queue.replay(ErrorFilter(destination="sales"))
    assert (report.done, report.examined, report.good) == (250, 500, True)
    assert notes == [("replay", "error queue error: destination sales", 250)]
    assert ids(received(transport, "sales", 250)) == ids(batch(250, "sales"))
    assert ids(queue.messages(limit=1000).messages) == ids(batch(250))
    assert transport.depth("billing") == 0


def test_what_is_not_taken_stays(transport: Transport) -> None:
    missing = f"missing-{uuid4()}"
    messages = [*batch(3, missing), *batch(3)]
    failed(transport, messages)
    queue = ErrorQueue(transport, "error")
    report = queue.replay()
    assert (report.done, report.good, sum(report.left.values()), report.perhaps_twice) == (3, False, 3, 0)
    assert all(missing in reason for reason in report.left)
    assert ids(queue.messages().messages) == ids(batch(3, missing))
    assert ids(received(transport, "billing", 3)) == ids(batch(3))


def test_all_go_elsewhere(transport: Transport) -> None:
    failed(transport, batch(3, "gone"))
    queue = ErrorQueue(transport, "error")
    report = queue.replay(destination="billing")
    assert report.destinations == {"billing": 3}
    assert ids(received(transport, "billing", 3)) == ids(batch(3, "gone"))
    with pytest.raises(ConfigurationError, match="the error queue itself"):
        queue.replay(destination="error")


def test_the_oldest_ones_first_and_no_more_than_the_limit(transport: Transport) -> None:
    failed(transport, batch(10))
    queue = ErrorQueue(transport, "error")
    assert queue.replay(limit=4).done == 4
    assert queue.discard(limit=3).done == 3
    assert ids(received(transport, "billing", 4)) == ids(batch(10)[:4])
    assert ids(queue.messages().messages) == ids(batch(10)[7:])


def test_what_is_discarded_is_gone(transport: Transport) -> None:
    failed(transport, batch(5), "Unroutable")
    failed(transport, batch(5, "sales"))
    notes: list[tuple[str, str, int]] = []
    queue = ErrorQueue(transport, "error", note=lambda *note: notes.append(note))
    report = queue.discard(ErrorFilter(kind="Unroutable"))
    assert (report.done, report.destinations, report.good) == (5, {"billing": 5}, True)
    assert notes == [("discard", "error queue error: kind Unroutable", 5)]
    assert ids(queue.messages().messages) == ids(batch(5, "sales"))
    assert transport.depth("billing") == 0


def test_a_dry_run_changes_nothing(transport: Transport) -> None:
    missing = f"missing-{uuid4()}"
    failed(transport, [*batch(3), *batch(2, missing)])
    notes: list[tuple[str, str, int]] = []
    queue = ErrorQueue(transport, "error", note=lambda *note: notes.append(note))
    report = queue.replay(dry_run=True)
    assert (report.done, report.destinations, report.dry_run) == (3, {"billing": 3}, True)
    assert sum(report.left.values()) == 2
    assert queue.discard(dry_run=True).done == 5
    assert (transport.depth("error"), transport.depth("billing"), notes) == (5, 0, [])


def test_messages_of_others_are_shown_and_replayed_where_they_failed(transport: Transport) -> None:
    info = {"NServiceBus.FailedQ": "billing", "NServiceBus.ExceptionInfo.ExceptionType": "System.Exception"}
    theirs = message("theirs", destination="error", headers={**info, "NServiceBus.MessageIntent": "Send"})
    unknown = message("unknown", destination="error")
    assert list(transport.send([theirs, unknown], None, 30)) == [DELIVERED] * 2
    queue = ErrorQueue(transport, "error")
    assert [(one.message_id, one.destination) for one in queue.messages().messages] == [
        ("theirs", "billing"),
        ("unknown", None),
    ]
    report = queue.replay()
    assert report.done == 1
    assert report.left == {"the message does not name its destination; give one": 1}
    (found,) = received(transport, "billing", 1)
    assert (found.message_id, dict(found.headers)) == ("theirs", {"NServiceBus.MessageIntent": "Send"})
    assert queue.replay(ErrorFilter(destination=""), destination="billing").done == 1
    assert ids(received(transport, "billing", 1)) == ["unknown"]


@pytest.mark.parametrize("transport", ["memory"], indirect=True)
@pytest.mark.parametrize("dry_run", [True, False])
def test_what_was_to_go_to_the_error_queue_itself_stays_as_it_is(transport: Transport, dry_run: bool) -> None:
    failed(transport, [message("one", destination="error"), message("two", destination="/queues/error")])
    queue = ErrorQueue(transport, "error")
    report = queue.replay(dry_run=dry_run)
    assert (report.done, sum(report.left.values())) == (0, 2)
    assert [one.destination for one in queue.messages().messages] == ["error", "/queues/error"]
    with pytest.raises(ConfigurationError, match="the error queue itself"):
        queue.replay(destination="/queues/error", dry_run=dry_run)
    assert queue.replay(destination="billing").done == 2


def test_stopping_ends_it_between_two_batches(transport: Transport) -> None:
    failed(transport, batch(500))
    queue = ErrorQueue(transport, "error")
    asked: list[int] = []

    def stopping() -> bool:
        asked.append(1)
        return len(asked) > 2

    shown: list[tuple[str, int, int | None]] = []
    report = queue.replay(stopping=stopping, progress=lambda *step: shown.append(step))
    assert report.interrupted
    assert not report.good
    assert 0 < report.done < 500
    assert shown[-1][1:] == (report.examined, 500)
    assert ids(received(transport, "billing", report.done)) == ids(batch(500)[: report.done])
    assert ids(queue.messages(limit=1000).messages) == ids(batch(500)[report.done :])


def test_what_comes_back_meanwhile_is_not_sent_again(transport: Transport) -> None:
    messages = batch(400)
    failed(transport, messages)

    rounds: list[int] = []

    def comes_back(_step: str, done: int, _total: int | None) -> None:
        rounds.append(done)
        if len(rounds) < 20:
            failed(transport, batch(50))

    report = ErrorQueue(transport, "error").replay(progress=comes_back)
    assert (report.done, report.examined) == (400, 400)
    assert transport.depth("billing") == 400
    assert (transport.depth("error") or 0) >= 100


def test_a_missing_error_queue_is_an_error(transport: Transport) -> None:
    queue = ErrorQueue(transport, f"missing-{uuid4()}")
    assert queue.depth() is None
    for method in (queue.groups, queue.messages, queue.replay, queue.discard):
        with pytest.raises(TransportError):
            method()


def test_a_transport_that_cannot_look_says_so() -> None:
    with pytest.raises(ConfigurationError, match="cannot inspect the queue 'error'"):
        ErrorQueue(RecordingTransport(), "error").groups()


def test_what_the_transport_refuses_stays(rabbitmq_url: str) -> None:
    transport = RabbitMQTransport(rabbitmq_url)
    transport.declare("billing")
    transport.declare_error_queue("error")
    try:
        fine, odd = batch(2)
        odd = replace(odd, headers={"huge": 2**70})
        failed(transport, [odd, fine])
        queue = ErrorQueue(transport, "error")
        assert queue.messages().messages[0].headers == {"huge": 2**70}
        report = queue.replay()
        assert (report.done, sum(report.left.values())) == (1, 1)
        assert "huge" in next(iter(report.left))
    finally:
        transport.close()
