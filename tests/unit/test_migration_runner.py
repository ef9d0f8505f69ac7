"""Running migrations, with a source in memory."""

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from delaystore.errors import (
    ConfigurationError,
    DuplicateMessageError,
    MigrationError,
    MigrationLockedError,
    StoreUnavailableError,
    UnknownSchemeError,
)
from delaystore.message import DelayedMessage, marked
from delaystore.migrations.abc import BatchStatus, Problem, RunStatus, checksum, clock_problems
from delaystore.migrations.runner import RunSettings, abort, check, clean_up, run, verify
from delaystore.migrations.targets import open_target
from delaystore.migrations.targets._dry_run import DryRunTarget
from delaystore.migrations.targets._stores import StoreTarget, store_each
from delaystore.settings import TransactionMode
from delaystore.stores import InMemoryDelayedMessageStore
from delaystore.transports.abc import DELIVERED, Outcome, OutcomeKind
from tests.migrations import Hidden, MemorySource, ScriptedTarget

NOW = datetime.now(UTC)
BATCHES_OF_TEN = RunSettings(batch_size=10)
REJECTING = RunSettings(batch_size=10, allow_rejects=True)
NO_PATIENCE = RunSettings(batch_size=10, target_timeout=timedelta(seconds=0.3))
PATIENCE = 30.0


class KilledError(BaseException):
    """The process ends here."""


def message(number: int, **fields: Any) -> DelayedMessage:
    values: dict[str, Any] = {"destination": "billing", "due_time": NOW + timedelta(hours=1, seconds=number), **fields}
    return DelayedMessage(message_id=f"m{number}", body=str(number).encode(), **values)


def source_of(count: int, **broken: DelayedMessage | None) -> MemorySource:
    return MemorySource({**{f"r{number}": message(number) for number in range(count)}, **broken})


def ids(count: int) -> list[str]:
    return sorted(f"m{number}" for number in range(count))


def kill_at(source: MemorySource, name: str, call: int) -> None:
    """The process dies just before the `call`th of the calls so named: from then on it does nothing at all."""
    seen = 0
    dead = False

    def before(called: str) -> None:
        nonlocal seen, dead
        seen += called == name
        dead = dead or (called == name and seen == call)
        if dead:
            raise KilledError

    source.before = before


def revive(source: MemorySource) -> None:
    source.before = lambda name: None


def unmoved(source: MemorySource) -> list[Hidden]:
    """The rows in the run's table that an abort is to give back."""
    return [
        row
        for row in source.hidden
        if source.statuses[row.batch] is not BatchStatus.COMPLETED or row.reason is not None
    ]


def everywhere(source: MemorySource, target: ScriptedTarget) -> list[str]:
    """The ids in the source and its run's table, and those that went."""
    held = [*source.rows.values(), *(row.message for row in source.hidden)]
    return sorted({one.message_id for one in held if one} | set(target.arrived))


def test_everything_arrives_once_and_the_run_is_completed() -> None:
    source, target = source_of(95), ScriptedTarget()
    report = run(source, target, "sales", BATCHES_OF_TEN)
    assert sorted(target.arrived) == ids(95)
    assert report.run is not None
    assert report.run.status is RunStatus.COMPLETED
    assert (report.counts.prepared, report.counts.moved, report.counts.pending) == (95, 95, 0)
    assert report.sent == 95
    assert not report.resumed
    assert report.extra["sent_again"] == 0
    assert not source.rows
    assert not source.holders


def test_the_target_is_set_up_before_anything_is_hidden() -> None:
    source, target = source_of(3), ScriptedTarget()

    def before(name: str) -> None:
        assert name != "begin" or target.set_up_for == {"billing": 3}

    source.before = before
    run(source, target, "sales", BATCHES_OF_TEN)
    assert "begin" in source.calls


def test_while_a_batch_is_sent_the_next_is_read() -> None:
    source, target = source_of(20), ScriptedTarget()
    both = threading.Barrier(2)  # nobody passes alone
    target.before_send = lambda: both.wait(PATIENCE)
    run(source, target, "sales", BATCHES_OF_TEN)
    assert sorted(target.arrived) == ids(20)


