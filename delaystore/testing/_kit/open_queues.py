"""The tests of queues that are looked into."""

from collections.abc import Sequence
from dataclasses import replace
from uuid import uuid4

import pytest

from delaystore.errors import TransportError
from delaystore.testing._capabilities import needs
from delaystore.testing._kit.messages import Undone, a_message
from delaystore.testing._kit.transport_base import TransportFactory, TransportTests, assert_arrived, received, sent
from delaystore.testing._kit.waiting import DEADLINE, eventually
from delaystore.transports.abc import DELIVERED, OpenQueue, OutcomeKind, TakenMessage, Transport

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
    """Send so many messages; returns their ids."""
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
