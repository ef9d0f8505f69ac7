"""Components of a service that die are started again, with pauses, and never silently."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from itertools import pairwise

import pytest

from delaystore.errors import StoreUnavailableError
from delaystore.server.runner import Runner, drained
from tests.dispatching import wait_until


class ToyComponent:
    """Runs until it is stopped, or `fate`, which may raise, ends it."""

    def __init__(self, fate: Callable[[], object] | None = None) -> None:
        self._fate = fate
        self._stopped = threading.Event()
        self.began = threading.Event()

    def run(self) -> None:
        self.began.set()
        if self._fate is not None:
            self._fate()
        else:
            self._stopped.wait()

    def stop(self) -> None:
        self._stopped.set()

    def problems(self) -> Sequence[str]:
        return []


def failing(error: Exception) -> Callable[[], object]:
    def fail() -> None:
        raise error

    return fail


def test_a_part_that_dies_is_started_again_and_each_reason_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    healthy = ToyComponent()
    made = [
        ToyComponent(failing(ValueError("broken"))),
        ToyComponent(failing(ValueError("broken"))),
        ToyComponent(lambda: None),
        healthy,
    ]
    runner = Runner("toy", lambda: made.pop(0), pause=0.01)
    assert runner.problems() == ["it is starting"]
    runner.start()
    assert healthy.began.wait(10)
    assert runner.problems() == []
    assert runner.is_alive
    runner.stop()
    assert runner.ended(10)
    told = [(each.levelno, each.getMessage()) for each in caplog.records]
    assert [level for level, _ in told] == [logging.ERROR, logging.ERROR]
    assert told[0][1].startswith("toy: it died: ValueError: broken; it is started again within ")
    assert "toy: it died: it ended without being asked to" in told[1][1]
    assert caplog.records[0].exc_info is not None


def test_a_part_that_waits_for_a_server_says_so_and_is_no_fault(caplog: pytest.LogCaptureFixture) -> None:
    runner = Runner("toy", lambda: ToyComponent(failing(StoreUnavailableError("no database"))), pause=0.01)
    runner.start()
    wait_until(lambda: runner.problems() == ["no database"])
    runner.stop()
    assert runner.ended(10)
    assert {(each.levelno, each.getMessage()) for each in caplog.records} == {
        (logging.WARNING, "toy waits: no database")
    }


def test_a_part_that_cannot_be_made_is_tried_again() -> None:
    healthy = ToyComponent()
    tries = iter([failing(StoreUnavailableError("not yet")), lambda: healthy])
    runner = Runner("toy", lambda: next(tries)(), pause=0.01)
    runner.start()
    assert healthy.began.wait(10)
    runner.stop()
    assert runner.ended(10)


def test_pauses_grow() -> None:
    times: list[float] = []

    def make() -> ToyComponent:
        times.append(time.monotonic())
        return ToyComponent(failing(ValueError("broken")))

    runner = Runner("toy", make, pause=0.05)
    runner.start()
    wait_until(lambda: len(times) == 4)
    runner.stop()
    assert runner.ended(10)
    first, second, third = (after - before for before, after in pairwise(times))
    assert 0.05 <= first < second < third


def test_a_part_that_is_stopped_before_it_begins_ends() -> None:
    begin = threading.Event()
    component = ToyComponent()

    def make() -> ToyComponent:
        begin.wait(10)
        return component

    runner = Runner("toy", make)
    runner.start()
    runner.stop()
    begin.set()
    assert runner.ended(10)


def test_parts_end_in_turns_and_those_that_do_not_are_named() -> None:
    free = threading.Event()
    order: list[str] = []

    def run(name: str) -> Runner:
        class Ending(ToyComponent):
            def run(self) -> None:
                super().run()
                order.append(name)

        component = Ending()
        runner = Runner(name, lambda: component)
        runner.start()
        assert component.began.wait(10)
        return runner

    stuck = Runner("stuck", lambda: ToyComponent(free.wait))
    stuck.start()
    turns = [[run("intake"), stuck], [run("forwarding")]]
    heartbeats: list[float] = []

    def heartbeat() -> bool:
        heartbeats.append(time.monotonic())
        return True

    try:
        unfinished = drained(turns, time.monotonic() + 1.2, heartbeat)
    finally:
        free.set()
    assert unfinished == ["stuck"]
    assert order == ["intake", "forwarding"]
    assert len(heartbeats) >= 2
    assert stuck.ended(10)


def test_all_of_a_turn_are_told_before_the_first_is_waited_for() -> None:
    second = ToyComponent()
    first = ToyComponent(lambda: second._stopped.wait(10))
    runners = [Runner("first", lambda: first), Runner("second", lambda: second)]
    for runner, component in zip(runners, (first, second), strict=True):
        runner.start()
        assert component.began.wait(10)
    assert drained([runners], time.monotonic() + 5, lambda: True) == []
