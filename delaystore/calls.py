"""Calls to a store while they are in progress: slow ones are told, and those that take too long are ended.

A server that is frozen keeps its connections open and says nothing: nobody but the caller can end such a wait. One
thread of the process watches all calls.
"""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic, sleep
from types import TracebackType
from typing import Final, Generic, Protocol, Self, TypeVar

from delaystore.errors import StoreUnavailableError
from delaystore.forks import renew_in_children

T = TypeVar("T")

logger: Final = logging.getLogger("delaystore.stores")

SLOW: Final = 5.0
"""Seconds from which a call is slow."""
CUT_AFTER: Final = 3.0
"""Seconds that a server has for ending a call by itself, once it was asked to."""
WATCH_NAME: Final = "delaystore.watch"
"""It lives as long as the process; `delaystore-...` are threads that end with what has started them."""
_LOOK_EVERY: Final = 0.25


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
    """One call in progress, a context manager that belongs to its thread.

    `purpose`: what it is for, as in "storing a message". `limit`: seconds after which it is ended; None: never.
    Raises StoreUnavailableError in place of the StoreUnavailableError of a call that was ended.
    """

    __slots__ = (
        *("_before", "_began", "_lock", "_paused", "_waits_for", "_watcher"),
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
            elif self._waits_for is not None and not asked:
                self._waits_for.ask()

    def pause(self) -> None:
        """The thread is busy with something else: the call begins anew when it is resumed."""
        self._paused = True
        _thread.call = self._before

    def resume(self) -> None:
        """Go on with the call."""
        self._began = monotonic()
        self._paused = False
        _thread.call = self

    def __enter__(self) -> Self:
        self._began = monotonic()
        self._before, _thread.call = _thread.call, self
        _watch.add(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        _watch.remove(self)
        _thread.call = self._before
        with self._lock:
            self.ended = True
            waits_for, self._waits_for = self._waits_for, None
        if waits_for is not None:
            waits_for.release()
        if self.overdue and isinstance(error, StoreUnavailableError):
            raise StoreUnavailableError(f"the store has not answered within {self.limit:g} s") from None


def current_call() -> Call | None:
    """The calling thread's innermost call in progress."""
    return _thread.call


@contextmanager
def elsewhere() -> Iterator[None]:
    """What the block does is no part of the thread's call in progress, if there is one."""
    call = _thread.call
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


class _Thread(threading.local):
    call: Call | None = None


class _Watch:
    """Looks at the calls in progress, in a thread that starts with the first call and sleeps while there is none."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Start afresh, at first and in a forked child, where the thread is missing."""
        self._calls: dict[int, Call] = {}
        self._wanted = threading.Event()
        self._starting = threading.Lock()
        self._started = False

    def add(self, call: Call) -> None:
        self._calls[id(call)] = call
        if not self._wanted.is_set():
            self._wanted.set()
            if not self._started:
                self._start()

    def remove(self, call: Call) -> None:
        self._calls.pop(id(call), None)

    def all(self) -> list[Call]:
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


_thread: Final = _Thread()
_watch: Final = _Watch()
renew_in_children(_watch, _Watch.renew)


class Question(Generic[T]):
    """A question to a store, asked in a thread of its own, for whoever will not wait for as long as it takes.

    After `seconds` the answer is that there is none. The thread ends when the store answers or the connection ends.
    """

    def __init__(self, purpose: str, ask: Callable[[], T], seconds: float) -> None:
        self._call = Call(purpose, seconds)
        self._ask = ask
        self._seconds = seconds
        self._ends = monotonic() + seconds
        self._done = threading.Event()
        self._answer: list[T] = []
        self._error: Exception | None = None
        threading.Thread(target=self._run, name="delaystore-question", daemon=True).start()

    @property
    def open(self) -> bool:
        """Whether there is no answer yet."""
        return not self._done.is_set()

    @property
    def too_late(self) -> bool:
        """Whether there was no answer in time."""
        return self._call.overdue or (self.open and monotonic() >= self._ends)

    def answer(self) -> T:
        """Wait for the answer. Raises StoreUnavailableError where there is none in time, and what asking raised."""
        self._done.wait(min(max(0.0, self._ends - monotonic()), threading.TIMEOUT_MAX))
        if self.open or self._call.overdue:
            raise StoreUnavailableError(f"the store does not answer within {self._seconds:g} s")
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


def in_background(name: str, action: Callable[[], object]) -> None:
    """Call `action`, which may take its time, in a thread of its own; if none can be started, not at all."""
    try:
        threading.Thread(target=action, name=name, daemon=True).start()
    except RuntimeError:
        return
