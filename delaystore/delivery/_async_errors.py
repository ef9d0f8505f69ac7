"""The error queue for asyncio: the same, awaited."""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from typing import Any

from delaystore.bridge import in_thread
from delaystore.delivery._awaited import awaited
from delaystore.operations import ErrorQueue

logger = logging.getLogger("delaystore.operations")


class AsyncErrorQueue:
    """The error queue for asyncio: what `ErrorQueue` says of calls, arguments and errors holds here.

    Each call works in a thread of its own, which calls `progress` and `stopping`, too. One that is cancelled ends after
    the batch under way.
    """

    def __init__(self, call_delivery: Callable[..., Awaitable[Any]], errors: ErrorQueue) -> None:
        self._call_delivery = call_delivery
        self._errors = errors

    @property
    def name(self) -> str:
        """The queue's name."""
        return self._errors.name

    depth = awaited(ErrorQueue.depth)
    groups = awaited(ErrorQueue.groups)
    messages = awaited(ErrorQueue.messages)
    get = awaited(ErrorQueue.get)
    replay = awaited(ErrorQueue.replay)
    discard = awaited(ErrorQueue.discard)

    async def _call(self, method: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """What `method` of the queue behind this one returns."""
        loop, cancelled = asyncio.get_running_loop(), threading.Event()
        if method in (ErrorQueue.replay, ErrorQueue.discard):
            asked = named.get("stopping", lambda: False)
            named["stopping"] = lambda: cancelled.is_set() or asked()

        def note(action: str, about: str, count: int) -> None:
            noting = self._noting(action, about, count)
            try:
                asyncio.run_coroutine_threadsafe(noting, loop).result()
            except RuntimeError as error:  # the loop has been closed meanwhile
                noting.close()
                logger.error("%s: %s (%d messages) is done, but not noted: %s", action, about, count, error)

        errors = self._errors.noting(note)
        try:
            return await in_thread("delaystore-errors", lambda: method(errors, *arguments, **named))
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async def _noting(self, action: str, about: str, count: int) -> None:
        await self._call_delivery(lambda _: self._errors.note(action, about, count))
