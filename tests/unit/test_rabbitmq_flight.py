from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from delaystore.message import DelayedMessage
from delaystore.transports.abc import DELIVERED, Outcome, OutcomeKind
from delaystore.transports.rabbitmq.address import Address
from delaystore.transports.rabbitmq.flight import Flight, Publication

NACKED = Outcome(OutcomeKind.REFUSED, "nacked")
QUEUE = Address("", "q")


def flight_of(*message_ids: str) -> Flight:
    """A flight with all of its messages on the wire, ten bytes each."""
    due_time = datetime(2027, 1, 1, tzinfo=UTC)
    flight = Flight(
        [
            Publication(DelayedMessage(message_id=one, destination="q", due_time=due_time, body=b""), QUEUE)
            for one in message_ids
        ]
    )
    for _ in message_ids:
        flight.sent(10)
    return flight


def test_one_answer_may_settle_many() -> None:
    flight = flight_of("a", "b", "c", "d")
    flight.answered(1, NACKED, multiple=False)
    flight.answered(2, DELIVERED, multiple=True)
    assert flight.outcomes == [DELIVERED, NACKED, DELIVERED, None]
    assert (flight.unsettled, flight.unsettled_bytes, flight.complete) == (1, 10, False)
    flight.answered(3, DELIVERED, multiple=True)
    assert flight.complete


@given(st.lists(st.tuples(st.integers(0, 9), st.booleans(), st.booleans())))
def test_the_first_answer_counts_whatever_the_order(answers: list[tuple[int, bool, bool]]) -> None:
    flight = flight_of(*"abcdefghij")
    expected: dict[int, Outcome] = {}
    for index, positive, multiple in answers:
        outcome = DELIVERED if positive else NACKED
        for each in range(0 if multiple else index, index + 1):
            expected.setdefault(each, outcome)
        flight.answered(index, outcome, multiple=multiple)
    assert flight.outcomes == [expected.get(position) for position in range(10)]
    assert flight.unsettled_bytes == 10 * flight.unsettled == 10 * (10 - len(expected))


def test_what_came_back_is_unroutable_though_it_is_confirmed() -> None:
    flight = flight_of("a", "b", "c")
    flight.returned("b", QUEUE, "312 NO_ROUTE")
    flight.answered(2, DELIVERED, multiple=True)
    assert flight.outcomes == [DELIVERED, Outcome(OutcomeKind.UNROUTABLE, "312 NO_ROUTE"), DELIVERED]


def test_of_two_alike_neither_is_blamed_nor_cleared() -> None:
    flight = flight_of("a", "b", "a")
    flight.returned("a", QUEUE, "312 NO_ROUTE")
    flight.answered(2, DELIVERED, multiple=True)
    assert flight.complete
    assert flight.outcomes == [None, DELIVERED, None]
    assert flight.doubtful == {0, 2}


def test_one_that_is_settled_already_is_not_what_came_back() -> None:
    flight = flight_of("a", "b", "a")
    flight.answered(0, DELIVERED, multiple=False)
    flight.returned("a", QUEUE, "312 NO_ROUTE")
    flight.answered(2, DELIVERED, multiple=True)
    assert flight.outcomes == [DELIVERED, DELIVERED, Outcome(OutcomeKind.UNROUTABLE, "312 NO_ROUTE")]


def test_what_is_not_sent_takes_no_delivery_tag() -> None:
    flight = flight_of("a")
    flight = Flight([*flight.publications, *flight_of("b", "c").publications])
    flight.sent(10)
    flight.skipped(NACKED)
    flight.sent(10)
    flight.answered(1, DELIVERED, multiple=False)
    assert flight.outcomes == [None, NACKED, DELIVERED]
    assert flight.unsettled == 1
