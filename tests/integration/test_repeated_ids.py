"""A message that a dispatcher has sent, could not remove, and remembers, is sent again under its id meanwhile."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from delaystore.dispatcher import Dispatcher
from delaystore.errors import DuplicateKeyError, DuplicateMessageError, StoreUnavailableError
from delaystore.message import EARLIEST_DUE_TIME, LATEST_DUE_TIME, DelayedMessage, KeyRule, OnKey, are_same_time, marked
from delaystore.settings import TransactionMode
from delaystore.stores import InMemoryDelayedMessageStore, SqlDelayedMessageStore
from delaystore.stores.abc import ManagedDelayedMessageStore
from delaystore.testing import FakeTransaction, SettableClock
from delaystore.transports.abc import Outcome, OutcomeKind, PendingConfirm
from tests.dispatching import ScriptedTransport, settings
from tests.integration.sql_stores import connected

pytestmark = pytest.mark.long_runs("mariadb")

NOON = datetime(2031, 1, 1, 12, tzinfo=UTC)
KEY = "order 17"
Store = SqlDelayedMessageStore | InMemoryDelayedMessageStore


class Late(PendingConfirm):
    """A confirm that comes when the test says so."""

    def __init__(self) -> None:
        self.has_come = False

    @property
    def arrived(self) -> bool | None:
        return self.has_come or None


class Ground:
    """A store, and a dispatcher that sends to a transport in memory."""

    def __init__(self, store: Store, clock: SettableClock, url: str | None) -> None:
        self.store, self.clock, self.url = store, clock, url
        self.transport = ScriptedTransport()
        self.dispatcher = Dispatcher(store, self.transport, settings())

    def dispatch_in_vain(self) -> None:
        """Send what is due; the transaction that removes it is undone."""
        begin = self.store.transaction

        @contextmanager
        def undone() -> Iterator[Any]:
            with begin() as tx:
                yield tx
                raise StoreUnavailableError("the database restarts; try again")

        self.store.transaction = undone  # type: ignore[method-assign]
        with pytest.raises(StoreUnavailableError):
            self.dispatcher.dispatch_due()
        del self.store.transaction

    def dispatch_late(self) -> None:
        """Send what is due; its confirm comes after the dispatcher has given up waiting."""
        late = Late()
        self.transport.outcomes["billing"] = Outcome(OutcomeKind.UNAVAILABLE, "no answer in time", late)
        self.dispatcher.dispatch_due()
        self.transport.outcomes.clear()
        late.has_come = True

    def dispatch_all(self) -> int:
        """Send what waits, however long that takes; how often messages were sent since the beginning."""
        for _ in range(10):
            self.clock.advance(hours=1)
            self.dispatcher.dispatch_due()
        assert self.store.next() is None
        return sum(map(len, self.transport.batches))

    @contextmanager
    def enlisted(self) -> Iterator[Any]:
        """The store in a transaction of the caller's, which commits."""
        if isinstance(self.store, InMemoryDelayedMessageStore):
            with FakeTransaction() as transaction:
                yield self.store.enlist(transaction)
            return
        assert self.url is not None
        with connected(self.url) as connection:
            yield self.store.enlist(connection)


@pytest.fixture(params=["memory", "sqlite", "postgresql", "mariadb"])
def ground(request: pytest.FixtureRequest) -> Iterator[Ground]:
    clock = SettableClock(NOON)
    url = None if request.param == "memory" else request.getfixturevalue(f"{request.param}_url")
    store: Store = InMemoryDelayedMessageStore(clock) if url is None else SqlDelayedMessageStore(url, clock=clock)
    store.initialize("sales", TransactionMode.NONE)
    store.setup_infrastructure()
    yield Ground(store, clock, url)
    store.close()


def send(ground: Ground, message: DelayedMessage) -> None:
    with pytest.raises(DuplicateMessageError):
        ground.store.store(message)


def send_many(ground: Ground, message: DelayedMessage) -> None:
    others = [replace(message, message_id=name, key=None) for name in ("b", "c")]
    with pytest.raises(DuplicateMessageError):
        ground.store.store_many([others[0], message, others[1]])


def send_enlisted(ground: Ground, message: DelayedMessage) -> None:
    with ground.enlisted() as store, pytest.raises(DuplicateMessageError):
        store.store(message)


def send_many_enlisted(ground: Ground, message: DelayedMessage) -> None:
    with ground.enlisted() as store, pytest.raises(DuplicateMessageError):
        store.store_many([message])


def look(ground: Ground, message: DelayedMessage) -> None:
    """As an ingress does."""
    assert list(ground.store.get_unclaimed([message.message_id])) == [message.message_id]


def look_by_rescheduling(ground: Ground, message: DelayedMessage) -> None:
    """By the contract's default, for stores that others write."""
    found = ManagedDelayedMessageStore.get_unclaimed(ground.store, [message.message_id])
    assert list(found) == [message.message_id]


