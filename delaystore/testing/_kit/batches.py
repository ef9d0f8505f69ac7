"""Many at once."""

from collections.abc import Iterator

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
    ids,
    some_messages,
    told,
)
from delaystore.testing._kit.waiting import eventually_next

MANY = 2500


class BatchTests(StoreTests):
    """The batch methods do what the single ones do, many times."""

    def test_nothing_is_a_batch_too(self, store: DelayedMessageStore) -> None:
        store.store(a_message("a"))
        assert store.store_many([]) == 0
        with store.transaction() as transaction:
            assert list(transaction.fetch_due(NOON, 0)) == []
            assert transaction.remove_many([]) == 0
            assert transaction.increment_failure_counts([]) == 0
        assert ids(all_taken(store, NOON)) == ["a"]

    def test_many_messages_are_stored_from_a_generator(self, store: DelayedMessageStore) -> None:
        messages = some_messages(MANY, step=TICK)
        assert store.store_many(message for message in messages) == MANY
        assert ids(all_taken(store, FAR)) == ids(messages)

    @needs("transactions")
    def test_a_duplicate_within_a_batch_stores_none_of_it(self, store: DelayedMessageStore) -> None:
        with pytest.raises(DuplicateMessageError) as error:
            store.store_many([*some_messages(MANY), a_message("m7")])
        assert "m7" in error.value.message_ids
        eventually_next(store, None)

    @needs("transactions")
    def test_a_duplicate_of_what_waits_stores_none_of_the_batch(self, store: DelayedMessageStore) -> None:
        store.store(a_message("m1200", body=b"first"))
        with pytest.raises(DuplicateMessageError) as error:
            store.store_many(some_messages(MANY))
        assert "m1200" in error.value.message_ids
        assert [message.body for message in all_taken(store, FAR)] == [b"first"]

    @needs("transactions")
    def test_a_batch_that_breaks_off_stores_none_of_it(self, store: DelayedMessageStore) -> None:
        def breaking_off() -> Iterator[DelayedMessage]:
            yield from some_messages(1500)
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            store.store_many(breaking_off())
        eventually_next(store, None)

    def test_a_duplicate_marks_only_the_due_time_of_what_waited(self, store: DelayedMessageStore) -> None:
        store.store(first := a_message("a", body=b"first"))
        with pytest.raises(DuplicateMessageError):
            store.store_many([a_message("a", body=b"second")])
        assert_only(all_taken(store, NOON), told(first))

    @needs("batches")
    def test_a_batch_has_the_longest_waiting_up_to_its_limit(self, store: DelayedMessageStore) -> None:
        store.store_many(reversed(some_messages(10)))
        with store.transaction() as transaction:
            assert ids(transaction.fetch_due(NOON + 8 * SECOND, 4)) == ["m0", "m1", "m2", "m3"]
        with store.transaction() as transaction:
            assert ids(transaction.fetch_due(NOON + 2 * SECOND, 100)) == ["m0", "m1", "m2"]

    @needs("batches", "bounded_batches")
    def test_a_batch_has_the_longest_waiting_up_to_its_bytes_but_at_least_one(self, store: DelayedMessageStore) -> None:
        sizes = (0, 41, 10, 20, 30, 0, 40)
        store.store_many([a_message(f"m{n}", NOON + n * SECOND, body=bytes(size)) for n, size in enumerate(sizes)])
        batches = []
        while some := self.removed_batch(store, 10, 40):
            batches.append(some)
        assert batches == [["m0"], ["m1"], ["m2", "m3"], ["m4", "m5"], ["m6"]]

    @needs("batches", "bounded_batches")
    def test_both_bounds_of_a_batch_count(self, store: DelayedMessageStore) -> None:
        store.store_many(some_messages(4))
        assert self.removed_batch(store, 2, 1000) == ["m0", "m1"]
        assert self.removed_batch(store, 10, 1) == ["m2"]
        assert self.removed_batch(store, 0, 1000) == []

    @needs("batches", "bounded_batches", "transactions")
    def test_what_did_not_fit_is_the_next_batch(self, store: DelayedMessageStore) -> None:
        store.store_many([a_message(f"m{n}", NOON + n * SECOND, body=bytes(10)) for n in range(5)])
        with store.transaction() as transaction:
            assert ids(transaction.fetch_batch(FAR, 10, 25)) == ["m0", "m1"]
        assert self.removed_batch(store, 10, 25) == ["m0", "m1"]
        assert self.removed_batch(store, 10, 25) == ["m2", "m3"]

    @needs("batches")
    def test_a_batch_may_be_large(self, store: DelayedMessageStore) -> None:
        store.store_many(some_messages(MANY, step=TICK))
        with store.transaction() as transaction:
            messages = transaction.fetch_due(FAR, MANY + 1)
            assert ids(messages) == [f"m{number}" for number in range(MANY)]
            assert transaction.remove_many(messages) == MANY
        eventually_next(store, None)

    def test_removing_many_counts_those_that_were_there(self, store: DelayedMessageStore) -> None:
        store.store_many(some_messages(5))
        with store.transaction() as transaction:
            fetched = self.fetched(transaction, 2)
            assert transaction.remove_many([*fetched, *some_messages(7)[5:], a_message("never")]) == 2
        assert ids(all_taken(store, FAR)) == ["m2", "m3", "m4"]

    def test_counting_many_failures_counts_those_that_were_there(self, store: DelayedMessageStore) -> None:
        messages = some_messages(4)
        store.store_many(messages[:3])
        failures = [(message, FAR + number * SECOND) for number, message in enumerate(reversed(messages))]
        with store.transaction() as transaction:
            assert len(self.fetched(transaction, 4)) == 3
            assert transaction.increment_failure_counts(failures) == 3
        assert all_taken(store, FAR) == []
        found = all_taken(store, FAR + 3 * SECOND)
        assert [(one.message_id, one.failure_count, one.due_time) for one in found] == [
            (message.message_id, 1, message.due_time) for message in reversed(messages[:3])
        ]

    def removed_batch(self, store: DelayedMessageStore, limit: int, most_bytes: int) -> list[str]:
        """The ids of a batch, which is removed."""
        with store.transaction() as transaction:
            messages = transaction.fetch_batch(FAR, limit, most_bytes)
            assert transaction.remove_many(messages) == len(messages)
        return ids(messages)

    def fetched(self, store: DelayedMessageStore, count: int) -> list[DelayedMessage]:
        """Up to `count` messages, at once or (where the store has no batches) one after the other."""
        if self.capabilities.batches:
            return list(store.fetch_due(FAR, count))
        found = [store.fetch_next_due_timeout(FAR) for _ in range(count)]
        return [message for message in found if message is not None]
