"""Conformance of transports: factories, outages, native delays, open queues."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import ClassVar, Final
from uuid import uuid4

import pytest

from delaystore.errors import ConfigurationError, TransportError
from delaystore.message import DelayedMessage
from delaystore.testing._capabilities import SelectedByCapabilities, TransportCapabilities, needs
from delaystore.testing._kit._base import DEADLINE, Undone, a_message, eventually, exactly
from delaystore.transports.abc import (
    DELIVERED,
    OpenQueue,
    Outcome,
    OutcomeKind,
    ReceivedMessage,
    TakenMessage,
    Transport,
)

TransportFactory = Callable[[], Transport]
Outage = Callable[[], AbstractContextManager[object]]


def sent(transport: Transport, *batch: DelayedMessage) -> list[OutcomeKind]:
    """Send `batch`; returns the kinds of its outcomes."""
    return [outcome.kind for outcome in transport.send(batch, None, DEADLINE)]


def received(transport: Transport, queue: str, count: int) -> list[ReceivedMessage]:
    """Take `count` messages from `queue`."""
    found: list[ReceivedMessage] = []

    def take() -> bool:
        with transport.receive(queue, count - len(found), timeout=1) as some:
            found.extend(some)
        return len(found) >= count

    eventually(take, f"{count} messages in {queue}")
    return found


def assert_arrived(found: Sequence[ReceivedMessage], expected: Sequence[DelayedMessage], *, scale: bool = True) -> None:
    """Fail unless these are those messages; a transport may set properties that were not given.

    `scale`: whether a Decimal's trailing zeros must arrive.
    """
    assert [message.message_id for message in found] == [message.message_id for message in expected]
    for actual, message in zip(found, expected, strict=True):
        assert actual.body == message.body
        assert exactly(actual.headers, scale=scale) == exactly(message.headers, scale=scale)
        properties = {name: actual.properties.get(name) for name in message.properties}
        assert exactly(properties, scale=scale) == exactly(message.properties, scale=scale)


class TransportTests(SelectedByCapabilities):
    """The fixtures. Authors override `transport_factory`, and `outage` if its flag is set."""

    capabilities: ClassVar[TransportCapabilities] = TransportCapabilities()

    @pytest.fixture
    def transport_factory(self) -> TransportFactory:
        """Each call makes another transport on the same broker."""
        raise NotImplementedError("override the fixture transport_factory")

    @pytest.fixture
    def outage(self) -> Outage:
        """For `outages`: makes blocks in which the server is away; at a block's end it is back."""
        raise NotImplementedError("the flag outages asks for the fixture outage")

    @pytest.fixture
    def open_transport(self, transport_factory: TransportFactory) -> Iterator[TransportFactory]:
        """Opens one more transport, closed after the test."""
        transports: list[Transport] = []

        def open_one() -> Transport:
            transports.append(transport := transport_factory())
            return transport

        yield open_one
        for transport in transports:
            transport.close()

    @pytest.fixture
    def transport(self, open_transport: TransportFactory) -> Transport:
        """The transport under test."""
        return open_transport()

    @pytest.fixture
    def queue(self, transport: Transport) -> str:
        """A declared queue, empty."""
        name = f"conformance-{uuid4()}"
        transport.declare(name)
        return name


DELAY = timedelta(seconds=2)


def later(transport: Transport, now: datetime, *batch: DelayedMessage) -> Sequence[OutcomeKind]:
    """Hand over `batch`; returns the kinds of its outcomes. Fails if one other than DELIVERED has no reason."""
    outcomes = transport.send_delayed(batch, now, DEADLINE)
    assert all(outcome.reason for outcome in outcomes if outcome.kind is not OutcomeKind.DELIVERED)
    return [outcome.kind for outcome in outcomes]


