"""Storing once, removing, and counting failures."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from delaystore.errors import DuplicateMessageError
from delaystore.message import DelayedMessage
from delaystore.stores.abc import DelayedMessageStore
from delaystore.testing._capabilities import needs
from delaystore.testing._kit.base import StoreTests
from delaystore.testing._kit.messages import (
    FAR,
    NOON,
    SECOND,
    TICK,
    a_message,
    all_taken,
    assert_only,
    assert_same,
    claimed,
    ids,
    told,
)
from delaystore.testing._kit.waiting import eventually_next


def failed(store: DelayedMessageStore, message: DelayedMessage, after: timedelta | None) -> bool:
    """Fetch `message` and count a failure; its next attempt is `after` NOON (None: at once)."""
    with store.transaction() as transaction:
        fetched = claimed(transaction)
        assert_same(fetched, message)
        return transaction.increment_failure_count(fetched, None if after is None else NOON + after)


class SettlingTests(StoreTests):
    """A message is stored once; remove and increment say whether it was still there."""

    def test_a_message_id_that_waits_is_refused_and_only_the_due_time_of_what_waits_is_marked(
        self, store: DelayedMessageStore
    ) -> None:
        store.store(first := a_message("a", body=b"first"))
        with pytest.raises(DuplicateMessageError) as error:
            store.store(a_message("a", NOON - SECOND, body=b"second"))
        assert error.value.message_ids == ("a",)
        assert_only(all_taken(store, NOON), told(first))

    def test_a_message_id_may_be_used_again_once_its_message_is_gone(self, store: DelayedMessageStore) -> None:
        store.store(a_message("a"))
        assert ids(all_taken(store, NOON)) == ["a"]
        store.store(a_message("a", body=b"again"))
        assert_only(all_taken(store, NOON), a_message("a", body=b"again"))

    def test_a_removed_message_is_gone_and_removing_it_again_says_so(self, store: DelayedMessageStore) -> None:
        store.store(a_message("a"))
        with store.transaction() as transaction:
            message = claimed(transaction)
            assert transaction.remove(message) is True
            assert transaction.remove(message) is False
        with store.transaction() as transaction:
            assert transaction.remove(message) is False
            assert transaction.fetch_next_due_timeout(NOON) is None

    def test_removing_what_never_waited_says_so(self, store: DelayedMessageStore) -> None:
        store.store(a_message("a"))
        with store.transaction() as transaction:
            assert transaction.remove(a_message("b")) is False
        assert ids(all_taken(store, NOON)) == ["a"]

    def test_counting_a_failure_of_what_is_gone_says_so(self, store: DelayedMessageStore) -> None:
        with store.transaction() as transaction:
            assert transaction.increment_failure_count(a_message("a"), NOON) is False
            assert transaction.increment_failure_count(a_message("a")) is False
        assert store.next() is None

    def test_a_failed_message_keeps_its_due_time_and_hides_until_its_next_attempt(
        self, store: DelayedMessageStore
    ) -> None:
        store.store(a_message("a"))
        assert failed(store, a_message("a"), after=SECOND) is True
        eventually_next(store, NOON + SECOND)
        with store.transaction() as transaction:
            assert transaction.fetch_next_due_timeout(NOON + SECOND - TICK) is None
        with store.transaction() as transaction:
            again = transaction.fetch_next_due_timeout(NOON + SECOND)
            assert_same(again, a_message("a", failure_count=1, next_attempt=NOON + SECOND))

    def test_a_failed_message_shows_at_once_without_a_next_attempt(self, store: DelayedMessageStore) -> None:
        message = a_message("a", store.now() - SECOND)
        store.store(message)
        with store.transaction() as transaction:
            fetched = transaction.fetch_next_due_timeout(store.now())
            assert_same(fetched, message)
            assert transaction.increment_failure_count(message) is True
        (again,) = all_taken(store, store.now())
        assert (again.failure_count, again.due_time) == (1, message.due_time)

    def test_failures_add_up(self, store: DelayedMessageStore) -> None:
        store.store(a_message("a"))
        for count in range(3):
            with store.transaction() as transaction:
                message = claimed(transaction, NOON + SECOND)
                assert message.failure_count == count
                assert transaction.increment_failure_count(message, NOON + SECOND)
        (last,) = all_taken(store, NOON + SECOND)
        assert (last.failure_count, last.due_time) == (3, NOON)

    def test_a_failed_message_does_not_block_those_behind_it(self, store: DelayedMessageStore) -> None:
        store.store(a_message("bad"))
        assert failed(store, a_message("bad"), after=timedelta(hours=1))
        store.store(a_message("good", NOON + TICK))
        assert ids(all_taken(store, NOON + SECOND)) == ["good"]

    def test_a_message_may_come_with_failures_and_a_next_attempt(self, store: DelayedMessageStore) -> None:
        moved = a_message("moved", NOON - SECOND, failure_count=7, next_attempt=NOON + SECOND)
        store.store(moved)
        eventually_next(store, NOON + SECOND)
        assert all_taken(store, NOON) == []
        assert_only(all_taken(store, NOON + SECOND), moved)

    @needs("claims_outside_transactions")
    def test_counting_a_failure_ends_the_claim(self, store: DelayedMessageStore, other: DelayedMessageStore) -> None:
        store.store(a_message("a"))
        message = claimed(store)
        assert store.increment_failure_count(message, NOON) is True
        again = claimed(other)
        assert other.remove(again) is True
        assert store.remove(message) is False

    @needs("claims_outside_transactions")
    def test_a_claimed_message_is_its_claimers_alone(
        self, store: DelayedMessageStore, other: DelayedMessageStore
    ) -> None:
        store.store(a_message("a"))
        message = claimed(store)
        assert other.remove(message) is False
        assert other.increment_failure_count(message, NOON) is False
        assert store.remove(message) is True

    @needs("ending_leases")
    def test_a_claim_that_ended_removes_no_message_sent_again_under_the_id(
        self, store: DelayedMessageStore, other: DelayedMessageStore, end_leases: Callable[[], None]
    ) -> None:
        late, again = self.outlived(store, other, end_leases), a_message("a", body=b"again")
        other.store(again)
        assert store.remove(late) is False
        assert store.remove_many([late]) == 0
        assert store.increment_failure_count(late, FAR) is False
        assert_only(all_taken(other, NOON), again)

    @needs("ending_leases")
    def test_a_claim_that_ended_removes_nothing_that_another_has_claimed(
        self, store: DelayedMessageStore, other: DelayedMessageStore, end_leases: Callable[[], None]
    ) -> None:
        late = self.outlived(store, other, end_leases)
        other.store(a_message("a"))
        message = claimed(other)
        assert store.remove(late) is False
        assert store.increment_failure_count(late, FAR) is False
        assert other.remove(message) is True

    def outlived(
        self, store: DelayedMessageStore, other: DelayedMessageStore, end_leases: Callable[[], None]
    ) -> DelayedMessage:
        """A message that `store` has claimed, and that `other` has taken over and removed since."""
        store.store(a_message("a"))
        late = claimed(store)
        end_leases()
        assert other.remove(claimed(other)) is True
        return late