def test_rows_are_hidden_shortly_before_they_move() -> None:
    source, target = source_of(200), ScriptedTarget()
    most = 0

    def before(name: str) -> None:
        nonlocal most
        most = max(most, len(source.hidden) - len(target.arrived))

    source.before = before
    run(source, target, "sales", BATCHES_OF_TEN)
    assert 0 < most <= 40


def test_only_a_few_batches_are_in_flight() -> None:
    source, target = source_of(200), ScriptedTarget()
    target.before_send = lambda: time.sleep(0.02)  # time enough for more to be read, if more were
    run(source, target, "sales", BATCHES_OF_TEN)
    assert source.most_staged <= 3


def test_the_source_is_used_by_one_thread_at_a_time() -> None:
    source, target = source_of(200), ScriptedTarget()
    source.before = lambda name: time.sleep(0.002)  # it sees to it itself that nobody comes in between
    run(source, target, "sales", BATCHES_OF_TEN)
    assert sorted(target.arrived) == ids(200)


def test_a_slow_rate_lets_a_few_go_at_a_time_and_keeps_one_batch_in_flight() -> None:
    source, target = source_of(60), ScriptedTarget()
    run(source, target, "sales", RunSettings(batch_size=50, max_rate=49))
    assert source.most_staged == 1
    assert max(map(len, target.sends)) <= 5
    assert sorted(target.arrived) == ids(60)


@pytest.mark.parametrize("name", ["begin", "prepare", "set_status", "stage", "complete"])
@pytest.mark.parametrize("call", [1, 2, 5])
def test_killed_anywhere_it_goes_on_and_loses_nothing(name: str, call: int) -> None:
    source, target = source_of(80), ScriptedTarget()
    kill_at(source, name, call)
    try:
        run(source, target, "sales", BATCHES_OF_TEN)
    except KilledError:
        in_flight = 10 * list(source.statuses.values()).count(BatchStatus.STAGED)
        assert everywhere(source, target) == ids(80)
        revive(source)
        report = run(source, target, "sales", BATCHES_OF_TEN)
        assert report.extra["sent_again"] == in_flight
        assert len(target.arrived) - 80 <= in_flight <= 30
    assert set(target.arrived) == set(ids(80))
    assert verify(source, target, "sales").good
    assert source.run_now is not None
    assert source.run_now.status is RunStatus.COMPLETED


def test_asked_to_stop_it_finishes_what_is_in_flight_and_can_be_resumed() -> None:
    source, target = source_of(100), ScriptedTarget()
    report = run(source, target, "sales", BATCHES_OF_TEN, stopping=lambda: len(target.sends) >= 2)
    assert report.run is not None
    assert report.run.status is RunStatus.PREPARING
    assert BatchStatus.STAGED not in source.statuses.values()
    assert 20 <= report.counts.moved < 100
    report = run(source, target, "sales", BATCHES_OF_TEN)
    assert report.resumed
    assert report.extra["sent_again"] == 0
    assert sorted(target.arrived) == ids(100)


def test_asked_to_stop_while_it_prepares_it_goes_on_with_that() -> None:
    source, target = source_of(100), ScriptedTarget()
    report = run(source, target, "sales", BATCHES_OF_TEN, stopping=lambda: len(source.statuses) >= 3)
    assert report.run is not None
    assert report.run.status is RunStatus.PREPARING
    assert source.rows
    assert run(source, target, "sales", BATCHES_OF_TEN).resumed
    assert sorted(target.arrived) == ids(100)


@pytest.mark.parametrize(
    ("settings", "name", "named"),
    [
        (RunSettings(batch_size=11), "batch size", "10, not 11"),
        (RunSettings(cutoff=NOW), "cut-off", "none, not"),
        (RunSettings(batch_size=10), "target", "scripted, not another"),
    ],
)
def test_changed_parameters_are_refused_by_name(settings: RunSettings, name: str, named: str) -> None:
    source, target = source_of(30), ScriptedTarget()
    run(source, target, "sales", BATCHES_OF_TEN, stopping=lambda: bool(target.sends))
    if name == "target":
        target.name = "another"
    before = source.snapshot()
    with pytest.raises(MigrationError, match=f"the {name} .*{named}"):
        run(source, target, "sales", settings)
    assert source.snapshot() == before


