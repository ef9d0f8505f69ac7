from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delaystore.dispatcher._retries import back_off, next_attempt
from delaystore.message import LATEST_DUE_TIME

QUARTER = timedelta(minutes=15)
TICK = timedelta(microseconds=1)


def gaps(retries: int, span: timedelta, random: float = 0.0) -> list[timedelta]:
    return [back_off(failure, retries, span, lambda: random) for failure in range(1, retries + 1)]


@given(
    retries=st.integers(1, 60),
    span=st.timedeltas(timedelta(milliseconds=10), timedelta(days=30)),
    random=st.floats(0, 1),
)
def test_the_gaps_add_up_to_at_least_the_span(retries: int, span: timedelta, random: float) -> None:
    assert sum(gaps(retries, span, random), timedelta()) >= span - TICK * retries


@given(retries=st.integers(1, 60), span=st.timedeltas(timedelta(milliseconds=10), timedelta(days=30)))
def test_the_gaps_never_shrink(retries: int, span: timedelta) -> None:
    assert gaps(retries, span) == sorted(gaps(retries, span))


@given(retries=st.integers(1, 60), span=st.timedeltas(timedelta(minutes=1), timedelta(days=30)))
def test_no_gap_is_shorter_than_a_second(retries: int, span: timedelta) -> None:
    assert min(gaps(retries, span)) >= timedelta(seconds=1)


def test_the_default_gaps_grow_fourfold() -> None:
    seconds = [gap.total_seconds() for gap in gaps(5, QUARTER)]
    assert [round(later / sooner, 3) for sooner, later in pairwise(seconds)] == [4, 4, 4, 4]
    assert 2 < seconds[0] < 3


def test_jitter_only_lengthens_a_gap_and_by_a_fifth_at_most() -> None:
    assert back_off(3, 5, QUARTER, lambda: 1.0) / back_off(3, 5, QUARTER, lambda: 0.0) == pytest.approx(1.2)


def test_a_tiny_span_is_kept_in_proportion() -> None:
    assert sum(gaps(5, timedelta(milliseconds=50)), timedelta()) < timedelta(milliseconds=150)


@pytest.mark.parametrize("retries", [0, 5])
def test_what_neither_queue_takes_is_tried_each_minute(retries: int) -> None:
    assert back_off(retries + 1, retries, QUARTER, lambda: 0.0) == timedelta(minutes=1)
    assert back_off(retries + 900, retries, QUARTER, lambda: 0.0) == timedelta(minutes=1)


def test_very_many_retries_overflow_nothing() -> None:
    assert back_off(1, 1_000_000, timedelta(days=100), lambda: 0.0) >= timedelta(seconds=1)


def test_a_next_attempt_past_the_end_of_time_is_the_latest_there_is() -> None:
    assert next_attempt(datetime(9999, 1, 1, tzinfo=UTC), timedelta(days=900_000)) == LATEST_DUE_TIME
    assert next_attempt(datetime(9999, 12, 29, tzinfo=UTC), timedelta(days=2)) == LATEST_DUE_TIME
