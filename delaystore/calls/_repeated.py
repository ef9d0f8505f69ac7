"""Questions to a store that are asked again and again."""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from delaystore.calls._question import Question

T = TypeVar("T")


class Repeated(Generic[T]):
    """A question that is never asked twice at once: a store that hangs keeps one thread. Threads may share it."""

    def __init__(self, purpose: str, ask: Callable[[], T]) -> None:
        self._purpose = purpose
        self._ask = ask
        self._lock = threading.Lock()
        self._last: Question[T] | None = None

    def question(self, seconds: float, fresh: float = 0.0) -> Question[T]:
        """The last question, if it has no answer yet or is not `fresh` seconds old; else a new one, for `seconds`."""
        with self._lock:
            last = self._last
            if last is None or not (last.open or last.age < fresh):
                last = self._last = Question(self._purpose, self._ask, seconds)
            return last
