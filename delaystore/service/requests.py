"""What a service is asked to do."""

from enum import Enum, auto
from queue import Empty, SimpleQueue


class Request(Enum):
    """One thing that a service is asked to do."""

    STOP = auto()
    RELOAD = auto()


class Requests:
    """What signal handlers ask of a service. They may do so at any time, also before there is one.

    `stopping`: whether it is to stop.
    """

    def __init__(self) -> None:
        self.stopping = False
        self._made: SimpleQueue[Request] = SimpleQueue()

    def stop(self) -> None:
        """Ask it to stop."""
        self.stopping = True
        self._made.put(Request.STOP)

    def reload(self) -> None:
        """Ask it to read its configuration again."""
        self._made.put(Request.RELOAD)

    def next(self, seconds: float) -> Request | None:
        """Wait for one, for so long at most; None: there was none. Many that came since the last call are one."""
        try:
            found = [self._made.get(timeout=seconds)]
        except Empty:
            return None
        while not self._made.empty():
            found.append(self._made.get())
        return Request.STOP if Request.STOP in found else Request.RELOAD