class NativeDelayTests(TransportTests):
    """`send_delayed` and `longest_native_delay`."""

    def test_a_transport_says_whether_it_delays_natively(self, transport: Transport, queue: str) -> None:
        assert (transport.longest_native_delay is not None) is self.capabilities.native_delays
        if not self.capabilities.native_delays:
            with pytest.raises(ConfigurationError):
                transport.send_delayed([a_message("a", destination=queue)], datetime.now(UTC), DEADLINE)

    @needs("native_delays")
    def test_delayed_messages_arrive_when_they_are_due_and_not_before(self, transport: Transport, queue: str) -> None:
        headers = {"kind": "reminder", "one": 1}
        now = datetime.now(UTC)
        due = {f"m{number}": now + DELAY + number * DELAY / 2 for number in range(3)}
        batch = [
            a_message(name, time, destination=queue, body=name.encode(), headers=headers) for name, time in due.items()
        ]
        assert later(transport, now, *batch) == [OutcomeKind.DELIVERED] * 3
        for _ in batch:
            (message,) = received(transport, queue, 1)
            assert datetime.now(UTC) >= due.pop(message.message_id), f"{message.message_id} arrived early"
            assert message.body == message.message_id.encode()
            assert {name: message.headers.get(name) for name in headers} == headers
        assert not due

    @needs("native_delays")
    def test_what_cannot_be_delayed_natively_comes_back_and_is_not_sent(self, transport: Transport, queue: str) -> None:
        longest = transport.longest_native_delay
        assert longest is not None
        now = datetime.now(UTC)
        batch = [a_message(name, now + DELAY, destination=queue) for name in ("a", "b", "c")]
        batch[1] = a_message("b", now + longest + timedelta(days=1), destination=queue)
        expected = [OutcomeKind.DELIVERED, OutcomeKind.NOT_DELAYABLE, OutcomeKind.DELIVERED]
        assert later(transport, now, *batch) == expected
        assert {message.message_id for message in received(transport, queue, 2)} == {"a", "c"}
        with transport.receive(queue, 1) as nothing:
            assert list(nothing) == []

    @needs("native_delays")
    def test_nothing_to_delay_has_no_outcomes(self, transport: Transport) -> None:
        assert list(transport.send_delayed([], datetime.now(UTC), DEADLINE)) == []


MANY = 200
"""Half of them is more than RabbitMQ passes on at once, and few enough for it to forget the rest at a channel's end."""


def all_of(opened: OpenQueue, limit: int = 7) -> list[TakenMessage]:
    """Everything in the queue, taken a few at a time."""
    taken: list[TakenMessage] = []
    while some := opened.take(limit):
        assert len(some) <= limit
        taken += some
    return taken


def filled(transport: Transport, queue: str, count: int) -> list[str]:
    """Send this number of messages; returns their ids."""
    batch = [a_message(f"m{number:04}", destination=queue) for number in range(count)]
    assert sent(transport, *batch) == [OutcomeKind.DELIVERED] * count
    return [message.message_id for message in batch]


def ids_of(taken: Sequence[TakenMessage]) -> list[str]:
    """The message_ids of `taken`, in their order."""
    return [one.message.message_id for one in taken]


@needs("open_queues")
class OpenQueueTests(TransportTests):
    """`open_queue`, `depth` and `reaches`."""

    def test_looking_changes_nothing(self, transport: Transport, queue: str) -> None:
        ids = filled(transport, queue, 50)
        for _ in range(3):
            with transport.open_queue(queue) as opened:
                assert ids_of(all_of(opened)) == ids
            assert transport.depth(queue) == 50
        assert [message.message_id for message in received(transport, queue, 50)] == ids

    def test_looking_at_the_first_ones_changes_nothing(self, transport: Transport, queue: str) -> None:
        ids = filled(transport, queue, 50)
        for whole in (False, False, True, False, False):
            with transport.open_queue(queue) as opened:
                assert ids_of(all_of(opened) if whole else opened.take(5)) == ids[: 50 if whole else 5]
        assert [message.message_id for message in received(transport, queue, 50)] == ids

    def test_what_is_taken_is_as_it_was_sent(self, transport: Transport, queue: str) -> None:
        message = a_message("a", destination=queue, headers={"kind": "x", "n": 1}, properties={"type": "t"}, body=b"\0")
        assert sent(transport, message) == [OutcomeKind.DELIVERED]
        for _ in range(2):
            with transport.open_queue(queue) as opened:
                assert_arrived([one.message for one in opened.take(1)], [message])

    @pytest.mark.parametrize("first", [0, 10])
    def test_what_is_removed_is_gone_and_the_rest_keeps_its_order(
        self, transport: Transport, queue: str, first: int
    ) -> None:
        for _ in range(4):
            ids = filled(transport, queue, MANY)
            with transport.open_queue(queue) as opened:
                if first:
                    opened.remove(opened.take(first)[1::2])
                opened.remove(all_of(opened, MANY)[1::2])
            left = ids[::2]
            eventually(lambda left=left: transport.depth(queue) == len(left), "the rest is back")  # type: ignore[misc]
            assert [message.message_id for message in received(transport, queue, len(left))] == left

    def test_what_is_removed_is_gone_although_the_block_raises(self, transport: Transport, queue: str) -> None:
        ids = filled(transport, queue, 10)
        with pytest.raises(Undone), transport.open_queue(queue) as opened:
            opened.remove(opened.take(4)[:3])
            raise Undone
        assert [message.message_id for message in received(transport, queue, 7)] == ids[3:]

    @needs("other_handles")
    def test_what_is_taken_nobody_else_has_meanwhile(self, open_transport: TransportFactory, queue: str) -> None:
        one, another = open_transport(), open_transport()
        ids = filled(one, queue, 10)
        with one.open_queue(queue) as opened, another.open_queue(queue) as beside:
            taken = ids_of(opened.take(4))
            assert taken == ids[:4]
            assert ids_of(all_of(beside)) == ids[4:]

    def test_what_is_sent_meanwhile_is_behind_the_others(self, transport: Transport, queue: str) -> None:
        ids = filled(transport, queue, 5)
        with transport.open_queue(queue) as opened:
            assert ids_of(opened.take(3)) == ids[:3]
            assert sent(transport, a_message("z", destination=queue)) == [OutcomeKind.DELIVERED]
            eventually(lambda: transport.depth(queue) in (3, 6), "it has come")
            assert ids_of(all_of(opened)) == [*ids[3:], "z"]

    def test_moving_leaves_each_message_in_one_queue(self, transport: Transport, queue: str) -> None:
        target = f"target-{uuid4()}"
        transport.declare(target)
        filled(transport, queue, 3)
        with transport.open_queue(queue) as opened:
            taken = opened.take(3)
            to = (target, f"missing-{uuid4()}", target)
            copies = [
                replace(a_message(one.message.message_id), destination=destination)
                for one, destination in zip(taken, to, strict=True)
            ]
            outcomes = opened.move(taken, copies, DEADLINE)
        if outcomes is None:
            assert transport.depth(queue) == 3
            return
        assert [outcome.kind for outcome in outcomes] == [DELIVERED.kind, OutcomeKind.UNROUTABLE, DELIVERED.kind]
        assert [message.message_id for message in received(transport, target, 2)] == ["m0000", "m0002"]
        assert [message.message_id for message in received(transport, queue, 1)] == ["m0001"]

    def test_a_queue_that_does_not_exist_cannot_be_opened(self, transport: Transport) -> None:
        with pytest.raises(TransportError), transport.open_queue(f"missing-{uuid4()}") as opened:
            opened.take(1)

    def test_a_queue_tells_its_depth(self, transport: Transport, queue: str) -> None:
        assert transport.depth(queue) == 0
        filled(transport, queue, 3)
        eventually(lambda: transport.depth(queue) == 3, "3 messages are counted")
        assert transport.depth(f"missing-{uuid4()}") is None

    @needs("unroutable")
    def test_a_transport_knows_which_queues_it_reaches(self, transport: Transport, queue: str) -> None:
        assert transport.reaches(queue) is True
        assert transport.reaches(f"/queues/{queue}") is True
        assert transport.reaches(f"missing-{uuid4()}") is False
        assert transport.reaches("/nowhere") is False


