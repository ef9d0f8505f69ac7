"""Sending into a store with a large backlog waiting, against sending into an empty one."""

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Final

from benchmarks.arena import Arena
from benchmarks.bench import BODY_BYTES, ENDPOINT, Bench
from benchmarks.millions import MANY, NONE, none_and_many
from benchmarks.results import Measurement, Rounds, per_second
from delaystore import DelayedDelivery

FAR: Final = timedelta(days=365)
NEAR: Final = timedelta(minutes=5)
WARM_UP: Final = 10


def compare_sends(
    arena: Arena, waiting: int, delay: timedelta, count: int, rounds_wanted: int, body_bytes: int = BODY_BYTES
) -> Measurement:
    """`send` of one message after another, all of one delay, in rounds of `count`."""
    rounds = Rounds()
    with none_and_many(arena, waiting, body_bytes) as benches:
        for _ in range(rounds_wanted):
            for name, bench in benches.items():
                rounds.add(name, _send_rate(bench, delay, count))
    return _measurement(rounds, f"{count:,} a round, {waiting:,} waiting")


def compare_store_many(
    arena: Arena, waiting: int, count: int, rounds_wanted: int, body_bytes: int = BODY_BYTES
) -> Measurement:
    """`store_many` of `count` messages that are due over a year; right behind a checkpoint each time."""
    rounds = Rounds()
    with none_and_many(arena, waiting, body_bytes) as benches:
        for _ in range(rounds_wanted):
            for name, bench in benches.items():
                rounds.add(name, _store_many_rate(bench, count))
            benches[NONE].clear()
            benches[MANY].settle()
    return _measurement(rounds, f"{count:,} a round, each behind a checkpoint, {waiting:,} waiting")


def rate_of(call: Callable[[], object], count: int) -> float:
    """Calls a second, in `count` of them behind a few to warm up."""
    for _ in range(WARM_UP):
        call()
    began = time.perf_counter()
    for _ in range(count):
        call()
    return count / (time.perf_counter() - began)


def _send_rate(bench: Bench, delay: timedelta, count: int) -> float:
    with DelayedDelivery(ENDPOINT, bench.store) as delivery:
        return rate_of(lambda: delivery.send(bench.queue, b"x" * BODY_BYTES, delay=delay), count)


def _store_many_rate(bench: Bench, count: int) -> float:
    messages = list(bench.messages(count, bench.store.now() + timedelta(minutes=5), FAR))
    began = time.perf_counter()
    bench.store.store_many(messages)
    return count / (time.perf_counter() - began)


def _measurement(rounds: Rounds, note: str) -> Measurement:
    return Measurement(
        figure=rounds.ratio(MANY, NONE),
        ours=per_second(rounds.median(MANY)),
        peer=per_second(rounds.median(NONE)),
        numbers=rounds.numbers,
        notes=[note],
    )