def test_a_batch_size_that_is_not_given_is_the_resumed_runs() -> None:
    source, target = source_of(30), ScriptedTarget()
    run(source, target, "sales", BATCHES_OF_TEN, stopping=lambda: bool(target.sends))
    report = run(source, target, "sales", RunSettings())
    assert report.counts.moved == 30


def test_the_second_of_two_runs_learns_who_is_at_it() -> None:
    source, target = source_of(10), ScriptedTarget()
    with source.lock("sales", "somebody else"), pytest.raises(MigrationLockedError, match="somebody else"):
        run(source, target, "sales", BATCHES_OF_TEN)
    assert not target.sends


def test_rows_that_cannot_move_are_rejected_and_the_others_go() -> None:
    source, target = source_of(20, bad=None), ScriptedTarget()
    target.answer = lambda one: Outcome(OutcomeKind.UNROUTABLE, "no queue") if one.message_id == "m7" else DELIVERED
    report = run(source, target, "sales", REJECTING)
    assert (report.sent, report.counts.moved) == (19, 19)
    assert {(one.row_id, one.reason) for one in report.rejections} == {
        ("r7", "no queue"),
        ("bad", "its headers cannot be read"),
    }
    verified = verify(source, target, "sales")
    assert not verified.findings
    assert verified.rejected_left == 2
    assert not verified.good


def test_too_many_rejected_rows_stop_the_run_and_it_can_go_on() -> None:
    source, target = source_of(200), ScriptedTarget()
    target.answer = lambda one: Outcome(OutcomeKind.REFUSED, "too large")
    with pytest.raises(MigrationError, match=r"at most 5 may be; .* too large; .* larger --max-rejected"):
        run(source, target, "sales", RunSettings(batch_size=10, max_rejects=5))
    assert len(target.arrived) <= 60
    assert BatchStatus.STAGED not in source.statuses.values()
    report = run(source, target, "sales", REJECTING)
    assert report.counts.rejected == 200


def test_without_leave_the_first_rejected_rows_stop_the_run() -> None:
    source, target = source_of(200), ScriptedTarget()
    target.answer = lambda one: Outcome(OutcomeKind.REFUSED, "too large")
    with pytest.raises(MigrationError, match=r"at most 0 may be; .* too large; run it again with --allow-rejected"):
        run(source, target, "sales", BATCHES_OF_TEN)
    assert len(target.arrived) <= 30, "what was in flight"
    assert run(source, target, "sales", REJECTING).counts.rejected == 200


def test_an_outage_is_waited_for_and_only_what_was_not_answered_is_sent_again() -> None:
    source, target = source_of(10), ScriptedTarget()

    def answer(one: DelayedMessage) -> Outcome:
        silent = len(target.sends) < 3 and one.message_id in ("m3", "m4")
        return Outcome(OutcomeKind.UNCONFIRMED, "connection lost") if silent else DELIVERED

    target.answer = answer
    report = run(source, target, "sales", BATCHES_OF_TEN)
    assert [sorted(send) for send in target.sends] == [ids(10), ["m3", "m4"], ["m3", "m4"]]
    assert report.counts.moved == 10
    assert report.extra["sent_again"] == 4


def test_an_outage_that_lasts_stops_the_run_which_can_be_resumed() -> None:
    source, target = source_of(40), ScriptedTarget()
    target.answer = lambda one: Outcome(OutcomeKind.UNCONFIRMED, "connection refused")
    with pytest.raises(MigrationError, match=r"accepted no message .*connection refused.*run it again"):
        run(source, target, "sales", NO_PATIENCE)
    assert source.run_now is not None
    assert source.run_now.status is not RunStatus.COMPLETED
    target.answer = lambda one: DELIVERED
    assert run(source, target, "sales", NO_PATIENCE).counts.moved == 40


