from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from delaystore.message import DelayedMessage
from delaystore.text import Address
from delaystore.transports.abc import DELIVERED, Outcome, OutcomeKind
from delaystore.transports.rabbitmq.channels import BatchPendingConfirm, Closure, InFlightBatch
from delaystore.transports.rabbitmq.publication import Publication

NACKED = Outcome(OutcomeKind.REFUSED, "nacked")
QUEUE = Address("", "q")


def batch_of(*message_ids: str) -> InFlightBatch:
    """A batch with all of its messages on the wire, ten bytes each."""
    due_time = datetime(2027, 1, 1, tzinfo=UTC)
    batch = InFlightBatch(
        [
            Publication(DelayedMessage(message_id=one, destination="q", due_time=due_time, body=b""), QUEUE)
            for one in message_ids
        ]
    )
    for _ in message_ids:
        batch.sent(10)
    return batch


def test_one_answer_may_settle_many() -> None:
    batch = batch_of("a", "b", "c", "d")
    batch.answered(1, NACKED, multiple=False)
    batch.answered(2, DELIVERED, multiple=True)
    assert batch.outcomes == [DELIVERED, NACKED, DELIVERED, None]
    assert (batch.unconfirmed, batch.unconfirmed_bytes, batch.complete) == (1, 10, False)
    batch.answered(3, DELIVERED, multiple=True)
    assert batch.complete


@given(st.lists(st.tuples(st.integers(0, 9), st.booleans(), st.booleans())))
def test_the_first_answer_counts_whatever_the_order(answers: list[tuple[int, bool, bool]]) -> None:
    batch = batch_of(*"abcdefghij")
    expected: dict[int, Outcome] = {}
    for index, positive, multiple in answers:
        outcome = DELIVERED if positive else NACKED
        for each in range(0 if multiple else index, index + 1):
            expected.setdefault(each, outcome)
        batch.answered(index, outcome, multiple=multiple)
    assert batch.outcomes == [expected.get(position) for position in range(10)]
    assert batch.unconfirmed_bytes == 10 * batch.unconfirmed == 10 * (10 - len(expected))


def test_what_came_back_is_unroutable_though_it_is_confirmed() -> None:
    batch = batch_of("a", "b", "c")
    batch.returned("b", QUEUE, "312 NO_ROUTE")
    batch.answered(2, DELIVERED, multiple=True)
    assert batch.outcomes == [DELIVERED, Outcome(OutcomeKind.UNROUTABLE, "312 NO_ROUTE"), DELIVERED]


def test_of_two_alike_neither_is_blamed_nor_cleared() -> None:
    batch = batch_of("a", "b", "a")
    batch.returned("a", QUEUE, "312 NO_ROUTE")
    batch.answered(2, DELIVERED, multiple=True)
    assert batch.complete
    assert batch.outcomes == [None, DELIVERED, None]
    assert batch.doubtful == {0, 2}


def test_one_that_is_settled_already_is_not_what_came_back() -> None:
    batch = batch_of("a", "b", "a")
    batch.answered(0, DELIVERED, multiple=False)
    batch.returned("a", QUEUE, "312 NO_ROUTE")
    batch.answered(2, DELIVERED, multiple=True)
    assert batch.outcomes == [DELIVERED, DELIVERED, Outcome(OutcomeKind.UNROUTABLE, "312 NO_ROUTE")]


def test_what_is_not_sent_takes_no_delivery_tag() -> None:
    batch = batch_of("a")
    batch = InFlightBatch([*batch.publications, *batch_of("b", "c").publications])
    batch.sent(10)
    batch.skipped(NACKED)
    batch.sent(10)
    batch.answered(1, DELIVERED, multiple=False)
    assert batch.outcomes == [None, NACKED, DELIVERED]
    assert batch.unconfirmed == 1


def test_what_is_left_behind_is_answered_later_and_keeps_no_body() -> None:
    batch = batch_of("a", "b", "c", "d")
    late = [BatchPendingConfirm(batch, position) for position in range(4)]
    batch.leave()
    assert batch.publications == ()
    batch.answered(0, DELIVERED, multiple=False)
    batch.answered(1, NACKED, multiple=False)
    batch.returned("c", QUEUE, "312 NO_ROUTE")
    batch.answered(2, DELIVERED, multiple=False)
    assert [one.arrived for one in late] == [True, False, False, None]
    batch.end(Closure("the connection was lost"))
    assert [one.arrived for one in late] == [True, False, False, False]


def test_of_a_batch_that_is_left_only_what_is_on_the_wire_goes_on() -> None:
    batch = batch_of("a")
    batch = InFlightBatch([*batch.publications, *batch_of("b").publications])
    batch.sent(10)
    batch.leave()
    assert not batch.complete
    batch.answered(0, DELIVERED, multiple=False)
    assert batch.complete
    assert batch.outcomes == [DELIVERED, None]