def keep(ground: Ground, message: DelayedMessage) -> None:
    other = replace(message, message_id="other", due_time=message.due_time + timedelta(hours=2))
    assert ground.store.store_keyed(other, KeyRule(OnKey.KEEP)) == message.message_id


def keep_soon(ground: Ground, message: DelayedMessage) -> None:
    assert ground.store.store_keyed(message, KeyRule(OnKey.KEEP)) == message.message_id


def keep_in_many(ground: Ground, message: DelayedMessage) -> None:
    assert ground.store.store_many([replace(message, message_id="other")], KeyRule(OnKey.KEEP)) == 0


def keep_enlisted(ground: Ground, message: DelayedMessage) -> None:
    with ground.enlisted() as store:
        assert store.store_keyed(message, KeyRule(OnKey.KEEP)) == message.message_id


def reject(ground: Ground, message: DelayedMessage) -> None:
    with pytest.raises(DuplicateKeyError):
        ground.store.store(replace(message, message_id="other"))


def reject_in_many(ground: Ground, message: DelayedMessage) -> None:
    with pytest.raises(DuplicateKeyError):
        ground.store.store_many([replace(message, message_id="other")])


def reject_enlisted(ground: Ground, message: DelayedMessage) -> None:
    with ground.enlisted() as store, pytest.raises(DuplicateKeyError):
        store.store(replace(message, message_id="other"))


def replace_by_the_same(ground: Ground, message: DelayedMessage) -> None:
    assert ground.store.store_keyed(message, KeyRule(OnKey.REPLACE)) == message.message_id


def replace_twice_by_the_same(ground: Ground, message: DelayedMessage) -> None:
    for _ in range(2):
        replace_by_the_same(ground, message)


WAYS: list[Callable[[Ground, DelayedMessage], None]] = [
    send,
    send_many,
    send_enlisted,
    send_many_enlisted,
    look,
    look_by_rescheduling,
    keep,
    keep_soon,
    keep_in_many,
    keep_enlisted,
    reject,
    reject_in_many,
    reject_enlisted,
    replace_by_the_same,
    replace_twice_by_the_same,
]
KEYED = WAYS[6:]


@pytest.mark.parametrize("is_late", [False, True], ids=["unremoved", "late"])
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_message_whose_sender_was_told_that_it_waits_is_sent_after_that(
    ground: Ground, way: Callable[[Ground, DelayedMessage], None], is_late: bool
) -> None:
    key = KEY if way in KEYED else None
    message = DelayedMessage(message_id="a", destination="billing", due_time=NOON, body=b"pay", key=key)
    ground.store.store(message)
    (ground.dispatch_late if is_late else ground.dispatch_in_vain)()
    assert ground.transport.batches == [["a"]]
    way(ground, message)
    assert ground.dispatch_all() == 2


@pytest.mark.parametrize("is_late", [False, True], ids=["unremoved", "late"])
def test_without_a_repetition_it_is_sent_once(ground: Ground, is_late: bool) -> None:
    ground.store.store(DelayedMessage(message_id="a", destination="billing", due_time=NOON, body=b"pay"))
    (ground.dispatch_late if is_late else ground.dispatch_in_vain)()
    assert ground.dispatch_all() == 1


def test_a_message_that_replaces_its_like_never_has_a_due_time_again(ground: Ground) -> None:
    for number, time in enumerate(TIMES[2:]):
        message = DelayedMessage(message_id=str(number), destination="q", due_time=time, body=b"", key=str(number))
        seen = list[datetime]()
        for _ in range(4):
            ground.store.store_keyed(message, KeyRule(OnKey.DEBOUNCE, max_wait=timedelta(days=3_000)))
            found = ground.store.get(message.message_id)
            assert found is not None
            seen.append(found.due_time)
        assert len(set(seen)) == 4
        assert all(are_same_time(seen[0], each) for each in seen)


TIMES = [
    EARLIEST_DUE_TIME,
    EARLIEST_DUE_TIME + timedelta(microseconds=1),
    datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC),
    datetime(1970, 1, 1, tzinfo=UTC),
    datetime(2028, 3, 1, tzinfo=UTC),
    datetime(2031, 1, 1, 12, 0, 0, 1, tzinfo=UTC),
    datetime(2031, 1, 1, 12, 0, 0, 999_999, tzinfo=UTC),
    LATEST_DUE_TIME,
]


@pytest.mark.long_runs
def test_a_sender_is_told_of_times_everywhere(ground: Ground) -> None:
    """Only the due time changes, and again each time."""
    for number, time in enumerate(TIMES):
        message = DelayedMessage(message_id=str(number), destination="q", due_time=time, body=b"", failure_count=3)
        ground.store.store(message)
        for once_more in (replace(message, due_time=marked(time)), replace(message, due_time=marked(marked(time)))):
            found = ground.store.get_unclaimed([message.message_id])[message.message_id]
            assert (found.due_time, found.next_attempt, found.failure_count) == (once_more.due_time, time, 3)
        assert marked(time) != time
