"""What a transport does while its server is away, and afterwards."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from delaystore.message import DelayedMessage
from delaystore.testing._capabilities import needs
from delaystore.testing._kit.messages import a_message
from delaystore.testing._kit.transport_base import Outage, TransportFactory, TransportTests, received, sent
from delaystore.testing._kit.waiting import eventually
from delaystore.transports.abc import Outcome, OutcomeKind, Transport

TIMEOUT: Final = 5.0
"""Seconds that a send may take while nobody answers."""


def arrives(transport: Transport, queue: str, message_id: str) -> None:
    """Fail unless a message of that id can be sent (again, while it is UNSETTLED) and received."""
    message = a_message(message_id, destination=queue)
    eventually(lambda: sent(transport, message) == [OutcomeKind.DELIVERED], "the transport sends again")
    eventually(lambda: received(transport, queue, 1)[0].message_id == message_id, f"{message_id} arrives")


def assert_unsettled(outcomes: Sequence[Outcome], count: int) -> None:
    """Fail unless these are outcomes of an outage for `count` messages, with reasons."""
    assert [outcome.kind for outcome in outcomes] == [OutcomeKind.UNSETTLED] * count
    assert all(outcome.reason for outcome in outcomes)


@needs("outages")
class OutageTests(TransportTests):
    """An outage is an outcome, never an exception, and it ends by itself."""

    def test_an_outage_leaves_all_unsettled_and_passes(
        self, open_transport: TransportFactory, transport: Transport, queue: str, outage: Outage
    ) -> None:
        arrives(transport, queue, "before")
        batch = [a_message(f"m{number}", destination=queue) for number in range(10)]
        with outage():
            assert_unsettled(transport.send(batch, None, TIMEOUT), 10)
            if self.capabilities.native_delays:
                assert_unsettled(self._delayed(transport, batch), 10)
            late = open_transport()
            assert_unsettled(late.send(batch, None, TIMEOUT), 10)
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
