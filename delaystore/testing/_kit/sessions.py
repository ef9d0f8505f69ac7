"""Sessions in a distant time zone mean the same instants."""

from datetime import UTC, datetime, timedelta

import pytest

from delaystore.stores.abc import DelayedMessageStore, ManagedDelayedMessageStore
from delaystore.testing._capabilities import needs
from delaystore.testing._kit.base import StoreFactory, StoreTests, opened
from delaystore.testing._kit.messages import NOON, SECOND, TICK, a_message, all_taken, assert_same, ids
from delaystore.testing._kit.waiting import eventually_next

_INSTANTS = (
    NOON,
    datetime(2027, 4, 3, 14, 45, tzinfo=UTC),  # the half hour that Lord Howe Island's clocks repeat
    datetime(2027, 10, 2, 15, 45, tzinfo=UTC),  # the half hour that they skip
    datetime(2027, 3, 28, 1, 30, tzinfo=UTC),  # the hour that most of Europe's clocks skip
    datetime(9999, 12, 29, 23, 59, 59, 999999, tzinfo=UTC),
)


@needs("hostile_sessions")
class SessionTests(StoreTests):
    """Whatever time zone a session is in, the same messages are due at the same instants."""

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
