"""Conformance: operators' changes of one message and of many."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from zoneinfo import ZoneInfo

import pytest

from delaystore.errors import DelaystoreError, InvalidMessageError
from delaystore.filters import EVERYTHING, MessageFilter, Shift
from delaystore.message import EARLIEST_DUE_TIME, LATEST_DUE_TIME, DelayedMessage, Position, new_message_id
from delaystore.stores.abc import Count, DelayedMessageStore, ManagedDelayedMessageStore, ManagementOutcome
from delaystore.stores.operable import OperableDelayedMessageStore
from delaystore.stores.records import (
    HELD_KEPT,
    Change,
    ChangeAction,
    Operation,
    OperationKind,
    OperationState,
    Way,
)
from delaystore.testing._capabilities import needs
from delaystore.testing._kit._base import (
    DEADLINE,
    FAR,
    HOUR,
    ME,
    MOST_STEPS,
    NOON,
    SECOND,
    TICK,
    StoreFactory,
    StoreTests,
    a_message,
    all_taken,
    as_operable,
    assert_only,
    assert_same,
    claimed,
    claims_of,
    eventually_next,
    ids,
    search_all,
    some_messages,
)
from delaystore.testing._kit._concurrency import take_all, together


def begun(
    store: OperableDelayedMessageStore,
    wanted: MessageFilter = EVERYTHING,
    due_time: datetime | None = None,
    shift: Shift | None = None,
) -> Operation:
    """A new operation: to cancel, or, with a `due_time` or a `shift`, to reschedule."""
    operation = Operation(
        operation_id=new_message_id(),
        kind=OperationKind.CANCEL if due_time is None and shift is None else OperationKind.RESCHEDULE,
        wanted=wanted,
        by=ME,
        began=store.now(),
        due_time=due_time,
        shift=shift,
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
    """An operation changes each message that matches once, by any process that makes its steps."""

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


DONE, BEING_DISPATCHED, NOT_FOUND = ManagementOutcome
BERLIN = "Europe/Berlin"
"""Its clocks skip 02:00 to 03:00 on 2031-03-30, and bring that hour twice on 2031-10-26."""
DAY = timedelta(days=1)


def at_berlin(month: int, day: int, hour: int, minute: int = 0, fold: int = 0) -> datetime:
    """A time in Berlin in 2031."""
    return datetime(2031, month, day, hour, minute, fold=fold, tzinfo=ZoneInfo(BERLIN)).astimezone(UTC)


SHIFTS: Sequence[tuple[Shift, datetime, datetime]] = (
    (Shift(7 * DAY), NOON, NOON + 7 * DAY),
    (Shift(-2 * HOUR), NOON, NOON - 2 * HOUR),
    (Shift(-TICK), datetime(1970, 1, 1, tzinfo=UTC), datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC)),
    (Shift(SECOND - TICK), NOON + 2 * TICK, NOON + SECOND + TICK),
    (Shift(-2_000 * 365 * DAY), NOON + TICK, NOON + TICK - 2_000 * 365 * DAY),
    (Shift(LATEST_DUE_TIME - NOON), NOON, LATEST_DUE_TIME),
    (Shift(EARLIEST_DUE_TIME - NOON), NOON, EARLIEST_DUE_TIME),
    (Shift(DAY), at_berlin(3, 29, 9), at_berlin(3, 29, 9) + DAY),
    (Shift(DAY, BERLIN), at_berlin(3, 29, 9), at_berlin(3, 30, 9)),
    (Shift(-7 * DAY, BERLIN), at_berlin(11, 1, 9), at_berlin(10, 25, 9)),
    (Shift(24 * HOUR - SECOND, BERLIN), at_berlin(3, 29, 9), at_berlin(3, 29, 9) + DAY - SECOND),
    (Shift(DAY, BERLIN), at_berlin(3, 29, 2, 30), at_berlin(3, 30, 3)),
    (Shift(DAY + HOUR, BERLIN), at_berlin(3, 29, 2, 30), at_berlin(3, 30, 4)),
    (Shift(DAY, BERLIN), at_berlin(10, 25, 2, 30), at_berlin(10, 26, 2, 30, fold=0)),
    (Shift(-DAY, BERLIN), at_berlin(10, 26, 2, 30, fold=1), at_berlin(10, 25, 2, 30)),
)
"""Spans, and the due times before and after them."""


@needs("operations")
class ShiftTests(StoreTests):
    """Due times are moved by a span, each once."""

    @pytest.mark.parametrize(("by", "before", "after"), SHIFTS)
    def test_a_due_time_is_moved_as_if_the_message_had_never_failed(
        self, operable: OperableDelayedMessageStore, by: Shift, before: datetime, after: datetime
    ) -> None:
        messages = [a_message(name, before, headers={"a": 1}) for name in ("one", "some")]
        failing = replace(messages[1], failure_count=3, next_attempt=before + min(HOUR, LATEST_DUE_TIME - before))
        operable.store_many([messages[0], failing])
        assert operable.shift("one", by) == (DONE, after)
        assert operable.shift("two", by) == (NOT_FOUND, None)
        done = run(operable, begun(operable, MessageFilter(id_prefix="some"), shift=by))
        assert (done.changed, done.held, done.shift) == (1, 0, by)
        for message in messages:
            assert_same(operable.get(message.message_id), replace(message, due_time=after, next_attempt=after))
        eventually_next(operable, after)

    def test_marks_are_no_part_of_a_due_time(self, operable: OperableDelayedMessageStore) -> None:
        operable.store_many(some_messages(2))
        for _ in range(3):
            operable.get_unclaimed(["m0", "m1"])
        assert operable.shift("m0", Shift(DAY)) == (DONE, NOON + DAY)
        run(operable, begun(operable, shift=Shift(DAY)))
        assert [message.due_time for message in search_all(operable)] == [NOON + DAY + SECOND, NOON + 2 * DAY]

    @pytest.mark.parametrize("zone", [None, BERLIN])
    def test_no_due_time_leaves_the_range(self, operable: OperableDelayedMessageStore, zone: str | None) -> None:
        far = LATEST_DUE_TIME - HOUR
        operable.store_many([a_message("a"), a_message("b", far), a_message("c", EARLIEST_DUE_TIME)])
        with pytest.raises(InvalidMessageError, match="out of range"):
            operable.shift("b", Shift(DAY, zone))
        done = run(operable, begun(operable, shift=Shift(DAY, zone)))
        assert (done.state, done.changed, done.held, list(done.held_ids)) == (OperationState.DONE, 2, 1, ["b"])
        done = run(operable, begun(operable, shift=Shift(-2 * DAY, zone)))
        assert (done.changed, list(done.held_ids)) == (2, ["c"])
        assert [each.due_time for each in search_all(operable)] == [EARLIEST_DUE_TIME + DAY, NOON - DAY, far - 2 * DAY]

    def test_a_claimed_message_keeps_its_due_time(
        self, operable: OperableDelayedMessageStore, colleague: OperableDelayedMessageStore
    ) -> None:
        operable.store_many(some_messages(3))
        with ThreadPoolExecutor(1) as pool, colleague.transaction() as transaction:
            message = claimed(transaction)
            # in a thread, so that one that waits for the block to end is noticed
            assert pool.submit(operable.shift, "m0", Shift(DAY)).result(DEADLINE) == (BEING_DISPATCHED, None)
            for zone in (None, BERLIN):
                moved = pool.submit(run, operable, begun(operable, shift=Shift(DAY, zone))).result(DEADLINE)
                assert (moved.changed, list(moved.held_ids)) == (2, ["m0"])
            assert transaction.remove(message)
        assert [each.due_time for each in search_all(operable)] == [
            NOON + 2 * DAY + SECOND,
            NOON + 2 * DAY + 2 * SECOND,
        ]

    def test_shifts_at_once_all_take_effect(
        self, operable: OperableDelayedMessageStore, colleague: OperableDelayedMessageStore
    ) -> None:
        operable.store(a_message("a"))

        def shifting(store: OperableDelayedMessageStore) -> list[str]:
            return [str(n) for n in range(40) if store.shift("a", Shift(SECOND, BERLIN if n % 2 else None))[0] is DONE]

        done = together(partial(shifting, operable), partial(shifting, colleague))
        (message,) = search_all(operable)
        assert message.due_time == NOON + sum(map(len, done)) * SECOND

    @pytest.mark.parametrize("zone", [None, BERLIN])
    def test_each_message_is_moved_once_by_whoever_makes_the_steps(
        self, operable: OperableDelayedMessageStore, open_store: StoreFactory, zone: str | None
    ) -> None:
        messages = [a_message(f"m{n:02}", at_berlin(3, 29, 1) + n * timedelta(minutes=7)) for n in range(30)]
        operable.store_many(messages)
        operation = begun(operable, shift=Shift(DAY, zone))
        for _ in range(2):
            operable.advance_operation(operation.operation_id, 4)
        operable.close()
        heir = as_operable(open_store())
        (found,) = heir.operations()
        assert (found.shift, found.changed) == (Shift(DAY, zone), 8)
        assert run(heir, found).changed == 30
        expected = {message.message_id: Shift(DAY, zone).moved(message.due_time) for message in messages}
        assert {message.message_id: message.due_time for message in search_all(heir)} == expected

    def test_the_due_time_of_a_message_that_has_failed_is_shifted_exactly(
        self, operable: OperableDelayedMessageStore
    ) -> None:
        operable.store(a_message("a", NOON, failure_count=1, next_attempt=NOON + HOUR))
        change = Change(by=ME, way=Way.CLI, action=ChangeAction.RESCHEDULE, shift=Shift(DAY))
        assert operable.shift("a", Shift(DAY), change=change) == (DONE, NOON + DAY)
        (entry,) = operable.changes()
        assert (entry.old_due_time, entry.new_due_time) == (NOON, NOON + DAY)

    def test_a_shift_is_noted_with_both_due_times(self, operable: OperableDelayedMessageStore) -> None:
        operable.store(a_message("a"))
        by = Shift(7 * DAY, BERLIN)
        change = Change(by=ME, way=Way.CLI, action=ChangeAction.RESCHEDULE, shift=by)
        operable.shift("a", by, change=change)
        (entry,) = operable.changes()
        assert (entry.old_due_time, entry.new_due_time) == (NOON, NOON + 7 * DAY)
        assert entry.about.startswith("message a by 7 days in Europe/Berlin from 20")

    def test_due_times_are_found_as_messages_are_counted(self, operable: OperableDelayedMessageStore) -> None:
        operable.store_many(some_messages(9))
        operable.store(a_message("late", NOON + HOUR, next_attempt=NOON + DAY, failure_count=1))
        operable.get_unclaimed(["m0"])
        for wanted, expected in (
            (MessageFilter(since=NOON + 2 * SECOND), (8, NOON + 2 * SECOND, NOON + HOUR)),
            (MessageFilter(until=NOON + 3 * SECOND), (3, NOON, NOON + 2 * SECOND)),
            (MessageFilter(destination="none"), (0, None, None)),
        ):
            found = operable.count_matching(wanted, due_times=True)
            while found.next_key is not None:
                found = found.and_then(operable.count_matching(wanted, after=found.next_key, due_times=True))
            assert (found.count, found.first_due, found.last_due) == expected


def listed(store: ManagedDelayedMessageStore, limit: int, **filters: object) -> list[DelayedMessage]:
    """All pages, one after the other, each key through its text."""
    messages: list[DelayedMessage] = []
    after: Position | None = None
    while True:
        page = store.list(after=after, limit=limit, **filters)  # type: ignore[arg-type]
        assert len(page.messages) <= limit
        messages += page.messages
        if page.next_key is None:
            return messages
        assert len(page.messages) == limit
        after = Position.parse(str(page.next_key))


@needs("management")
class ManagementTests(StoreTests):
    """get, list, count, cancel and reschedule; none of them waits for a dispatcher."""

    def test_a_waiting_message_is_got_and_stays(self, managed: ManagedDelayedMessageStore) -> None:
        message = a_message("a", headers={"kind": ["reminder", 1, b"\0"]}, properties={"priority": 3})
        managed.store(message)
        assert_same(managed.get("a"), message)
        assert managed.get("A") is None
        assert managed.get("b") is None
        assert_only(all_taken(managed, NOON), message)
        assert managed.get("a") is None

    def test_several_waiting_messages_are_got_at_once(self, managed: ManagedDelayedMessageStore) -> None:
        messages = [a_message("a", headers={"kind": ["reminder", 1]}), a_message("b"), a_message("ü")]
        managed.store_many(messages)
        found = managed.get_many(["ü", "nobody", "a", "A", "a"])
        assert found.keys() == {"ü", "a"}
        assert_same(found["a"], messages[0])
        assert managed.get_many([]) == {}
        assert set(managed.waiting_ids(["ü", "nobody", "a", "A", "a"])) == {"ü", "a"}
        assert not managed.waiting_ids([])

    def test_ids_are_found_by_how_they_begin(self, managed: ManagedDelayedMessageStore) -> None:
        for message_id in ("saga-1/b", "saga-1/a", "saga-1", "saga-10/a", "Saga-1/c", "saga-1/%", "ü/1", "other"):
            managed.store(a_message(message_id))
        assert managed.message_ids("saga-1/") == ["saga-1/%", "saga-1/a", "saga-1/b"]
        assert managed.message_ids("saga-1/", 2) == ["saga-1/%", "saga-1/a"]
        assert managed.message_ids("ü") == ["ü/1"]
        assert managed.message_ids("saga-2") == []

    def test_a_page_is_ordered_by_next_attempt(self, managed: ManagedDelayedMessageStore) -> None:
        managed.store_many(reversed(some_messages(4)))
        managed.store(a_message("failed", NOON - SECOND, failure_count=1, next_attempt=NOON + 2 * SECOND + TICK))
        page = managed.list()
        assert ids(page.messages) == ["m0", "m1", "m2", "failed", "m3"]
        assert page.next_key is None

    @pytest.mark.parametrize("limit", [1, 7, 100, 299, 300, 301])
    def test_pages_cover_everything_once_also_of_one_instant(
        self, managed: ManagedDelayedMessageStore, limit: int
    ) -> None:
        same_instant = some_messages(300, step=timedelta(0))
        managed.store_many([a_message("before", NOON - TICK), *same_instant, a_message("after", NOON + TICK)])
        found = ids(listed(managed, limit))
        assert (found[0], found[-1]) == ("before", "after")
        assert sorted(found[1:-1]) == sorted(ids(same_instant))

    def test_pages_cover_ids_of_any_script_once(self, managed: ManagedDelayedMessageStore) -> None:
        names = ["a", "A", "B", "b", "ä", "Z", "z ", "z", "é", "🕰", "~", "a~b", "1", "_", "\uffff"]
        managed.store_many([a_message(name) for name in names])
        assert sorted(ids(listed(managed, 1))) == sorted(names)
        assert ids(listed(managed, 2)) == ids(listed(managed, 100))

    def test_a_page_goes_on_after_its_key_though_the_message_is_gone(self, managed: ManagedDelayedMessageStore) -> None:
        managed.store_many(some_messages(4))
        page = managed.list(limit=2)
        assert managed.cancel("m1") is DONE
        assert ids(managed.list(after=page.next_key).messages) == ["m2", "m3"]

    def test_a_list_is_filtered_by_destination_and_time(self, managed: ManagedDelayedMessageStore) -> None:
        managed.store_many(some_messages(4))
        managed.store_many([a_message("x", NOON + SECOND, destination="Billing"), a_message("y", destination="b%")])
        assert ids(listed(managed, 2, destination="billing")) == ["m0", "m1", "m2", "m3"]
        assert ids(managed.list(destination="Billing").messages) == ["x"]
        assert ids(managed.list(destination="b%").messages) == ["y"]
        assert ids(managed.list(destination="nowhere").messages) == []
        window = {"since": NOON + SECOND, "until": NOON + 3 * SECOND}
        assert ids(listed(managed, 1, destination="billing", **window)) == ["m1", "m2"]
        assert ids(managed.list(since=NOON + 3 * SECOND).messages) == ["m3"]

    def test_what_waits_is_counted(self, managed: ManagedDelayedMessageStore) -> None:
        assert managed.count() == 0
        managed.store_many(some_messages(5))
        managed.store(a_message("x", destination="Billing"))
        assert (managed.count(), managed.count(destination="billing"), managed.count(destination="b")) == (6, 5, 0)

    def test_little_is_counted_where_an_estimate_is_asked_for(self, managed: ManagedDelayedMessageStore) -> None:
        assert managed.estimate_count() == Count(0, exact=True)
        managed.store_many(some_messages(5))
        assert managed.estimate_count() == Count(5, exact=True)

    def test_due_times_are_counted_by_bucket(self, managed: ManagedDelayedMessageStore) -> None:
        midnight = datetime(2031, 1, 1, tzinfo=UTC)
        for name, due_time in (("a", NOON), ("b", midnight), ("c", midnight - TICK), ("d", NOON + timedelta(days=3))):
            managed.store(a_message(name, due_time))
        managed.store(a_message("e", midnight + TICK, destination="shipping", next_attempt=NOON, failure_count=1))
        day = timedelta(days=1)
        counts = managed.count_by_due_time(day)
        assert dict(counts) == {midnight - day: 1, midnight: 3, midnight + 3 * day: 1}
        assert dict(managed.count_by_due_time(timedelta(hours=6), destination="shipping")) == {midnight: 1}
        assert dict(managed.count_by_due_time(day, destination="nowhere")) == {}

    def test_buckets_before_1970_begin_at_their_earliest_instant_too(self, managed: ManagedDelayedMessageStore) -> None:
        epoch, hour = datetime(1970, 1, 1, tzinfo=UTC), timedelta(hours=1)
        for number, due_time in enumerate((epoch - TICK, epoch - hour, epoch - hour - TICK, epoch, EARLIEST_DUE_TIME)):
            managed.store(a_message(str(number), due_time))
        counts = {EARLIEST_DUE_TIME: 1, epoch - 2 * hour: 1, epoch - hour: 2, epoch: 1}
        assert dict(managed.count_by_due_time(hour)) == counts
        first, *_ = managed.count_by_due_time(timedelta(days=365_000))
        assert first <= EARLIEST_DUE_TIME

    def test_a_cancelled_message_is_gone(self, managed: ManagedDelayedMessageStore) -> None:
        managed.store_many(some_messages(2))
        assert managed.cancel("m0") is DONE
        assert managed.cancel("m0") is NOT_FOUND
        assert managed.cancel("M1") is NOT_FOUND
        eventually_next(managed, NOON + SECOND)
        assert ids(all_taken(managed, NOON + SECOND)) == ["m1"]

    @pytest.mark.parametrize("by", [-SECOND, SECOND], ids=["earlier", "later"])
    def test_a_rescheduled_message_is_due_then_as_if_it_had_never_failed(
        self, managed: ManagedDelayedMessageStore, by: timedelta
    ) -> None:
        message = a_message("a", failure_count=3, next_attempt=NOON + timedelta(hours=1), headers={"a": 1})
        managed.store(message)
        managed.store(a_message("other", NOON + timedelta(days=1)))
        assert managed.reschedule("a", NOON + by) is DONE
        eventually_next(managed, NOON + by)
        assert all_taken(managed, NOON + by - TICK) == []
        assert_only(all_taken(managed, NOON + by), a_message("a", NOON + by, headers={"a": 1}))
        assert managed.reschedule("a", NOON) is NOT_FOUND

    @needs("ending_leases")
    def test_rescheduling_ends_a_claim_whose_lease_has_ended(
        self, managed: ManagedDelayedMessageStore, other: DelayedMessageStore, end_leases: Callable[[], None]
    ) -> None:
        managed.store(a_message("a"))
        late = claimed(other)
        end_leases()
        assert managed.reschedule("a", NOON + SECOND) is DONE
        eventually_next(managed, NOON + SECOND)
        assert other.remove(late) is False
        assert other.increment_failure_count(late, NOON) is False
        assert_only(all_taken(managed, NOON + SECOND), a_message("a", NOON + SECOND))

    def test_a_naive_due_time_changes_nothing(self, managed: ManagedDelayedMessageStore) -> None:
        managed.store(a_message("a"))
        with pytest.raises(DelaystoreError):
            managed.reschedule("a", NOON.replace(tzinfo=None))
        assert_same(managed.get("a"), a_message("a"))

    def test_what_is_being_dispatched_is_shown_but_neither_cancelled_nor_rescheduled(
        self, managed: ManagedDelayedMessageStore, other: DelayedMessageStore
    ) -> None:
        managed.store_many(some_messages(2))
        with ThreadPoolExecutor(1) as pool, other.transaction() as transaction:
            message = claimed(transaction)
            questions: list[Callable[[], object]] = [
                lambda: managed.cancel("m0"),
                lambda: managed.reschedule("m0", NOON - SECOND),
                lambda: ids(managed.list().messages),
                lambda: managed.count(),
                lambda: managed.estimate_count().messages,
                lambda: getattr(managed.get("m0"), "message_id", None),
                lambda: managed.cancel("m1"),
            ]
            # in a thread, so that one that waits for the block to end is noticed
            answers = [pool.submit(question).result(DEADLINE) for question in questions]
            assert answers == [BEING_DISPATCHED, BEING_DISPATCHED, ["m0", "m1"], 2, 2, "m0", DONE]
            assert transaction.remove(message)
        assert managed.count() == 0

    @needs("transactions")
    def test_what_a_dispatcher_let_go_may_be_cancelled(
        self, managed: ManagedDelayedMessageStore, other: DelayedMessageStore
    ) -> None:
        managed.store(a_message("a"))
        with other.transaction() as transaction:
            assert transaction.fetch_next_due_timeout(NOON) is not None
        assert managed.cancel("a") is DONE

    def test_a_message_is_either_cancelled_or_dispatched(
        self, managed: ManagedDelayedMessageStore, other: DelayedMessageStore
    ) -> None:
        messages = some_messages(300, step=TICK)
        managed.store_many(messages)

        def cancelling() -> list[str]:
            return [name for name in reversed(ids(messages)) if managed.cancel(name) is DONE]

        cancelled, dispatched = together(cancelling, lambda: take_all(other))
        dispatched += take_all(other)
        assert sorted(cancelled + dispatched) == sorted(ids(messages))
        assert managed.count() == 0