def test_asked_to_stop_in_an_outage_it_does_not_wait_for_its_end() -> None:
    source, target = source_of(40), ScriptedTarget()
    target.answer = lambda one: Outcome(OutcomeKind.UNCONFIRMED, "connection refused")
    report = run(source, target, "sales", BATCHES_OF_TEN, stopping=lambda: bool(target.sends))
    assert report.counts.pending == len(source.hidden) > 0
    assert report.counts.moved == 0


def test_a_source_that_fails_stops_the_run_which_can_be_resumed() -> None:
    source, target = source_of(40), ScriptedTarget()

    def fail(name: str) -> None:
        if name == "complete":
            raise StoreUnavailableError("gone")

    source.before = fail
    with pytest.raises(StoreUnavailableError):
        run(source, target, "sales", BATCHES_OF_TEN)
    revive(source)
    assert run(source, target, "sales", BATCHES_OF_TEN).counts.moved == 40


def test_what_is_due_before_the_cutoff_stays_for_a_later_run() -> None:
    source, target = source_of(10), ScriptedTarget()
    cutoff = NOW + timedelta(hours=1, seconds=4)
    run(source, target, "sales", RunSettings(cutoff=cutoff))
    assert sorted(target.arrived) == [f"m{number}" for number in range(4, 10)]
    assert len(source.rows) == 4
    run(source, target, "sales", RunSettings())
    assert sorted(target.arrived) == ids(10)


def test_where_nothing_is_to_move_no_table_is_made() -> None:
    source = source_of(0)
    assert run(source, ScriptedTarget(), "sales", BATCHES_OF_TEN).run is None
    assert "begin" not in source.calls


def test_what_is_not_confirmed_changes_nothing() -> None:
    source, target = source_of(5), ScriptedTarget()
    before = source.snapshot()
    report = run(source, target, "sales", BATCHES_OF_TEN, confirm=lambda found: False)
    assert report.run is None
    assert source.snapshot() == before
    assert target.set_up_for is None


def test_a_preview_changes_nothing_and_names_what_is_due_too_late() -> None:
    source = source_of(10, late=message(99, due_time=NOW + timedelta(days=3000)))
    target = ScriptedTarget(timedelta(days=1000))
    before = source.snapshot()
    found = check(source, target, "sales", None)
    assert source.snapshot() == before
    assert target.set_up_for is None
    assert not target.sends
    assert found.waiting is not None
    assert found.waiting.count == 11
    (problem,) = found.blocking
    assert problem.text.startswith("1 message is due after")
    assert found.immovable == 1


def test_what_is_due_too_late_is_refused_unless_told_to_leave_it_behind() -> None:
    source = source_of(10, late=message(99, due_time=NOW + timedelta(days=3000)))
    target = ScriptedTarget(timedelta(days=1000))
    target.answer = lambda one: DELIVERED if one.message_id != "m99" else Outcome(OutcomeKind.NOT_DELAYABLE, "too late")
    with pytest.raises(MigrationError, match=r"1 message is due after .*--allow-rejected"):
        run(source, target, "sales", RunSettings())
    assert len(source.rows) == 11
    report = run(source, target, "sales", RunSettings(allow_rejects=True))
    assert (report.counts.moved, report.counts.rejected) == (10, 1)


def test_what_is_due_before_the_cutoff_is_not_too_late() -> None:
    source = source_of(5)
    found = check(source, ScriptedTarget(timedelta(0)), "sales", NOW + timedelta(hours=1, seconds=3))
    assert found.immovable == 2


def test_problems_of_the_run_itself_are_not_overlooked() -> None:
    source, target = source_of(5), ScriptedTarget()
    target.problems = [Problem("broker", "cannot be reached"), Problem("queue", "is missing", messages=3)]
    with pytest.raises(MigrationError, match="broker: cannot be reached"):
        run(source, target, "sales", RunSettings(allow_rejects=True))
    with pytest.raises(MigrationError, match="and 1 more"):
        run(source, target, "sales", RunSettings())
    assert len(source.rows) == 5


def test_a_missing_table_is_a_problem() -> None:
    found = check(source_of(1), ScriptedTarget(), "purchases", None)
    assert found.waiting is None
    with pytest.raises(MigrationError, match="no table of 'purchases'"):
        run(source_of(1), ScriptedTarget(), "purchases", RunSettings())


