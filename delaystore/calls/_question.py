"""Questions to a store that need not be waited for."""

import threading
from collections.abc import Callable
from time import monotonic
from typing import Generic, TypeVar

from delaystore.calls._call import Call
from delaystore.errors import StoreUnavailableError

T = TypeVar("T")


class Question(Generic[T]):
    """A question to a store, asked in a thread of its own, for whoever will not wait for as long as it takes.

    After `seconds` the answer is that there is none. The thread ends when the store answers or the connection ends.
    """

    def __init__(self, purpose: str, ask: Callable[[], T], seconds: float) -> None:
        self._call = Call(purpose, seconds)
        self._ask = ask
        self._seconds = seconds
        self._began = monotonic()
        self._ends = self._began + seconds
        self._done = threading.Event()
        self._answer: list[T] = []
        self._error: Exception | None = None
        threading.Thread(target=self._run, name="delaystore-question", daemon=True).start()

    @property
    def open(self) -> bool:
        """Whether there is no answer yet."""
        return not self._done.is_set()

    @property
    def age(self) -> float:
        """Seconds since it was asked."""
        return monotonic() - self._began

    @property
    def too_late(self) -> bool:
        """Whether there was no answer in time."""
        return self._call.overdue or (self.open and monotonic() >= self._ends)

    def answered_within(self, seconds: float) -> bool:
        """Wait up to `seconds`; whether it is over by then, with an answer or an error, so that `answer` is instant."""
        return self._done.wait(max(0.0, seconds))

    def answer(self) -> T:
        """Wait for the answer. Raises StoreUnavailableError where there is none in time, and what asking raised."""
        self._done.wait(min(max(0.0, self._ends - monotonic()), threading.TIMEOUT_MAX))
        if self.open or self._call.overdue:
            raise StoreUnavailableError(f"the store does not answer within {round(self._seconds, 2):g} s")
        if self._error is not None:
            raise self._error
        return self._answer[0]

    def _run(self) -> None:
        try:
            with self._call:
                self._answer.append(self._ask())
        except Exception as error:
            self._error = error
        finally:
            self._done.set()
