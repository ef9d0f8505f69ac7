"""Opening, setting up, closing."""

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from threading import Event

import pytest

from delaystore.errors import ConfigurationError
from delaystore.message import UnreadableMessage
from delaystore.settings import TransactionMode
from delaystore.stores.abc import DelayedMessageStore
from delaystore.testing._capabilities import needs
from delaystore.testing._kit.base import ENDPOINT, StoreFactory, StoreTests
from delaystore.testing._kit.concurrency import together
from delaystore.testing._kit.messages import NOON, SECOND, a_message, all_taken, assert_same, ids
from delaystore.testing._kit.waiting import DEADLINE, eventually


class InfrastructureTests(StoreTests):
    """A store may be set up by several processes at once, closed and used again."""

    def test_it_is_initialized_again_with_the_same_arguments(self, store: DelayedMessageStore) -> None:
        store.store(a_message("a"))
        store.initialize(ENDPOINT, TransactionMode.RECEIVE_ONLY)
        store.setup_infrastructure()
        assert ids(all_taken(store, NOON)) == ["a"]

    def test_an_endpoint_without_a_name_is_refused(self, store_factory: StoreFactory) -> None:
        store = store_factory()
        with pytest.raises(ConfigurationError):
            store.initialize("", TransactionMode.RECEIVE_ONLY)
        store.close()

    @pytest.mark.parametrize("mode", [TransactionMode.NONE, TransactionMode.SENDS_ATOMIC_WITH_RECEIVE])
    def test_the_modes_that_mean_at_least_once_are_honoured(
        self, store_factory: StoreFactory, opened_stores: list[DelayedMessageStore], mode: TransactionMode
    ) -> None:
        opened_stores.append(store := store_factory())
        store.initialize(ENDPOINT, mode)
        store.setup_infrastructure()
        store.store(a_message("a"))
        assert ids(all_taken(store, NOON)) == ["a"]

    def test_several_set_it_up_at_once(
        self, store_factory: StoreFactory, opened_stores: list[DelayedMessageStore]
    ) -> None:
        def set_up(store: DelayedMessageStore) -> list[str]:
            store.setup_infrastructure()
            store.setup_infrastructure()
            return []

        opened_stores += [store_factory() for _ in range(4)]
        for store in opened_stores:
            store.initialize(ENDPOINT, TransactionMode.RECEIVE_ONLY)
        together(*(partial(set_up, store) for store in opened_stores))
        opened_stores[0].store(a_message("a"))
        assert ids(all_taken(opened_stores[-1], NOON)) == ["a"]

    def test_setting_up_keeps_what_waits(self, store: DelayedMessageStore, open_store: StoreFactory) -> None:
        store.store(a_message("a"))
        assert ids(all_taken(open_store(), NOON)) == ["a"]

    def test_it_is_closed_twice_and_used_again(self, store: DelayedMessageStore) -> None:
        store.store(a_message("a"))
        store.close()
        store.close()
        assert ids(all_taken(store, NOON)) == ["a"]

    @needs("unreadable_rows")
    def test_a_message_that_cannot_be_read_harms_itself_alone(
        self, store: DelayedMessageStore, corrupt: Callable[[str], None]
    ) -> None:
        good = [a_message("before"), a_message("after", NOON + 2 * SECOND)]
        store.store_many([*good, a_message("bad", NOON + SECOND, headers={"a": b"1"}, body=b"whole")])
        corrupt("bad")
        before, bad, after = all_taken(store, NOON + 2 * SECOND)
        assert_same(before, good[0])
        assert_same(after, good[1])
        assert isinstance(bad, UnreadableMessage)
        assert (bad.message_id, bad.destination, bad.body) == ("bad", "billing", b"whole")
        assert bad.reason

    @needs("wake_ups")
    def test_another_process_message_wakes_the_subscriber(
        self, store: DelayedMessageStore, other: DelayedMessageStore
    ) -> None:
        woken = Event()

        def wake_up(due_time: datetime | None) -> None:  # noqa: ARG001 - only that it came matters
            woken.set()

        subscription = store.subscribe(wake_up)
        assert subscription is not None
        try:
            eventually(lambda: subscription.alive, "the subscription is alive")
            woken.clear()
            other.store(a_message("a", other.now() + timedelta(seconds=1)))
            assert woken.wait(DEADLINE)
        finally:
            subscription.close()
            subscription.close()
