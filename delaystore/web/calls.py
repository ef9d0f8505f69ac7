"""Calls to store and broker, in threads, so that the event loop never waits; each with a time limit."""

import asyncio
from collections.abc import Callable
from threading import BoundedSemaphore
from typing import Final, TypeVar

from delaystore.bridge import in_thread
from delaystore.errors import StoreUnavailableError

Answer = TypeVar("Answer")

PATIENCE: Final = 10.0
"""Seconds that a page waits for an answer."""
_MOST: Final = 48
"""Calls at the same time; more are refused, as the store seems to hang."""


class Calls:
    """Makes calls for one application."""

    def __init__(self, patience: float = PATIENCE) -> None:
        self._patience = patience
        self._room = BoundedSemaphore(_MOST)

    async def __call__(self, work: Callable[[], Answer], patience: float | None = None) -> Answer:
        """What `work` returns or raises; StoreUnavailableError where that takes longer than `patience` seconds.

        `work` goes on then, in its thread: it may still be done.
        """
        if not self._room.acquire(blocking=False):
            raise StoreUnavailableError("too many requests wait for the store; try again in a moment")
        limit = self._patience if patience is None else patience
        task = asyncio.ensure_future(in_thread("delaystore-web", lambda: self._counted(work)))
        try:
            return await asyncio.wait_for(task, limit)
        except TimeoutError:
            raise StoreUnavailableError(f"there was no answer within {limit:g} seconds") from None

    def _counted(self, work: Callable[[], Answer]) -> Answer:
        try:
            return work()
        finally:
            self._room.release()
