"""The one thread of the process that looks at what is in progress."""

import logging
import threading
from time import sleep
from typing import Final, Generic, Protocol, TypeVar

from delaystore.forks import renew_in_children

logger: Final = logging.getLogger("delaystore.stores")

WATCH_NAME: Final = "delaystore.watch"
"""It lives as long as the process; `delaystore-...` are threads that end with what has started them."""
_LOOK_EVERY: Final = 0.25


class Watched(Protocol):
    """What is in progress, and looked at four times a second."""

    def look(self) -> None:
        """See how it is going; must not block."""
        ...


T = TypeVar("T", bound=Watched)


class Watch(Generic[T]):
    """Looks at the calls in progress, in a thread that starts with the first call and sleeps while there is none."""

    def __init__(self) -> None:
        self.renew()
        renew_in_children(self, Watch.renew)

    def renew(self) -> None:
        """Start afresh, at first and in a forked child, where the thread is missing."""
        self._calls: dict[int, T] = {}
        self._wanted = threading.Event()
        self._starting = threading.Lock()
        self._started = False

    def add(self, call: T) -> None:
        self._calls[id(call)] = call
        if not self._wanted.is_set():
            self._wanted.set()
            if not self._started:
                self._start()

    def remove(self, call: T) -> None:
        self._calls.pop(id(call), None)

    def all(self) -> list[T]:
        return list(self._calls.values())

    def _start(self) -> None:
        with self._starting:
            if self._started:
                return
            try:
                threading.Thread(target=self._run, name=WATCH_NAME, daemon=True).start()
            except RuntimeError:
                return  # no thread can be started now: the next call tries again
            self._started = True

    def _run(self) -> None:
        while True:
            self._wanted.wait()
            sleep(_LOOK_EVERY)
            for call in self.all():
                try:
                    call.look()
                except Exception:
                    logger.exception("watching a store call failed; the others are watched on")
            if not self._calls:
                self._wanted.clear()
                if self._calls:  # one has begun meanwhile
                    self._wanted.set()