@pytest.mark.parametrize(
    ("difference", "fatal"),
    [
        (timedelta(seconds=59), None),
        (timedelta(minutes=-2), False),
        (timedelta(hours=1, seconds=3), True),
        (timedelta(hours=-2), True),
        (timedelta(hours=5, minutes=30), True),
        (timedelta(minutes=100), False),
    ],
)
def test_clocks_are_compared(difference: timedelta, fatal: bool | None) -> None:
    problems = clock_problems("the source's clock", NOW + difference, NOW)
    assert [problem.fatal for problem in problems] == ([] if fatal is None else [fatal])


def test_a_source_in_another_time_zone_is_refused() -> None:
    source = source_of(5)
    source.offset = timedelta(hours=2)
    with pytest.raises(MigrationError, match="2 h ahead of"):
        run(source, ScriptedTarget(), "sales", RunSettings())


def test_an_abort_gives_back_what_has_not_moved_as_it_was() -> None:
    source, target = source_of(100), ScriptedTarget()
    originals = dict(source.rows)
    target.answer = lambda one: Outcome(OutcomeKind.REFUSED, "no") if one.message_id == "m0" else DELIVERED
    kill_at(source, "complete", 4)
    with pytest.raises(KilledError):
        run(source, target, "sales", REJECTING)
    revive(source)
    hidden = len(source.hidden)
    moved = {key for key in originals if key not in source.rows and key not in {row.row_id for row in unmoved(source)}}
    report = abort(source, "sales")
    assert source.rows == {key: one for key, one in originals.items() if key not in moved}
    assert report.run is not None
    assert report.run.status is RunStatus.ABORTED
    assert report.extra["given_back"] == hidden - len(moved) > 1
    verified = verify(source, target, "sales")
    assert verified.good
    assert (verified.counts.moved, verified.counts.returned) == (29, hidden - 29)


def test_an_abort_says_what_may_be_at_the_target_as_well() -> None:
    source, target = source_of(30), ScriptedTarget()
    kill_at(source, "complete", 1)
    with pytest.raises(KilledError):
        run(source, target, "sales", BATCHES_OF_TEN)
    revive(source)
    assert 10 <= abort(source, "sales").extra["in_flight"] <= 30


def test_an_abort_that_is_stopped_is_done_by_the_next() -> None:
    source, target = source_of(30), ScriptedTarget()
    kill_at(source, "complete", 1)
    with pytest.raises(KilledError):
        run(source, target, "sales", BATCHES_OF_TEN)
    revive(source)
    hidden = len(source.hidden)
    assert abort(source, "sales", stopping=lambda: True).extra["stopped"]
    assert len(source.hidden) == hidden - 10
    abort(source, "sales")
    assert len(source.rows) == 30


def test_after_a_completed_run_an_abort_gives_back_what_was_rejected() -> None:
    source, target = source_of(10, bad=None), ScriptedTarget()
    run(source, target, "sales", REJECTING)
    report = abort(source, "sales")
    assert source.rows == {"bad": None}
    assert report.run is not None
    assert report.run.status is RunStatus.COMPLETED


def test_there_must_be_a_run_to_abort_or_verify() -> None:
    for act in (lambda: abort(source_of(1), "sales"), lambda: verify(source_of(1), ScriptedTarget(), "sales")):
        with pytest.raises(MigrationError, match="there is no run"):
            act()


def test_what_is_pending_does_not_pass_verification_nor_is_it_cleaned_up() -> None:
    source, target = source_of(30), ScriptedTarget()
    target.answer = lambda one: Outcome(OutcomeKind.UNCONFIRMED, "connection refused")
    run(source, target, "sales", BATCHES_OF_TEN, stopping=lambda: bool(target.sends))
    verified = verify(source, target, "sales")
    assert not verified.good
    assert f"{len(source.hidden)} have not moved yet" in verified.findings[0]
    with pytest.raises(MigrationError, match="would be lost"):
        clean_up(source, target, "sales", force=True)


