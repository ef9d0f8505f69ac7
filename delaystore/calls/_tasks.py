"""Calls on an event loop: the end of one that takes too long is a cancellation of what its task waits for."""

import asyncio
from collections.abc import Callable
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Final, Self


class TaskCalls:
    """A block of a task whose calls may be ended, an asynchronous context manager.

    Drivers answer a cancellation as well as they can: they ask the server to end the statement, and leave the
    connection. It reaches what has no socket yet, too: the look-up of a name, or a login.
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
        self._token: Token[TaskCalls | None] = _current.set(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Raises CancelledError in place of what a driver has made of somebody's cancellation."""
        _current.reset(self._token)
        self._is_open = False
        await self._scope.__aexit__(kind, error, traceback)
        is_lost = error is not None and not isinstance(error, asyncio.CancelledError)
        if is_lost and self._task.cancelling() > self._cancelling:
            raise asyncio.CancelledError from error

    @property
    def ended(self) -> bool:
        """Whether `end` has cancelled the task, and nobody else has."""
        return self._scope.expired() and self._task.cancelling() == self._cancelling + 1

    def end(self, goes_on: Callable[[], bool]) -> None:
        """Cancel what the task waits for, if the call that it is about `goes_on` by then; any thread may."""
        try:
            self._loop.call_soon_threadsafe(self._end, goes_on)
        except RuntimeError:  # the loop has been closed meanwhile, and its tasks with it
            return

    def _end(self, goes_on: Callable[[], bool]) -> None:
        if self._is_open and not self._scope.expired() and goes_on():
            self._scope.reschedule(self._loop.time())


def current_task_calls() -> TaskCalls | None:
    """The block of the running task, as far as the caller is in one."""
    return _current.get()


_current: Final[ContextVar[TaskCalls | None]] = ContextVar("delaystore_task_calls", default=None)
