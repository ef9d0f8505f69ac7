from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delaystore.cascades.moving._forwarding import BatchResult, Result, ResultKind
from delaystore.cascades.moving._planning import LevelMessage
from delaystore.cascades.moving.mover import MoveSettings
from delaystore.cascades.moving.report import MoveReport
from delaystore.errors import ConfigurationError
from delaystore.transports.rabbitmq.consuming import Acknowledgement, Acknowledgements
from delaystore.transports.rabbitmq.raw import RawProperties


@given(st.lists(st.lists(st.integers(1, 40), unique=True), max_size=10), st.integers(0, 10))
def test_what_is_done_is_acknowledged_at_once_and_nothing_else(batches: list[list[int]], kept_at: int) -> None:
    acknowledgements = Acknowledgements()
    done: set[int] = set()
    acknowledged: Counter[int] = Counter()
    fresh = [[tag for tag in batch if tag not in set().union(*batches[:at])] for at, batch in enumerate(batches)]
    for at, batch in enumerate(fresh):
        if at == kept_at:
            acknowledgements.acknowledge_singly()
        done.update(batch)
        _note(acknowledgements.done(batch), acknowledged)
        assert acknowledged.keys() == done
    assert set(acknowledged.values()) <= {1}


def _note(said: list[Acknowledgement], acknowledged: Counter[int]) -> None:
    for tag, multiple in said:
        assert tag not in acknowledged  # the broker would take it for a mistake
        tags = [one for one in range(1, tag + 1) if one not in acknowledged] if multiple else [tag]
        acknowledged.update(tags)


def test_batches_done_in_order_take_one_acknowledgement_each() -> None:
    acknowledgements = Acknowledgements()
    assert acknowledgements.done([1, 2]) == [(2, True)]
    assert acknowledgements.done([5, 4]) == [(4, False), (5, False)]
    assert acknowledgements.done([3]) == [(3, True)]
    assert acknowledgements.done([6, 8]) == [(6, True), (8, False)]
    acknowledgements.acknowledge_singly()
    assert acknowledgements.done([7, 9]) == [(7, False), (9, False)]


def report_of(*results: Result | None, redelivered: bool = False) -> MoveReport:
    report = MoveReport("a", "b")
    message = LevelMessage(1, 0, "q", "k", RawProperties(b"\0\0"), b"", redelivered)
    report.add(BatchResult([message] * len(results), results, repeated=0, trouble=None))
    return report


NOW = datetime(2026, 5, 1, tzinfo=UTC)
MOVED = Result(ResultKind.MOVED, destination="sales", until=NOW + timedelta(hours=1))


def test_a_report_adds_up_if_all_that_was_read_is_somewhere() -> None:
    report = report_of(MOVED, Result(ResultKind.POISONED, "why"), None, redelivered=True)
    report.source_before, report.source_after, report.target_after = 10, 1, 1
    assert report.findings(NOW) == []
    assert (report.read, report.settled, report.returned, report.redelivered) == (3, 2, 1, 3)
    assert report.delivered_meanwhile == 6
    report.read += 1
    assert "accounted for" in report.findings(NOW)[0]


def test_what_stays_behind_is_a_finding() -> None:
    report = report_of(MOVED)
    report.target_after = report.source_total = 1
    assert "still in the source" in report.findings(NOW)[0]
    report.interrupted = True
    assert report.findings(NOW) == []
    assert "stayed in the source" in report_of(Result(ResultKind.LEFT, "full")).findings(NOW)[0]


def test_copies_that_are_gone_before_their_time_are_a_finding() -> None:
    report = report_of(MOVED, MOVED)
    report.target_after = 1
    assert "not due yet" in report.findings(NOW)[0]
    assert report.findings(NOW + timedelta(hours=1)) == []


def test_settings_that_cannot_work_are_refused() -> None:
    for rate in (0, -1, float("nan")):
        with pytest.raises(ConfigurationError, match="above 0"):
            MoveSettings(max_rate=rate)
    with pytest.raises(ConfigurationError, match="name"):
        MoveSettings(poison_queue="")
