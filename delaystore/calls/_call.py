"""Calls to a store while they are in progress: slow ones are told, and those that take too long are ended.

A server that is frozen keeps its connections open and says nothing: nobody but the caller can end such a wait. One
thread of the process watches all calls.
"""

import threading
from asyncio import CancelledError
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from time import monotonic
from types import TracebackType
from typing import Final, Protocol, Self

from delaystore.calls._tasks import TaskCalls, current_task_calls
from delaystore.calls._watch import Watch
from delaystore.errors import StoreUnavailableError

SLOW: Final = 5.0
"""Seconds from which a call is slow."""
CUT_AFTER: Final = 3.0
"""Seconds that a server has for ending a call by itself, once it was asked to."""


class Interruptible(Protocol):
    """What a call waits for, such as a database connection."""

    def ask(self) -> None:
        """Ask the server to end the call; returns at once."""
        ...

    def cut(self) -> None:
        """End the wait: the call then fails."""
        ...

    def release(self) -> None:
        """Nobody will ask or cut any more."""
        ...


class CallWatcher(Protocol):
    """Who wants to know of calls in progress."""

    def in_progress(self, call: "Call") -> None:
        """Note that `call` is going on; called four times a second, from the watching thread."""
        ...


class Call:
    """One call in progress, a context manager that belongs to its thread, or its task on an event loop.

    `purpose`: what it is for, as in "storing a message". `limit`: seconds after which it is ended; None: never.
    Raises StoreUnavailableError in place of the StoreUnavailableError of a call that was ended.
    """

    __slots__ = (
        *("_before", "_began", "_lock", "_paused", "_task_calls", "_waits_for", "_watcher"),
        *("ended", "limit", "overdue", "purpose"),
    )

    def __init__(self, purpose: str, limit: float | None, watcher: CallWatcher | None = None) -> None:
        self.purpose = purpose
        self.limit = limit
        self.overdue = False
        """Whether it was to be ended."""
        self.ended = False
        self._watcher = watcher
        self._paused = False
        self._lock = threading.Lock()
        self._waits_for: Interruptible | None = None
        self._task_calls: TaskCalls | None = None
        self._before: Call | None = None
        self._began = 0.0

    @property
    def seconds(self) -> float:
        """For how long it has been going on, since it was last resumed; 0 while it is paused."""
        return 0.0 if self._paused else monotonic() - self._began

    @property
    def seconds_left(self) -> float | None:
        """For how much longer it may go on; None: for as long as it takes."""
        return None if self.limit is None else max(0.0, self.limit - self.seconds)

    def belongs_to(self, watcher: CallWatcher) -> bool:
        """Whether `watcher` is told of it."""
        return self._watcher is watcher

    def wait_for(self, waits_for: Interruptible | None) -> None:
        """Note what the call waits for from now on; None: nothing that could be ended. If it is overdue, end that."""
        with self._lock:
            former, self._waits_for = self._waits_for, waits_for
            if self.overdue and waits_for is not None:
                waits_for.cut()
        if former is not None:
            former.release()

    @property
    def waits_for(self) -> Interruptible | None:
        """What it waits for at present; None: nothing that could be ended."""
        return self._waits_for

    def look(self) -> None:
        """Tell the watcher, and end the call if it is due: first ask the server to, then cut."""
        seconds = self.seconds
        if self.limit is not None and seconds >= self.limit:
            self._end_it(cut=seconds >= self.limit + CUT_AFTER)
        if self._watcher is not None and not self.ended:
            self._watcher.in_progress(self)

    def _end_it(self, *, cut: bool) -> None:
        with self._lock:
            if self.ended:
                return
            asked, self.overdue = self.overdue, True
            if self._waits_for is not None and cut:
                self._waits_for.cut()
            elif self._task_calls is not None:
                if not asked:
                    self._task_calls.end(lambda: not self.ended)
            elif self._waits_for is not None and not asked:
                self._waits_for.ask()

    def pause(self) -> None:
        """The thread is busy with something else: the call begins anew when it is resumed."""
        self._paused = True
        _current.set(self._before)

    def resume(self) -> None:
        """Go on with the call."""
        self._began = monotonic()
        self._paused = False
        _current.set(self)

    def __enter__(self) -> Self:
        self._began = monotonic()
        self._before, self._task_calls = _current.get(), current_task_calls()
        _current.set(self)
        _watch.add(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        _watch.remove(self)
        _current.set(self._before)
        with self._lock:
            self.ended = True
            waits_for, self._waits_for = self._waits_for, None
        if waits_for is not None:
            waits_for.release()
        is_end = isinstance(error, StoreUnavailableError) or (
            isinstance(error, CancelledError) and self._task_calls is not None and self._task_calls.ended
        )
        if self.overdue and is_end:
            raise StoreUnavailableError(f"the store has not answered within {self.limit:g} s") from None


def current_call() -> Call | None:
    """The innermost call in progress of the calling thread, or task."""
    return _current.get()


@contextmanager
def elsewhere() -> Iterator[None]:
    """What the block does is no part of the call in progress, if there is one."""
    call = _current.get()
    if call is None:
        yield
        return
    call.pause()
    try:
        yield
    finally:
        call.resume()


def calls_of(watcher: CallWatcher) -> list[Call]:
    """The calls in progress that `watcher` is told of."""
    return [call for call in _watch.all() if call.belongs_to(watcher)]


_current: Final[ContextVar[Call | None]] = ContextVar("delaystore_call", default=None)
"""A thread has a context of its own, and so has a task; a greenlet of SQLAlchemy's has that of its task."""
_watch: Final = Watch[Call]()
