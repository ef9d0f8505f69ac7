from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delaystore.errors import ConfigurationError
from delaystore.transports.rabbitmq.moving.acknowledgements import Acknowledgement, Acknowledgements
from delaystore.transports.rabbitmq.moving.forwarding import Fate, FateKind, Forwarded
from delaystore.transports.rabbitmq.moving.messages import WaitingMessage
from delaystore.transports.rabbitmq.moving.mover import MoveSettings
from delaystore.transports.rabbitmq.moving.pace import Pace
from delaystore.transports.rabbitmq.moving.raw import RawProperties
from delaystore.transports.rabbitmq.moving.report import MoveReport


@given(st.lists(st.lists(st.integers(1, 40), unique=True), max_size=10), st.integers(0, 10))
def test_only_what_is_done_is_acknowledged_and_all_of_it_in_the_end(batches: list[list[int]], kept_at: int) -> None:
    acknowledgements = Acknowledgements()
    done: set[int] = set()
    acknowledged: Counter[int] = Counter()
    fresh = [[tag for tag in batch if tag not in set().union(*batches[:at])] for at, batch in enumerate(batches)]
    for at, batch in enumerate(fresh):
        said = acknowledgements.keep_back() if at == kept_at else []
        done.update(batch)
        _note([*said, *acknowledgements.done(batch)], acknowledged)
        assert acknowledged.keys() <= done
    _note(acknowledgements.keep_back(), acknowledged)
    assert acknowledged.keys() == done
    assert set(acknowledged.values()) <= {1}


def _note(said: list[Acknowledgement], acknowledged: Counter[int]) -> None:
    for tag, multiple in said:
        tags = [one for one in range(1, tag + 1) if one not in acknowledged] if multiple else [tag]
        acknowledged.update(tags)


def test_batches_done_in_order_take_one_acknowledgement_each() -> None:
    acknowledgements = Acknowledgements()
    assert acknowledgements.done([2, 3]) == []
    assert acknowledgements.done([1]) == [(3, True)]
    assert acknowledgements.done([4, 6]) == [(4, True)]
    assert acknowledgements.keep_back() == [(6, False)]
    assert acknowledgements.done([8]) == [(8, False)]


@given(st.floats(0.5, 5000), st.lists(st.tuples(st.floats(0, 2), st.integers(0, 500)), max_size=30))
def test_no_more_goes_than_the_rate_allows(rate: float, steps: list[tuple[float, int]]) -> None:
    now = 0.0
    pace = Pace(rate, lambda: now)
    gone = 0
    for pause, wanted in steps:
        now += pause
        granted = pace.take(wanted)
        assert 0 <= granted <= wanted
        gone += granted
        assert gone <= max(1.0, rate * 0.1) + rate * now + 1e-6


def test_the_rate_is_reached_and_without_one_there_is_no_limit() -> None:
    now = 0.0
    pace = Pace(100, lambda: now)
    gone = 0
    for _ in range(200):
        now += 0.05
        gone += pace.take(1000)
    assert gone >= 0.99 * 100 * now
    assert Pace(None).take(10**9) == 10**9


def report_of(*fates: Fate | None, redelivered: bool = False) -> MoveReport:
    report = MoveReport("a", "b")
    message = WaitingMessage(1, 0, "q", "k", RawProperties(b"\0\0"), b"", redelivered)
    report.add(Forwarded([message] * len(fates), fates, repeated=0, trouble=None))
    return report


NOW = datetime(2026, 5, 1, tzinfo=UTC)
MOVED = Fate(FateKind.MOVED, destination="sales", until=NOW + timedelta(hours=1))


def test_a_report_adds_up_if_all_that_was_read_is_somewhere() -> None:
    report = report_of(MOVED, Fate(FateKind.POISONED, "why"), None, redelivered=True)
    report.source_before, report.source_after, report.target_after = 10, 1, 1
    assert report.findings(NOW) == []
    assert (report.read, report.settled, report.returned, report.redelivered) == (3, 2, 1, 3)
    assert report.delivered_meanwhile == 6
    report.read += 1
    assert "accounted for" in report.findings(NOW)[0]


def test_what_stays_behind_is_a_finding() -> None:
    report = report_of(MOVED)
    report.target_after = report.source_held = 1
    assert "still in the source" in report.findings(NOW)[0]
    report.interrupted = True
    assert report.findings(NOW) == []
    assert "stayed in the source" in report_of(Fate(FateKind.LEFT, "full")).findings(NOW)[0]


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
