"""A second thread for backlogs."""

import threading
from collections.abc import Callable


class Worker:
    """A thread that does `work` each time it is engaged, so that one batch is claimed while another is in flight.

    It is started when first needed. `work` must not raise.
    """

    def __init__(self, name: str, work: Callable[[], None]) -> None:
        self._name = name
        self._work = work
        self._wanted = threading.Event()
        self._ended = False
        self._thread: threading.Thread | None = None

    def engage(self) -> None:
        """Do the work (again); returns at once, and does nothing while it is being done."""
        self._wanted.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            try:
                self._thread.start()
            except RuntimeError:
                self._thread = None  # no thread can be started: one must do

    def is_current_thread(self) -> bool:
        """Whether the caller is this worker's thread."""
        return threading.current_thread() is self._thread

    def end(self) -> None:
        """Wait until the work in hand is done, and end the thread."""
        self._ended = True
        self._wanted.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while True:
            self._wanted.wait()
            # Cleared before `_ended` is read: in the other order, an end() between the two would be missed.
            self._wanted.clear()
            if self._ended:
                return
            self._work()
