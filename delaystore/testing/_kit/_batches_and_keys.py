"""Conformance: batches, keys, and message ids that are taken."""

import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from typing import ClassVar

import pytest

from delaystore.errors import DuplicateKeyError, DuplicateMessageError, MessageBeingDispatchedError
from delaystore.message import DelayedMessage, KeyRule, OnKey
from delaystore.stores.abc import DelayedMessageStore, KeyedDelayedMessageStore, ManagedDelayedMessageStore
from delaystore.testing._capabilities import needs
from delaystore.testing._kit._base import (
    DEADLINE,
    FAR,
    NOON,
    SECOND,
    TICK,
    StoreTests,
    a_message,
    all_taken,
    assert_only,
    assert_same,
    claimed,
    eventually_next,
    ids,
    reported,
    some_messages,
)
from delaystore.testing._kit._concurrency import together

MANY = 2500


class BatchTests(StoreTests):
    """The batch methods have the effect of the single ones, many times."""

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
        assert_only(all_taken(store, NOON), reported(first))

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


REJECT, KEEP, REPLACE, DEBOUNCE = map(KeyRule, OnKey)
AWHILE = 0.2
"""Seconds in which a thread comes to wait, mostly."""


class KeyedStore(ManagedDelayedMessageStore, KeyedDelayedMessageStore):
    """A store that is both."""


def keyed(message_id: str, due_in: timedelta = timedelta(0), **fields: object) -> DelayedMessage:
    """A message with the key `k`, unless another is given."""
    return a_message(message_id, NOON + due_in, **({"key": "k"} | fields))


