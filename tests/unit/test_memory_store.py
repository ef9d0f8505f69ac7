from datetime import UTC, datetime, timedelta

import pytest

from delaystore.errors import ConfigurationError, MessageBeingStoredError, StoreError, UnsupportedModeError
from delaystore.message import DelayedMessage
from delaystore.settings import TransactionMode
from delaystore.stores import open_store
from delaystore.stores.abc import ManagementOutcome
from delaystore.stores.memory import InMemoryDelayedMessageStore

NOON = datetime(2027, 1, 1, 12, tzinfo=UTC)


class HandClock:
    def __init__(self) -> None:
        self.instant = NOON

    def now(self) -> datetime:
        return self.instant


def message(message_id: str = "a", due_time: datetime = NOON) -> DelayedMessage:
    return DelayedMessage(message_id=message_id, destination="billing", due_time=due_time, body=b"")


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def store(clock: HandClock) -> InMemoryDelayedMessageStore:
    store = InMemoryDelayedMessageStore(clock, lease=timedelta(seconds=10))
    store.initialize("sales", TransactionMode.RECEIVE_ONLY)
    return store


def test_a_lease_ends_by_the_clock(store: InMemoryDelayedMessageStore, clock: HandClock) -> None:
    store.store(message())
    assert store.fetch_next_due_timeout(NOON) is not None
    assert store.next() == NOON + timedelta(seconds=10)
    clock.instant += timedelta(seconds=10) - timedelta.resolution
    assert store.fetch_next_due_timeout(clock.now()) is None
    clock.instant += timedelta.resolution
    assert store.fetch_next_due_timeout(clock.now()) == message()


def test_a_lease_that_another_handle_took_over_is_lost(store: InMemoryDelayedMessageStore, clock: HandClock) -> None:
    other = store.share()
    other.initialize("sales", TransactionMode.RECEIVE_ONLY)
    store.store(message())
    late = store.fetch_next_due_timeout(NOON)
    assert late is not None
    clock.instant += timedelta(seconds=10)
    assert other.fetch_next_due_timeout(clock.now()) is not None
    assert store.remove(late) is False
    assert store.increment_failure_count(late) is False
    assert other.remove(late) is True


def test_a_block_may_settle_what_its_own_store_has_leased(store: InMemoryDelayedMessageStore) -> None:
    store.store(message())
    leased = store.fetch_next_due_timeout(NOON)
    assert leased is not None
    with store.transaction() as transaction:
        assert transaction.remove(leased) is True
    assert store.count() == 0


def test_what_a_block_stores_is_fetched_after_its_end_and_its_id_is_taken_meanwhile(
    store: InMemoryDelayedMessageStore,
) -> None:
    with store.transaction() as transaction:
        transaction.store(message())
        assert store.get("a") is None
        assert store.fetch_next_due_timeout(NOON) is None
        with pytest.raises(MessageBeingStoredError):
            store.store(message())
    assert store.fetch_next_due_timeout(NOON) == message()


def test_an_id_is_free_again_after_a_rollback(store: InMemoryDelayedMessageStore) -> None:
    with pytest.raises(ZeroDivisionError), store.transaction() as transaction:
        transaction.store(message())
        raise ZeroDivisionError
    store.store(message())


def test_a_block_settles_what_it_has_fetched_and_nothing_else(store: InMemoryDelayedMessageStore) -> None:
    store.store_many([message("old"), message("unfetched", NOON + timedelta(hours=1))])
    with store.transaction() as transaction:
        transaction.store(message("new"))
        assert not transaction.increment_failure_count(message("new"), NOON)
        assert not transaction.remove(message("new"))
        assert not transaction.remove(message("unfetched"))
        old = transaction.fetch_next_due_timeout(NOON)
        assert old is not None
        assert transaction.increment_failure_count(old, NOON)
        assert transaction.remove(old)
        assert not transaction.remove(old)
        transaction.store(message("old", NOON + timedelta(days=1)))
    assert [one.message_id for one in store.list().messages] == ["new", "unfetched", "old"]


def test_a_block_that_has_ended_refuses_to_lose_what_is_given_to_it(store: InMemoryDelayedMessageStore) -> None:
    with store.transaction() as transaction:
        pass
    with pytest.raises(StoreError, match="has ended"):
        transaction.store(message())


def test_a_message_being_dispatched_can_be_neither_cancelled_nor_rescheduled(
    store: InMemoryDelayedMessageStore, clock: HandClock
) -> None:
    store.store(message())
    store.fetch_next_due_timeout(NOON)
    assert store.cancel("a") is ManagementOutcome.BEING_DISPATCHED
    assert store.reschedule("a", NOON) is ManagementOutcome.BEING_DISPATCHED
    clock.instant += timedelta(seconds=10)
    assert store.reschedule("a", NOON + timedelta(days=1)) is ManagementOutcome.DONE
    assert store.fetch_next_due_timeout(clock.now()) is None


def test_memory_follows_what_waits_and_not_what_has_been(store: InMemoryDelayedMessageStore) -> None:
    for number in range(2000):
        store.store(message(str(number), NOON + timedelta(days=1)))
        store.cancel(str(number))
        store.store(message("due"))
        store.fetch_next_due_timeout(NOON)
        store.remove(message("due"))
    waiting = store._waiting()
    assert len(waiting._free) + len(waiting._leases) < 200


def test_each_endpoint_has_messages_of_its_own(store: InMemoryDelayedMessageStore) -> None:
    other = store.share()
    other.initialize("shipping", TransactionMode.NONE)
    store.store(message())
    assert other.count() == 0


def test_it_refuses_what_it_cannot_honour() -> None:
    store = InMemoryDelayedMessageStore()
    with pytest.raises(UnsupportedModeError, match="transaction_scope"):
        store.initialize("sales", TransactionMode.TRANSACTION_SCOPE)
    with pytest.raises(ConfigurationError, match="initialize"):
        store.count()
    with pytest.raises(ConfigurationError, match="lease"):
        InMemoryDelayedMessageStore(lease=timedelta(0))
    store.initialize("sales", TransactionMode.NONE)
    with pytest.raises(ConfigurationError, match="bound to endpoint"):
        store.initialize("shipping", TransactionMode.NONE)
    with pytest.raises(ConfigurationError, match="limit"):
        store.list(limit=0)
    with pytest.raises(ConfigurationError, match="bucket"):
        store.count_by_due_time(timedelta(seconds=1.5))
    with pytest.raises(ConfigurationError, match="bucket"):
        store.count_by_due_time(timedelta.max)


def test_a_name_in_the_url_is_one_store_in_this_process() -> None:
    one, same, own, another = (open_store(url) for url in ("memory://n", "memory://n", "memory://", "memory://"))
    for store in (one, same, own, another):
        store.initialize("sales", TransactionMode.NONE)
    one.store(message())
    own.store(message())
    assert same.fetch_next_due_timeout(NOON) == message()
    assert another.fetch_next_due_timeout(NOON) is None


@pytest.mark.parametrize("url", ["memory://name/more", "memory://?lease=5", "memory://#x"])
def test_more_in_the_url_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match="memory://NAME"):
        open_store(url)