def test_what_was_rejected_is_not_cleaned_up_unless_forced() -> None:
    source, target = source_of(10, bad=None), ScriptedTarget()
    run(source, target, "sales", REJECTING)
    with pytest.raises(MigrationError, match="only this run has 1 rejected message of 'sales'"):
        clean_up(source, target, "sales")
    clean_up(source, target, "sales", force=True)
    assert source.run_now is None


def test_a_run_is_verified_against_its_own_target() -> None:
    source, target = source_of(10), ScriptedTarget()
    run(source, target, "sales", BATCHES_OF_TEN)
    target.name = "another"
    with pytest.raises(MigrationError, match="moved to scripted, not to another"):
        verify(source, target, "sales")


def test_a_dry_run_puts_everything_back_and_says_what_would_happen() -> None:
    source = source_of(25, bad=None, late=message(99, due_time=NOW + timedelta(days=3000)))
    originals = dict(source.rows)
    aim = ScriptedTarget(timedelta(days=1000))
    report = run(source, DryRunTarget(aim), "sales", RunSettings(batch_size=10, allow_rejects=True))
    assert source.rows == originals
    assert not aim.sends
    assert aim.set_up_for is None
    assert report.extra["would_move"] == 25
    assert report.extra["would_be_rejected"] == 2
    assert {one.row_id for one in report.rejections} == {"bad", "late"}
    assert (report.counts.moved, report.counts.returned) == (0, 27)
    assert report.run is not None
    assert report.run.status is RunStatus.ABORTED


def test_a_dry_run_that_is_stopped_puts_everything_back_too() -> None:
    source = source_of(25)
    originals = dict(source.rows)
    run(source, DryRunTarget(), "sales", BATCHES_OF_TEN, stopping=lambda: "stage" in source.calls)
    assert source.rows == originals


def test_a_dry_run_that_fails_puts_everything_back_too() -> None:
    source = source_of(25)
    originals = dict(source.rows)

    def fail(name: str) -> None:
        if name == "stage":
            raise StoreUnavailableError("for a moment")

    source.before = fail
    with pytest.raises(StoreUnavailableError):
        run(source, DryRunTarget(), "sales", BATCHES_OF_TEN)
    assert source.rows == originals


def test_a_dry_run_that_was_killed_is_aborted_before_the_run() -> None:
    source, target = source_of(25), ScriptedTarget()
    originals = dict(source.rows)
    kill_at(source, "stage", 2)
    with pytest.raises(KilledError):
        run(source, DryRunTarget(), "sales", BATCHES_OF_TEN)
    revive(source)
    assert source.hidden
    with pytest.raises(MigrationError, match="has the target noop, not scripted"):
        run(source, target, "sales", BATCHES_OF_TEN)
    assert abort(source, "sales", target=target).extra["in_flight"] == 0  # it was sent nothing
    assert source.rows == originals
    assert run(source, target, "sales", BATCHES_OF_TEN).counts.moved == 25


@pytest.fixture
def store() -> InMemoryDelayedMessageStore:
    return InMemoryDelayedMessageStore()


@pytest.fixture
def to_store(store: InMemoryDelayedMessageStore) -> StoreTarget:
    return StoreTarget(store, "sales", "a store")


def test_a_store_keeps_each_message_once_however_often_it_is_sent(
    store: InMemoryDelayedMessageStore, to_store: StoreTarget
) -> None:
    source = source_of(95)
    originals = {one.message_id: one for one in source.rows.values() if one}
    kill_at(source, "complete", 4)
    with pytest.raises(KilledError):
        run(source, to_store, "sales", BATCHES_OF_TEN)
    revive(source)
    report = run(source, to_store, "sales", BATCHES_OF_TEN)
    assert (report.counts.moved, report.counts.rejected) == (95, 0)
    waiting = store.list(limit=1000).messages
    assert {one.message_id: replace(one, due_time=one.next_attempt) for one in waiting} == originals  # without marks
    verified = verify(source, to_store, "sales")
    assert verified.waiting == verified.moved
    assert verified.good


