"""An asyncio loop in a thread of its own."""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

Value = TypeVar("Value")


class LoopThread:
    """Runs from construction to close()."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, Value]) -> Value:
        """Do something there, and wait for it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    def close(self) -> None:
        """Cancel all that goes on there, and end."""
        self.run(_cancel_others())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
