"""Whether somebody has asked to stop."""

import threading
import time


class StopFlag:
    """As threading.Event, but a signal handler may `set` it although it interrupts the thread that waits.

    Condition's own lock can be taken again by its holder; that of threading.Event cannot.
    """

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._is_set = False

    def is_set(self) -> bool:
        """Whether somebody has asked."""
        return self._is_set

    def set(self) -> None:
        """Ask to stop: whoever waits goes on."""
        with self._condition:
            self._is_set = True
            self._condition.notify_all()

    def wait(self, seconds: float) -> bool:
        """Wait for so long, or until somebody asks; whether somebody has."""
        deadline = time.monotonic() + seconds
        with self._condition:
            while not self._is_set and (left := deadline - time.monotonic()) > 0:
                self._condition.wait(left)
        return self._is_set