TIMEOUT: Final = 5.0
"""Seconds that a send may take while the broker does not answer."""


def arrives(transport: Transport, queue: str, message_id: str) -> None:
    """Fail unless a message of that id can be sent (again, while it is UNCONFIRMED) and received."""
    message = a_message(message_id, destination=queue)
    eventually(lambda: sent(transport, message) == [OutcomeKind.DELIVERED], "the transport sends again")
    eventually(lambda: received(transport, queue, 1)[0].message_id == message_id, f"{message_id} arrives")


def assert_unconfirmed(outcomes: Sequence[Outcome], count: int) -> None:
    """Fail unless these are outcomes of an outage for `count` messages, with reasons."""
    assert [outcome.kind for outcome in outcomes] == [OutcomeKind.UNCONFIRMED] * count
    assert all(outcome.reason for outcome in outcomes)


@needs("outages")
class OutageTests(TransportTests):
    """An outage is an outcome, never an exception, and it ends on its own."""

    def test_an_outage_leaves_all_unconfirmed_and_passes(
        self, open_transport: TransportFactory, transport: Transport, queue: str, outage: Outage
    ) -> None:
        arrives(transport, queue, "before")
        batch = [a_message(f"m{number}", destination=queue) for number in range(10)]
        with outage():
            assert_unconfirmed(transport.send(batch, None, TIMEOUT), 10)
            if self.capabilities.native_delays:
                assert_unconfirmed(self._delayed(transport, batch), 10)
            late = open_transport()
            assert_unconfirmed(late.send(batch, None, TIMEOUT), 10)
        arrives(transport, queue, "after")
        arrives(late, queue, "after too")

    @needs("availability")
    def test_a_transport_says_why_it_cannot_send_and_when_it_can_again(
        self, transport: Transport, queue: str, outage: Outage
    ) -> None:
        eventually(lambda: transport.unavailable() is None, "the transport is available")
        with outage():
            eventually(lambda: bool(transport.unavailable()), "the transport says why it cannot send")
        eventually(lambda: transport.unavailable() is None, "the transport is available again")
        arrives(transport, queue, "after")

    @staticmethod
    def _delayed(transport: Transport, batch: Sequence[DelayedMessage]) -> Sequence[Outcome]:
        now = datetime.now(UTC)
        due = [a_message(one.message_id, now + timedelta(seconds=2), destination=one.destination) for one in batch]
        return transport.send_delayed(due, now, TIMEOUT)
