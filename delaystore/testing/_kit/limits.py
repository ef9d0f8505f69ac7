"""Destinations that take a limited number of messages a second, and messages that are shown again later."""

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from datetime import datetime, timedelta
from itertools import pairwise

import pytest

from delaystore.errors import ConfigurationError
from delaystore.message import FailedAttempt
from delaystore.stores.operable import OperableDelayedMessageStore
from delaystore.stores.records import FURTHEST, FailedDelivery, postponed_until, retried_at
from delaystore.testing._capabilities import needs
from delaystore.testing._kit._base import (
    DEADLINE,
    FAR,
    HOUR,
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
    assert_same,
    block_of,
    claimed,
    claims_of,
    eventually_next,
    ids,
    repeated,
    some_messages,
)
from delaystore.testing._kit._concurrency import together
from delaystore.testing._kit.pauses import destination_of

SLOW = 0.05
"""Messages a second: so slow that a test ends before the second one may go."""


def gaps(times: Sequence[datetime]) -> list[float]:
    """Seconds from each to the next."""
    return [(later - sooner).total_seconds() for sooner, later in pairwise(times)]


def postponed_by(
    store: OperableDelayedMessageStore, max_rate: float, ahead: timedelta = timedelta(0), failure_count: int = 0
) -> list[str]:
    """The ids of four messages that a limit has just postponed."""
    store.limit_rate("billing", max_rate, by=ME)
    late = store.now() - HOUR
    store.store_many(a_message(f"m{n}", late + n * SECOND, failure_count=failure_count) for n in range(5))
    postpone(store, ahead)
    return [f"m{n}" for n in range(1, 5)]


def postpone(store: OperableDelayedMessageStore, ahead: timedelta = timedelta(0)) -> None:
    """As a dispatcher does with fetched messages: it removes granted ones."""
    with block_of(store) as block:
        messages = list(block.fetch_due(block.now(), 100))
        allowance = store.allowance("billing", len(messages))
        block.remove_many(messages[: allowance.granted])
        times = [postponed_until(time + ahead) for time in allowance.later]
        block.postpone(list(zip(messages[allowance.granted :], times, strict=True)))


def hidden(store: OperableDelayedMessageStore) -> list[str]:
    """The ids of messages that are shown only after they are due."""
    return sorted(each.message_id for each in store.list(until=FAR).messages if each.next_attempt > each.due_time)


def shown(store: OperableDelayedMessageStore, ahead: timedelta = timedelta(0), at_most: int = 100) -> int:
    """How many messages `unpark` shows until none is left."""
    return repeated(lambda: store.unpark(at_most, ahead))


