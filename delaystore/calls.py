"""Calls in progress: a thread of the process logs slow calls and ends calls that take too long.

Also here: questions that are not asked twice at once, stop requests from signal handlers, and progress of long work.
"""

import asyncio
import logging
import threading
import time
from asyncio import CancelledError
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, Token
from time import monotonic, sleep
from types import TracebackType
from typing import Final, Generic, Protocol, Self, TypeVar

from delaystore.errors import StoreUnavailableError
from delaystore.processes import renew_in_children


def in_background(name: str, action: Callable[[], object]) -> bool:
    """Call a function in a daemon thread of its own.

    Args:
        name: The thread's name.
        action: The function, which may take its time.

    Returns:
        Whether a thread could be started.

    """
    try:
        threading.Thread(target=action, name=name, daemon=True).start()
    except RuntimeError:
        return False
    return True


class StopFlag:
    """As threading.Event, but a signal handler may `set` it although it interrupts the thread that waits.

    Condition's own lock can be taken again by its holder; threading.Event's cannot.
    """

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._is_set = False

    def is_set(self) -> bool:
        """Whether `set` was called."""
        return self._is_set

    def set(self) -> None:
        """Ask to stop: threads that wait go on."""
        with self._condition:
            self._is_set = True
            self._condition.notify_all()

    def wait(self, seconds: float) -> bool:
        """Wait for `seconds`, or until `set` is called; whether it was."""
        deadline = time.monotonic() + seconds
        with self._condition:
            while not self._is_set and (left := deadline - time.monotonic()) > 0:
                self._condition.wait(left)
        return self._is_set


