import math
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta

import pytest

from delaystore.dispatcher._context import WakeUp
from tests.dispatching import NOON, PATIENCE, wait_until

HOUR = 3600.0
SECOND = timedelta(seconds=1)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


@pytest.fixture
def wake(pool: ThreadPoolExecutor) -> Iterator[WakeUp]:
    wake = WakeUp()
    yield wake
    wake.stop()


def sleep(wake: WakeUp, pool: ThreadPoolExecutor, **how: float) -> "Future[None]":
    """Sleep in another thread, until that has begun."""
    sleeping = pool.submit(wake.sleep, NOON, NOON + timedelta(hours=1), how.get("at_most", HOUR), lambda: True)
    wait_until(lambda: sleeping.running() and waiters(wake))
    return sleeping


def waiters(wake: WakeUp) -> int:
    return len(wake._condition._waiters)  # type: ignore[attr-defined]


def test_a_wake_up_for_now_ends_the_sleep(wake: WakeUp, pool: ThreadPoolExecutor) -> None:
    sleeping = sleep(wake, pool)
    wake.wake_up(None)
    sleeping.result(PATIENCE)


def test_a_wake_up_for_an_earlier_time_sets_the_deadline_and_does_not_end_the_sleep(
    wake: WakeUp, pool: ThreadPoolExecutor
) -> None:
    sleeping = sleep(wake, pool)
    wake.wake_up(NOON + timedelta(seconds=1800))
    with pytest.raises(TimeoutError):
        sleeping.result(0.3)
    wake.wake_up(NOON + timedelta(seconds=0.5))
    sleeping.result(PATIENCE)


def test_a_wake_up_for_later_than_planned_costs_not_even_the_lock(wake: WakeUp, pool: ThreadPoolExecutor) -> None:
    sleeping = sleep(wake, pool)
    with wake._condition:
        pool_of_sender = threading.Thread(target=wake.wake_up, args=(NOON + timedelta(hours=2),))
        pool_of_sender.start()
        pool_of_sender.join(PATIENCE)
        assert not pool_of_sender.is_alive()
    assert not sleeping.done()


def test_a_wake_up_before_the_sleep_is_remembered(wake: WakeUp) -> None:
    wake.begin()
    wake.wake_up(NOON)
    wake.sleep(NOON, NOON + timedelta(hours=1), HOUR, lambda: True)


def test_what_is_due_at_an_earlier_time_before_the_sleep_is_remembered(wake: WakeUp, pool: ThreadPoolExecutor) -> None:
    wake.begin()
    wake.wake_up(NOON + timedelta(seconds=0.5))
    began = time.monotonic()
    wake.sleep(NOON, NOON + timedelta(hours=1), HOUR, lambda: True)
    assert time.monotonic() - began >= 0.5


def test_beginning_to_look_forgets_earlier_wake_ups(wake: WakeUp, pool: ThreadPoolExecutor) -> None:
    wake.wake_up(None)
    wake.begin()
    assert not sleep(wake, pool).done()


def test_no_wake_up_is_lost_between_looking_and_sleeping(wake: WakeUp) -> None:
    stored: list[int] = []
    seen = 0

    def send() -> None:
        for number in range(2000):
            stored.append(number)
            wake.wake_up(None)

    sender = threading.Thread(target=send)
    sender.start()
    deadline = time.monotonic() + PATIENCE
    while seen < 2000:
        wake.begin()
        seen = len(stored)
        if seen < 2000:
            wake.sleep(NOON, None, HOUR, lambda: True)
        assert time.monotonic() < deadline
    sender.join()


def test_a_time_that_has_passed_is_no_sleep(wake: WakeUp) -> None:
    wake.sleep(NOON, NOON - timedelta(days=9), HOUR, lambda: True)


@pytest.mark.parametrize("at_most", [0.0, -5.0, math.nan, -math.inf])
def test_a_senseless_length_is_no_sleep(wake: WakeUp, at_most: float) -> None:
    wake.sleep(NOON, None, at_most, lambda: True)
    wake.pause(at_most)


def test_an_endless_sleep_is_bounded_and_can_be_ended(wake: WakeUp, pool: ThreadPoolExecutor) -> None:
    sleeping = sleep(wake, pool, at_most=math.inf)
    wake.stop()
    sleeping.result(PATIENCE)


def test_a_sleeper_that_is_disturbed_wakes(wake: WakeUp, pool: ThreadPoolExecutor) -> None:
    calm = threading.Event()
    calm.set()
    sleeping = pool.submit(wake.sleep, NOON, None, HOUR, calm.is_set)
    wait_until(lambda: waiters(wake))
    calm.clear()
    sleeping.result(PATIENCE)


def test_a_pause_is_ended_by_no_wake_up_but_by_stop(wake: WakeUp, pool: ThreadPoolExecutor) -> None:
    pausing = pool.submit(wake.pause, HOUR)
    wait_until(lambda: waiters(wake))
    wake.wake_up(None)
    with pytest.raises(TimeoutError):
        pausing.result(0.3)
    wake.stop()
    pausing.result(PATIENCE)


def test_a_pause_is_over_when_its_condition_says_so(wake: WakeUp, pool: ThreadPoolExecutor) -> None:
    over = threading.Event()
    pausing = pool.submit(wake.pause, HOUR, over.is_set)
    wait_until(lambda: waiters(wake))
    over.set()
    pausing.result(PATIENCE)


def test_nothing_sleeps_once_stopped(wake: WakeUp) -> None:
    wake.stop()
    wake.sleep(NOON, None, HOUR, lambda: True)
    wake.pause(HOUR)
    assert wake.stopped
