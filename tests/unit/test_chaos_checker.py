"""The chaos suite's checker finds each kind of violation in a history written by hand, and none in a good one."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.checker import LONG_AGO, check
from tests.chaos.faults import Fault
from tests.chaos.findings import VIOLATIONS
from tests.chaos.history import Event, Recorder, merged, read, write
from tests.chaos.nemesis import schedule
from tests.chaos.report import table, violations
from tests.chaos.timeline import SLACK

NOON = 1_800_000_000.0
"""The wall clock at time 0."""


class Writer:
    """Writes a history: `writer.at(seconds, kind, ...)`; times are seconds from noon, on both clocks."""

    def __init__(self, mode: str = "receive_only", *, asynchronous: bool = False) -> None:
        self.events: list[Event] = []
        self.at(0, "run", mode=mode, asynchronous=asynchronous, dispatchers=1)
        self.at(0, "primary", offset=0.0)

    def at(self, time: float, kind: str, key: str | None = None, **details: Any) -> "Writer":
        if "due" in details:
            details["due"] += NOON
        own = details if key is None else {"key": key, **details}
        self.events.append(Event(time, NOON + time, "somebody", kind, own))
        return self

    def attempted(self, key: str, time: float, due: float, how: str = "send", **details: Any) -> "Writer":
        known = {"id": key, "destination": "orders", "fresh": True, "how": how}
        return self.at(time, "attempted", key, due=due, **{**known, **details})

    def sent(self, key: str, time: float, due: float, **details: Any) -> "Writer":
        return self.attempted(key, time, due, **details).at(time + 0.1, "acknowledged", key)

    def delivered(self, key: str, time: float, queue: str = "orders", **details: Any) -> "Writer":
        return self.at(time, "delivered", key, queue=queue, **details)

    def taken_in(self, key: str, *times: float) -> "Writer":
        """An ingress has stored it, at each of these times."""
        for time in times:
            self.at(time, "storing", key, id=key).at(time + 0.1, "stored", key, id=key)
        return self

    def fault(self, began: float, ended: float, number: int = 1, name: str = "kill postgresql") -> "Writer":
        details: dict[str, Any] = {"number": number, "fault": name, "target": "postgresql"}
        return self.at(began, "fault_began", **details).at(ended, "fault_ended", **details)

    def cancelled(self, key: str, time: float, outcome: str = "done") -> "Writer":
        return self.at(time, "cancel_asked", key).at(time + 0.1, "cancel_answered", key, outcome=outcome)

    def rescheduled(self, key: str, time: float, due: float, outcome: str = "done") -> "Writer":
        self.at(time, "reschedule_asked", key, due=due)
        return self.at(time + 0.1, "reschedule_answered", key, outcome=outcome)

    def violations(self) -> list[tuple[str, str]]:
        return [(one.kind, one.key) for one in check(self.events).violations]

    def counts(self) -> dict[str, int]:
        return {name: number for name, number in check(self.events).counts.items() if number}


def good() -> Writer:
    """A message in its time, a cancelled one, one that is rescheduled, one for a queue that does not exist."""
    history = Writer().sent("a", 1, due=5).delivered("a", 5.01)
    history.sent("b", 1, due=5).cancelled("b", 2)
    history.sent("c", 1, due=5).rescheduled("c", 2, due=9).delivered("c", 9.01)
    history.sent("d", 1, due=5, destination="nowhere").delivered("d", 5.3, "error")
    return history.sent("e", 1, due=5, how="enlisted").delivered("e", 5.2).at(99, "order", "e").at(99, "all_read")


def test_a_good_history_has_no_violation() -> None:
    assert good().violations() == []
    assert good().counts() == {
        "attempted": 5,
        "acknowledged": 5,
        "delivered": 4,
        "cancelled": 1,
        "rescheduled": 1,
        "in error queue": 1,
    }


BAD: dict[str, tuple[str, Callable[[], Writer]]] = {
    "acknowledged, never delivered": ("lost", lambda: Writer().sent("x", 1, due=5)),
    "acknowledged, never delivered, a fault near": ("lost", lambda: Writer().sent("x", 1, due=5).fault(4, 6)),
    "found stored by a repeat, never delivered": (
        "lost",
        lambda: Writer().attempted("x", 1, 5).at(2, "failed", "x").attempted("x", 3, 5).at(4, "duplicate", "x"),
    ),
    "a cancel that came too late, and no delivery": (
        "lost",
        lambda: Writer().sent("x", 1, due=5).cancelled("x", 6, "being_dispatched"),
    ),
    "an order whose message is gone": ("lost", lambda: Writer().attempted("x", 1, 5, "enlisted").at(9, "order", "x")),
    "never attempted": ("unexpected", lambda: Writer().delivered("x", 5)),
    "the wrong queue": ("unexpected", lambda: Writer().sent("x", 1, due=5).delivered("x", 6, "billing")),
    "twice, no fault": ("duplicated", lambda: Writer().sent("x", 1, due=5).delivered("x", 6).delivered("x", 7)),
    "twice, the fault much later": (
        "duplicated",
        lambda: Writer().sent("x", 1, due=5).delivered("x", 6).fault(7 + SLACK, 8 + SLACK).delivered("x", 9 + SLACK),
    ),
    "twice, exactly once, a fault near": (
        "duplicated",
        lambda: (
            Writer("transaction_scope")
            .sent("x", 1, due=5)
            .fault(5, 6)
            .delivered("x", 6, copy="1")
            .delivered("x", 7, copy="2")
        ),
    ),
    "three copies of two attempts": (
        "duplicated",
        lambda: (
            Writer()
            .attempted("x", 1, 2)
            .at(1.5, "failed", "x")
            .sent("x", 5, due=6)
            .delivered("x", 4)
            .delivered("x", 6)
            .delivered("x", 7)
        ),
    ),
    "an order sent twice": (
        "duplicated",
        lambda: (
            Writer()
            .attempted("x", 1, 2, "enlisted")
            .at(1.5, "failed", "x")
            .sent("x", 3, due=4, how="enlisted")
            .delivered("x", 5)
            .delivered("x", 6)
        ),
    ),
    "taken in twice while it waited, with an id": (
        "stored again",
        lambda: Writer().sent("x", 1, due=9).fault(2, 3).taken_in("x", 2, 4).delivered("x", 9).delivered("x", 9.1),
    ),
    "taken in twice without a fault": (
        "stored again",
        lambda: Writer().sent("x", 1, due=2, id=None).taken_in("x", 2, 4).delivered("x", 5).delivered("x", 5.1),
    ),
    "taken in once, delivered twice": (
        "duplicated",
        lambda: Writer().sent("x", 1, due=9).taken_in("x", 2).delivered("x", 9).delivered("x", 9.1),
    ),
    "taken in once, refused once, delivered twice": (
        "duplicated",
        lambda: (
            Writer()
            .sent("x", 1, due=9)
            .taken_in("x", 2)
            .at(3, "storing", "x")
            .at(3, "not_stored", "x")
            .delivered("x", 9)
            .delivered("x", 9.1)
        ),
    ),
    "taken in, never delivered": ("lost", lambda: Writer().sent("x", 1, due=9).taken_in("x", 2)),
    "back to life after a promotion": (
        "revived",
        lambda: (
            Writer()
            .sent("x", 1, due=5)
            .delivered("x", 6)
            .at(50, "primary", offset=0.0, promotion=True)
            .delivered("x", 7 + LONG_AGO)
        ),
    ),
    "before its due time": ("early", lambda: Writer().sent("x", 1, due=5).delivered("x", 4.9)),
    "before its due time, a fault near": ("early", lambda: Writer().sent("x", 1, due=5).fault(3, 6).delivered("x", 4)),
    "before its due time by a slower clock": (
        "early",
        lambda: Writer().at(2, "primary", offset=-4.0, promotion=True).sent("x", 3, due=5).delivered("x", 6),
    ),
    "by the clock of a former primary": (
        "early",
        lambda: (
            Writer()
            .at(1, "primary", offset=4.0)
            .at(3, "primary", offset=0.0, promotion=True)
            .sent("x", 4, due=9)
            .delivered("x", 6)
        ),
    ),
    "before the time it was rescheduled to": (
        "early",
        lambda: Writer().sent("x", 1, due=5).rescheduled("x", 2, due=9).delivered("x", 6),
    ),
    "before the time it was rescheduled to, by the old time, no fault": (
        "early",
        lambda: Writer().sent("x", 1, due=5).rescheduled("x", 6, due=20).delivered("x", 7),
    ),
    "cancelled before it was due": (
        "cancelled, delivered",
        lambda: Writer().sent("x", 1, due=5).cancelled("x", 2).fault(1, 9).delivered("x", 6),
    ),
    "cancelled after it was due, no fault": (
        "cancelled, delivered",
        lambda: Writer().sent("x", 1, due=5).cancelled("x", 6).delivered("x", 7),
    ),
    "in the error queue without a reason": (
        "given up",
        lambda: Writer().sent("x", 1, due=5).delivered("x", 6, "error"),
    ),
    "left in the store": ("waiting", lambda: Writer().sent("x", 1, due=5).at(99, "waiting", "x", failures=0)),
    "a message without its order": (
        "half",
        lambda: Writer().sent("x", 1, due=5, how="enlisted").delivered("x", 6).at(99, "all_read"),
    ),
    "an id called used": ("refused", lambda: Writer().attempted("x", 1, 5).at(2, "duplicate", "x", error="used")),
    "a process that ended": ("crashed", lambda: Writer().at(2, "process_died", name="x", code=1, expected=False)),
    "a traceback": ("crashed", lambda: Writer().at(2, "traceback", name="x", text="Traceback")),
}


@pytest.mark.parametrize("what", BAD)
def test_each_violation_is_found(what: str) -> None:
    kind, history = BAD[what]
    assert history().violations() == [(kind, "x")]


def test_every_kind_of_violation_is_tested() -> None:
    assert {kind for kind, _ in BAD.values()} == set(VIOLATIONS)


ALLOWED: dict[str, tuple[str, Callable[[], Writer]]] = {
    "not acknowledged, delivered": ("recovered", lambda: Writer().attempted("x", 1, 5).delivered("x", 6)),
    "a cancel without an answer": (
        "perhaps cancelled",
        lambda: Writer().sent("x", 1, due=5).at(2, "cancel_asked", "x").at(3, "cancel_failed", "x"),
    ),
    "taken in twice, without an id, a fault near": (
        "stored again",
        lambda: (
            Writer().sent("x", 1, due=9, id=None).fault(2, 3).taken_in("x", 2, 4).delivered("x", 9).delivered("x", 9.1)
        ),
    ),
    "taken in again after it was delivered, a fault near": (
        "stored again",
        lambda: Writer().sent("x", 1, due=3).fault(2, 3).taken_in("x", 2, 4).delivered("x", 3).delivered("x", 4.2),
    ),
    "published twice, without an id": (
        "stored again",
        lambda: (
            Writer()
            .attempted("x", 1, 9, id=None)
            .at(1.5, "failed", "x")
            .sent("x", 2, due=9, id=None)
            .taken_in("x", 3, 3.5)
            .delivered("x", 9)
            .delivered("x", 9.1)
        ),
    ),
    "a send that was repeated": (
        "repeated",
        lambda: (
            Writer().attempted("x", 1, 2).at(1.5, "failed", "x").sent("x", 5, due=6).delivered("x", 4).delivered("x", 6)
        ),
    ),
    "twice near a fault": (
        "duplicated near a fault",
        lambda: Writer().sent("x", 1, due=5).delivered("x", 5.1).fault(6, 7).delivered("x", 8),
    ),
    "under way when it was cancelled": (
        "in doubt at a cancel",
        lambda: Writer().sent("x", 1, due=5).fault(5, 6).cancelled("x", 7).delivered("x", 8),
    ),
    "under way when it was rescheduled": (
        "in doubt at a cancel",
        lambda: Writer().sent("x", 1, due=5).fault(5, 6).rescheduled("x", 7, due=90).delivered("x", 8),
    ),
    "a cancel in the tail of an asynchronous standby": (
        "lost in a tail",
        lambda: (
            Writer(asynchronous=True)
            .sent("x", 1, due=50)
            .cancelled("x", 2)
            .at(5, "primary", offset=0.0, promotion=True)
            .delivered("x", 51)
        ),
    ),
    "the tail of an asynchronous standby": (
        "lost in a tail",
        lambda: Writer(asynchronous=True).sent("x", 1, due=50).at(5, "primary", offset=0.0, promotion=True),
    ),
}


@pytest.mark.parametrize("what", ALLOWED)
def test_what_may_be_is_counted(what: str) -> None:
    name, history = ALLOWED[what]
    assert history().violations() == []
    assert history().counts()[name] == 1


def test_a_copy_that_the_broker_gives_again_is_no_duplicate() -> None:
    history = Writer().sent("x", 1, due=5).delivered("x", 6, redelivered=False).delivered("x", 7, redelivered=True)
    history.sent("y", 1, due=5).delivered("y", 6, copy="1").delivered("y", 7, copy="1")
    assert history.violations() == []


def test_a_reschedule_that_was_refused_or_has_no_answer_leaves_the_old_time() -> None:
    history = Writer().sent("x", 1, due=5).rescheduled("x", 2, due=9, outcome="being_dispatched").delivered("x", 6)
    history.sent("y", 1, due=5).at(2, "reschedule_asked", "y", due=9).delivered("y", 6)
    history.sent("z", 1, due=9).at(2, "reschedule_asked", "z", due=5).delivered("z", 6)
    assert history.violations() == []


def test_what_a_former_primary_had_shown_to_be_due_is_not_early() -> None:
    history = Writer().at(1, "primary", offset=4.0).sent("x", 2, due=6)
    assert history.at(3, "primary", offset=0.0, promotion=True).delivered("x", 3.5).violations() == []


def test_a_new_primary_s_clock_counts_from_the_time_at_which_it_may_have_taken_over() -> None:
    history = Writer().sent("x", 2, due=7).delivered("x", 5)
    history.at(6, "primary", offset=3.0, promotion=True, since=4).sent("y", 6.1, due=12)
    assert history.delivered("y", 8).violations() == [("early", "y")]


def test_no_fault_duplicates_more_than_was_under_way() -> None:
    history = Writer().fault(5, 6)
    for number in range(401):
        history.sent(str(number), 1, due=5).delivered(str(number), 5.5).delivered(str(number), 7)
    assert history.violations() == [("duplicated", "fault 1 (kill postgresql)")]


def test_stalls_are_those_in_which_something_was_due() -> None:
    history = Writer().sent("a", 1, due=5).delivered("a", 5)
    history.sent("b", 1, due=100).delivered("b", 130).fault(101, 120)
    stall = check(history.events).stalls["kill postgresql"]
    assert (stall.faults, round(stall.longest), round(stall.after_end)) == (1, 30, 10)


def test_a_stall_counts_for_the_fault_that_lasted_longest_in_it_and_is_over_with_the_last() -> None:
    history = Writer().sent("a", 1, due=5).delivered("a", 5)
    history.sent("b", 1, due=100).delivered("b", 130)
    history.fault(99, 101, 1, "pause postgresql").fault(101, 125, 2).fault(124, 128, 3, "promote postgresql")
    stalls = check(history.events).stalls
    longest = {name: round(stall.longest) for name, stall in stalls.items()}
    assert longest == {"pause postgresql": 0, "kill postgresql": 30, "promote postgresql": 0}
    assert round(stalls["kill postgresql"].after_end) == 2


def test_the_table_names_what_was_found() -> None:
    findings = check(BAD["before its due time"][1]().events)
    assert "1  early " in table("a run", findings)
    assert "EARLY (1): x" in violations(findings)


def test_a_history_is_read_as_it_was_written_but_for_a_line_cut_off(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, "sender")
    events = [recorder.note("attempted", key="a", due=1.5), recorder.note("acknowledged", key="a")]
    recorder.close()
    (file,) = tmp_path.iterdir()
    file.write_text(file.read_text() + '{"time": 1, "wa')
    assert merged(tmp_path) == events
    write(events, copy := tmp_path / "copy")
    assert list(read(copy)) == events


def test_a_seed_gives_the_same_faults_again() -> None:
    faults = [Fault(kind, target, int, int) for kind in ("kill", "pause") for target in ("a", "b-1", "b-2")]
    strokes = [[stroke for stroke, _ in zip(schedule(faults, seed), range(50), strict=False)] for seed in (7, 7, 8)]
    assert strokes[0] == strokes[1] != strokes[2]
    assert {fault.name for stroke in strokes[0] for fault, _ in stroke.faults} == {fault.name for fault in faults}
