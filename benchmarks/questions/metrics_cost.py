"""Dispatch with `--metrics`, read every five seconds, against dispatch without."""

import socket
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from benchmarks.arena import Arena
from benchmarks.programs import OURS, Program, dispatch_speed
from benchmarks.results import Measurement, Question, Rounds, per_second

WITHOUT, WITH = "without", "with"
READ_EVERY = 5.0
"""Seconds between two reads; Prometheus asks every 15 s or so."""


def measure(arena: Arena, quick: bool) -> Measurement:
    count, rounds_wanted = (3_000, 1) if quick else (100_000, 15)
    rounds = Rounds()
    port = _free_port()
    measured = Program(OURS.name, (*OURS.command, "--metrics", f"127.0.0.1:{port}"))
    with arena.bench() as bench:
        for number in range(rounds_wanted):
            candidates = [(WITHOUT, OURS), (WITH, measured)]
            for name, program in candidates[:: 1 if number % 2 else -1]:
                with _read(port):
                    speed = dispatch_speed(program, bench, count)
                rounds.add(name, speed.rate)
                rounds.add(f"{name}, processor", speed.processor_seconds * 1_000_000)
                bench.clear()
    processor = {name: rounds.median(f"{name}, processor") for name in (WITH, WITHOUT)}
    return Measurement(
        figure=rounds.ratio(WITH, WITHOUT),
        ours=per_second(rounds.median(WITH)),
        peer=per_second(rounds.median(WITHOUT)),
        numbers=rounds.numbers,
        notes=[
            f"{count:,} messages, metrics read every {READ_EVERY:g} s",
            f"processor time of the dispatcher's process for each: {processor[WITH]:.1f} µs with, "
            f"{processor[WITHOUT]:.1f} µs without",
        ],
    )


@contextmanager
def _read(port: int) -> Iterator[None]:
    """Read metrics during the block, where they are served."""
    ended = threading.Event()

    def read() -> None:
        while not ended.wait(READ_EVERY):
            with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
                answer.read()

    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


QUESTION = Question(
    name="metrics-cost",
    title="dispatch to a quorum queue with --metrics, against without",
    limit=0.97,
    measure=measure,
)
