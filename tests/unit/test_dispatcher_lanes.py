"""The second lane's thread."""

import threading

from delaystore.dispatcher.lanes import HelperLane
from tests.dispatching import PATIENCE, wait_until


class InterruptedEvent(threading.Event):
    """Has `ender` run just before the first `clear`, up to where it sets the event."""

    def __init__(self, ender: threading.Thread) -> None:
        super().__init__()
        self._ender = ender
        self._set_again = threading.Event()

    def set(self) -> None:
        super().set()
        if threading.current_thread() is self._ender:
            self._set_again.set()

    def clear(self) -> None:
        if self._ender.ident is None:
            self._ender.start()
            assert self._set_again.wait(PATIENCE)
        super().clear()


def test_an_end_that_comes_while_the_lane_takes_up_its_work_is_not_overlooked() -> None:
    lane = HelperLane("lane", lambda: None)
    ender = threading.Thread(target=lane.end, daemon=True)
    lane._wanted = InterruptedEvent(ender)
    lane.engage()
    wait_until(lambda: ender.ident is not None)
    ender.join(PATIENCE)
    assert not ender.is_alive()


def test_a_lane_does_its_work_each_time_it_is_engaged_and_then_ends() -> None:
    done = threading.Semaphore(0)
    lane = HelperLane("lane", lambda: done.release())
    for _ in range(3):
        lane.engage()
        assert done.acquire(timeout=PATIENCE)
    lane.end()
    assert "lane" not in [thread.name for thread in threading.enumerate()]
