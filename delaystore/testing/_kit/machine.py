"""Any store compared with the in-memory one, through random histories."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import ClassVar, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from delaystore.errors import DuplicateMessageError
from delaystore.message import LATEST_DUE_TIME, DelayedMessage
from delaystore.settings import TransactionMode
from delaystore.stores.abc import DelayedMessageStore, ManagedDelayedMessageStore
from delaystore.stores.memory import InMemoryDelayedMessageStore
from delaystore.testing._capabilities import StoreCapabilities
from delaystore.testing._clock import SettableClock
from delaystore.testing._kit.base import ENDPOINT, StoreFactory, StoreTests
from delaystore.testing._kit.messages import NOON, SECOND, TICK, Undone, a_message, all_taken
from delaystore.testing._kit.waiting import eventually_next

Answer = TypeVar("Answer")

NAMES = st.sampled_from(["a", "A", "b", "c ", "c", "d", "e", "ü"])
SECONDS = st.integers(0, 10)
SETTLEMENTS = st.lists(st.sampled_from(["remove", "fail", "leave"]), min_size=4, max_size=4)
ATTEMPTS = st.lists(SECONDS, min_size=4, max_size=4)


def summary(message: DelayedMessage) -> object:
    """What two stores must agree on: not how many of several duplicates they mark."""
    due_time = (message.due_time + SECOND / 2).replace(microsecond=0)
    return message.message_id, due_time, message.next_attempt, message.failure_count, message.body


class StoreMachine(RuleBasedStateMachine):
    """Does the same to a store and to the model, and compares what they say.

    No two messages have their next attempt at the same instant: the contract leaves their order open.
    """

    open_store: ClassVar[StoreFactory]
    capabilities: ClassVar[StoreCapabilities]

    def __init__(self) -> None:
        super().__init__()
        self.store = type(self).open_store()
        all_taken(self.store, LATEST_DUE_TIME)
        self.model = InMemoryDelayedMessageStore(SettableClock())
        self.model.initialize(ENDPOINT, TransactionMode.RECEIVE_ONLY)
        self.instants = 0

    @rule(name=NAMES, seconds=SECONDS)
    def store_one(self, name: str, seconds: int) -> None:
        """`store`."""
        message = self.message(name, seconds)
        self.both(lambda store: unless_duplicate(lambda: store.store(message)))

    @precondition(lambda self: self.capabilities.transactions)
    @rule(batch=st.lists(st.tuples(NAMES, SECONDS), max_size=4))
    def store_some(self, batch: list[tuple[str, int]]) -> None:
        """`store_many`: all or none."""
        messages = [self.message(name, seconds) for name, seconds in batch]
        self.both(lambda store: unless_duplicate(lambda: store.store_many(messages)))

    @precondition(lambda self: self.capabilities.transactions)
    @rule(
        at=SECONDS,
        limit=st.integers(1, 4),
        how=SETTLEMENTS,
        attempts=ATTEMPTS,
        stores=st.booleans(),
        commits=st.booleans(),
    )
    def dispatch_in_a_block(
        self, at: int, limit: int, how: list[str], attempts: list[int], stores: bool, commits: bool
    ) -> None:
        """A block that fetches, settles, and may store, and commits or is undone."""
        next_attempts = [self.instant(seconds) for seconds in attempts]
        new = self.message(f"new{self.instants}", at)

        def dispatch(store: DelayedMessageStore) -> object:
            said: list[object] = []
            try:
                with store.transaction() as block:
                    fetched = self.fetch(block, at, limit)
                    said += [summary(message) for message in fetched]
                    for message, settlement, next_attempt in zip(fetched, how, next_attempts, strict=False):
                        said.append(settle(block, message, settlement, next_attempt))
                    if stores:
                        block.store(new)
                    if not commits:
                        raise Undone
            except Undone:
                said.append("undone")
            return said

        self.both(dispatch)

    @precondition(lambda self: self.capabilities.claims_outside_transactions)
    @rule(at=SECONDS, limit=st.integers(1, 4), fails=st.booleans(), attempts=ATTEMPTS)
    def dispatch_by_claims(self, at: int, limit: int, fails: bool, attempts: list[int]) -> None:
        """Fetch and settle without a block."""
        next_attempts = [self.instant(seconds) for seconds in attempts]

        def dispatch(store: DelayedMessageStore) -> object:
            fetched = self.fetch(store, at, limit)
            if fails:
                settled = store.increment_failure_counts(list(zip(fetched, next_attempts, strict=False)))
            else:
                settled = store.remove_many(fetched)
            return [summary(message) for message in fetched], settled

        self.both(dispatch)

    @precondition(lambda self: self.capabilities.management)
    @rule(name=NAMES)
    def cancel(self, name: str) -> None:
        """`cancel`."""
        self.both(lambda store: managed(store).cancel(name))

    @precondition(lambda self: self.capabilities.management)
    @rule(name=NAMES, seconds=SECONDS)
    def reschedule(self, name: str, seconds: int) -> None:
        """`reschedule`."""
        due_time = self.instant(seconds)
        self.both(lambda store: managed(store).reschedule(name, due_time))

    @precondition(lambda self: self.capabilities.management)
    @rule(since=SECONDS, until=SECONDS, limit=st.integers(1, 3))
    def list(self, since: int, until: int, limit: int) -> None:
        """A page of `list`, and the next one."""
        start, end = NOON + since * SECOND, NOON + until * SECOND

        def pages(store: DelayedMessageStore) -> object:
            first = managed(store).list(since=start, until=end, limit=limit)
            if first.next_key is None:
                return [summary(message) for message in first.messages], None
            second = managed(store).list(since=start, until=end, limit=limit, after=first.next_key)
            return [summary(message) for message in (*first.messages, *second.messages)], second.next_key

        self.both(pages)

    @invariant()
    def next_is_the_same(self) -> None:
        """`next`."""
        eventually_next(self.store, self.model.next())

    @precondition(lambda self: self.capabilities.management)
    @invariant()
    def what_waits_is_the_same(self) -> None:
        """`list`, all of it, and `count`."""
        self.both(lambda store: [summary(message) for message in managed(store).list(limit=1000).messages])
        self.both(lambda store: managed(store).count())

    def teardown(self) -> None:
        """Compare what is left, also where there is no `list`."""
        self.both(lambda store: [summary(message) for message in all_taken(store, LATEST_DUE_TIME)])

    def instant(self, seconds: int) -> datetime:
        """An instant never used before, that many seconds and a little after NOON."""
        self.instants += 1
        return NOON + seconds * SECOND + self.instants * TICK

    def message(self, name: str, seconds: int) -> DelayedMessage:
        """A message due `seconds` after NOON, with a body of its own."""
        due_time = self.instant(seconds)
        return a_message(name, due_time, body=str(self.instants).encode())

    def fetch(self, store: DelayedMessageStore, at: int, limit: int) -> Sequence[DelayedMessage]:
        """Up to `limit`, or one where the store has no batches."""
        return store.fetch_due(NOON + at * SECOND, limit if self.capabilities.batches else 1)

    def both(self, ask: Callable[[DelayedMessageStore], object]) -> None:
        """Fail unless the store says what the model says."""
        expected = ask(self.model)
        actual = ask(self.store)
        assert actual == expected, f"the store says {actual!r}, the model {expected!r}"


def unless_duplicate(call: Callable[[], Answer]) -> Answer | str:
    """What `call` returns, or a text if it raises DuplicateMessageError."""
    try:
        return call()
    except DuplicateMessageError:
        return "duplicate"


def settle(store: DelayedMessageStore, message: DelayedMessage, how: str, next_attempt: datetime) -> object:
    """Remove it, count a failure, or leave it as it is."""
    if how == "remove":
        return store.remove(message)
    return how == "leave" or store.increment_failure_count(message, next_attempt)


def managed(store: DelayedMessageStore) -> ManagedDelayedMessageStore:
    """`store` as a ManagedDelayedMessageStore."""
    assert isinstance(store, ManagedDelayedMessageStore)
    return store


def store_state_machine(open_store: StoreFactory, capabilities: StoreCapabilities) -> type[StoreMachine]:
    """A hypothesis state machine that compares what `open_store` returns with the in-memory store.

    `open_store` returns a store that is set up. It may return the same one each time: each history first empties it.
    """
    members = {"open_store": staticmethod(open_store), "capabilities": capabilities}
    return type("StoreMachine", (StoreMachine,), members)


class StateMachineTests(StoreTests):
    """Random histories."""

    histories: ClassVar[int] = 20
    """How many; more find more."""
    steps: ClassVar[int] = 20

    def test_random_histories_are_those_of_the_in_memory_store(self, store: DelayedMessageStore) -> None:
        bounds = settings(
            max_examples=self.histories,
            stateful_step_count=self.steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        )
        run_state_machine_as_test(store_state_machine(lambda: store, self.capabilities), settings=bounds)
