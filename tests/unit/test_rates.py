"""Rates as people write them; what a limit lets go, and what it promises to the others."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from delaystore.clock import RateLimit
from delaystore.errors import ConfigurationError
from delaystore.stores.records import FURTHEST
from delaystore.stores.shared import FASTEST, SLOWEST, Bucket, allowed, check_max_rate


@given(st.floats(0.5, 5000), st.lists(st.tuples(st.floats(0, 2), st.integers(0, 500)), max_size=30))
def test_no_more_goes_than_the_rate_allows(rate: float, steps: list[tuple[float, int]]) -> None:
    now = 0.0
    limit = RateLimit(rate, lambda: now)
    gone = 0
    for pause, wanted in steps:
        now += pause
        granted = limit.take(wanted)
        assert 0 <= granted <= wanted
        gone += granted
        assert gone <= max(1.0, rate * 0.1) + rate * now + 1e-6


def test_the_rate_is_reached_and_without_one_there_is_no_limit() -> None:
    now = 0.0
    limit = RateLimit(100, lambda: now)
    gone = 0
    for _ in range(200):
        now += 0.05
        gone += limit.take(1000)
    assert gone >= 0.99 * 100 * now
    assert RateLimit(None).take(10**9) == 10**9


def test_waiting_lets_at_least_one_go() -> None:
    limit = RateLimit(100)
    assert limit.wait(0) == 0
    assert limit.wait(1000) == 10
    assert limit.take(1000) < 10
    assert 1 <= limit.wait(1000) <= 10


NOON = datetime(2031, 1, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
RATES = st.floats(SLOWEST, 1000) | st.sampled_from([1.0, 2.0, 2.5, 3.0, 10.0, 300_000.0, FASTEST])
ASKED = st.lists(st.tuples(st.floats(0, 3), st.integers(0, 50)), max_size=40)


@settings(deadline=None)
@given(RATES, ASKED)
@example(3.0, [(1 / 3, 1)] * 40)
@example(0.7, [(0.1, 5)] * 40)
def test_no_more_go_than_the_limit_says(rate: float, asked: list[tuple[float, int]]) -> None:
    bucket, now, gone = Bucket.full(NOON), NOON, [(NOON, 0)]
    for seconds, wanted in asked:
        now += timedelta(seconds=seconds)
        allowance, bucket = allowed(bucket, rate, now, wanted)
        assert allowance.granted + len(allowance.later) == wanted
        gone.append((now, allowance.granted))
    for begin in range(len(gone)):
        since, total = gone[begin][0], 0
        for at, granted in gone[begin:]:
            total += granted
            assert total <= max(1.0, rate) + rate * (at - since).total_seconds() + 1e-6


@settings(deadline=None)
@given(st.sampled_from([0.5, 1.0, 3.0, 7.0, 10.0, 250.0]), st.integers(1, 8))
def test_who_always_asks_for_more_gets_all_that_the_limit_says(rate: float, turns: int) -> None:
    bucket, now, total = Bucket.full(NOON), NOON, 0
    for _ in range(turns * 10):
        allowance, bucket = allowed(bucket, rate, now, 300)
        total += allowance.granted
        now += SECOND / 10
    passed = (turns * 10 - 1) / 10
    assert total >= max(1.0, rate) + rate * passed - 1.01


@settings(deadline=None)
@given(RATES, ASKED)
def test_a_time_is_given_once_and_evenly(rate: float, asked: list[tuple[float, int]]) -> None:
    bucket, now, given_before = Bucket.full(NOON), NOON, NOON
    for seconds, wanted in asked:
        was, now = bucket, now + timedelta(seconds=seconds)
        allowance, bucket = allowed(bucket, rate, now, wanted)
        times = allowance.later
        assert list(times) == sorted(times)
        assert all(now < each <= now + FURTHEST for each in times)
        apart = timedelta(seconds=1 / rate)
        for sooner, later in pairwise(times):
            assert abs(later - sooner - apart) <= timedelta(microseconds=1) or later == now + FURTHEST
        if times and now - was.full_at <= SECOND:
            assert times[0] > given_before or times[0] == now + FURTHEST
        given_before = times[-1] if times else given_before


def test_who_comes_at_the_promised_time_may_go() -> None:
    allowance, bucket = allowed(Bucket.full(NOON), 4, NOON, 10)
    assert allowance.granted == 4
    for at in allowance.later:
        again, bucket = allowed(bucket, 4, at, 1)
        assert again.granted == 1


def test_promises_that_nobody_came_for_do_not_hold_others_up() -> None:
    _, bucket = allowed(Bucket.full(NOON), 2, NOON, 1000)
    now = NOON + timedelta(seconds=30)
    allowance, _ = allowed(bucket, 2, now, 5)
    assert allowance.granted == 2
    assert list(allowance.later) == [now + SECOND / 2, now + SECOND, now + 3 * SECOND / 2]


def test_forgiven_promises_count_no_more_but_what_is_gone_does() -> None:
    _, bucket = allowed(Bucket.full(NOON), 2, NOON, 1000)
    allowance, _ = allowed(bucket.forgiven(NOON), 2, NOON, 2)
    assert (allowance.granted, list(allowance.later)) == (0, [NOON + SECOND / 2, NOON + SECOND])


def test_a_clock_that_steps_back_holds_nobody_up_for_long() -> None:
    _, bucket = allowed(Bucket.full(NOON), 2, NOON, 10)
    before = NOON - timedelta(days=1)
    allowance, bucket = allowed(bucket, 2, before, 3)
    assert allowance.granted == 0
    assert allowance.later[0] <= before + FURTHEST
    assert allowed(bucket, 2, before + SECOND, 3)[0].granted == 2


def test_a_lower_limit_holds_at_once() -> None:
    _, bucket = allowed(Bucket.full(NOON), 1000, NOON, 500)
    total = 0
    for tenth in range(100):
        allowance, bucket = allowed(bucket, 1, NOON + tenth * SECOND / 10, 5)
        total += allowance.granted
    assert total <= 11


@pytest.mark.parametrize("rate", [0, -1, 0.0001, 2e6, float("nan"), float("inf"), True, "7", [7]], ids=repr)
def test_what_is_no_limit_is_refused(rate: float) -> None:
    with pytest.raises(ConfigurationError, match="max_rate must be a number of messages a second"):
        check_max_rate(rate)


def test_a_limit_is_a_float_or_none() -> None:
    assert check_max_rate(None) is None
    assert check_max_rate(5) == 5.0
