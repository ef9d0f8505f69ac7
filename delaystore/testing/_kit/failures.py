"""Why forwarding has failed, kept with the message."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from delaystore.failures import KEPT, LONGEST_REASON, FailedAttempt
from delaystore.filters import EVERYTHING
from delaystore.message import DelayedMessage
from delaystore.stores.operable import FailedDelivery, OperableDelayedMessageStore
from delaystore.testing._capabilities import needs
from delaystore.testing._kit.base import StoreTests
from delaystore.testing._kit.messages import (
    FAR,
    NOON,
    SECOND,
    TICK,
    Undone,
    a_message,
    all_taken,
    assert_same,
    claimed,
    ids,
    some_messages,
)
from delaystore.testing._kit.operable import HOUR, block_of, claims_of
from delaystore.testing._kit.operations import begun, run

REASONS = ("it says 'no'", 'a "quoted" \\ backslash', "100 % of ünïcödé 🕰", "", "$1 :name %s {x}")


def attempt(reason: str, number: int = 0) -> FailedAttempt:
    """One at NOON and `number` microseconds."""
    return FailedAttempt(NOON + number * TICK, "Refused", reason)


def failed(store: OperableDelayedMessageStore, *attempts: FailedAttempt, message_id: str = "a") -> None:
    """Fetch the message and count a failure, for each of `attempts`, to be shown again at once."""
    for each in attempts:
        with claims_of(store) as (block, messages):
            (message,) = (one for one in messages if one.message_id == message_id)
            assert block.count_failures([FailedDelivery(message=message, next_attempt=NOON, attempt=each)]) == 1


@needs("operations")
class FailureTests(StoreTests):
    """A failure is counted as by `increment_failure_count`, and its reason is shown."""

    def test_a_message_that_never_failed_says_so(self, operable: OperableDelayedMessageStore) -> None:
        operable.store(a_message("a"))
        assert_same(operable.get("a"), a_message("a", failures=()))

    def test_failures_are_shown_the_oldest_first(
        self, operable: OperableDelayedMessageStore, colleague: OperableDelayedMessageStore
    ) -> None:
        operable.store_many([a_message("a"), a_message("b", FAR)])
        attempts = [attempt(reason, number) for number, reason in enumerate(REASONS)]
        failed(operable, *attempts)
        expected = a_message("a", failure_count=len(REASONS), next_attempt=NOON, failures=tuple(attempts))
        looks: list[Callable[[], DelayedMessage | None]] = [
            lambda: colleague.get("a"),
            lambda: colleague.list().messages[0],
            lambda: colleague.search(EVERYTHING).messages[0],
        ]
        for look in looks:
            found = look()
            assert found is not None
            assert_same(replace(found, failures=tuple(found.failures)), expected)
        other = colleague.get("b")
        assert other is not None
        assert tuple(other.failures) == ()
        (fetched,) = all_taken(operable, NOON)
        assert (fetched.failure_count, tuple(fetched.failures)) == (len(REASONS), ())

    def test_many_failures_of_one_block_are_each_their_messages(self, operable: OperableDelayedMessageStore) -> None:
        operable.store_many(some_messages(20, step=TICK))
        with claims_of(operable) as (block, messages):
            failures = [
                FailedDelivery(message=message, next_attempt=FAR + number * SECOND, attempt=attempt(f"no {number}"))
                for number, message in enumerate(messages)
            ]
            assert block.count_failures(failures) == 20
            assert block.count_failures([]) == 0
        for number in range(20):
            found = operable.get(f"m{number}")
            assert found is not None
            assert (found.failure_count, found.next_attempt) == (1, FAR + number * SECOND)
            assert (found.due_time, tuple(found.failures)) == (NOON + number * TICK, (attempt(f"no {number}"),))
        assert all_taken(operable, FAR - TICK) == []

    def test_a_failure_of_what_is_gone_is_not_counted(
        self, operable: OperableDelayedMessageStore, colleague: OperableDelayedMessageStore
    ) -> None:
        operable.store_many(some_messages(2))
        with claims_of(operable) as (block, (first, second)):
            assert block.remove(second)
            failures = [
                FailedDelivery(message=message, next_attempt=FAR, attempt=attempt("no"))
                for message in (first, second, a_message("x"))
            ]
            assert block.count_failures(failures) == 1
        with block_of(colleague) as block:
            assert block.count_failures(failures[1:]) == 0
        assert ids(operable.list().messages) == ["m0"]

    @needs("claims_outside_transactions")
    def test_a_counted_failure_ends_the_claim(
        self, operable: OperableDelayedMessageStore, colleague: OperableDelayedMessageStore
    ) -> None:
        operable.store(a_message("a"))
        failure = FailedDelivery(message=claimed(operable), next_attempt=NOON, attempt=attempt("no"))
        assert colleague.count_failures([failure]) == 0
        assert operable.count_failures([failure]) == 1
        assert operable.remove(failure.message) is False
        assert colleague.remove(claimed(colleague)) is True

    @needs("transactions")
    def test_a_failure_that_a_block_counted_is_undone_with_it(self, operable: OperableDelayedMessageStore) -> None:
        operable.store(a_message("a"))
        with pytest.raises(Undone), block_of(operable) as block:
            failure = FailedDelivery(message=claimed(block), next_attempt=FAR, attempt=attempt("no"))
            assert block.count_failures([failure]) == 1
            raise Undone
        assert_same(operable.get("a"), a_message("a"))

    def test_failures_stay_when_a_message_is_rescheduled(self, operable: OperableDelayedMessageStore) -> None:
        operable.store_many(some_messages(2))
        for name in ("m0", "m1"):
            failed(operable, attempt("no"), attempt("never", 1), message_id=name)
        operable.reschedule("m0", NOON + HOUR)
        run(operable, begun(operable, due_time=NOON + HOUR))
        for name in ("m0", "m1"):
            found = operable.get(name)
            assert found is not None
            assert (found.failure_count, found.next_attempt) == (0, NOON + HOUR)
            assert [each.reason for each in found.failures] == ["no", "never"]

    @pytest.mark.parametrize("how", ["cancel", "remove"])
    def test_failures_go_with_their_message(self, operable: OperableDelayedMessageStore, how: str) -> None:
        operable.store(a_message("a"))
        failed(operable, attempt("no"))
        if how == "cancel":
            operable.cancel("a")
        else:
            assert ids(all_taken(operable, NOON)) == ["a"]
        operable.store(a_message("a"))
        assert_same(operable.get("a"), a_message("a"))

    def test_a_long_reason_is_cut_and_on_one_line(self, operable: OperableDelayedMessageStore) -> None:
        operable.store(a_message("a"))
        failed(operable, attempt("first\nsecond\r\n\tthird"), attempt("🕰" * 2 * LONGEST_REASON, 1))
        found = operable.get("a")
        assert found is not None
        first, second = found.failures
        assert first.reason == "first second third"
        assert second.reason == "🕰" * LONGEST_REASON

    def test_of_very_many_failures_the_last_are_kept(self, operable: OperableDelayedMessageStore) -> None:
        operable.store(a_message("a"))
        attempts = [attempt(f"{number}: " + "no" * 200, number) for number in range(50)]
        failed(operable, *attempts)
        found = operable.get("a")
        assert found is not None
        kept = list(found.failures)
        assert found.failure_count == 50
        assert kept == attempts[-len(kept) :]
        size = sum(len(each.line()) for each in kept)
        assert KEPT // 2 < size <= KEPT

    def test_times_of_failures_are_kept_in_utc(self, operable: OperableDelayedMessageStore) -> None:
        operable.store(a_message("a"))
        failed(operable, FailedAttempt(NOON.astimezone(), "Unsettled", "no answer"))
        found = operable.get("a")
        assert found is not None
        assert list(found.failures) == [FailedAttempt(NOON, "Unsettled", "no answer")]
        assert found.failures[0].at.utcoffset() == timedelta(0)
