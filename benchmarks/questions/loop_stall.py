"""How long an event loop stands still while the database is frozen, and sends wait for it."""

import asyncio
import time

from sqlalchemy.ext.asyncio import create_async_engine

from benchmarks.arena import Arena
from benchmarks.asynchronous import longest_stall, with_driver
from benchmarks.bench import ENDPOINT
from benchmarks.results import Measurement, Question
from delaystore import AsyncDelayedDelivery, AsyncSqlDelayedMessageStore

DRIVERS = ("asyncpg", "psycopg")
SENDS = 16


def measure(arena: Arena, quick: bool) -> Measurement:
    seconds, rounds_wanted = (1.0, 1) if quick else (5.0, 3)
    stalls: dict[str, list[float]] = {}
    with arena.bench() as bench:
        for _ in range(rounds_wanted):
            for driver in DRIVERS:
                stall = asyncio.run(_stall(arena, with_driver(bench.store_url, driver), seconds))
                stalls.setdefault(driver, []).append(stall)
    worst = max(max(each) for each in stalls.values())
    return Measurement(
        figure=worst,
        ours=f"{worst:.1f} ms",
        peer=f"{1000 * seconds:,.0f} ms frozen",
        numbers=stalls,
        notes=[f"{driver}: {max(each):.1f} ms" for driver, each in stalls.items()],
    )


async def _stall(arena: Arena, url: str, seconds: float) -> float:
    """The longest stall in milliseconds: plain and enlisted sends and a health begin when the database is frozen."""
    engine = create_async_engine(url)
    async with AsyncDelayedDelivery(ENDPOINT, AsyncSqlDelayedMessageStore(url)) as delivery, engine.connect() as theirs:
        enlisted = delivery.enlist(theirs)
        await enlisted.send("billing", b"", delay=3600)
        await asyncio.gather(*(delivery.send("billing", b"", delay=3600) for _ in range(4)))
        arena.postgresql.pause()
        try:
            sends = [asyncio.create_task(delivery.send("billing", b"", delay=3600)) for _ in range(SENDS)]
            sends.append(asyncio.create_task(enlisted.send("billing", b"", delay=3600)))
            stall = await longest_stall(asyncio.create_task(_ask(delivery, seconds)))
        finally:
            arena.postgresql.resume()
        await asyncio.gather(*sends)
    await engine.dispose()
    return stall


async def _ask(delivery: AsyncDelayedDelivery, seconds: float) -> None:
    """Ask for the health until so many seconds are over."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        await delivery.health(0.5)


QUESTION = Question(
    name="loop-stall",
    title="longest stall of an event loop, database frozen for 5 s",
    limit=20,
    at_most=True,
    unit="ms",
    decimals=1,
    measure=measure,
)
