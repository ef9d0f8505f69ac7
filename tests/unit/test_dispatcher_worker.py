"""The second worker."""

import threading

from delaystore.dispatcher._context import Worker
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


def test_an_end_that_comes_while_the_worker_takes_up_its_work_is_not_overlooked() -> None:
    worker = Worker("worker", lambda: None)
    ender = threading.Thread(target=worker.end, daemon=True)
    worker._wanted = InterruptedEvent(ender)
    worker.engage()
    wait_until(lambda: ender.ident is not None)
    ender.join(PATIENCE)
    assert not ender.is_alive()


def test_a_worker_does_its_work_each_time_it_is_engaged_and_then_ends() -> None:
    done = threading.Semaphore(0)
    worker = Worker("worker", lambda: done.release())
    for _ in range(3):
        worker.engage()
        assert done.acquire(timeout=PATIENCE)
    worker.end()
    assert "worker" not in [thread.name for thread in threading.enumerate()]
