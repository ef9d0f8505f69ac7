"""Conformance: messages are removed, fail and come back, also when a process dies."""

import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from functools import partial
from multiprocessing.connection import Connection
from threading import Event

import pytest

from delaystore.errors import DuplicateMessageError
from delaystore.filters import EVERYTHING
from delaystore.message import KEPT, LONGEST_REASON, DelayedMessage, FailedAttempt
from delaystore.stores.abc import DelayedMessageStore
from delaystore.stores.operable import OperableDelayedMessageStore
from delaystore.stores.records import FailedDelivery
from delaystore.testing._capabilities import needs
from delaystore.testing._kit._base import (
    DEADLINE,
    FAR,
    HOUR,
    NOON,
    SECOND,
    TICK,
    StoreFactory,
    StoreTests,
    Undone,
    a_message,
    all_taken,
    assert_only,
    assert_same,
    block_of,
    claimed,
    claims_of,
    eventually,
    eventually_next,
    ids,
    opened,
    reported,
    some_messages,
    taken,
)
from delaystore.testing._kit._operations import begun, run


def failed(store: DelayedMessageStore, message: DelayedMessage, after: timedelta | None) -> bool:
    """Fetch `message` and count a failure; its next attempt is `after` NOON (None: at once)."""
    with store.transaction() as transaction:
        fetched = claimed(transaction)
        assert_same(fetched, message)
        return transaction.increment_failure_count(fetched, None if after is None else NOON + after)


