"""Any operable store compared with the in-memory one, through random histories of dispatchers and operators."""

from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import ClassVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule, run_state_machine_as_test

from delaystore.failures import FailedAttempt
from delaystore.filters import MessageFilter
from delaystore.message import PARKED, DelayedMessage, new_message_id
from delaystore.stores.abc import DelayedMessageStore
from delaystore.stores.operable import FailedDelivery, OperableTransaction, Operation, OperationKind, OperationState
from delaystore.testing._capabilities import needs
from delaystore.testing._kit.base import StoreTests, as_operable
from delaystore.testing._kit.machine import ATTEMPTS, SECONDS, StoreMachine, managed, summary
from delaystore.testing._kit.messages import NOON, SECOND, Undone, a_message
from delaystore.testing._kit.operable import ME, repeated, search_all
from delaystore.testing._kit.waiting import eventually, eventually_next

DESTINATIONS = ("billing", "Billing", "shipping")
NAMED = st.sampled_from(DESTINATIONS)
SETTLEMENTS = st.lists(
    st.sampled_from(["remove", "fail", "explain", "postpone", "park", "leave"]), min_size=4, max_size=4
)
ALL = 1_000
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

    @rule(at=SECONDS, how=SETTLEMENTS, attempts=ATTEMPTS, commits=st.booleans())
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
                    for message, settlement, time in zip(fetched, how, times, strict=False):
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

    @rule(wanted=WANTED, cancels=st.booleans(), examine=st.sampled_from([1, 3, ALL]))
    def operate(self, wanted: MessageFilter, cancels: bool, examine: int) -> None:
        """An operation, to its end. Where two would get the same next attempt, it changes nothing."""
        matching = search_all(as_operable(self.model), wanted)
        if not cancels and len(matching) > 1:
            return
        operation = Operation(
            operation_id=new_message_id(),
            kind=OperationKind.CANCEL if cancels else OperationKind.RESCHEDULE,
            wanted=wanted,
            by=ME,
            began=NOON,
            due_time=None if cancels else self.instant(5),
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

    @invariant()
    def next_is_the_same(self) -> None:
        """`next`; what is parked may count with its time, or not at all."""
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
        """Compare what is left."""
        self.both(lambda store: shown(managed(store).list(limit=ALL).messages))

    def message(self, name: str, seconds: int) -> DelayedMessage:
        """As in its base, for one of several destinations."""
        message = super().message(name, seconds)
        headers = {"odd": bool(self.instants % 2)}
        destination = DESTINATIONS[self.instants % len(DESTINATIONS)]
        return a_message(name, message.due_time, body=message.body, headers=headers, destination=destination)


def shown(messages: Sequence[DelayedMessage]) -> object:
    """What two stores must agree on: those that are not parked in their order, and the others, and why they failed."""
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
