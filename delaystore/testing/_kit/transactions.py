"""Blocks: all or nothing, and claims that last as long as they do."""

from datetime import timedelta

import pytest

from delaystore.stores.abc import DelayedMessageStore
from delaystore.testing._capabilities import needs
from delaystore.testing._kit.base import StoreTests
from delaystore.testing._kit.messages import (
    FAR,
    NOON,
    Undone,
    a_message,
    all_taken,
    assert_only,
    assert_same,
    claimed,
    ids,
    some_messages,
)
from delaystore.testing._kit.waiting import eventually_next


@needs("transactions")
class TransactionTests(StoreTests):
    """A block commits at its end, is undone by an exception, and ends its claims either way."""

    def test_what_a_block_stores_shows_at_its_end(self, store: DelayedMessageStore, other: DelayedMessageStore) -> None:
        with store.transaction() as transaction:
            transaction.store(a_message("one"))
            transaction.store_many([a_message("many")])
            assert other.next() is None
        eventually_next(other, NOON)
        assert sorted(ids(all_taken(other, NOON))) == ["many", "one"]

    def test_what_an_undone_block_stored_is_not_there(self, store: DelayedMessageStore) -> None:
        with pytest.raises(Undone), store.transaction() as transaction:
            transaction.store(a_message("one"))
            transaction.store_many([a_message("many")])
            raise Undone
        eventually_next(store, None)
        store.store(a_message("one"))

    def test_what_an_undone_block_removed_is_found_again(
        self, store: DelayedMessageStore, other: DelayedMessageStore
    ) -> None:
        store.store(a_message("a"))
        with pytest.raises(Undone), store.transaction() as transaction:
            message = claimed(transaction)
            assert transaction.remove(message)
            raise Undone
        assert_only(all_taken(other, NOON), a_message("a"))

    def test_a_failure_that_an_undone_block_counted_does_not_count(self, store: DelayedMessageStore) -> None:
        store.store(a_message("a"))
        with pytest.raises(Undone), store.transaction() as transaction:
            message = claimed(transaction)
            assert transaction.increment_failure_count(message, FAR)
            raise Undone
        assert_only(all_taken(store, NOON), a_message("a"))

    def test_what_a_block_fetched_stays_claimed_until_its_end(
        self, store: DelayedMessageStore, other: DelayedMessageStore
    ) -> None:
        store.store_many(some_messages(2))
        with store.transaction() as transaction:
            assert transaction.fetch_next_due_timeout(NOON) is not None
            with other.transaction() as another:
                assert another.fetch_next_due_timeout(NOON) is None
                assert ids(another.fetch_due(FAR, 10)) == ["m1"]
            with store.transaction() as same_handle:
                assert same_handle.fetch_next_due_timeout(NOON) is None
        assert ids(all_taken(other, NOON)) == ["m0"]

    def test_what_a_block_fetched_and_left_is_free_after_its_end(
        self, store: DelayedMessageStore, other: DelayedMessageStore
    ) -> None:
        store.store(a_message("a"))
        for handle in (store, store, other, store):
            with handle.transaction() as transaction:
                assert_same(transaction.fetch_next_due_timeout(NOON), a_message("a"))

    def test_what_an_undone_block_fetched_is_free_after_its_end(
        self, store: DelayedMessageStore, other: DelayedMessageStore
    ) -> None:
        store.store(a_message("a"))
        with pytest.raises(Undone), store.transaction() as transaction:
            assert transaction.fetch_next_due_timeout(NOON) is not None
            raise Undone
        assert ids(all_taken(other, NOON)) == ["a"]

    @needs("batches")
    def test_two_open_blocks_never_share_a_message(
        self, store: DelayedMessageStore, other: DelayedMessageStore
    ) -> None:
        store.store_many(some_messages(10))
        with store.transaction() as first:
            one = first.fetch_due(FAR, 5)
            with other.transaction() as second:
                another = second.fetch_due(FAR, 10)
                assert second.remove_many(another) == 5
            assert first.remove_many(one) == 5
        assert sorted(ids(one) + ids(another)) == sorted(ids(some_messages(10)))
        eventually_next(store, None)

    def test_part_of_what_a_block_fetched_may_be_settled(self, store: DelayedMessageStore) -> None:
        store.store_many(some_messages(3))
        with store.transaction() as transaction:
            for settle in ("remove", "count", "leave"):
                message = claimed(transaction, FAR)
                if settle == "remove":
                    assert transaction.remove(message)
                elif settle == "count":
                    assert transaction.increment_failure_count(message, FAR + timedelta(days=1))
        assert ids(all_taken(store, FAR)) == ["m2"]
        assert ids(all_taken(store, FAR + timedelta(days=1))) == ["m1"]

    def test_a_block_without_work_does_no_harm(self, store: DelayedMessageStore) -> None:
        store.store(a_message("a"))
        with store.transaction():
            pass
        with pytest.raises(Undone), store.transaction():
            raise Undone
        assert ids(all_taken(store, NOON)) == ["a"]

    def test_a_block_keeps_the_stores_time(self, store: DelayedMessageStore) -> None:
        with store.transaction() as transaction:
            assert transaction.now().utcoffset() == timedelta(0)
            assert abs(transaction.now() - store.now()) < timedelta(minutes=1)
