"""Synchronous code of ours on an event loop: SQLAlchemy's greenlets have the loop await what the code waits for.

What would block the loop nevertheless, as sleeping, is asked for here: it awaits in a greenlet, and blocks elsewhere.
"""

import asyncio
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, TypeVar

Result = TypeVar("Result")

_may_pause: Final[ContextVar[bool]] = ContextVar("delaystore_may_pause", default=True)

AT_ONCE: Final = 200
"""After so many things, such as rows, the loop may do something else: a few milliseconds."""


def on_a_loop() -> bool:
    """Whether the caller runs in one of SQLAlchemy's greenlets, so that `awaited` works."""
    greenlets = sys.modules.get("greenlet")
    return greenlets is not None and hasattr(greenlets.getcurrent(), "__sqlalchemy_greenlet_provider__")


def awaited(awaitable: Awaitable[Result]) -> Result:
    """What `awaitable` results in; the loop goes on meanwhile. Only where `on_a_loop()`."""
    from sqlalchemy.util import await_only

    return await_only(awaitable)


class WouldBlockError(Exception):
    """What was called `without_pauses` would sleep; nothing of it is done."""


@contextmanager
def without_pauses() -> Iterator[None]:
    """A block on a loop, in no greenlet, in which `pause` raises WouldBlockError."""
    token = _may_pause.set(False)
    try:
        yield
    finally:
        _may_pause.reset(token)


def pause(seconds: float) -> None:
    """Sleep; on a loop, only the caller does."""
    if on_a_loop():
        awaited(asyncio.sleep(seconds))
    elif not _may_pause.get():
        raise WouldBlockError
    else:
        time.sleep(seconds)


def give_way(number: int) -> None:
    """Called for each `number` of many: lets the loop do something else now and then; elsewhere it does nothing."""
    if number % AT_ONCE == 0 and on_a_loop():
        awaited(asyncio.sleep(0))


def off_the_loop(name: str, work: Callable[[], Result]) -> Result:
    """What `work` returns, which blocks: on a loop it does so in a thread called `name`."""
    return awaited(in_thread(name, work)) if on_a_loop() else work()


class Turns:
    """Lets callers go on one by one, each in a turn of its loop, where each keeps the loop busy for milliseconds."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    def wait(self) -> None:
        """Return when it is the caller's turn; only where `on_a_loop()`."""
        awaited(self._next())

    async def _next(self) -> None:
        async with self._lock:
            await asyncio.sleep(0)


async def in_thread(name: str, work: Callable[[], Result]) -> Result:
    """What `work` returns or raises, called in a daemon thread of its own, called `name`.

    Not in the loop's executor: its threads are few, and the end of `asyncio.run` waits for them, however long
    they hang.
    `work` goes on where the await is cancelled.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Result] = loop.create_future()

    def tell(set_outcome: Callable[[Any], None], outcome: Any) -> None:
        if not done.done():
            set_outcome(outcome)

    def run() -> None:
        try:
            told: tuple[Callable[[Any], None], Any] = done.set_result, work()
        except BaseException as error:
            told = done.set_exception, error
        try:
            loop.call_soon_threadsafe(tell, *told)
        except RuntimeError:  # the loop has been closed: nobody waits any more
            return

    threading.Thread(target=run, name=name, daemon=True).start()
    return await done
