import pytest

from delaystore.dispatcher import Dispatcher
from delaystore.dispatcher._batch import BatchSizer
from delaystore.message import DelayedMessage
from delaystore.settings import DelayedDeliverySettings
from delaystore.testing import SettableClock
from tests.dispatching import NOON, CountingStore, ScriptedTransport


def batch(count: int, size: int) -> list[DelayedMessage]:
    return [
        DelayedMessage(message_id=str(number), destination="billing", due_time=NOON, body=bytes(size))
        for number in range(count)
    ]


def test_it_doubles_while_batches_are_full_up_to_the_most() -> None:
    sizer = BatchSizer(most=300, most_bytes=1_000_000, largest_body=1)
    limits = []
    for _ in range(4):
        limits.append(sizer.limit)
        sizer.learn(batch(sizer.limit, 10))
    assert limits == [64, 128, 256, 300]


def test_it_does_not_grow_for_batches_that_are_not_full() -> None:
    sizer = BatchSizer(most=300, most_bytes=1_000_000, largest_body=1)
    sizer.learn(batch(63, 10))
    sizer.learn([])
    assert sizer.limit == 64


@pytest.mark.parametrize(("size", "limit"), [(1000, 100), (100_000, 1), (1_000_000, 1)])
def test_bodies_of_a_batch_stay_near_the_size_allowed(size: int, limit: int) -> None:
    sizer = BatchSizer(most=1000, most_bytes=100_000, largest_body=1)
    for _ in range(5):
        sizer.learn(batch(sizer.limit, size))
    assert sizer.limit == limit


def test_before_any_body_was_seen_each_may_be_the_largest() -> None:
    assert BatchSizer(most=1000, most_bytes=64, largest_body=16).limit == 4
    assert BatchSizer(most=1000, most_bytes=64, largest_body=100).limit == 1


def test_a_slow_broker_gets_half_as_many_but_never_none() -> None:
    sizer = BatchSizer(most=3, most_bytes=1000, largest_body=1)
    limits = []
    for _ in range(3):
        limits.append(sizer.limit)
        sizer.slow_down()
    assert limits == [3, 1, 1]


def test_large_bodies_after_small_ones_come_in_batches_of_the_size_allowed() -> None:
    store, transport = CountingStore(SettableClock(NOON)), ScriptedTransport()
    store.store_many(batch(2000, 1))
    large = {f"large {number}" for number in range(20)}
    store.store_many(
        DelayedMessage(message_id=name, destination="billing", due_time=NOON, body=bytes(1000)) for name in large
    )
    settings = DelayedDeliverySettings(batch_bytes=3000, max_body_bytes=1)
    dispatcher = Dispatcher(store, transport, settings, endpoint="sales")
    while store.count():
        dispatcher.dispatch_due()
    assert max(len(large.intersection(names)) for names in transport.batches) <= 3
    assert max(len(names) for names in transport.batches) == 1000