class TaskCalls:
    """A block of a task whose calls may be ended, an asynchronous context manager.

    Drivers answer a cancellation as well as they can: they ask the server to end the statement, and leave the
    connection. It reaches calls without a socket, too: the look-up of a name, or a login.
    """

    __slots__ = ("_cancelling", "_is_open", "_loop", "_scope", "_task", "_token")

    async def __aenter__(self) -> Self:
        task = asyncio.current_task()
        assert task is not None
        self._task, self._loop = task, asyncio.get_running_loop()
        self._cancelling = task.cancelling()
        self._scope = asyncio.timeout(None)
        await self._scope.__aenter__()
        self._is_open = True
        self._token: Token[TaskCalls | None] = _current_tasks.set(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Raises CancelledError in place of the error that a driver has made of another caller's cancellation."""
        _current_tasks.reset(self._token)
        self._is_open = False
        await self._scope.__aexit__(kind, error, traceback)
        is_lost = error is not None and not isinstance(error, asyncio.CancelledError)
        if is_lost and self._task.cancelling() > self._cancelling:
            raise asyncio.CancelledError from error

    @property
    def ended(self) -> bool:
        """Whether `end` alone has cancelled the task."""
        return self._scope.expired() and self._task.cancelling() == self._cancelling + 1

    def end(self, goes_on: Callable[[], bool]) -> None:
        """Cancel the task's wait, if the call that it is about `goes_on` by then; any thread may."""
        try:
            self._loop.call_soon_threadsafe(self._end, goes_on)
        except RuntimeError:  # the loop has been closed meanwhile, and its tasks with it
            return

    def _end(self, goes_on: Callable[[], bool]) -> None:
        if self._is_open and not self._scope.expired() and goes_on():
            self._scope.reschedule(self._loop.time())


_current_tasks: Final[ContextVar[TaskCalls | None]] = ContextVar("delaystore_task_calls", default=None)
logger: Final = logging.getLogger("delaystore.stores")
WATCH_NAME: Final = "delaystore.watch"
"""It lives as long as the process; `delaystore-...` are threads that end with their starter."""
_LOOK_EVERY: Final = 0.25


class CallInProgress(Protocol):
    """A call in progress, which is looked at four times a second."""

    def look(self) -> None:
        """See how it is going; must not block."""
        ...


W = TypeVar("W", bound=CallInProgress)


class CallsInProgress(Generic[W]):
    """Looks at the calls in progress, in a thread that starts with the first call and sleeps while there is none."""

    def __init__(self) -> None:
        self.renew()
        renew_in_children(self, CallsInProgress.renew)

    def renew(self) -> None:
        """Start afresh, at first and in a forked child, where the thread is missing."""
        self._calls: dict[int, W] = {}
        self._wanted = threading.Event()
        self._starting = threading.Lock()
        self._started = False

    def add(self, call: W) -> None:
        """Look at this call until it is removed."""
        self._calls[id(call)] = call
        if not self._wanted.is_set():
            self._wanted.set()
            if not self._started:
                self._start()

    def remove(self, call: W) -> None:
        """Look at this call no longer."""
        self._calls.pop(id(call), None)

    def all(self) -> list[W]:
        """The calls in progress."""
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
            # Most calls end sooner, so that this thread hardly ever sees one.
            sleep(_LOOK_EVERY)
            for call in self.all():
                try:
                    call.look()
                except Exception:
                    logger.exception("internal error while watching a store call; the other calls are still watched")
            if not self._calls:
                self._wanted.clear()
                if self._calls:  # one has begun meanwhile
                    self._wanted.set()


SLOW: Final = 5.0
"""Seconds from which a call is slow."""
CUT_AFTER: Final = 3.0
"""Seconds that a server has for ending a call, once it was asked to."""


class Interruptible(Protocol):
    """A thing that a call waits for, such as a database connection."""

    def ask_to_end(self) -> None:
        """Ask the server to end the call; returns at once."""
        ...

    def cut(self) -> None:
        """End the wait: the call then fails."""
        ...

    def release(self) -> None:
        """Neither `ask_to_end` nor `cut` will be called any more."""
        ...


class CallWatcher(Protocol):
    """Is called for each call in progress that belongs to it."""

    def in_progress(self, call: "Call") -> None:
        """Note that `call` is going on; called four times a second, from the watching thread."""
        ...


class Call:
    """One call in progress, a context manager that belongs to its thread, or its task on an event loop.

    Args:
        purpose: The purpose of the call, as in "storing a message".
        limit: Seconds after which it is ended. None: never.
        watcher: Is called while it goes on. None: nothing is.

    Raises:
        StoreUnavailableError: At the end of the block, if the call was ended because it took too long.

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
        """Whether it reports to `watcher`."""
        return self._watcher is watcher

    def wait_for(self, waits_for: Interruptible | None) -> None:
        """Note the object that the call waits for from now on; None: nothing that could be ended. If it is overdue,
        end that.
        """
        with self._lock:
            former, self._waits_for = self._waits_for, waits_for
            if self.overdue and waits_for is not None:
                waits_for.cut()
        if former is not None:
            former.release()

    @property
    def waits_for(self) -> Interruptible | None:
        """The object that it waits for at present; None: nothing that could be ended."""
        return self._waits_for

    def look(self) -> None:
        """Tell the watcher, and end the call if it is due: first ask the server to, then cut."""
        seconds = self.seconds
        if self.limit is not None and seconds >= self.limit:
            self._end_it(cut=seconds >= self.limit + CUT_AFTER)
        if self._watcher is not None and not self.ended:
            self._watcher.in_progress(self)

    def _end_it(self, *, cut: bool) -> None:
        # Within the lock that `__exit__` takes: the connection may serve another call a moment after this one, and must
        # not be cut then.
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
                self._waits_for.ask_to_end()

    def pause(self) -> None:
        """The thread is busy with something else: the call begins again when it is resumed."""
        self._paused = True
        _current.set(self._before)

    def resume(self) -> None:
        """Go on with the call."""
        self._began = monotonic()
        self._paused = False
        _current.set(self)

    def __enter__(self) -> Self:
        self._began = monotonic()
        self._before, self._task_calls = _current.get(), _current_tasks.get()
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


@contextmanager
def call_paused() -> Iterator[None]:
    """Pause the call in progress, if there is one: the time of the block does not count for it."""
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
    """The calls in progress that report to `watcher`."""
    return [call for call in _watch.all() if call.belongs_to(watcher)]


_current: Final[ContextVar[Call | None]] = ContextVar("delaystore_call", default=None)
"""A thread has a context of its own, and so has a task; a greenlet of SQLAlchemy's has its task's."""
current_call: Final = _current.get
"""Returns the innermost call in progress of the calling thread, or task; None: there is none."""
_watch: Final = CallsInProgress[Call]()
T = TypeVar("T")


class Question(Generic[T]):
    """A question to a store, asked in a thread of its own, for a caller that cannot wait for as long as it takes.

    The thread ends when the store answers or the connection ends.

    Args:
        purpose: The question, for the log and errors.
        ask: Asks the store, in the other thread.
        seconds: Seconds after which there is no answer.

    Raises:
        RuntimeError: No thread can be started.

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
        """Wait for the answer.

        Returns:
            The result of `ask`.

        Raises:
            StoreUnavailableError: There is no answer in time.
            Exception: `ask` raised it.

        """
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


class SingleFlight(Generic[T]):
    """A question that is never asked twice at once: a store that hangs keeps one thread. Threads may share it."""

    def __init__(self, purpose: str, ask: Callable[[], T]) -> None:
        self._purpose = purpose
        self._ask = ask
        self._lock = threading.Lock()
        self._last: Question[T] | None = None

    def question(self, seconds: float, fresh: float = 0.0) -> Question[T]:
        """Return the question under way, or ask again.

        Args:
            seconds: Seconds that a new question has for its answer.
            fresh: Seconds for which an answered question is returned again.

        """
        with self._lock:
            last = self._last
            if last is None or not (last.open or last.age < fresh):
                last = self._last = Question(self._purpose, self._ask, seconds)
            return last


class ProgressListener(Protocol):
    """Called as work goes on, from any thread, but one at a time. It must not raise."""

    def __call__(self, step: str, done: int, total: int | None, /) -> object:
        """`done` of `total` have passed `step`, such as "moved". `total` may still change; None: it is unknown."""
        ...


def unwatched(_step: str, _done: int, _total: int | None, /) -> None:
    """A listener that ignores everything."""
