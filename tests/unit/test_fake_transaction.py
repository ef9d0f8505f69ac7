"""Code that enlists, under test with a store in memory."""

from datetime import timedelta
from typing import Any

import pytest

from delaystore import DelayedDelivery, ManagementOutcome
from delaystore.errors import ConfigurationError
from delaystore.testing import FakeTransaction, TestDelivery


def place_order(session: Any, delivery: DelayedDelivery, number: bytes) -> str:
    return delivery.enlist(session).send("reminders", number, delay=timedelta(days=3))


@pytest.fixture
def delivery() -> TestDelivery:
    return TestDelivery("sales")


def test_what_is_committed_was_sent_and_what_is_rolled_back_was_not(delivery: TestDelivery) -> None:
    session = FakeTransaction()
    place_order(session, delivery, b"17")
    delivery.assert_not_sent()
    session.rollback()
    delivery.assert_not_sent()
    place_order(session, delivery, b"18")
    session.commit()
    delivery.assert_sent("reminders", b"18", delay=timedelta(days=3))
    place_order(session, delivery, b"19")
    session.close()
    assert len(delivery.waiting()) == 1


def test_a_block_commits_or_rolls_back(delivery: TestDelivery) -> None:
    with FakeTransaction() as session:
        sent = place_order(session, delivery, b"17")
    with pytest.raises(RuntimeError, match="declined"), FakeTransaction() as session:
        assert delivery.enlist(session).cancel(sent) is ManagementOutcome.DONE
        place_order(session, delivery, b"18")
        raise RuntimeError("the card was declined")
    assert [message.body for message in delivery.waiting()] == [b"17"]


def test_hooks_are_called_for_one_transaction(delivery: TestDelivery) -> None:
    session, called = FakeTransaction(), list[str]()
    session.on_commit(lambda: called.append("committed"))
    session.on_rollback(lambda: called.append("rolled back"))
    session.commit()
    session.rollback()
    assert called == ["committed"]


def test_transactions_that_were_given_up_leave_nothing_to_later_ones(delivery: TestDelivery) -> None:
    for _ in range(50):  # CPython gives a later object the address of an earlier one
        place_order(FakeTransaction(), delivery, b"given up")
    for number in range(50):
        with FakeTransaction() as session:
            place_order(session, delivery, b"%d" % number)
    assert len(delivery.waiting()) == 50


def test_a_session_of_a_database_needs_a_store_in_it(delivery: TestDelivery) -> None:
    with pytest.raises(ConfigurationError, match="not in a object; for that use a SQL store"):
        delivery.enlist(object())
