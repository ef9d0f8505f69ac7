"""The tests of native delays."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from delaystore.errors import ConfigurationError
from delaystore.message import DelayedMessage
from delaystore.testing._capabilities import needs
from delaystore.testing._kit.messages import a_message
from delaystore.testing._kit.transport_base import TransportTests, received
from delaystore.testing._kit.waiting import DEADLINE
from delaystore.transports.abc import OutcomeKind, Transport

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
        expected = [OutcomeKind.DELIVERED, OutcomeKind.UNSUITED, OutcomeKind.DELIVERED]
        assert later(transport, now, *batch) == expected
        assert {message.message_id for message in received(transport, queue, 2)} == {"a", "c"}
        with transport.receive(queue, 1) as nothing:
            assert list(nothing) == []

    @needs("native_delays")
    def test_nothing_to_delay_has_no_outcomes(self, transport: Transport) -> None:
        assert list(transport.send_delayed([], datetime.now(UTC), DEADLINE)) == []
