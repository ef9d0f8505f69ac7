from hypothesis import given
from hypothesis import strategies as st

from delaystore.clock import RateLimit


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
