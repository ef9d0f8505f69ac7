"""Destinations that are paused and resumed."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from threading import Barrier, Event

import pytest

from delaystore.filters import MessageFilter
from delaystore.message import PARKED
from delaystore.stores.abc import ManagementOutcome
from delaystore.stores.operable import OperableDelayedMessageStore
from delaystore.stores.records import Destination
from delaystore.testing._capabilities import needs
from delaystore.testing._kit._base import (
    DEADLINE,
    FAR,
    HOUR,
    ME,
    NOON,
    SECOND,
    TICK,
    StoreTests,
    Undone,
    a_message,
    all_taken,
    assert_same,
    block_of,
    claimed,
    claims_of,
    eventually_next,
    ids,
    repeated,
    some_messages,
)
from delaystore.testing._kit._operations import begun, run

ROUNDS = 5


def destination_of(store: OperableDelayedMessageStore, name: str = "billing") -> Destination | None:
    """The store's record of a destination; None: it has none."""
    return next((each for each in store.destinations() if each.name == name), None)


def is_paused(store: OperableDelayedMessageStore, name: str = "billing") -> bool:
    """Whether the store says so."""
    found = destination_of(store, name)
    return found is not None and found.paused


def unparked(store: OperableDelayedMessageStore, at_most: int = 100) -> int:
    """How many messages `unpark` shows until none is left."""
    return repeated(lambda: store.unpark(at_most))