def test_a_message_that_another_has_the_id_of_is_rejected_and_harms_no_other(
    store: InMemoryDelayedMessageStore, to_store: StoreTarget
) -> None:
    store.initialize("sales", TransactionMode.NONE)
    store.store(message(3, destination="elsewhere"))
    source = source_of(10)
    report = run(source, to_store, "sales", REJECTING)
    assert [(one.row_id, one.reason) for one in report.rejections] == [
        ("r3", "another message with the id 'm3' waits at the target")
    ]
    assert report.counts.moved == 9
    there = store.get("m3")
    assert there is not None
    assert there.destination == "elsewhere"


def test_messages_that_the_target_has_dispatched_are_told_apart(
    store: InMemoryDelayedMessageStore, to_store: StoreTarget
) -> None:
    source = source_of(10)
    run(source, to_store, "sales", BATCHES_OF_TEN)
    store.cancel("m1")
    verified = verify(source, to_store, "sales")
    assert verified.good
    assert verified.no_longer_there == 1
    assert "1 no longer there: dispatched meanwhile or removed" in verified.remarks[0]


def test_a_message_that_was_changed_at_the_target_does_not_pass_verification(
    store: InMemoryDelayedMessageStore, to_store: StoreTarget
) -> None:
    source = source_of(10)
    run(source, to_store, "sales", BATCHES_OF_TEN)
    store.reschedule("m1", NOW + timedelta(days=9))
    verified = verify(source, to_store, "sales")
    assert not verified.good
    with pytest.raises(MigrationError, match="checksums differ; --force"):
        clean_up(source, to_store, "sales")


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: RunSettings(batch_size=0), "batch size"),
        (lambda: RunSettings(max_rate=0), "maximum rate"),
        (lambda: RunSettings(max_rate=float("nan")), "maximum rate"),
        (lambda: RunSettings(max_rejects=-1), "rejected"),
        (lambda: RunSettings(cutoff=datetime(2030, 1, 1)), "aware"),  # noqa: DTZ001 - which is the mistake
    ],
)
def test_settings_that_cannot_work_are_refused(make: Callable[[], RunSettings], text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        make()


def test_an_unknown_target_names_the_known_ones() -> None:
    with pytest.raises(
        UnknownSchemeError, match=r"no target .* 'redis'; known schemes: .*sqlite; and amqp, amqps, noop"
    ):
        open_target("redis://localhost", "sales")
    with pytest.raises(ConfigurationError, match="in memory"):
        open_target("memory://x", "sales")


@pytest.mark.parametrize("failures", [0, 1])
def test_what_waits_at_the_target_already_is_delivered_and_keeps_its_marks(failures: int) -> None:
    """A run whose connection broke sends again what has arrived; another sender may have been told of it meanwhile."""
    store = InMemoryDelayedMessageStore()
    store.initialize("sales", TransactionMode.NONE)
    waiting = DelayedMessage(
        message_id="a", destination="q", due_time=NOW + timedelta(days=1), body=b"", failure_count=failures
    )
    store.store(waiting)
    with pytest.raises(DuplicateMessageError):
        store.store(waiting)
    times = [waiting.due_time, marked(waiting.due_time)]
    for _ in range(2):
        assert store_each(store, [waiting]) == [DELIVERED]
        found = store.get("a")
        assert found is not None
        assert found.failure_count == failures
        assert found.due_time not in times
        times.append(found.due_time)


def test_marks_make_no_difference_to_a_checksum() -> None:
    store = InMemoryDelayedMessageStore()
    target = StoreTarget(store, "sales", "memory")
    moved = list[tuple[str, str, datetime]]()
    for number, microseconds in enumerate((0, 1, 999, 1_000, 999_999)):
        due_time = NOW + timedelta(days=1, microseconds=microseconds)
        waiting = DelayedMessage(message_id=str(number), destination="q", due_time=due_time, body=b"")
        store.store(waiting)
        assert store_each(store, [waiting] * 2) == [DELIVERED] * 2
        moved.append((waiting.message_id, "q", due_time))
    assert target.checksum(iter([moved[:3], moved[3:], [("gone", "q", NOW)]])) == checksum(moved)
    store.reschedule("1", NOW + timedelta(days=1, milliseconds=2))
    assert target.checksum(iter([moved])) != checksum(moved)