@needs("keys", "management")
class KeyTests(StoreTests):
    """The rules for a message whose key a waiting message has."""

    @pytest.fixture
    def keys(self, store: DelayedMessageStore) -> KeyedStore:
        """The store under test."""
        assert isinstance(store, KeyedDelayedMessageStore), "the flag keys is for a KeyedDelayedMessageStore"
        return store  # type: ignore[return-value]

    def test_a_key_comes_back_and_is_free_when_its_message_is_gone(self, keys: KeyedStore) -> None:
        keys.store_keyed(message := keyed("a", headers={"n": 1}, key="order-17/ä"), REJECT)
        assert_same(keys.get("a"), message)
        assert [one.key for one in keys.list().messages] == ["order-17/ä"]
        assert keys.message_id_of("order-17/ä") == "a"
        assert keys.message_id_of("ORDER-17/ä") is None
        keys.reschedule("a", NOON + SECOND)
        assert keys.message_id_of("order-17/ä") == "a"
        assert ids(all_taken(keys, FAR)) == ["a"]
        assert keys.message_id_of("order-17/ä") is None
        keys.store_keyed(keyed("b"), REJECT)
        keys.cancel("b")
        assert keys.store_keyed(keyed("c"), REJECT) == "c"

    def test_keys_that_a_collation_takes_for_one_are_several(self, keys: KeyedStore) -> None:
        alike = ["a", "A", "a ", " a", "\u00e4", "a\u0308", "ae", "\uff41", "a\u200b", "\U0001f600", "\U0001f601"]
        for number, key in enumerate(alike):
            keys.store_keyed(keyed(str(number), key=key), REJECT)
        assert [keys.message_id_of(key) for key in alike] == [str(number) for number in range(len(alike))]
        keys.cancel("0")
        assert [key for key in alike if keys.message_id_of(key) is None] == ["a"]

    def test_a_waiting_key_is_rejected(self, keys: KeyedStore) -> None:
        keys.store(first := keyed("a"))
        for store_again in (
            lambda: keys.store_keyed(keyed("b"), REJECT),
            lambda: keys.store(keyed("b")),
            lambda: keys.store_many([keyed("x", key=None), keyed("b")]),
        ):
            with pytest.raises(DuplicateKeyError) as raised:
                store_again()
            assert (raised.value.key, raised.value.message_id) == ("k", "a")
        assert keys.store_keyed(keyed("other", key="K"), REJECT) == "other"
        keys.cancel("other")
        if self.capabilities.transactions:
            assert ids(keys.list().messages) == ["a"]
        assert_same(keys.get("a"), reported(first, times=3))

    def test_the_same_message_again_is_a_duplicate_message(self, keys: KeyedStore) -> None:
        keys.store(keyed("a"))
        with pytest.raises(DuplicateMessageError):
            keys.store_keyed(keyed("a"), REJECT)
        assert keys.store_keyed(keyed("a"), KEEP) == "a"
        assert keys.store_keyed(keyed("a", body=b"new"), REPLACE) == "a"
        assert [one.body for one in keys.list().messages] == [b"new"]

    @pytest.mark.parametrize("rule", [REJECT, KEEP, REPLACE, DEBOUNCE], ids=str)
    def test_an_id_of_another_message_is_a_duplicate_whatever_the_rule(self, keys: KeyedStore, rule: KeyRule) -> None:
        keys.store(other := a_message("other"))
        with pytest.raises(DuplicateMessageError):
            keys.store_keyed(keyed("other"), rule)
        if rule.on_key in (OnKey.REPLACE, OnKey.DEBOUNCE):
            keys.store(first := keyed("a"))
            with pytest.raises(DuplicateMessageError):
                keys.store_keyed(keyed("other"), rule)
            assert_same(keys.get("a"), first)
            other = reported(other)
        assert_same(keys.get("other"), reported(other))

    def test_the_first_is_kept(self, keys: KeyedStore) -> None:
        first = keyed("a")
        assert keys.store_keyed(first, KEEP) == "a"
        assert keys.store_keyed(keyed("b", SECOND, body=b"new"), KEEP) == "a"
        assert keys.get("b") is None
        assert_same(keys.get("a"), reported(first))

    def test_the_new_one_takes_the_place_of_the_old(self, keys: KeyedStore) -> None:
        keys.store(keyed("a", headers={"old": 1}, failure_count=2, next_attempt=FAR))
        new = keyed("b", SECOND, body=b"new", properties={"priority": 1}, destination="shipping")
        assert keys.store_keyed(new, REPLACE) == "b"
        assert keys.get("a") is None
        assert_same(keys.get("b"), new)
        assert keys.count() == 1
        assert ids(all_taken(keys, NOON + SECOND)) == ["b"]

    def test_the_due_time_moves_on_but_not_beyond_the_longest_wait_since_the_first(self, keys: KeyedStore) -> None:
        before = keys.now()
        rule = KeyRule(OnKey.DEBOUNCE, timedelta(seconds=60))
        for number in range(3):
            keys.store_keyed(a_message(f"m{number}", before + (number + 1) * SECOND, key="k"), rule)
        moved = keys.get("m2")
        assert moved is not None
        assert moved.due_time == before + 3 * SECOND
        keys.store_keyed(keyed("last", body=b"last"), rule)
        last = keys.get("last")
        assert last is not None
        assert (last.body, last.due_time, keys.count()) == (b"last", last.next_attempt, 1)
        assert before <= last.due_time - timedelta(seconds=60) <= keys.now()
        keys.store_keyed(keyed("unbounded"), DEBOUNCE)
        assert_same(keys.get("unbounded"), keyed("unbounded"))
        keys.store_keyed(keyed("again"), rule)
        again = keys.get("again")
        assert again is not None
        assert again.due_time == last.due_time, "the first send is the same"

    def test_many_go_by_the_rule_in_their_order(self, keys: KeyedStore) -> None:
        batch = [keyed("a"), a_message("x"), keyed("c", key="l"), keyed("b", SECOND), a_message("y")]
        assert keys.store_many(batch, REPLACE) == 5
        assert sorted(ids(keys.list().messages)) == ["b", "c", "x", "y"]
        assert keys.store_many([keyed("d"), keyed("e"), keyed("f", key="m")], KEEP) == 1
        assert keys.message_id_of("k") == "b"

    @needs("transactions")
    def test_what_is_undone_is_as_it_was(self, keys: KeyedStore) -> None:
        keys.store(first := keyed("a"))
        with pytest.raises(ZeroDivisionError), keys.transaction() as transaction:
            assert isinstance(transaction, KeyedDelayedMessageStore)
            assert transaction.store_keyed(keyed("b"), REPLACE) == "b"
            assert transaction.store_keyed(keyed("c"), KEEP) == "b"
            with pytest.raises(DuplicateKeyError):
                transaction.store_keyed(keyed("c"), REJECT)
            assert transaction.store_keyed(keyed("c"), REPLACE) == "c"
            assert transaction.message_id_of("k") == "c"
            _ = 1 / 0
        assert_same(keys.get("a"), first)
        assert keys.count() == 1
        with keys.transaction() as transaction:
            assert isinstance(transaction, KeyedDelayedMessageStore)
            with pytest.raises(DuplicateKeyError):
                transaction.store_keyed(keyed("b"), REJECT)
            transaction.store(a_message("lives on"))
        assert keys.count() == 2

    @needs("transactions")
    @pytest.mark.parametrize("rule", [REJECT, KEEP, REPLACE, DEBOUNCE], ids=str)
    def test_what_is_being_dispatched_is_waited_for_and_makes_room(
        self, keys: KeyedStore, other: DelayedMessageStore, rule: KeyRule
    ) -> None:
        keys.store(keyed("a"))
        with ThreadPoolExecutor(1) as pool:
            with other.transaction() as transaction:
                message = claimed(transaction)
                sent = pool.submit(keys.store_keyed, keyed("b", SECOND), rule)
                with pytest.raises(TimeoutError):
                    sent.result(AWHILE)
                assert transaction.remove(message)
            assert sent.result(DEADLINE) == "b"
        assert ids(keys.list().messages) == ["b"]

    @needs("transactions")
    def test_what_was_not_delivered_waits_again(self, keys: KeyedStore, other: DelayedMessageStore) -> None:
        keys.store(keyed("a"))
        with ThreadPoolExecutor(1) as pool:
            with other.transaction() as transaction:
                message = claimed(transaction)
                sent = pool.submit(keys.store_keyed, keyed("b", SECOND), REPLACE)
                assert transaction.increment_failure_count(message, FAR)
            assert sent.result(DEADLINE) == "b"
        assert_same(keys.get("b"), keyed("b", SECOND))
        assert keys.count() == 1

    def test_of_several_senders_one_is_first(self, open_store: Callable[[], DelayedMessageStore]) -> None:
        def send(store: DelayedMessageStore, name: str) -> list[str]:
            assert isinstance(store, KeyedDelayedMessageStore)
            return [store.store_keyed(keyed(f"{name}{n}", key=f"k{n}"), KEEP) for n in range(20)]

        stores = [open_store() for _ in range(3)]
        answers = together(*(lambda store=store, n=n: send(store, f"s{n}-") for n, store in enumerate(stores)))
        assert answers[0] == answers[1] == answers[2]
        with stores[0].transaction() as transaction:
            assert sorted(ids(transaction.fetch_due(FAR, 100))) == sorted(answers[0])


