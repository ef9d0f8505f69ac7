"""The bars of a plot, from points."""

from datetime import UTC, datetime
from typing import Any

import pytest

from delaystore.message import EARLIEST_DUE_TIME, LATEST_DUE_TIME
from delaystore.spark.loading.due import bars_of

NOW = datetime(2026, 11, 30, 8, tzinfo=UTC)


def points(*instants: datetime | float) -> list[dict[str, Any]]:
    """One for each, of weight 2."""
    seconds = [at.timestamp() if isinstance(at, datetime) else at for at in instants]
    return [{"x": x, "y": 2.0} for x in seconds]


@pytest.mark.parametrize(
    ("first", "last"),
    [
        (EARLIEST_DUE_TIME, NOW),
        (EARLIEST_DUE_TIME, LATEST_DUE_TIME),
        (datetime(1970, 1, 1, tzinfo=UTC), LATEST_DUE_TIME),
        (NOW, LATEST_DUE_TIME),
        (NOW, NOW),
        (EARLIEST_DUE_TIME, EARLIEST_DUE_TIME),
        (LATEST_DUE_TIME, LATEST_DUE_TIME),
    ],
)
def test_a_dozen_bars_are_enough_for_any_times(first: datetime, last: datetime) -> None:
    bars = bars_of(points(first, last))
    assert len(bars) <= 12
    assert sum(bar.count for bar in bars) == 4
    assert bars[0].count > 0
    assert bars[-1].count > 0
    assert bars[0].start <= first
    assert bars[-1].start <= last


@pytest.mark.parametrize("x", [float("nan"), float("inf"), float("-inf"), 1e300, -1e300, 1e12])
def test_what_is_no_due_time_is_left_out(x: float) -> None:
    assert bars_of(points(x, NOW)) == bars_of(points(NOW))
    assert bars_of(points(x)) == []


def test_nothing_has_no_bars() -> None:
    assert bars_of(None) == bars_of([]) == []