class SettlingTests(StoreTests):
    """A message is stored once; remove and increment say whether it was still there."""

    def test_a_message_id_that_waits_is_refused_and_only_the_due_time_of_what_waits_is_marked(
        self, store: DelayedMessageStore
    ) -> None:
        store.store(first := a_message("a", body=b"first"))
        with pytest.raises(DuplicateMessageError) as error:
            store.store(a_message("a", NOON - SECOND, body=b"second"))
        assert error.value.message_ids == ("a",)
        assert_only(all_taken(store, NOON), reported(first))

    def test_a_message_id_may_be_used_again_once_its_message_is_gone(self, store: DelayedMessageStore) -> None:
        store.store(a_message("a"))
        assert ids(all_taken(store, NOON)) == ["a"]
        store.store(a_message("a", body=b"again"))
        assert_only(all_taken(store, NOON), a_message("a", body=b"again"))

    def test_a_removed_message_is_gone_and_removing_it_again_says_so(self, store: DelayedMessageStore) -> None:
        store.store(a_message("a"))
        with store.transaction() as transaction:
            message = claimed(transaction)
            assert transaction.remove(message) is True
            assert transaction.remove(message) is False
        with store.transaction() as transaction:
            assert transaction.remove(message) is False
            assert transaction.fetch_next_due_timeout(NOON) is None

    def test_removing_what_never_waited_says_so(self, store: DelayedMessageStore) -> None:
        store.store(a_message("a"))
        with store.transaction() as transaction:
            assert transaction.remove(a_message("b")) is False
        assert ids(all_taken(store, NOON)) == ["a"]

    def test_counting_a_failure_of_what_is_gone_says_so(self, store: DelayedMessageStore) -> None:
        with store.transaction() as transaction:
            assert transaction.increment_failure_count(a_message("a"), NOON) is False
            assert transaction.increment_failure_count(a_message("a")) is False
        assert store.next() is None

    def test_a_failed_message_keeps_its_due_time_and_hides_until_its_next_attempt(
        self, store: DelayedMessageStore
    ) -> None:
        store.store(a_message("a"))
        assert failed(store, a_message("a"), after=SECOND) is True
        eventually_next(store, NOON + SECOND)
        with store.transaction() as transaction:
            assert transaction.fetch_next_due_timeout(NOON + SECOND - TICK) is None
        with store.transaction() as transaction:
            again = transaction.fetch_next_due_timeout(NOON + SECOND)
            assert_same(again, a_message("a", failure_count=1, next_attempt=NOON + SECOND))

    def test_a_failed_message_shows_at_once_without_a_next_attempt(self, store: DelayedMessageStore) -> None:
        message = a_message("a", store.now() - SECOND)
        store.store(message)
        with store.transaction() as transaction:
            fetched = transaction.fetch_next_due_timeout(store.now())
            assert_same(fetched, message)
            assert transaction.increment_failure_count(message) is True
        (again,) = all_taken(store, store.latest_now())
        assert (again.failure_count, again.due_time) == (1, message.due_time)

    def test_failures_add_up(self, store: DelayedMessageStore) -> None:
        store.store(a_message("a"))
        for count in range(3):
            with store.transaction() as transaction:
                message = claimed(transaction, NOON + SECOND)
                assert message.failure_count == count
                assert transaction.increment_failure_count(message, NOON + SECOND)
        (last,) = all_taken(store, NOON + SECOND)
        assert (last.failure_count, last.due_time) == (3, NOON)

    def test_a_failed_message_does_not_block_those_behind_it(self, store: DelayedMessageStore) -> None:
        store.store(a_message("bad"))
        assert failed(store, a_message("bad"), after=timedelta(hours=1))
        store.store(a_message("good", NOON + TICK))
        assert ids(all_taken(store, NOON + SECOND)) == ["good"]

    def test_a_message_may_come_with_failures_and_a_next_attempt(self, store: DelayedMessageStore) -> None:
        moved = a_message("moved", NOON - SECOND, failure_count=7, next_attempt=NOON + SECOND)
        store.store(moved)
        eventually_next(store, NOON + SECOND)
        assert all_taken(store, NOON) == []
        assert_only(all_taken(store, NOON + SECOND), moved)

    @needs("claims_outside_transactions")
    def test_counting_a_failure_ends_the_claim(self, store: DelayedMessageStore, other: DelayedMessageStore) -> None:
        store.store(a_message("a"))
        message = claimed(store)
        assert store.increment_failure_count(message, NOON) is True
        again = claimed(other)
        assert other.remove(again) is True
        assert store.remove(message) is False

    @needs("claims_outside_transactions")
    def test_a_claimed_message_is_its_claimers_alone(
        self, store: DelayedMessageStore, other: DelayedMessageStore
    ) -> None:
        store.store(a_message("a"))
        message = claimed(store)
        assert other.remove(message) is False
        assert other.increment_failure_count(message, NOON) is False
        assert store.remove(message) is True

    @needs("ending_leases")
    def test_a_claim_that_ended_removes_no_message_sent_again_under_the_id(
        self, store: DelayedMessageStore, other: DelayedMessageStore, end_leases: Callable[[], None]
    ) -> None:
        late, again = self.outlived(store, other, end_leases), a_message("a", body=b"again")
        other.store(again)
        assert store.remove(late) is False
        assert store.remove_many([late]) == 0
        assert store.increment_failure_count(late, FAR) is False
        assert_only(all_taken(other, NOON), again)

    @needs("ending_leases")
    def test_a_claim_that_ended_removes_nothing_that_another_has_claimed(
        self, store: DelayedMessageStore, other: DelayedMessageStore, end_leases: Callable[[], None]
    ) -> None:
        late = self.outlived(store, other, end_leases)
        other.store(a_message("a"))
        message = claimed(other)
        assert store.remove(late) is False
        assert store.increment_failure_count(late, FAR) is False
        assert other.remove(message) is True

    def outlived(
        self, store: DelayedMessageStore, other: DelayedMessageStore, end_leases: Callable[[], None]
    ) -> DelayedMessage:
        """A message that `store` has claimed, and that `other` has taken over and removed since."""
        store.store(a_message("a"))
        late = claimed(store)
        end_leases()
        assert other.remove(claimed(other)) is True
        return late


REASONS = ("it says 'no'", 'a "quoted" \\ backslash', "100 % of ünïcödé 🕰", "", "$1 :name %s {x}")


def attempt(reason: str, number: int = 0) -> FailedAttempt:
    """One at NOON and `number` microseconds."""
    return FailedAttempt(NOON + number * TICK, "Refused", reason)


