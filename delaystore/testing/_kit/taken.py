"""Storing under a message_id whose message a dispatcher has claimed."""

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import ClassVar

import pytest

from delaystore.errors import DuplicateMessageError, MessageBeingDispatchedError
from delaystore.stores.abc import DelayedMessageStore, ManagedDelayedMessageStore
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
from delaystore.testing._kit.waiting import DEADLINE

AWHILE = 0.3
"""Seconds in which a store that does not wait would have answered."""


def store_one(store: DelayedMessageStore, body: bytes) -> None:
    """By `store`."""
    store.store(a_message("a", body=body))


def store_with_others(store: DelayedMessageStore, body: bytes) -> None:
    """By `store_many`, as one of several."""
    store.store_many([a_message("b"), a_message("a", body=body), a_message("c")])


def store_of_a_generator(store: DelayedMessageStore, body: bytes) -> None:
    """By `store_many`, from what can be read once."""
    store.store_many(a_message(name, body=body) for name in ("b", "a"))


WAYS = pytest.mark.parametrize("way", [store_one, store_with_others, store_of_a_generator])


class TakenIdTests(StoreTests):
    """A claimed message is neither waiting nor gone: a sender of its id waits, and loses nothing."""

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
                    sent.result(AWHILE)
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
        assert_only(all_taken(store, NOON), told(a_message("a", body=b"first")))

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
        assert_same(managed.get_unclaimed(["a"])["a"], told(before))
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
