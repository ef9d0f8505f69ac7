"""At most one message with a key waits."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from delaystore.errors import DuplicateKeyError, DuplicateMessageError
from delaystore.keys import KeyRule, OnKey
from delaystore.message import DelayedMessage
from delaystore.stores.abc import DelayedMessageStore, KeyedDelayedMessageStore, ManagedDelayedMessageStore
from delaystore.testing._capabilities import needs
from delaystore.testing._kit.base import StoreTests
from delaystore.testing._kit.concurrency import together
from delaystore.testing._kit.messages import FAR, NOON, SECOND, a_message, all_taken, assert_same, claimed, ids, told
from delaystore.testing._kit.waiting import DEADLINE

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
    """What a message does when one with its key waits."""

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
        assert_same(keys.get("a"), told(first, times=3))

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
            other = told(other)
        assert_same(keys.get("other"), told(other))

    def test_the_first_is_kept(self, keys: KeyedStore) -> None:
        first = keyed("a")
        assert keys.store_keyed(first, KEEP) == "a"
        assert keys.store_keyed(keyed("b", SECOND, body=b"new"), KEEP) == "a"
        assert keys.get("b") is None
        assert_same(keys.get("a"), told(first))

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