def failed_with(store: OperableDelayedMessageStore, *attempts: FailedAttempt, message_id: str = "a") -> None:
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
        failed_with(operable, *attempts)
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
            failed_with(operable, attempt("no"), attempt("never", 1), message_id=name)
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
        failed_with(operable, attempt("no"))
        if how == "cancel":
            operable.cancel("a")
        else:
            assert ids(all_taken(operable, NOON)) == ["a"]
        operable.store(a_message("a"))
        assert_same(operable.get("a"), a_message("a"))

    def test_a_long_reason_is_cut_and_on_one_line(self, operable: OperableDelayedMessageStore) -> None:
        operable.store(a_message("a"))
        failed_with(operable, attempt("first\nsecond\r\n\tthird"), attempt("🕰" * 2 * LONGEST_REASON, 1))
        found = operable.get("a")
        assert found is not None
        first, second = found.failures
        assert first.reason == "first second third"
        assert second.reason == "🕰" * LONGEST_REASON

    def test_of_very_many_failures_the_last_are_kept(self, operable: OperableDelayedMessageStore) -> None:
        operable.store(a_message("a"))
        attempts = [attempt(f"{number}: " + "no" * 200, number) for number in range(50)]
        failed_with(operable, *attempts)
        found = operable.get("a")
        assert found is not None
        kept = list(found.failures)
        assert found.failure_count == 50
        assert kept == attempts[-len(kept) :]
        size = sum(len(each.line()) for each in kept)
        assert KEPT // 2 < size <= KEPT

    def test_times_of_failures_are_kept_in_utc(self, operable: OperableDelayedMessageStore) -> None:
        operable.store(a_message("a"))
        failed_with(operable, FailedAttempt(NOON.astimezone(), "Unconfirmed", "no answer"))
        found = operable.get("a")
        assert found is not None
        assert list(found.failures) == [FailedAttempt(NOON, "Unconfirmed", "no answer")]
        assert found.failures[0].at.utcoffset() == timedelta(0)


def claim_and_hang(open_elsewhere: StoreFactory, report: Connection, *, writes: bool = False) -> None:
    """In the process to be killed: claim a message in an open block, and wait.

    `writes`: before it waits, remove that message and store another.
    """
    with opened(open_elsewhere).transaction() as transaction:
        message = claimed(transaction)
        if writes:
            assert transaction.remove(message)
            transaction.store(a_message("never committed"))
        report.send(message.message_id)
        Event().wait()


def store_and_hang(open_elsewhere: StoreFactory, report: Connection) -> None:
    """In the process to be killed: store a message, and wait."""
    opened(open_elsewhere).store(a_message("a"))
    report.send("a")
    Event().wait()


@contextmanager
def killed_at_the_end(target: object, open_elsewhere: StoreFactory) -> Iterator[str]:
    """A process that runs `target`; yields its reports, and kills it."""
    context = multiprocessing.get_context("forkserver")  # imports `set_forkserver_preload` modules once
    reader, writer = context.Pipe(duplex=False)
    process = context.Process(target=target, args=(open_elsewhere, writer), daemon=True)  # type: ignore[arg-type]
    process.start()
    writer.close()
    try:
        assert reader.poll(DEADLINE), "the other process has not reported"
        yield reader.recv()
    finally:
        process.kill()
        process.join(DEADLINE)
        reader.close()
        process.close()


@needs("other_processes")
class CrashTests(StoreTests):
    """Others find messages that a killed process had claimed, and see none of its unfinished changes."""

    def test_what_a_killed_process_had_claimed_is_found_again(
        self, store: DelayedMessageStore, open_elsewhere: StoreFactory
    ) -> None:
        store.store(a_message("a"))
        with killed_at_the_end(claim_and_hang, open_elsewhere) as message_id:
            assert message_id == "a"
            assert taken(store, NOON) == []
        self.assert_found_again(store)

    @needs("transactions")
    def test_what_a_killed_process_had_not_committed_is_undone(
        self, store: DelayedMessageStore, open_elsewhere: StoreFactory
    ) -> None:
        store.store(a_message("a"))
        with killed_at_the_end(partial(claim_and_hang, writes=True), open_elsewhere) as message_id:
            assert message_id == "a"
        self.assert_found_again(store)
        assert all_taken(store, NOON + SECOND) == []

    def test_what_a_killed_process_had_stored_is_there(
        self, store: DelayedMessageStore, open_elsewhere: StoreFactory
    ) -> None:
        with killed_at_the_end(store_and_hang, open_elsewhere):
            pass
        assert_only(all_taken(store, NOON), a_message("a"))

    def assert_found_again(self, store: DelayedMessageStore) -> None:
        """Fail unless its claims end: within the lease, and a deadline for slow machines."""
        found: list[str] = []

        def found_again() -> bool:
            found.extend(ids(taken(store, NOON)))
            return bool(found)

        deadline = self.capabilities.lease.total_seconds() + DEADLINE
        eventually(found_again, "the killed process' message is found again", deadline)
        assert found == ["a"]
