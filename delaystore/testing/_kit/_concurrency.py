"""Conformance: several dispatchers, sessions, transactions and set-up at once."""

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from threading import Barrier, Event

import pytest

from delaystore.errors import ConfigurationError, DuplicateMessageError
from delaystore.message import UnreadableMessage
from delaystore.settings import TransactionMode
from delaystore.stores.abc import DelayedMessageStore, ManagedDelayedMessageStore
from delaystore.testing._capabilities import needs
from delaystore.testing._kit._base import (
    DEADLINE,
    ENDPOINT,
    FAR,
    NOON,
    SECOND,
    TICK,
    StoreFactory,
    StoreTests,
    Undone,
    a_message,
    all_taken,
    assert_only,
    assert_same,
    claimed,
    eventually,
    eventually_next,
    ids,
    opened,
    some_messages,
    taken,
)

HANDLES, THREADS_EACH = 4, 2


def together(*jobs: Callable[[], list[str]]) -> list[list[str]]:
    """Run `jobs` in threads that begin at the same moment; returns their results, or raises the first error."""
    barrier = Barrier(len(jobs), timeout=DEADLINE)

    def begin(job: Callable[[], list[str]]) -> list[str]:
        barrier.wait()
        return job()

    with ThreadPoolExecutor(len(jobs)) as pool:
        return [future.result() for future in [pool.submit(begin, job) for job in jobs]]


def take_all(store: DelayedMessageStore, finished: Callable[[], bool] = lambda: True) -> list[str]:
    """Fetch and remove until there is nothing left and it is `finished`; returns the ids."""
    found: list[str] = []
    while True:
        may_end = finished()
        some = ids(taken(store, FAR, limit=20))
        found += some
        if may_end and not some:
            return found


def store_in_turn(store: DelayedMessageStore, name: str) -> list[str]:
    """Store 300 messages, by `store` and `store_many` in turn; returns nothing."""
    for number in range(100):
        store.store(a_message(f"{name}{number}", NOON + number * TICK))
        store.store_many([a_message(f"{name}{number}many{each}") for each in range(2)])
    return []


def store_if_new(store: DelayedMessageStore) -> list[str]:
    """Store 25 messages, each unless its id waits; returns the ids of those stored."""
    stored = []
    for number in range(25):
        try:
            store.store(a_message(str(number)))
        except DuplicateMessageError:
            continue
        stored.append(str(number))
    return stored


class ConcurrencyTests(StoreTests):
    """No message goes to two dispatchers, none is lost."""

    def test_each_message_goes_to_one_dispatcher_alone(self, open_store: StoreFactory) -> None:
        handles = [open_store() for _ in range(HANDLES)]
        messages = some_messages(2000 if self.capabilities.batches else 400, step=TICK)
        handles[0].store_many(messages)
        found = together(*(partial(take_all, handle) for handle in handles * THREADS_EACH))
        # a taker ends when the others have claimed the rest; what they then gave back is found here
        found.append(take_all(open_store()))
        assert Counter(each for some in found for each in some) == Counter(ids(messages))
        eventually_next(handles[0], None)

    def test_messages_stored_meanwhile_are_found_once(self, open_store: StoreFactory) -> None:
        handles = [open_store() for _ in range(HANDLES)]
        sent = Event()

        def sending() -> list[str]:
            try:
                together(partial(store_in_turn, handles[0], "a"), partial(store_in_turn, handles[1], "b"))
            finally:
                sent.set()
            return []

        found = together(sending, *(partial(take_all, handle, sent.is_set) for handle in handles))
        found.append(take_all(open_store()))
        counts = Counter(each for some in found for each in some)
        assert len(counts) == 2 * 300
        assert set(counts.values()) == {1}

    def test_one_of_several_senders_of_an_id_succeeds(self, open_store: StoreFactory) -> None:
        handles = [open_store() for _ in range(HANDLES)]
        stored = together(*(partial(store_if_new, handle) for handle in handles))
        assert Counter(each for some in stored for each in some) == Counter(str(number) for number in range(25))


_INSTANTS = (
    NOON,
    datetime(2027, 4, 3, 14, 45, tzinfo=UTC),  # the half hour that Lord Howe Island's clocks repeat
    datetime(2027, 10, 2, 15, 45, tzinfo=UTC),  # the half hour that they skip
    datetime(2027, 3, 28, 1, 30, tzinfo=UTC),  # the hour that most of Europe's clocks skip
    datetime(9999, 12, 29, 23, 59, 59, 999999, tzinfo=UTC),
)


@needs("hostile_sessions")
class SessionTests(StoreTests):
    """In every time zone of a session, the same messages are due at the same instants."""

    @pytest.fixture
    def hostile(
        self, hostile_store_factory: StoreFactory, opened_stores: list[DelayedMessageStore]
    ) -> DelayedMessageStore:
        """The store under test, opened with hostile sessions."""
        opened_stores.append(hostile := opened(hostile_store_factory))
        return hostile

    @pytest.mark.parametrize("due_time", _INSTANTS, ids=str)
    def test_what_a_hostile_session_stores_is_due_at_the_same_instant(
        self, store: DelayedMessageStore, hostile: DelayedMessageStore, due_time: datetime
    ) -> None:
        hostile.store(a_message("a", due_time))
        hostile.store_many([a_message("b", due_time)])
        eventually_next(store, due_time)
        assert all_taken(store, due_time - TICK) == []
        found = sorted(all_taken(store, due_time), key=lambda message: message.message_id)
        for message, name in zip(found, "ab", strict=True):
            assert_same(message, a_message(name, due_time))

    @pytest.mark.parametrize("due_time", _INSTANTS, ids=str)
    def test_a_hostile_session_fetches_at_the_same_instant(
        self, store: DelayedMessageStore, hostile: DelayedMessageStore, due_time: datetime
    ) -> None:
        store.store(a_message("a", due_time))
        eventually_next(hostile, due_time)
        assert all_taken(hostile, due_time - TICK) == []
        with hostile.transaction() as transaction:
            fetched = transaction.fetch_next_due_timeout(due_time)
            assert_same(fetched, a_message("a", due_time))
            assert transaction.increment_failure_count(a_message("a", due_time), NOON + SECOND)
        eventually_next(store, NOON + SECOND)

    def test_a_hostile_session_has_the_same_clock(
        self, store: DelayedMessageStore, hostile: DelayedMessageStore
    ) -> None:
        assert abs(store.now() - hostile.now()) < timedelta(minutes=1)
        hostile.store(a_message("a", hostile.now() - SECOND))
        assert ids(all_taken(store, store.now())) == ["a"]

    @needs("management")
    def test_a_hostile_session_lists_and_counts_the_same(
        self, store: DelayedMessageStore, hostile: DelayedMessageStore
    ) -> None:
        assert isinstance(store, ManagedDelayedMessageStore)
        assert isinstance(hostile, ManagedDelayedMessageStore)
        for number, due_time in enumerate(_INSTANTS):
            store.store(a_message(str(number), due_time))
        assert hostile.list() == store.list()
        for since, until in ((NOON, NOON + TICK), (NOON - timedelta(days=2000), NOON)):
            window = store.list(since=since, until=until)
            assert window.messages
            assert hostile.list(since=since, until=until) == window
        for bucket in (timedelta(minutes=15), timedelta(days=1)):
            assert hostile.count_by_due_time(bucket) == store.count_by_due_time(bucket)
        hostile.reschedule("0", NOON + SECOND)
        moved = store.get("0")
        assert moved is not None
        assert moved.due_time == NOON + SECOND


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
