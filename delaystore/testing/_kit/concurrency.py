"""Several dispatchers and senders at once."""

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Barrier, Event

from delaystore.errors import DuplicateMessageError
from delaystore.stores.abc import DelayedMessageStore
from delaystore.testing._kit.base import StoreFactory, StoreTests
from delaystore.testing._kit.messages import FAR, NOON, TICK, a_message, ids, some_messages, taken
from delaystore.testing._kit.waiting import DEADLINE, eventually_next

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
