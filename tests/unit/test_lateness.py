"""Histograms of lateness: what they add up to, and how far a percentile is off."""

import math
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delaystore.stores.documents import BOUNDS, FACTOR, SHORTEST, LatenessHistogram

LATE = st.lists(st.floats(0, BOUNDS[-1]), min_size=1, max_size=200)


def histogram_of(lateness: Sequence[float]) -> LatenessHistogram:
    histogram = LatenessHistogram()
    histogram.add(lateness)
    return histogram


def percentile_of(lateness: Sequence[float], percent: int) -> float:
    """The least of them that so many per cent do not exceed."""
    return sorted(lateness)[max(0, math.ceil(len(lateness) * percent / 100) - 1)]


@settings(deadline=None)
@given(LATE, st.integers(0, 100))
def test_a_percentile_is_off_by_less_than_half_of_itself(lateness: list[float], percent: int) -> None:
    found, exact = histogram_of(lateness).percentile(percent), percentile_of(lateness, percent)
    assert found is not None
    assert abs(found - exact) <= max(SHORTEST, exact * (FACTOR - 1)) * (1 + 1e-9)


@settings(deadline=None)
@given(LATE)
def test_percentiles_do_not_fall(lateness: list[float]) -> None:
    histogram = histogram_of(lateness)
    found = [histogram.percentile(percent) or 0.0 for percent in range(101)]
    assert found == sorted(found)
    assert found[100] <= max(SHORTEST, max(lateness) * FACTOR)


def test_a_percentile_is_interpolated_within_its_bucket() -> None:
    upper = BOUNDS[10]
    lower = BOUNDS[9]
    histogram = histogram_of([upper] * 4)
    assert histogram.percentile(0) == lower
    assert histogram.percentile(50) == pytest.approx((lower + upper) / 2)
    assert histogram.percentile(100) == upper


def test_nothing_counted_has_no_percentile() -> None:
    assert LatenessHistogram().percentile(99) is None
    assert LatenessHistogram().total == 0


@pytest.mark.parametrize(
    ("seconds", "bucket"),
    [
        (-1.0, 0),
        (0.0, 0),
        (SHORTEST, 0),
        (SHORTEST * 1.01, 1),
        (BOUNDS[1], 1),
        (BOUNDS[-1], len(BOUNDS) - 1),
        (BOUNDS[-1] * 1.01, len(BOUNDS)),
        (1e12, len(BOUNDS)),
        (math.inf, len(BOUNDS)),
    ],
)
def test_a_bucket_has_what_is_up_to_its_bound(seconds: float, bucket: int) -> None:
    counts = histogram_of([seconds]).counts
    assert (counts[bucket], sum(counts), len(counts)) == (1, 1, len(BOUNDS) + 1)
    assert 0 <= (histogram_of([seconds]).percentile(99) or 0.0) <= BOUNDS[-1]


@settings(deadline=None)
@given(LATE, LATE)
def test_histograms_add_up(some: list[float], others: list[float]) -> None:
    both = histogram_of(some) + histogram_of(others)
    assert both == histogram_of([*some, *others])
    assert both.total == len(some) + len(others)


@settings(deadline=None)
@given(st.lists(st.integers(0, 2**60), max_size=len(BOUNDS) + 1))
def test_a_histogram_comes_back_from_its_text(counts: list[int]) -> None:
    histogram = LatenessHistogram(counts)
    assert LatenessHistogram.from_text(histogram.text()) == histogram
    assert LatenessHistogram.from_text(histogram.text()).counts == [*counts, *[0] * (len(BOUNDS) + 1 - len(counts))]


def test_two_are_equal_if_they_count_the_same() -> None:
    assert histogram_of([1.0]) == histogram_of([1.0])
    assert histogram_of([1.0]) != histogram_of([2.0])
    assert histogram_of([1.0]) != [1]
    assert eval(repr(histogram_of([1.0]))) == histogram_of([1.0])


@pytest.mark.parametrize(
    "text",
    ["", "null", "7", "{}", "[-1]", "[1.0]", "[true]", '["1"]', "[NaN]", "[[1]]", f"{[0] * 60}", "[1", "[" * 100_000],
    ids=lambda text: text[:10],
)
def test_what_is_no_histogram_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"not a histogram|Expecting"):
        LatenessHistogram.from_text(text)