@needs("operations")
class LimitTests(StoreTests):
    """A limit counts for all handles together, by the store's clock."""

    def test_a_limit_is_seen_by_all_until_it_is_lifted(
        self, operable: OperableDelayedMessageStore, colleague: OperableDelayedMessageStore
    ) -> None:
        operable.limit_rate("billing", 2.5, by=ME)
        found = destination_of(colleague)
        assert found is not None
        assert (found.max_rate, found.by, found.paused, found.resuming) == (2.5, ME, False, False)
        colleague.limit_rate("billing", 7, by="somebody")
        found = destination_of(operable)
        assert found is not None
        assert (found.max_rate, found.by) == (7, "somebody")
        colleague.limit_rate("billing", None, by=ME)
        assert list(operable.destinations()) == []
        assert operable.allowance("billing", 1000).granted == 1000

    @pytest.mark.parametrize("max_rate", [0, -1, math.nan, math.inf, True], ids=str)
    def test_what_is_no_limit_is_refused(self, operable: OperableDelayedMessageStore, max_rate: float) -> None:
        with pytest.raises(ConfigurationError):
            operable.limit_rate("billing", max_rate, by=ME)
        assert list(operable.destinations()) == []

    def test_where_there_is_no_limit_all_are_granted(self, operable: OperableDelayedMessageStore) -> None:
        operable.limit_rate("shipping", SLOW, by=ME)
        allowance = operable.allowance("billing", 500)
        assert (allowance.granted, list(allowance.later)) == (500, [])

    def test_a_seconds_messages_go_at_once_and_the_others_evenly_after_that(
        self, operable: OperableDelayedMessageStore
    ) -> None:
        operable.limit_rate("billing", 10, by=ME)
        before = operable.now()
        allowance = operable.allowance("billing", 40)
        assert allowance.granted == 10
        assert len(allowance.later) == 30
        assert allowance.later[0] > before
        assert all(abs(gap - 0.1) < 0.001 for gap in gaps(allowance.later))
        assert allowance.later[-1] <= operable.now() + timedelta(seconds=4)

    def test_less_than_one_a_second_is_one_at_a_time(
        self, operable: OperableDelayedMessageStore, colleague: OperableDelayedMessageStore
    ) -> None:
        operable.limit_rate("billing", SLOW, by=ME)
        assert operable.allowance("billing", 1).granted == 1
        allowance = colleague.allowance("billing", 1)
        assert allowance.granted == 0
        assert colleague.now() < allowance.later[0] <= colleague.now() + timedelta(seconds=1 / SLOW)

    def test_two_dispatchers_are_not_given_the_same_times(
        self, operable: OperableDelayedMessageStore, colleague: OperableDelayedMessageStore
    ) -> None:
        operable.limit_rate("billing", SLOW, by=ME)
        mine = operable.allowance("billing", 5)
        theirs = colleague.allowance("billing", 3)
        again = operable.allowance("billing", 2)
        assert (mine.granted, theirs.granted, again.granted) == (1, 0, 0)
        times = [*mine.later, *theirs.later, *again.later]
        assert len(times) == 4 + 3 + 2
        assert all(abs(gap - 1 / SLOW) < 0.01 for gap in gaps(times))

    def test_no_time_is_further_ahead_than_it_may_be(self, operable: OperableDelayedMessageStore) -> None:
        operable.limit_rate("billing", SLOW, by=ME)
        allowance = operable.allowance("billing", 200)
        assert allowance.granted + len(allowance.later) == 200
        assert list(allowance.later) == sorted(allowance.later)
        assert allowance.later[-1] <= operable.now() + FURTHEST + SECOND, "a handle's reading of the clock may lag"

    def test_no_more_are_granted_than_the_limit_says_whoever_asks(
        self, open_store: StoreFactory, pass_time: Callable[[float], None]
    ) -> None:
        """Half a second at a time, on two handles."""
        handles = [as_operable(open_store()) for _ in range(2)]
        handles[0].limit_rate("billing", 20, by=ME)
        before, granted = handles[0].now(), 0
        for _ in range(5):
            granted += sum(handle.allowance("billing", 9).granted for handle in handles)
            pass_time(0.5)
        for _ in range(5):
            granted += sum(handle.allowance("billing", 9).granted for handle in handles)
        passed = (handles[0].now() - before).total_seconds()
        assert granted <= 20 * (1 + passed) + 1
        assert granted >= 20 * (1 + 2.5) - 1, "they could have had more"

    def test_many_at_the_same_moment_get_no_more_than_one(self, open_store: StoreFactory) -> None:
        handles = [as_operable(open_store()) for _ in range(3)]
        handles[0].limit_rate("billing", 40, by=ME)
        handles[0].limit_rate("slow", SLOW, by=ME)
        before = handles[0].now()

        def asking(store: OperableDelayedMessageStore) -> list[str]:
            return [str(store.allowance("billing", 7).granted) for _ in range(10)]

        def asking_slowly(store: OperableDelayedMessageStore) -> list[str]:
            return [str(store.allowance("slow", 1).granted) for _ in range(3)]

        answers = together(*(lambda store=store: asking(store) for store in handles))
        passed = (handles[0].now() - before).total_seconds()
        granted = sum(int(answer) for some in answers for answer in some)
        assert 40 <= granted <= 40 * (1 + passed) + 1
        answers = together(*(lambda store=store: asking_slowly(store) for store in handles))
        assert sum(int(answer) for some in answers for answer in some) == 1

    def test_another_limit_counts_at_once(self, operable: OperableDelayedMessageStore) -> None:
        operable.limit_rate("billing", SLOW, by=ME)
        operable.allowance("billing", 100)
        operable.limit_rate("billing", 1000, by=ME)
        allowance = operable.allowance("billing", 5000)
        soon = operable.now() + timedelta(seconds=10)
        assert allowance.granted == 5000 or allowance.later[0] < soon

    def test_postponed_messages_are_shown_then_at_no_failures_cost(self, operable: OperableDelayedMessageStore) -> None:
        operable.store_many([a_message("a", failure_count=2), a_message("b"), a_message("c", NOON + SECOND)])
        with claims_of(operable) as (block, messages):
            later = {"a": NOON + 5 * SECOND, "b": NOON + 4 * SECOND}
            postponed = [(each, later[each.message_id]) for each in messages if each.message_id in later]
            assert block.postpone(postponed) == 2
            assert block.remove(next(each for each in messages if each.message_id == "c"))
        eventually_next(operable, NOON + 4 * SECOND)
        assert_same(operable.get("a"), a_message("a", failure_count=2, next_attempt=NOON + 5 * SECOND))
        assert all_taken(operable, NOON + 4 * SECOND - TICK) == []
        assert ids(all_taken(operable, NOON + 5 * SECOND)) == ["b", "a"]

    def test_postponing_says_how_many_were_there(
        self, operable: OperableDelayedMessageStore, colleague: OperableDelayedMessageStore
    ) -> None:
        operable.store_many(some_messages(2))
        with claims_of(operable) as (block, (first, second)):
            assert block.remove(second)
            assert block.postpone([(first, FAR), (second, FAR), (a_message("x"), FAR)]) == 1
            assert block.postpone([]) == 0
        with block_of(colleague) as block:
            assert block.postpone([(second, NOON)]) == 0
        found = operable.get("m0")
        assert found is not None
        assert found.next_attempt == FAR

    @needs("claims_outside_transactions")
    def test_postponing_ends_the_claim(
        self, operable: OperableDelayedMessageStore, colleague: OperableDelayedMessageStore
    ) -> None:
        operable.store(a_message("a"))
        message = claimed(operable)
        assert colleague.postpone([(message, NOON)]) == 0
        assert operable.postpone([(message, NOON)]) == 1
        assert operable.remove(message) is False
        assert colleague.remove(claimed(colleague)) is True

    @needs("transactions")
    def test_what_a_block_postponed_is_undone_with_it(self, operable: OperableDelayedMessageStore) -> None:
        operable.store(a_message("a"))
        with pytest.raises(Undone), block_of(operable) as block:
            assert block.postpone([(claimed(block), FAR)]) == 1
            raise Undone
        assert_same(operable.get("a"), a_message("a"))

    @pytest.mark.parametrize("failure_count", [0, 2])
    @pytest.mark.parametrize("max_rate", [None, 1000, SLOW, SLOW / 2], ids=["lifted", "raised", "the same", "lowered"])
    def test_another_limit_shows_what_the_one_before_had_postponed(
        self,
        operable: OperableDelayedMessageStore,
        colleague: OperableDelayedMessageStore,
        max_rate: float | None,
        failure_count: int,
    ) -> None:
        ids_postponed = postponed_by(operable, SLOW, failure_count=failure_count)
        assert hidden(operable) == ids_postponed
        assert shown(colleague) == 0
        colleague.limit_rate("billing", max_rate, by=ME)
        found = destination_of(operable)
        assert found is not None
        assert (found.resuming, found.max_rate, found.paused) == (True, max_rate, False)
        assert (operable.unpark(), hidden(operable)) == (0, ids_postponed), "how far ahead is not known"
        assert shown(operable, at_most=3) == 4
        found = destination_of(operable)
        assert (found is None) == (max_rate is None)
        assert found is None or not found.resuming
        assert ids(all_taken(operable, operable.now())) == ids_postponed

    def test_what_the_limit_of_now_has_postponed_stays(self, operable: OperableDelayedMessageStore) -> None:
        ids_postponed = postponed_by(operable, SLOW)
        operable.limit_rate("billing", SLOW, by=ME)
        assert operable.unpark(2, timedelta(0)) == 2
        postpone(operable)
        assert shown(operable) == 2
        postpone(operable)
        assert (shown(operable), hidden(operable)) == (0, ids_postponed)
        found = destination_of(operable)
        assert found is not None
        assert not found.resuming

    def test_a_resume_shows_what_a_limit_had_postponed(self, operable: OperableDelayedMessageStore) -> None:
        ids_postponed = postponed_by(operable, SLOW)
        operable.pause("billing", by=ME)
        assert shown(operable) == 0
        operable.resume("billing", by=ME)
        assert shown(operable) == 4
        assert (hidden(operable), len(ids_postponed)) == ([], 4)

    def test_a_resume_shows_what_was_postponed_before_the_limit_was_lifted_in_the_pause(
        self, operable: OperableDelayedMessageStore
    ) -> None:
        postponed_by(operable, SLOW)
        operable.limit_rate("billing", 2 * SLOW, by=ME)
        operable.pause("billing", by=ME)
        operable.limit_rate("billing", None, by=ME)
        assert (shown(operable), len(hidden(operable))) == (0, 4)
        operable.resume("billing", by=ME)
        assert (shown(operable), hidden(operable)) == (4, [])
        assert list(operable.destinations()) == []

    def test_what_is_shown_ahead_is_found_as_far_ahead(self, operable: OperableDelayedMessageStore) -> None:
        ahead = timedelta(hours=3)
        postponed_by(operable, SLOW, ahead)
        operable.limit_rate("billing", None, by=ME)
        assert (shown(operable, ahead), hidden(operable)) == (4, [])

    def test_what_has_failed_keeps_its_next_attempt(self, operable: OperableDelayedMessageStore) -> None:
        operable.limit_rate("billing", SLOW, by=ME)
        operable.store_many(a_message(name, operable.now() - HOUR, failure_count=1) for name in "abc")
        again = retried_at(postponed_until(operable.now() + 20 * SECOND))
        with block_of(operable) as block:
            first, second, third = block.fetch_due(block.now(), 3)
            later = operable.allowance("billing", 4).later
            block.count_failures(
                [FailedDelivery(message=first, next_attempt=again, attempt=FailedAttempt(NOON, "Refused", "full"))]
            )
            block.postpone([(second, postponed_until(later[0])), (third, postponed_until(later[1]))])
        operable.limit_rate("billing", None, by=ME)
        assert (shown(operable), hidden(operable)) == (2, ["a"])
        failed = operable.get("a")
        assert failed is not None
        assert (failed.next_attempt, failed.failure_count) == (again, 2)

    def test_a_transaction_is_told_what_is_promised_by_now(
        self, operable: OperableDelayedMessageStore, colleague: OperableDelayedMessageStore
    ) -> None:
        operable.store(a_message("a", operable.now() - HOUR))
        operable.limit_rate("billing", SLOW, by=ME)
        later = operable.allowance("billing", 3).later
        with claims_of(colleague) as (block, _):
            assert block.promised(["billing", "shipping"]) == {"billing": later[-1]}
            assert block.promised([]) == {}
        operable.limit_rate("billing", 2 * SLOW, by=ME)
        with claims_of(colleague) as (block, _):
            assert block.promised(["billing"])["billing"] < later[0]
        operable.limit_rate("billing", None, by=ME)
        with claims_of(colleague) as (block, _):
            assert block.promised(["billing"]) == {}

    def test_no_other_limit_slips_in_between_what_was_promised_and_postponing(
        self, operable: OperableDelayedMessageStore, colleague: OperableDelayedMessageStore
    ) -> None:
        operable.store(a_message("a", operable.now() - HOUR))
        operable.limit_rate("billing", SLOW, by=ME)
        operable.allowance("billing", 1)
        with ThreadPoolExecutor(1) as pool:
            with block_of(colleague) as block:
                messages = block.fetch_due(block.now(), 1)
                last = colleague.allowance("billing", 1).later[0]
                assert block.promised(["billing"]) == {"billing": last}
                lifted = pool.submit(operable.limit_rate, "billing", None, by=ME)
                wait([lifted], 0.1)  # it may wait for the end of this block
                assert block.postpone([(messages[0], postponed_until(last))]) == 1
            lifted.result(DEADLINE)
        shown(operable)
        assert hidden(operable) == []
        assert list(operable.destinations()) == []
