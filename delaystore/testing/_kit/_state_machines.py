"""Conformance: random sequences of calls, compared with the store in memory."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import ClassVar, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from delaystore.errors import DuplicateMessageError
from delaystore.filters import MessageFilter, Shift
from delaystore.message import LATEST_DUE_TIME, PARKED, DelayedMessage, FailedAttempt, new_message_id
from delaystore.settings import TransactionMode
from delaystore.stores.abc import DelayedMessageStore, ManagedDelayedMessageStore
from delaystore.stores.memory import InMemoryDelayedMessageStore
from delaystore.stores.operable import OperableTransaction
from delaystore.stores.records import FailedDelivery, Operation, OperationKind, OperationState
from delaystore.testing._capabilities import StoreCapabilities, needs
from delaystore.testing._fakes import SettableClock
from delaystore.testing._kit._base import (
    ENDPOINT,
    ME,
    NOON,
    SECOND,
    TICK,
    StoreFactory,
    StoreTests,
    Undone,
    a_message,
    all_taken,
    as_operable,
    eventually,
    eventually_next,
    repeated,
    search_all,
)

AnswerT = TypeVar("AnswerT")
NAMES = st.sampled_from(["a", "A", "b", "c ", "c", "d", "e", "ü"])
SECONDS = st.integers(0, 10)
SETTLEMENTS = st.lists(st.sampled_from(["remove", "fail", "leave"]), min_size=4, max_size=4)
ATTEMPTS = st.lists(SECONDS, min_size=4, max_size=4)


def summary(message: DelayedMessage) -> object:
    """The state on which two stores must agree: not how many of several duplicates they mark."""
    due_time = (message.due_time + SECOND / 2).replace(microsecond=0)
    return message.message_id, due_time, message.next_attempt, message.failure_count, message.body


def when_due(message: DelayedMessage, instant: datetime) -> datetime:
    """`instant`, or one like it in the second of the due time: no next attempt comes before that."""
    second = (message.due_time + SECOND / 2).replace(microsecond=0)  # as in `summary`: marks may cross a second
    return max(instant, second.replace(microsecond=instant.microsecond))


class StoreMachine(RuleBasedStateMachine):
    """Does the same to a store and to the model, and compares their answers.

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
                        said.append(settle(block, message, settlement, when_due(message, next_attempt)))
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
                failures = [
                    (message, when_due(message, time)) for message, time in zip(fetched, next_attempts, strict=False)
                ]
                settled = store.increment_failure_counts(failures)
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
        """Compare the remaining messages, also where there is no `list`."""
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
        """Fail unless the store answers as the model."""
        expected = ask(self.model)
        actual = ask(self.store)
        assert actual == expected, f"the store says {actual!r}, the model {expected!r}"


