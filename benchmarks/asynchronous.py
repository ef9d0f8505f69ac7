"""Sends on an event loop, against sends from threads; and what a frozen database does to the loop."""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Final

from benchmarks.bench import BODY_BYTES, ENDPOINT
from delaystore import AsyncDelayedDelivery, AsyncSqlDelayedMessageStore, DelayedDelivery
from delaystore.stores import SqlDelayedMessageStore

CONCURRENCY: Final = 16
FAR: Final = timedelta(days=3)
_BODY: Final = b"x" * BODY_BYTES


def with_driver(url: str, driver: str) -> str:
    """The URL of a PostgreSQL database with another driver."""
    return f"postgresql+{driver}://{url.partition('://')[2]}"


class Threads:
    """CONCURRENCY threads that send, over a connection each."""

    def __init__(self, url: str) -> None:
        self._delivery = DelayedDelivery(ENDPOINT, SqlDelayedMessageStore(url))
        self._pool = ThreadPoolExecutor(CONCURRENCY)

    def rate(self, count: int) -> float:
        """Messages a second, of so many from each thread."""
        began = time.perf_counter()
        for done in [self._pool.submit(self._send, count) for _ in range(CONCURRENCY)]:
            done.result()
        return CONCURRENCY * count / (time.perf_counter() - began)

    def close(self) -> None:
        """End the threads, and close the connections."""
        self._pool.shutdown()
        self._delivery.close()

    def _send(self, count: int) -> None:
        for _ in range(count):
            self._delivery.send("billing", _BODY, delay=FAR)


class Tasks:
    """CONCURRENCY tasks of an event loop that send, over a connection each."""

    def __init__(self, url: str) -> None:
        self._runner = asyncio.Runner()
        self._delivery = self._runner.run(_delivery(url))

    def rate(self, count: int) -> float:
        """Messages a second, of so many from each task."""
        return self._runner.run(self._rate(count))

    def close(self) -> None:
        """Close the connections, and the loop."""
        self._runner.run(self._delivery.close())
        self._runner.close()

    async def _rate(self, count: int) -> float:
        began = time.perf_counter()
        await asyncio.gather(*(self._send(count) for _ in range(CONCURRENCY)))
        return CONCURRENCY * count / (time.perf_counter() - began)

    async def _send(self, count: int) -> None:
        for _ in range(count):
            await self._delivery.send("billing", _BODY, delay=FAR)


async def longest_stall(watched: asyncio.Task[None]) -> float:
    """The longest time in milliseconds for which the loop did nothing but `watched` and what it began."""
    longest = 0.0
    while not watched.done():
        began = time.perf_counter()
        await asyncio.sleep(0.001)
        longest = max(longest, time.perf_counter() - began - 0.001)
    await watched
    return 1000 * longest


async def _delivery(url: str) -> AsyncDelayedDelivery:
    return AsyncDelayedDelivery(ENDPOINT, AsyncSqlDelayedMessageStore(url))
