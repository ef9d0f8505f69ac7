"""How late the messages of a burst arrive: delaystore, RabbitMQ's delayed-message plugin, and cascades."""

import os
from collections.abc import Callable
from contextlib import ExitStack
from datetime import timedelta
from functools import partial
from statistics import median

from benchmarks.arena import Arena
from benchmarks.figures.series import Series
from benchmarks.lateness import Lateness, measure_lateness
from benchmarks.lateness_native import CASCADES, lateness_in_cascade, lateness_in_plugin
from benchmarks.programs import OURS
from tests.servers.delayed_plugin import VARIABLE, RabbitMQWithPlugin

NAMES = {"v2 cascade": "NServiceBus' cascade", "skipping cascade": "skipping cascade"}


def measure(arena: Arena, quick: bool) -> Series:
    """Milliseconds: the median, p99 and maximum of each round, and a sample of the round with the median p99."""
    count, seconds, rounds = (2_000, 2, 1) if quick else (50_000, 10, 3)
    span = timedelta(seconds=seconds)
    systems: dict[str, Callable[[], Lateness]] = {OURS.name: partial(_ours, arena, count, span)}
    with ExitStack() as stack:
        if VARIABLE in os.environ:
            broker = stack.enter_context(RabbitMQWithPlugin(os.environ[VARIABLE]))
            systems["delayed-message plugin"] = partial(lateness_in_plugin, broker, count, span)
        for name, topology in CASCADES.items():
            systems[NAMES[name]] = partial(lateness_in_cascade, arena, topology, count, span)
        found: dict[str, list[Lateness]] = {name: [] for name in systems}
        for _ in range(rounds):
            for name, measured in systems.items():
                found[name].append(measured())
    return [_series(name, each) for name, each in found.items()]


def _ours(arena: Arena, count: int, span: timedelta) -> Lateness:
    with arena.bench() as bench:
        return measure_lateness(OURS, bench, count, span)


def _series(name: str, rounds: list[Lateness]) -> dict[str, object]:
    middle = median(each.p99 for each in rounds)
    typical = min(rounds, key=lambda each: abs(each.p99 - middle))
    percentiles = [[round(each.p50, 2), round(each.p99, 2), round(each.worst, 2)] for each in rounds]
    return {"name": name, "rounds": percentiles, "sample": typical.sample}