def unless_duplicate(call: Callable[[], AnswerT]) -> AnswerT | str:
    """The result of `call`, or a text if it raises DuplicateMessageError."""
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
    """Make a hypothesis state machine that compares a store with the in-memory store.

    Args:
        open_store: Returns a store that is set up. It may return the same one each time: each history first empties it.
        capabilities: The store's abilities.

    Returns:
        The state machine's class, for `hypothesis.stateful.run_state_machine_as_test`.

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


DESTINATIONS = ("billing", "Billing", "shipping")
NAMED = st.sampled_from(DESTINATIONS)
OPERABLE_SETTLEMENTS = st.lists(
    st.sampled_from(["remove", "fail", "explain", "postpone", "park", "leave"]), min_size=4, max_size=4
)
ALL = 1_000
SHIFTS = st.builds(
    Shift, st.sampled_from([-5 * SECOND, 3 * SECOND, timedelta(days=1)]), st.sampled_from([None, "Europe/Berlin"])
)
WANTED = st.builds(
    MessageFilter,
    destination=st.none() | NAMED,
    since=st.none() | st.just(NOON + 3 * SECOND),
    until=st.none() | st.just(NOON + 7 * SECOND),
    id_prefix=st.none() | st.sampled_from(["a", "c", "ü"]),
    headers=st.sampled_from([{}, {}, {"odd": "true"}]),
    failing=st.none() | st.booleans(),
    paused=st.none() | st.booleans(),
)


class OperableMachine(StoreMachine):
    """As its base, and parks, postpones, searches, and changes by filter."""

    def __init__(self) -> None:
        super().__init__()
        for name in DESTINATIONS:
            as_operable(self.store).resume(name, by=ME)
        repeated(as_operable(self.store).unpark)

    @rule(at=SECONDS, how=OPERABLE_SETTLEMENTS, attempts=ATTEMPTS, commits=st.booleans())
    def dispatch_and_explain(self, at: int, how: list[str], attempts: list[int], commits: bool) -> None:
        """A block that settles in all the ways there are, and commits or is undone."""
        times = [self.instant(seconds) for seconds in attempts]

        def dispatch(store: DelayedMessageStore) -> object:
            said: list[object] = []
            try:
                with store.transaction() as block:
                    assert isinstance(block, OperableTransaction)
                    fetched = self.fetch(block, at, len(how))
                    said += [summary(message) for message in fetched]
                    for message, settlement, instant in zip(fetched, how, times, strict=False):
                        time = when_due(message, instant)
                        if settlement == "remove":
                            said.append(block.remove(message))
                        elif settlement == "fail":
                            said.append(block.increment_failure_count(message, time))
                        elif settlement == "explain":
                            failed = FailedAttempt(NOON, "Refused", f"at {time.isoformat()}")
                            failure = FailedDelivery(message=message, next_attempt=time, attempt=failed)
                            said.append(block.count_failures([failure]))
                        elif settlement == "postpone":
                            said.append(block.postpone([(message, time)]))
                        elif settlement == "park":
                            said.append(list(block.park_claimed([message])))
                    if not commits:
                        raise Undone
            except Undone:
                said.append("undone")
            return said

        self.both(dispatch)

    @rule(name=NAMED)
    def pause(self, name: str) -> None:
        """`pause`, without an end."""
        self.both(lambda store: as_operable(store).pause(name, by=ME))

    @rule(name=NAMED)
    def resume(self, name: str) -> None:
        """`resume`, and `unpark` to the end: which are shown first is open."""
        self.both(lambda store: as_operable(store).resume(name, by=ME))
        self.both(lambda store: repeated(partial(as_operable(store).unpark, ALL)))

    @rule(until=SECONDS)
    def park(self, until: int) -> None:
        """`park`, to the end."""
        self.both(lambda store: repeated(partial(as_operable(store).park, NOON + until * SECOND, ALL)))

    @rule(wanted=WANTED, examine=st.sampled_from([1, 3, ALL]), limit=st.sampled_from([1, 2, ALL]))
    def search(self, wanted: MessageFilter, examine: int, limit: int) -> None:
        """`search`, all pages."""
        self.both(lambda store: shown(search_all(as_operable(store), wanted, limit=limit, examine=examine)))

    @rule(name=NAMES, by=SHIFTS)
    def shift(self, name: str, by: Shift) -> None:
        """`shift`."""
        if self.is_marked_alike(name):
            self.both(lambda store: as_operable(store).shift(name, by))

    @rule(wanted=WANTED, cancels=st.booleans(), by=st.none() | SHIFTS, examine=st.sampled_from([1, 3, ALL]))
    def operate(self, wanted: MessageFilter, cancels: bool, by: Shift | None, examine: int) -> None:
        """An operation, to its end. Where two would get the same next attempt, it changes nothing."""
        matching = search_all(as_operable(self.model), wanted)
        if by is not None and not cancels and not all(self.is_marked_alike(each.message_id) for each in matching):
            return
        if not cancels and by is None and len(matching) > 1:
            return
        operation = Operation(
            operation_id=new_message_id(),
            kind=OperationKind.CANCEL if cancels else OperationKind.RESCHEDULE,
            wanted=wanted,
            by=ME,
            began=NOON,
            due_time=None if cancels or by is not None else self.instant(5),
            shift=None if cancels else by,
        )

        def run(store: DelayedMessageStore) -> object:
            as_operable(store).begin_operation(operation)
            for _ in range(ALL):
                step = as_operable(store).advance_operation(operation.operation_id, examine)
                assert step is not None
                if step.state is OperationState.DONE:
                    return step.examined, step.changed, step.held
            raise AssertionError("the operation does not end")

        self.both(run)

    def is_marked_alike(self, message_id: str) -> bool:
        """Whether both stores mark a message equally often: a shift of another may show by a microsecond."""
        mine, models = (store.get(message_id) for store in (managed(self.store), self.model))
        return mine is None or models is None or mine.due_time == models.due_time

    @invariant()
    def next_is_the_same(self) -> None:
        """`next`; a parked message may count with its time, or not at all."""
        expected = self.model.next()
        if expected == PARKED:
            eventually(lambda: self.store.next() in (None, PARKED), "next() is None, or that of what is parked")
        else:
            eventually_next(self.store, expected)

    @invariant()
    def what_waits_is_the_same(self) -> None:
        """`list` and `search`, with failures, and all counts."""
        self.both(lambda store: shown(managed(store).list(limit=ALL).messages))
        self.both(lambda store: shown(search_all(as_operable(store))))
        self.both(
            lambda store: [
                managed(store).count(),
                as_operable(store).count_failing(ALL),
                as_operable(store).count_parked(ALL),
                dict(as_operable(store).count_by_destination()),
                dict(as_operable(store).count_between(NOON, NOON + timedelta(hours=1), 2 * SECOND)),
                [(each.name, each.paused, each.resuming) for each in as_operable(store).destinations()],
            ]
        )

    def teardown(self) -> None:
        """Compare the remaining messages."""
        self.both(lambda store: shown(managed(store).list(limit=ALL).messages))

    def message(self, name: str, seconds: int) -> DelayedMessage:
        """As in its base, for one of several destinations."""
        message = super().message(name, seconds)
        headers = {"odd": bool(self.instants % 2)}
        destination = DESTINATIONS[self.instants % len(DESTINATIONS)]
        return a_message(name, message.due_time, body=message.body, headers=headers, destination=destination)


def shown(messages: Sequence[DelayedMessage]) -> object:
    """The facts on which two stores must agree: messages that are not parked, in their order, the others, and the
    failures.
    """
    parked = sorted(message.message_id for message in messages if message.is_parked)
    waiting = [message.message_id for message in messages if not message.is_parked]
    known = {
        message.message_id: (summary(message), message.destination, [each.reason for each in message.failures])
        for message in messages
    }
    return waiting, parked, known


@needs("operations", "transactions")
class OperableMachineTests(StoreTests):
    """Random histories of dispatchers and operators."""

    operable_histories: ClassVar[int] = 10
    """How many; more find more."""
    operable_steps: ClassVar[int] = 25

    def test_random_histories_of_operators_are_those_of_the_in_memory_store(self, store: DelayedMessageStore) -> None:
        members = {"open_store": staticmethod(lambda: store), "capabilities": self.capabilities}
        bounds = settings(
            max_examples=self.operable_histories,
            stateful_step_count=self.operable_steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        )
        run_state_machine_as_test(type("OperableMachine", (OperableMachine,), members), settings=bounds)
