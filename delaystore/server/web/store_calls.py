"""Calls to store and broker: in threads, each with a time limit; reads that many readers share are cached."""

import asyncio
import math
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from datetime import UTC, datetime, timedelta
from threading import BoundedSemaphore
from time import monotonic
from typing import Final, Generic, TypeVar

from delaystore.errors import StoreUnavailableError
from delaystore.operations import Operations, Overview
from delaystore.processes import in_thread

AnswerT = TypeVar("AnswerT")

TIMEOUT: Final = 10.0
"""Seconds that a page waits for an answer."""
_MOST: Final = 48
"""Calls at the same time; more are refused, as the store seems to hang."""


class NoAnswerError(StoreUnavailableError):
    """The store gave no answer in time; the call goes on, and may still succeed."""


class Calls:
    """Makes calls for one application."""

    def __init__(self, seconds: float = TIMEOUT) -> None:
        self._seconds = seconds
        self._room = BoundedSemaphore(_MOST)

    async def __call__(self, call: Callable[[], AnswerT], seconds: float | None = None) -> AnswerT:
        """The result or error of `call`; NoAnswerError where that takes longer than `seconds` seconds.

        `call` goes on then, in its thread.
        """
        if not self._room.acquire(blocking=False):
            raise StoreUnavailableError("too many requests are waiting for the store; try again in a moment")
        limit = self._seconds if seconds is None else seconds
        task = asyncio.ensure_future(in_thread("delaystore-web", lambda: self._counted(call)))
        try:
            return await asyncio.wait_for(task, limit)
        except TimeoutError:
            raise NoAnswerError(f"the store did not answer within {limit:g} seconds") from None

    def _counted(self, call: Callable[[], AnswerT]) -> AnswerT:
        try:
            return call()
        finally:
            self._room.release()


FRESH: Final = 2.0
"""Seconds for which read data is shown to others."""
_OVERVIEW_TIMEOUT: Final = 4.0
_SHARE: Final = 20
"""Data that takes long to read is read again after this many times as long at the soonest."""
_OLDEST: Final = 10.0
"""Seconds after which an overview is read again in any case: it says whether the store answers."""
_WEEK: Final = timedelta(days=7)
_HOUR: Final = timedelta(hours=1)


class Shared(Generic[AnswerT]):
    """The answer of `ask`, asked in a thread: once at a time, however many wait for it.

    `is_whole`: whether an answer is one to rest on; a broken store may be repaired a moment later. `oldest`: seconds
    after which it is asked again, however long that takes.
    """

    def __init__(
        self,
        ask: Callable[[], AnswerT],
        fresh: float = FRESH,
        is_whole: Callable[[AnswerT], bool] = lambda _: True,
        oldest: float = math.inf,
    ) -> None:
        self._oldest = oldest
        self._ask = ask
        self._is_whole = is_whole
        self._least = fresh
        self._lock = threading.Lock()
        self._future: Future[AnswerT] | None = None
        self._fresh_until = 0.0

    async def __call__(self, seconds: float) -> AnswerT:
        """The answer, at most as old as the time that it took; raises as `ask`, StoreUnavailableError where it takes
        longer.
        """
        future = asyncio.wrap_future(self._current())
        try:
            return await asyncio.wait_for(asyncio.shield(future), seconds)
        except TimeoutError:
            future.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # another request asks again
            raise StoreUnavailableError(f"the store did not answer within {seconds:g} seconds") from None

    def forget(self) -> None:
        """Have the next one ask again, as something was changed."""
        with self._lock:
            self._fresh_until = 0.0

    def _current(self) -> "Future[AnswerT]":
        with self._lock:
            if self._future is None or (self._future.done() and monotonic() >= self._fresh_until):
                self._future = Future()
                thread = threading.Thread(target=self._run, args=(self._future,), name="delaystore-web", daemon=True)
                thread.start()
            return self._future

    def _run(self, future: "Future[AnswerT]") -> None:
        began = monotonic()
        try:
            answer = self._ask()
        except BaseException as error:
            self._rest(monotonic() - began)
            future.set_exception(error)
        else:
            self._rest((_SHARE if self._is_whole(answer) else 1) * (monotonic() - began))
            future.set_result(answer)

    def _rest(self, seconds: float) -> None:
        with self._lock:
            self._fresh_until = monotonic() + min(max(self._least, seconds), self._oldest)


class CachedOverview:
    """The overview, the due times and the backlog, cached for the first screen and the destinations."""

    def __init__(self, operations: Callable[[], Operations]) -> None:
        self.overview: Shared[Overview] = Shared(
            lambda: operations().overview(_OVERVIEW_TIMEOUT),
            is_whole=lambda found: found.problem is None,
            oldest=_OLDEST,
        )
        self.due: Shared[Mapping[datetime, int]] = Shared(lambda: _due(operations()), 10.0)
        self.backlog: Shared[Mapping[str, int]] = Shared(lambda: operations().backlog(200), 5.0)

    def forget(self) -> None:
        """Read everything again, as something was changed."""
        for shared in (self.overview, self.due, self.backlog):
            shared.forget()


def _due(operations: Operations) -> Mapping[datetime, int]:
    now = operations.now()
    first = now.replace(minute=0, second=0, microsecond=0)
    counts = operations.due(first, first + _WEEK, _HOUR)
    hours = (first + number * _HOUR for number in range(int(_WEEK / _HOUR)))
    return {hour: counts.get(hour.astimezone(UTC), 0) for hour in hours}