@needs("operations")
class PauseTests(StoreTests):
    """Due messages of a paused destination are parked, and shown again when it resumes."""

    def test_a_pause_is_seen_by_all_until_it_is_resumed(
        self, operable: OperableDelayedMessageStore, colleague: OperableDelayedMessageStore
    ) -> None:
        assert list(operable.destinations()) == []
        before = operable.now()
        operable.pause("shipping", by=ME)
        operable.pause("billing", by="somebody", until=FAR)
        billing, shipping = colleague.destinations()
        assert (billing.name, billing.paused, billing.paused_until, billing.by) == ("billing", True, FAR, "somebody")
        assert (shipping.name, shipping.paused, shipping.paused_until, shipping.by) == ("shipping", True, None, ME)
        assert (shipping.resuming, shipping.max_rate) == (False, None)
        assert before - SECOND <= shipping.changed <= colleague.now() + SECOND
        assert colleague.resume("shipping", by=ME) is True
        assert not is_paused(operable, "shipping")
        assert colleague.resume("shipping", by=ME) is False
        assert colleague.resume("nowhere", by=ME) is False
        assert is_paused(operable, "billing")

    def test_destinations_that_a_collation_takes_for_one_are_several(
        self, operable: OperableDelayedMessageStore
    ) -> None:
        alike = ["billing", "Billing", "billing ", "bílling", "/queues/billing", "b%", "🕰"]
        operable.store_many([a_message(str(n), destination=name) for n, name in enumerate(alike)])
        operable.pause("Billing", by=ME)
        operable.pause("b%", by=ME)
        assert (operable.park(FAR), operable.park(FAR)) == (2, 0)
        assert sorted(ids(all_taken(operable, FAR))) == ["0", "2", "3", "4", "6"]
        for name in alike:
            operable.pause(name, by=ME)
        assert len(operable.destinations()) == len(alike)

    def test_what_is_parked_is_not_fetched_and_keeps_its_due_time(
        self, operable: OperableDelayedMessageStore, colleague: OperableDelayedMessageStore
    ) -> None:
        message = a_message("a", headers={"a": 1}, failure_count=2, next_attempt=NOON + SECOND)
        operable.store_many([message, a_message("b", destination="shipping")])
        operable.pause("billing", by=ME)
        assert operable.park(NOON + SECOND) == 1
        found = colleague.get("a")
        assert found is not None
        assert found.is_parked
        assert (found.due_time, found.next_attempt, found.failure_count) == (NOON, PARKED, 2)
        assert (found.headers, found.body) == ({"a": 1}, b"body")
        assert ids(all_taken(colleague, FAR)) == ["b"]
        assert operable.count() == 1
        assert ids(operable.list().messages) == ["a"]

    def test_what_is_parked_is_not_overdue_and_wakes_nobody(self, operable: OperableDelayedMessageStore) -> None:
        operable.store(a_message("a", operable.now() - HOUR))
        assert operable.status().overdue is not None
        operable.pause("billing", by=ME)
        assert operable.park(operable.now()) == 1
        assert operable.status().overdue is None
        assert operable.next() in (None, PARKED)
        operable.store(a_message("b", FAR))
        assert operable.status().first_due == FAR
        eventually_next(operable, FAR)

    def test_what_is_due_by_then_is_parked_step_by_step(self, operable: OperableDelayedMessageStore) -> None:
        operable.store_many([*some_messages(10), a_message("x", destination="shipping")])
        assert operable.park(FAR) == 0
        operable.pause("billing", by=ME)
        assert operable.park(NOON - TICK) == 0
        steps = [operable.park(NOON + 6 * SECOND, 3) for _ in range(4)]
        assert steps == [3, 3, 1, 0]
        assert ids(operable.list(until=PARKED).messages) == ["x", "m7", "m8", "m9"]
        operable.store(a_message("new"))
        assert [operable.park(NOON, 3), operable.park(NOON, 3)] == [1, 0]

    def test_what_a_dispatcher_has_is_not_parked_and_not_waited_for(
        self, operable: OperableDelayedMessageStore, colleague: OperableDelayedMessageStore
    ) -> None:
        operable.store_many(some_messages(2))
        operable.pause("billing", by=ME)
        with ThreadPoolExecutor(1) as pool, colleague.transaction() as transaction:
            message = claimed(transaction)
            assert pool.submit(operable.park, FAR).result(DEADLINE) == 1
            assert pool.submit(operable.park, FAR).result(DEADLINE) == 0
            assert transaction.remove(message)
        assert operable.count_parked(10) == 1

    def test_resuming_shows_all_of_it_step_by_step(
        self, operable: OperableDelayedMessageStore, colleague: OperableDelayedMessageStore
    ) -> None:
        late = operable.now() - HOUR
        messages = [*some_messages(4), a_message("late", late), a_message("failed", NOON, failure_count=1)]
        operable.store_many([*messages, a_message("other", late, destination="shipping")])
        for name in ("billing", "shipping"):
            operable.pause(name, by=ME)
        assert operable.park(FAR) == 7
        assert operable.unpark() == 0
        assert colleague.resume("billing", by="somebody") is True
        found = destination_of(operable)
        assert found is not None
        assert (found.paused, found.resuming, found.by) == (False, True, "somebody")
        assert [operable.unpark(4), colleague.unpark(4), colleague.unpark(4)] == [4, 2, 0]
        assert destination_of(operable) is None
        assert operable.count_parked(10) == 1
        for message in messages:
            shown = operable.get(message.message_id)
            assert shown is not None
            assert (shown.due_time, shown.failure_count) == (message.due_time, message.failure_count)
            if message.due_time > operable.now():
                assert shown.next_attempt == message.due_time
        assert ids(all_taken(operable, operable.now())) == ["late"]
        assert sorted(ids(all_taken(operable, FAR))) == sorted(ids([*messages[:4], messages[5]]))

    def test_a_pause_takes_a_resume_back(self, operable: OperableDelayedMessageStore) -> None:
        operable.store_many(some_messages(4))
        operable.pause("billing", by=ME)
        operable.park(FAR)
        operable.resume("billing", by=ME)
        assert operable.unpark(1) == 1
        operable.pause("billing", by=ME)
        assert unparked(operable) == 0
        assert is_paused(operable)
        assert operable.count_parked(10) == 3

    def test_nothing_parked_ends_resuming_at_once(self, operable: OperableDelayedMessageStore) -> None:
        operable.pause("billing", by=ME)
        operable.resume("billing", by=ME)
        assert operable.unpark() == 0
        assert list(operable.destinations()) == []

    def test_a_pause_ends_by_itself(
        self,
        operable: OperableDelayedMessageStore,
        colleague: OperableDelayedMessageStore,
        pass_time: Callable[[float], None],
    ) -> None:
        operable.store_many(some_messages(3))
        operable.pause("billing", by=ME, until=operable.now() + 3 * SECOND)
        assert operable.park(FAR) == 3
        assert operable.unpark() == 0
        pass_time(3.5)
        assert not is_paused(colleague)
        operable.store(a_message("new"))
        assert operable.park(FAR) == 0
        with block_of(operable) as block:
            assert list(block.park_claimed([claimed(block)])) == []
        assert unparked(colleague, 2) == 3
        assert list(operable.destinations()) == []
        assert sorted(ids(all_taken(operable, FAR))) == ["m0", "m1", "m2", "new"]

    def test_another_end_replaces_that_of_a_pause(
        self, operable: OperableDelayedMessageStore, pass_time: Callable[[float], None]
    ) -> None:
        operable.store(a_message("a"))
        operable.pause("billing", by=ME, until=operable.now() + SECOND)
        operable.pause("billing", by="somebody")
        operable.park(FAR)
        pass_time(1.5)
        assert operable.unpark() == 0
        found = destination_of(operable)
        assert found is not None
        assert (found.paused, found.paused_until, found.by) == (True, None, "somebody")

    def test_what_is_parked_though_nothing_is_paused_is_shown(self, operable: OperableDelayedMessageStore) -> None:
        """As where the row of a pause was lost, or a message was moved here from another store."""
        operable.store(a_message("a", next_attempt=PARKED))
        assert operable.count_parked(10) == 1
        assert unparked(operable) == 1
        assert_same(operable.get("a"), a_message("a"))

    def test_what_is_due_as_late_as_can_be_is_not_parked(self, operable: OperableDelayedMessageStore) -> None:
        operable.store(a_message("a", PARKED))
        operable.pause("billing", by=ME)
        assert (operable.park(PARKED), operable.count_parked(10), operable.unpark()) == (0, 0, 0)

    def test_what_a_dispatcher_has_fetched_is_parked_if_its_destination_is_paused(
        self, operable: OperableDelayedMessageStore, colleague: OperableDelayedMessageStore
    ) -> None:
        operable.store_many([a_message("a"), a_message("b", destination="shipping"), a_message("c", failure_count=2)])
        with claims_of(colleague) as (block, messages):
            operable_pause = partial(operable.pause, "billing", by=ME)
            with ThreadPoolExecutor(1) as pool:
                pool.submit(operable_pause).result(DEADLINE)
            assert sorted(block.park_claimed(messages)) == ["a", "c"]
            assert block.remove(next(each for each in messages if each.message_id == "b"))
        assert (operable.count_parked(10), operable.count()) == (2, 2)
        parked = operable.get("c")
        assert parked is not None
        assert (parked.failure_count, parked.is_parked) == (2, True)
        operable.resume("billing", by=ME)
        assert unparked(operable) == 2
        assert ids(all_taken(operable, NOON)) == ["a", "c"]

    def test_what_is_not_claimed_is_not_parked_so(
        self, operable: OperableDelayedMessageStore, colleague: OperableDelayedMessageStore
    ) -> None:
        operable.store(a_message("a"))
        operable.pause("billing", by=ME)
        with block_of(operable) as block:
            assert list(block.park_claimed([])) == []
            assert list(block.park_claimed([a_message("never stored")])) == []
        with block_of(colleague) as block:
            message = claimed(block)
            assert list(block.park_claimed([message])) == ["a"]
        assert colleague.count_parked(10) == 1

    @needs("claims_outside_transactions")
    def test_parking_what_was_fetched_ends_the_claim(
        self, operable: OperableDelayedMessageStore, colleague: OperableDelayedMessageStore
    ) -> None:
        operable.store(a_message("a"))
        message = claimed(operable)
        operable.pause("billing", by=ME)
        assert list(colleague.park_claimed([message])) == []
        assert list(operable.park_claimed([message])) == ["a"]
        assert operable.remove(message) is False
        colleague.resume("billing", by=ME)
        assert unparked(colleague) == 1
        assert ids(all_taken(colleague, NOON)) == ["a"]

    @needs("transactions")
    def test_what_a_block_parked_is_undone_with_it(self, operable: OperableDelayedMessageStore) -> None:
        operable.store(a_message("a"))
        operable.pause("billing", by=ME)
        with pytest.raises(Undone), block_of(operable) as block:
            assert list(block.park_claimed([claimed(block)])) == ["a"]
            raise Undone
        assert operable.count_parked(10) == 0
        assert_same(operable.get("a"), a_message("a"))

    @pytest.mark.parametrize("awhile", [0.0, 0.1], ids=["at once", "between parking and the end of the block"])
    def test_no_resume_slips_in_between_a_look_and_parking(
        self, operable: OperableDelayedMessageStore, colleague: OperableDelayedMessageStore, awhile: float
    ) -> None:
        operable.store_many(some_messages(5))
        barrier, resumed = Barrier(2, timeout=DEADLINE), Event()

        def dispatch() -> None:
            with claims_of(colleague) as (block, messages):
                if not awhile:
                    barrier.wait()
                block.park_claimed(messages)
                if awhile:
                    barrier.wait()
                resumed.wait(awhile)  # it may wait for the end of this block

        def resume() -> None:
            barrier.wait()
            operable.resume("billing", by=ME)
            unparked(operable)
            resumed.set()

        for _ in range(ROUNDS):
            resumed.clear()
            operable.pause("billing", by=ME)
            with ThreadPoolExecutor(2) as pool:
                for job in [pool.submit(dispatch), pool.submit(resume)]:
                    job.result()
            assert operable.count_parked(10) == 0, "parked for a destination that was resumed before"
            assert list(operable.destinations()) == []
        assert ids(all_taken(operable, FAR)) == [f"m{n}" for n in range(5)]

    def test_what_is_parked_is_cancelled_and_rescheduled_as_anything_that_waits(
        self, operable: OperableDelayedMessageStore
    ) -> None:
        operable.store_many(some_messages(5))
        operable.pause("billing", by=ME)
        assert operable.park(FAR) == 5
        assert operable.cancel("m0") is ManagementOutcome.DONE
        assert operable.reschedule("m1", NOON + HOUR) is ManagementOutcome.DONE
        assert_same(operable.get("m1"), a_message("m1", NOON + HOUR))
        assert operable.count_parked(10) == 3
        wanted = MessageFilter(paused=True, until=NOON + 2 * SECOND + TICK)
        assert run(operable, begun(operable, wanted, NOON + HOUR)).changed == 1
        assert run(operable, begun(operable, MessageFilter(paused=True))).changed == 2
        assert operable.count_parked(10) == 0
        assert sorted(ids(all_taken(operable, NOON + HOUR))) == ["m1", "m2"]

    def test_a_pause_leaves_a_limit_alone(self, operable: OperableDelayedMessageStore) -> None:
        operable.limit_rate("billing", 5, by=ME)
        operable.pause("billing", by=ME, until=operable.now() + timedelta(days=1))
        found = destination_of(operable)
        assert found is not None
        assert (found.paused, found.max_rate) == (True, 5)
        operable.resume("billing", by=ME)
        assert operable.unpark() == 0
        found = destination_of(operable)
        assert found is not None
        assert (found.paused, found.resuming, found.max_rate) == (False, False, 5)
