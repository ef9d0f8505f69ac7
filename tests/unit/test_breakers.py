import threading
from datetime import timedelta

import pytest

from delaystore.breakers import BreakerState, FailureRateCircuitBreaker, RepeatedFailuresOverTimeCircuitBreaker
from tests.dispatching import Seconds

OUTAGE = ConnectionError("the broker is gone")


@pytest.fixture
def seconds() -> Seconds:
    return Seconds()


@pytest.fixture
def calls() -> list[tuple[str, Exception]]:
    return []


@pytest.fixture
def breaker(seconds: Seconds, calls: list[tuple[str, Exception]]) -> RepeatedFailuresOverTimeCircuitBreaker:
    return RepeatedFailuresOverTimeCircuitBreaker(
        "forwarding", timedelta(seconds=30), lambda text, error: calls.append((text, error)), seconds
    )


def test_the_first_failure_arms_it_and_asks_for_a_second(
    breaker: RepeatedFailuresOverTimeCircuitBreaker, calls: list[tuple[str, Exception]]
) -> None:
    assert breaker.state is BreakerState.DISARMED
    assert breaker.failure(OUTAGE) == 1
    assert breaker.state is BreakerState.ARMED
    assert not calls


def test_failures_for_the_whole_time_trigger_it_once_and_ask_for_ten_seconds(
    breaker: RepeatedFailuresOverTimeCircuitBreaker, seconds: Seconds, calls: list[tuple[str, Exception]]
) -> None:
    breaker.failure(OUTAGE)
    seconds.now += 29.9
    assert breaker.failure(OUTAGE) == 1
    seconds.now += 0.1
    assert breaker.failure(OUTAGE) == 10
    assert breaker.failure(OUTAGE) == 10
    assert breaker.state is BreakerState.TRIGGERED
    assert calls == [("forwarding has failed for 30 s without a success in between", OUTAGE)]


def test_a_success_disarms_it_and_the_time_begins_anew(
    breaker: RepeatedFailuresOverTimeCircuitBreaker, seconds: Seconds, calls: list[tuple[str, Exception]]
) -> None:
    breaker.failure(OUTAGE)
    seconds.now += 20
    breaker.success()
    assert breaker.state is BreakerState.DISARMED
    breaker.failure(OUTAGE)
    seconds.now += 20
    assert breaker.failure(OUTAGE) == 1
    assert not calls


def test_once_recovered_it_triggers_again(
    breaker: RepeatedFailuresOverTimeCircuitBreaker, seconds: Seconds, calls: list[tuple[str, Exception]]
) -> None:
    for _ in range(2):
        breaker.failure(OUTAGE)
        seconds.now += 30
        breaker.failure(OUTAGE)
        breaker.success()
    assert len(calls) == 2


def test_it_logs_the_beginning_the_trigger_and_the_recovery_in_one_line_each(
    breaker: RepeatedFailuresOverTimeCircuitBreaker, seconds: Seconds, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(5):
        breaker.failure(OUTAGE)
        seconds.now += 15
    breaker.success()
    breaker.success()
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", "forwarding fails: the broker is gone; will retry"),
        ("CRITICAL", "forwarding has failed for 30 s without a success in between: the broker is gone"),
        ("WARNING", "forwarding works again"),
    ]
    assert all(record.exc_info is None for record in caplog.records)


def test_failures_and_successes_in_turn_are_a_pair_of_lines_in_ten_seconds_with_their_number(
    breaker: RepeatedFailuresOverTimeCircuitBreaker, seconds: Seconds, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(71):
        breaker.failure(OUTAGE)
        breaker.success()
    seconds.now += 10
    breaker.failure(OUTAGE)
    breaker.success()
    assert [record.getMessage() for record in caplog.records] == [
        "forwarding fails: the broker is gone; will retry",
        "forwarding works again",
        "forwarding fails (71 times since the last such line, with successes in between): "
        "the broker is gone; will retry",
        "forwarding works again",
    ]


def test_an_outage_that_lasts_is_logged_though_it_began_soon_after_another(
    breaker: RepeatedFailuresOverTimeCircuitBreaker, seconds: Seconds, caplog: pytest.LogCaptureFixture
) -> None:
    breaker.failure(OUTAGE)
    breaker.success()
    for _ in range(3):
        seconds.now += 4
        breaker.failure(OUTAGE)
    assert [record.getMessage() for record in caplog.records] == [
        "forwarding fails: the broker is gone; will retry",
        "forwarding works again",
        "forwarding fails: the broker is gone; will retry",
    ]


def test_the_end_of_an_outage_that_triggered_it_is_always_logged(
    seconds: Seconds, caplog: pytest.LogCaptureFixture
) -> None:
    breaker = RepeatedFailuresOverTimeCircuitBreaker("forwarding", timedelta(seconds=1), None, seconds)
    for _ in range(2):
        breaker.failure(OUTAGE)
        seconds.now += 1
        breaker.failure(OUTAGE)
        breaker.success()
    lines = [record.getMessage() for record in caplog.records]
    assert lines.count("forwarding works again") == 2


def test_an_action_that_raises_is_logged_and_harms_nobody(seconds: Seconds, caplog: pytest.LogCaptureFixture) -> None:
    def action(description: str, error: Exception) -> None:
        raise RuntimeError("the pager is out of order")

    breaker = RepeatedFailuresOverTimeCircuitBreaker("forwarding", timedelta(seconds=1), action, seconds)
    breaker.failure(OUTAGE)
    seconds.now += 1
    assert breaker.failure(OUTAGE) == 10
    assert "the pager is out of order" in caplog.text


def test_threads_that_fail_at_once_trigger_it_once(seconds: Seconds, calls: list[tuple[str, Exception]]) -> None:
    breaker = RepeatedFailuresOverTimeCircuitBreaker(
        "forwarding", timedelta(seconds=1), lambda text, error: calls.append((text, error)), seconds
    )
    breaker.failure(OUTAGE)
    seconds.now += 1
    threads = [threading.Thread(target=breaker.failure, args=(OUTAGE,)) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(calls) == 1


def test_more_failures_than_the_rate_allows_in_a_window_trigger_it_once(
    seconds: Seconds, calls: list[tuple[str, Exception]]
) -> None:
    breaker = FailureRateCircuitBreaker("recovery", 1, lambda text, error: calls.append((text, error)), seconds)
    assert breaker.state is BreakerState.DISARMED
    for _ in range(30):
        breaker.failure(OUTAGE)
    assert breaker.state is BreakerState.ARMED
    breaker.failure(OUTAGE)
    breaker.failure(OUTAGE, 1000)
    assert breaker.state is BreakerState.TRIGGERED
    assert len(calls) == 1


def test_the_end_of_the_window_disarms_the_rate_breaker(seconds: Seconds, calls: list[tuple[str, Exception]]) -> None:
    breaker = FailureRateCircuitBreaker("recovery", 0.1, lambda text, error: calls.append((text, error)), seconds)
    breaker.failure(OUTAGE, 3)
    seconds.now += 30
    assert breaker.state is BreakerState.DISARMED
    breaker.failure(OUTAGE, 3)
    assert breaker.state is BreakerState.ARMED
    assert not calls


def test_a_call_that_goes_on_for_long_triggers_it_though_another_has_just_failed(
    breaker: RepeatedFailuresOverTimeCircuitBreaker, seconds: Seconds
) -> None:
    seconds.now += 29
    breaker.failure(OUTAGE)
    seconds.now += 1
    assert breaker.would_trigger(30)
    breaker.failure(OUTAGE, lasted=30)
    assert breaker.state is BreakerState.TRIGGERED
