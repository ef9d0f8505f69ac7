"""How late messages arrive at a consumer: arrival minus due time, on one machine's clock."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from statistics import quantiles
from typing import Final

from benchmarks.bench import Bench
from benchmarks.programs import ROOT, Program, Running, running, warm_up

LEAD: Final = timedelta(seconds=2)
"""Messages are stored this long, and as long as storing takes, before the first is due."""
STORED_PER_SECOND: Final = 20_000
"""A cautious guess of how fast they are stored."""
SAMPLED: Final = 1000
"""The most values of a sample: of more, each n-th is taken, the first and the last included."""
GRACE: Final = 300.0
"""Seconds after which a message counts as lost."""


@dataclass(frozen=True)
class Lateness:
    """Milliseconds; `earliest` below 0 would be a message that came before its time. `sample`: sorted, see SAMPLED."""

    p50: float
    p99: float
    worst: float
    earliest: float
    sample: Sequence[float] = ()


def measure_lateness(program: Program, bench: Bench, count: int, span: timedelta) -> Lateness:
    """Lateness of `count` messages that are due evenly over `span`, stored before."""

    def store() -> None:
        start = bench.store.now() + LEAD + timedelta(seconds=count / STORED_PER_SECOND)
        bench.store.store_many(bench.messages(count, start, span))
        if bench.store.now() >= start:
            raise RuntimeError("storing took longer than expected: the first messages were late before they began")

    return lateness_of(program, bench, count, store)


def steady_lateness(program: Program, bench: Bench, per_second: int, seconds: int) -> tuple[Lateness, float]:
    """Lateness of messages that another process stores meanwhile, and by how many seconds it was ahead at the least."""
    count = per_second * seconds
    ahead: list[float] = []

    def send() -> None:
        ahead.append(float(run_sender(bench, count, per_second)))

    return lateness_of(program, bench, count, send), ahead[0]


def run_sender(bench: Bench, count: int, per_second: int) -> bytes:
    """Let `benchmarks.sender` store `count` messages; what it prints. CalledProcessError if it fails."""
    command = (sys.executable, "-m", "benchmarks.sender", str(count), str(per_second))
    return subprocess.check_output(command, cwd=ROOT, env=os.environ | bench.environment)


def lateness_of(program: Program, bench: Bench, count: int, send: Callable[[], None]) -> Lateness:
    """Lateness of `count` messages that `send` has come into the bench's queue, while `program` dispatches."""
    with running(program, bench) as process:
        warm_up(bench, process, 500)
        with _consuming(bench, count) as consumer:
            try:
                send()
                printed = _printed_by(consumer, process)
            finally:
                consumer.kill()
    return summary(json.loads(printed))


def summary(lateness: Sequence[float]) -> Lateness:
    """The percentiles of `lateness`, in its unit."""
    cuts = quantiles(lateness, n=100, method="inclusive")
    values = sorted(lateness)
    size = min(SAMPLED, len(values))
    sample = [round(values[number * (len(values) - 1) // (size - 1)], 2) for number in range(size)]
    return Lateness(p50=cuts[49], p99=cuts[98], worst=values[-1], earliest=values[0], sample=sample)


def _printed_by(consumer: subprocess.Popen[bytes], program: Running) -> bytes:
    """What the consumer prints once it has all; ChildProcessError if `program` ends before, or TimeoutError."""
    deadline = time.monotonic() + GRACE
    while time.monotonic() < deadline:
        with suppress(subprocess.TimeoutExpired):
            return consumer.communicate(timeout=1)[0]
        program.check()
    raise TimeoutError(f"not all messages arrived within {GRACE:g} s")


def _consuming(bench: Bench, count: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        (sys.executable, "-m", "benchmarks.consumer", str(count)),
        cwd=ROOT,
        env=os.environ | bench.environment,
        stdout=subprocess.PIPE,
    )
