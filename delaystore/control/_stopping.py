"""Whether somebody has asked to stop."""

import threading
import time


class Stopping:
    """As an event, but a signal handler may `ask` although it interrupts the thread that waits.

    Condition's own lock can be taken again by its holder; that of threading.Event cannot.
    """

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self.asked = False

    def ask(self) -> None:
        """Ask to stop: whoever waits goes on."""
        with self._condition:
            self.asked = True
            self._condition.notify_all()

    def forget(self) -> None:
        """Begin anew."""
        self.asked = False

    def wait(self, seconds: float) -> None:
        """Wait for so long, or until somebody asks."""
        deadline = time.monotonic() + seconds
        with self._condition:
            while not self.asked and (left := deadline - time.monotonic()) > 0:
                self._condition.wait(left)
