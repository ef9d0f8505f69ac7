"""Changing all messages that match a filter, in steps."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

import pytest

from delaystore.filters import EVERYTHING, MessageFilter
from delaystore.message import new_message_id
from delaystore.stores.abc import DelayedMessageStore
from delaystore.stores.operable import (
    HELD_KEPT,
    OperableDelayedMessageStore,
    Operation,
    OperationKind,
    OperationState,
)
from delaystore.testing._capabilities import needs
from delaystore.testing._kit.base import StoreFactory, StoreTests, as_operable
from delaystore.testing._kit.concurrency import take_all, together
from delaystore.testing._kit.messages import (
    FAR,
    NOON,
    SECOND,
    TICK,
    a_message,
    all_taken,
    assert_same,
    claimed,
    ids,
    some_messages,
)
from delaystore.testing._kit.operable import HOUR, ME, MOST_STEPS, claims_of, search_all
from delaystore.testing._kit.waiting import DEADLINE, eventually_next


def begun(
    store: OperableDelayedMessageStore, wanted: MessageFilter = EVERYTHING, due_time: datetime | None = None
) -> Operation:
    """A new operation: to cancel, or, with a `due_time`, to reschedule."""
    operation = Operation(
        operation_id=new_message_id(),
        kind=OperationKind.CANCEL if due_time is None else OperationKind.RESCHEDULE,
        wanted=wanted,
        by=ME,
        began=store.now(),
        due_time=due_time,
    )
    store.begin_operation(operation)
    return operation


def run(store: OperableDelayedMessageStore, operation: Operation, examine: int = 7) -> Operation:
    """The operation when it has ended, by steps of `store`."""
    for _ in range(MOST_STEPS):
        before = store.operation(operation.operation_id)
        after = store.advance_operation(operation.operation_id, examine)
        assert before is not None
        assert after is not None
        assert after.examined <= before.examined + examine, (
            "a step looks at no more than it may, unless another is made"
        )
        if after.state is not OperationState.RUNNING:
            return after
    raise AssertionError(f"the operation has not ended after {MOST_STEPS} steps")


@needs("operations")
class OperationTests(StoreTests):
    """An operation changes each message that matches once, whoever makes its steps."""

    def test_what_is_begun_is_kept_and_changes_nothing(
        self, operable: OperableDelayedMessageStore, colleague: OperableDelayedMessageStore
    ) -> None:
        wanted = MessageFilter(
            destination="billing", since=NOON, until=FAR, id_prefix="m", headers={"ü": "'"}, failing=False, paused=False
        )
        operable.store_many(some_messages(3))
        operation = begun(operable, wanted, NOON + HOUR + TICK)
        assert colleague.operation(operation.operation_id) == operation
        assert list(colleague.operations()) == [operation]
        assert ids(search_all(operable)) == ["m0", "m1", "m2"]

    def test_the_last_ones_that_were_begun_come_first(self, operable: OperableDelayedMessageStore) -> None:
        begun_ones = [
            Operation(
                operation_id=name,
                kind=OperationKind.CANCEL,
                wanted=EVERYTHING,
                by=ME,
                began=NOON + number * TICK,
            )
            for number, name in enumerate(("c", "a", "b"))
        ]
        for operation in begun_ones:
            operable.begin_operation(operation)
        assert [each.operation_id for each in operable.operations()] == ["b", "a", "c"]
        assert [each.operation_id for each in operable.operations(2)] == ["b", "a"]

    def test_what_matches_is_cancelled_and_nothing_else(self, operable: OperableDelayedMessageStore) -> None:
        operable.store_many(some_messages(20))
        operable.store_many([a_message(f"s{n}", destination="shipping") for n in range(5)])
        done = run(operable, begun(operable, MessageFilter(destination="billing", since=NOON + 5 * SECOND)))
        assert (done.state, done.changed, done.held, list(done.held_ids)) == (OperationState.DONE, 15, 0, [])
        assert done.changed <= done.examined <= 25
        assert done.ended is not None
        assert done.began <= done.ended <= operable.latest_now()
        assert sorted(ids(all_taken(operable, FAR))) == sorted(
            [f"m{n}" for n in range(5)] + [f"s{n}" for n in range(5)]
        )

    @pytest.mark.parametrize("due_time", [NOON - HOUR, NOON + HOUR], ids=["earlier", "later"])
    def test_what_matches_is_due_then_as_if_it_had_never_failed(
        self, operable: OperableDelayedMessageStore, due_time: datetime
    ) -> None:
        failing = a_message("f", failure_count=3, next_attempt=NOON + 2 * HOUR, headers={"a": 1}, body=b"\0whole")
        operable.store_many([failing, a_message("g", failure_count=0)])
        done = run(operable, begun(operable, MessageFilter(failing=True), due_time))
        assert (done.state, done.changed, done.due_time) == (OperationState.DONE, 1, due_time)
        assert_same(operable.get("f"), replace(failing, due_time=due_time, next_attempt=due_time, failure_count=0))
        assert_same(operable.get("g"), a_message("g"))
        eventually_next(operable, min(due_time, NOON))

    def test_what_still_matches_when_it_is_changed_is_changed_once(self, operable: OperableDelayedMessageStore) -> None:
        operable.store_many(some_messages(30))
        done = run(operable, begun(operable, MessageFilter(since=NOON), NOON + HOUR), examine=4)
        assert (done.changed, done.examined) == (30, 30)
        assert {message.due_time for message in search_all(operable)} == {NOON + HOUR}

    def test_nothing_that_waits_is_done_at_once(self, operable: OperableDelayedMessageStore) -> None:
        done = run(operable, begun(operable))
        assert (done.state, done.examined, done.changed) == (OperationState.DONE, 0, 0)

    def test_a_step_is_committed_with_its_progress(
        self, operable: OperableDelayedMessageStore, colleague: OperableDelayedMessageStore
    ) -> None:
        operable.store_many(some_messages(10))
        operation = begun(operable)
        for _ in range(3):
            step = operable.advance_operation(operation.operation_id, 3)
            assert step is not None
            assert step.state is OperationState.RUNNING
            assert colleague.operation(operation.operation_id) == step
            assert colleague.count() == 10 - step.changed
            assert step.ended is None
        assert colleague.count() == 1

    def test_another_process_goes_on_where_one_has_died(
        self, operable: OperableDelayedMessageStore, open_store: StoreFactory
    ) -> None:
        operable.store_many(some_messages(20))
        operation = begun(operable, due_time=NOON + HOUR)
        for _ in range(2):
            operable.advance_operation(operation.operation_id, 4)
        operable.close()
        heir = as_operable(open_store())
        (found,) = heir.operations()
        assert (found.state, found.changed) == (OperationState.RUNNING, 8)
        done = run(heir, found)
        assert (done.state, done.changed, done.examined) == (OperationState.DONE, 20, 20)
        assert {message.due_time for message in search_all(heir)} == {NOON + HOUR}

    def test_steps_reach_ids_of_any_script(self, operable: OperableDelayedMessageStore) -> None:
        names = ["a", "A", "B", "b", "ä", "Z", "z ", "z", "é", "🕰", "~", "a~b", "1", "_", "\uffff", "%", "a\u0308"]
        operable.store_many([a_message(name) for name in names])
        done = run(operable, begun(operable), examine=1)
        assert (done.changed, operable.count()) == (len(names), 0)

    def test_what_a_dispatcher_has_is_left_alone_and_counted_as_held(
        self, operable: OperableDelayedMessageStore, colleague: OperableDelayedMessageStore
    ) -> None:
        operable.store_many(some_messages(5))
        operation, other = begun(operable, due_time=FAR), begun(operable)
        with ThreadPoolExecutor(1) as pool, colleague.transaction() as transaction:
            message = claimed(transaction)
            # in a thread, so that one that waits for the block to end is noticed
            moved = pool.submit(run, operable, operation, 2).result(DEADLINE)
            cancelled = pool.submit(run, operable, other, 2).result(DEADLINE)
            assert transaction.remove(message)
        for done in (moved, cancelled):
            assert (done.state, done.changed, done.held, list(done.held_ids)) == (OperationState.DONE, 4, 1, ["m0"])
        assert operable.count() == 0

    @needs("transactions")
    def test_what_a_dispatcher_let_go_is_not_held(
        self, operable: OperableDelayedMessageStore, colleague: OperableDelayedMessageStore
    ) -> None:
        operable.store(a_message("a"))
        with colleague.transaction() as transaction:
            claimed(transaction)
        assert run(operable, begun(operable)).changed == 1

    def test_the_ids_of_many_that_are_held_are_bounded(
        self, operable: OperableDelayedMessageStore, colleague: OperableDelayedMessageStore
    ) -> None:
        operable.store_many(some_messages(HELD_KEPT + 5, step=TICK))
        with ThreadPoolExecutor(1) as pool, claims_of(colleague) as (_, messages):
            assert len(messages) == HELD_KEPT + 5
            done = pool.submit(run, operable, begun(operable), 30).result(DEADLINE)
        assert (done.changed, done.held, len(done.held_ids)) == (0, HELD_KEPT + 5, HELD_KEPT)
        assert set(done.held_ids) <= set(ids(messages))

    @pytest.mark.parametrize("due_time", [None, FAR], ids=["cancel", "reschedule"])
    def test_two_callers_take_steps_in_turn(
        self,
        operable: OperableDelayedMessageStore,
        colleague: OperableDelayedMessageStore,
        due_time: datetime | None,
    ) -> None:
        operable.store_many(some_messages(200, step=TICK))
        operation = begun(operable, due_time=due_time)

        def running(store: OperableDelayedMessageStore) -> list[str]:
            for _ in range(MOST_STEPS):
                step = store.advance_operation(operation.operation_id, 9)
                assert step is not None
                if step.state is OperationState.DONE:
                    break
            return []

        together(partial(running, operable), partial(running, colleague))
        done = operable.operation(operation.operation_id)
        assert done is not None
        assert (done.changed, done.examined, done.held) == (200, 200, 0)
        assert operable.count() == (0 if due_time is None else 200)

    def test_a_message_is_either_changed_by_an_operation_or_dispatched(
        self, operable: OperableDelayedMessageStore, other: DelayedMessageStore
    ) -> None:
        messages = some_messages(300, step=TICK)
        operable.store_many(messages)
        operation = begun(operable)

        def cancelling() -> list[str]:
            done = run(operable, operation, examine=20)
            return [str(done.changed)]

        (cancelled,), dispatched = together(cancelling, lambda: take_all(other))
        dispatched += take_all(other)
        assert len(set(dispatched)) == len(dispatched)
        assert int(cancelled) + len(dispatched) == 300
        assert operable.count() == 0

    @pytest.mark.parametrize(
        "end", [run, lambda store, operation: store.end_operation(operation.operation_id)], ids=["done", "abandoned"]
    )
    def test_what_has_ended_stays_as_it_is(
        self, operable: OperableDelayedMessageStore, end: Callable[..., Operation | None]
    ) -> None:
        operable.store_many(some_messages(3))
        operation = begun(operable)
        ended = end(operable, operation)
        assert ended is not None
        operable.store(a_message("new", NOON + HOUR))
        waiting = operable.count()
        assert operable.advance_operation(operation.operation_id) == ended
        assert operable.end_operation(operation.operation_id) == ended
        assert operable.operation(operation.operation_id) == ended
        assert operable.count() == waiting

    def test_an_abandoned_operation_has_changed_what_it_has_changed(
        self, operable: OperableDelayedMessageStore, colleague: OperableDelayedMessageStore
    ) -> None:
        operable.store_many(some_messages(10))
        operation = begun(operable)
        step = operable.advance_operation(operation.operation_id, 4)
        ended = colleague.end_operation(operation.operation_id)
        assert step is not None
        assert ended is not None
        assert replace(ended, state=step.state, ended=None) == step
        assert ended.state is OperationState.ABANDONED
        assert ended.ended is not None
        assert ended.ended - operable.now() < timedelta(minutes=1)
        assert operable.count() == 6

    def test_there_may_be_none_of_an_id(self, operable: OperableDelayedMessageStore) -> None:
        begun(operable)
        for unknown in ("nothing", "", "\udcff", "a\0b", "x" * 5_000):
            assert operable.operation(unknown) is None
            assert operable.advance_operation(unknown) is None
            assert operable.end_operation(unknown) is None
