"""What is due, in which order, and when the next is."""

from datetime import UTC, datetime, timedelta

import pytest

from delaystore.stores.abc import DelayedMessageStore
from delaystore.testing._capabilities import needs
from delaystore.testing._kit.base import StoreTests
from delaystore.testing._kit.messages import NOON, SECOND, TICK, a_message, all_taken, assert_same, claimed, ids
from delaystore.testing._kit.waiting import eventually_next

_FAR = (
    datetime(9999, 12, 29, 23, 59, 59, 999999, tzinfo=UTC),
    datetime(2038, 1, 19, 3, 14, 8, tzinfo=UTC),
    datetime(1970, 1, 1, tzinfo=UTC),
    datetime(1969, 7, 20, 20, 17, 40, 123456, tzinfo=UTC),
)


class DueTests(StoreTests):
    """Due means <=, to the microsecond; the earliest next attempt comes first."""

    def test_an_empty_store_has_nothing_due_and_nothing_next(self, store: DelayedMessageStore) -> None:
        with store.transaction() as transaction:
            assert transaction.fetch_next_due_timeout(NOON) is None
            assert list(transaction.fetch_due(NOON, 10)) == []
        assert store.next() is None

    def test_the_status_knows_the_first_that_waits_and_that_it_can_be_written(self, store: DelayedMessageStore) -> None:
        status = store.status()
        assert (status.first_due, status.read_only) == (None, None)
        store.store(a_message("a", NOON + SECOND))
        store.store(a_message("b", NOON))
        assert store.status().first_due == NOON

    def test_a_message_is_due_at_its_due_time_and_not_a_microsecond_sooner(self, store: DelayedMessageStore) -> None:
        due_time = NOON + timedelta(microseconds=123456)
        store.store(a_message("a", due_time))
        with store.transaction() as transaction:
            assert transaction.fetch_next_due_timeout(due_time - TICK) is None
            assert list(transaction.fetch_due(due_time - TICK, 10)) == []
        with store.transaction() as transaction:
            assert_same(transaction.fetch_next_due_timeout(due_time), a_message("a", due_time))

    def test_a_batch_is_due_at_its_due_time(self, store: DelayedMessageStore) -> None:
        store.store(a_message("a", NOON))
        store.store(a_message("b", NOON + TICK))
        assert ids(all_taken(store, NOON)) == ["a"]
        assert ids(all_taken(store, NOON + TICK)) == ["b"]

    def test_the_instant_asked_for_may_be_in_any_time_zone(self, store: DelayedMessageStore) -> None:
        store.store(a_message("a", NOON.astimezone()))
        assert ids(all_taken(store, NOON.astimezone())) == ["a"]

    def test_the_longest_waiting_comes_first(self, store: DelayedMessageStore) -> None:
        for name, seconds in (("c", 3), ("a", 1), ("d", 4), ("b", 2), ("e", 5)):
            store.store(a_message(name, NOON + seconds * SECOND))
        assert ids(all_taken(store, NOON + 4 * SECOND)) == ["a", "b", "c", "d"]

    def test_a_message_stored_late_still_comes_first(self, store: DelayedMessageStore) -> None:
        for name, seconds in (("c", 3), ("b", 2)):
            store.store(a_message(name, NOON + seconds * SECOND))
        with store.transaction() as transaction:
            first = claimed(transaction, NOON + 5 * SECOND)
            assert transaction.remove(first)
        store.store(a_message("a", NOON + SECOND))
        assert ids(all_taken(store, NOON + 5 * SECOND)) == ["a", "c"]

    def test_messages_due_at_the_same_instant_are_all_found(self, store: DelayedMessageStore) -> None:
        for number in range(20):
            store.store(a_message(str(number)))
        assert sorted(ids(all_taken(store, NOON)), key=int) == [str(number) for number in range(20)]

    @pytest.mark.parametrize("due_time", _FAR, ids=str)
    def test_due_times_far_away_are_kept(self, store: DelayedMessageStore, due_time: datetime) -> None:
        store.store(a_message("a", due_time))
        eventually_next(store, due_time)
        with store.transaction() as transaction:
            assert transaction.fetch_next_due_timeout(due_time - TICK) is None
        with store.transaction() as transaction:
            assert_same(transaction.fetch_next_due_timeout(due_time), a_message("a", due_time))

    def test_a_message_that_is_due_when_it_is_stored_waits_to_be_fetched(self, store: DelayedMessageStore) -> None:
        store.store(a_message("late", store.now() - timedelta(days=1)))
        assert ids(all_taken(store, store.now())) == ["late"]

    def test_next_is_the_earliest_due_time(self, store: DelayedMessageStore) -> None:
        store.store(a_message("b", NOON + SECOND))
        eventually_next(store, NOON + SECOND)
        store.store(a_message("a", NOON + TICK))
        eventually_next(store, NOON + TICK)
        store.store(a_message("c", NOON + 2 * SECOND))
        eventually_next(store, NOON + TICK)
        assert ids(all_taken(store, NOON + TICK)) == ["a"]
        eventually_next(store, NOON + SECOND)

    def test_next_is_none_again_when_everything_is_gone(self, store: DelayedMessageStore) -> None:
        store.store(a_message())
        assert all_taken(store, NOON)
        eventually_next(store, None)

    def test_the_clock_is_aware_and_runs_forward(self, store: DelayedMessageStore) -> None:
        first, second = store.now(), store.now()
        assert first.utcoffset() == timedelta(0)
        assert first <= second

    @needs("claims_outside_transactions")
    def test_what_was_fetched_is_not_fetched_again(
        self, store: DelayedMessageStore, other: DelayedMessageStore
    ) -> None:
        store.store(a_message("a"))
        assert store.fetch_next_due_timeout(NOON) is not None
        assert store.fetch_next_due_timeout(NOON) is None
        assert other.fetch_next_due_timeout(NOON) is None
        assert list(other.fetch_due(NOON, 10)) == []