STILL_WAITING = 0.3
"""Seconds in which a store that does not wait would have answered."""


def store_one(store: DelayedMessageStore, body: bytes) -> None:
    """By `store`."""
    store.store(a_message("a", body=body))


def store_with_others(store: DelayedMessageStore, body: bytes) -> None:
    """By `store_many`, as one of several."""
    store.store_many([a_message("b"), a_message("a", body=body), a_message("c")])


def store_of_a_generator(store: DelayedMessageStore, body: bytes) -> None:
    """By `store_many`, from an iterator that can be read once."""
    store.store_many(a_message(name, body=body) for name in ("b", "a"))


WAYS = pytest.mark.parametrize("way", [store_one, store_with_others, store_of_a_generator])


class TakenIdTests(StoreTests):
    """A claimed message is not waiting, but still stored: a sender of its id waits, and loses nothing."""

    chances: ClassVar[int] = 20
    """How many messages are sent again at the moments in which they are dispatched; more find more."""

    @WAYS
    def test_an_id_that_is_being_dispatched_is_stored_once_its_message_is_removed(
        self, store: DelayedMessageStore, other: DelayedMessageStore, way: Callable[[DelayedMessageStore, bytes], None]
    ) -> None:
        store.store(a_message("a", body=b"first"))
        with ThreadPoolExecutor(1) as pool:
            with other.transaction() as dispatcher:
                message = claimed(dispatcher)
                sent = pool.submit(way, store, b"again")
                with pytest.raises(TimeoutError):
                    sent.result(STILL_WAITING)
                assert dispatcher.remove(message)
            sent.result(DEADLINE)
        again = {message.message_id: message.body for message in all_taken(store, FAR)}
        assert again["a"] == b"again"

    @WAYS
    def test_an_id_whose_message_was_not_delivered_waits_already(
        self, store: DelayedMessageStore, other: DelayedMessageStore, way: Callable[[DelayedMessageStore, bytes], None]
    ) -> None:
        store.store(a_message("a", body=b"first"))
        with ThreadPoolExecutor(1) as pool:
            with other.transaction() as dispatcher:
                message = claimed(dispatcher)
                sent = pool.submit(way, store, b"again")
                assert dispatcher.increment_failure_count(message, NOON)
            with pytest.raises(DuplicateMessageError) as error:
                sent.result(DEADLINE)
        assert error.value.message_ids == ("a",)
        taken = {message.message_id: message.body for message in all_taken(store, FAR)}
        assert taken["a"] == b"first"

    @WAYS
    def test_an_id_that_stays_claimed_is_told_apart_from_one_that_waits(
        self, store: DelayedMessageStore, other: DelayedMessageStore, way: Callable[[DelayedMessageStore, bytes], None]
    ) -> None:
        store.store(a_message("a", body=b"first"))
        with other.transaction() as dispatcher:
            message = claimed(dispatcher)
            with pytest.raises(MessageBeingDispatchedError) as error:
                way(store, b"again")
            assert "a" in error.value.message_ids
            assert dispatcher.remove(message)
        store.store(a_message("a", body=b"again"))
        taken = {message.message_id: message.body for message in all_taken(store, FAR)}
        assert taken["a"] == b"again"

    @needs("ending_leases", "claims_outside_transactions")
    def test_a_late_dispatcher_cannot_remove_what_a_sender_was_told_of(
        self, store: DelayedMessageStore, other: DelayedMessageStore, end_leases: Callable[[], None]
    ) -> None:
        store.store(a_message("a", body=b"first"))
        late = claimed(other)
        end_leases()
        with pytest.raises(DuplicateMessageError):
            store.store(a_message("a", body=b"again"))
        assert other.remove(late) is False
        assert_only(all_taken(store, NOON), reported(a_message("a", body=b"first")))

    @needs("management")
    def test_what_is_claimed_is_left_out_of_what_waits_unclaimed(
        self, managed: ManagedDelayedMessageStore, other: DelayedMessageStore
    ) -> None:
        for name in ("a", "b"):
            managed.store(a_message(name))
        with other.transaction() as dispatcher:
            message = claimed(dispatcher)
            assert sorted(managed.get_many(["a", "b", "c"])) == ["a", "b"]
            assert sorted(managed.get_unclaimed(["a", "b", "c"])) == sorted({"a", "b"} - {message.message_id})
        assert sorted(managed.get_unclaimed(["a", "b", "c"])) == ["a", "b"]
        before = managed.get("a")
        assert before is not None
        assert_same(managed.get_unclaimed(["a"])["a"], reported(before))
        assert sorted(ids(all_taken(managed, FAR))) == ["a", "b"]

    def test_every_message_that_is_sent_again_is_delivered_again(
        self, store: DelayedMessageStore, other: DelayedMessageStore
    ) -> None:
        """A receiver sends each message again as it gets it, while its dispatcher settles in one of several ways."""
        chance = random.Random(self.chances)  # noqa: S311 - repeatable
        with ThreadPoolExecutor(1) as pool:
            for number in range(self.chances):
                first, later = (NOON + number * SECOND + part * TICK for part in range(2))  # each behind the last
                store.store(a_message("a", first, body=b"first"))
                with other.transaction() as dispatcher:
                    message = claimed(dispatcher, FAR)
                    sent = pool.submit(store.store, a_message("a", later, body=b"again"))
                    with suppress(TimeoutError):
                        sent.result(chance.random() / 50)
                    removes = chance.random() < 0.7
                    assert dispatcher.remove(message) if removes else dispatcher.increment_failure_count(message, later)
                if removes:
                    sent.result(DEADLINE)
                else:
                    with pytest.raises(DuplicateMessageError):
                        sent.result(DEADLINE)
                (waiting,) = all_taken(other, FAR)
                assert waiting.body == (b"again" if removes else b"first")
