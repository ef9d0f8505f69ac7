"""Ours and the peers as processes, started as a user would start them."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.bench import LOOK_EVERY, PATIENCE, Bench

STOP_SECONDS = 30
ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Program:
    """A command that dispatches until SIGTERM."""

    name: str
    command: Sequence[str]


OURS = Program("delaystore", (str(Path(sys.executable).with_name("delaystore")), "dispatch"))
BARE_LOOP = Program("bare loop", (sys.executable, "-m", "benchmarks.peers.bare_loop"))
MSMQ = Program("MSMQ algorithm", (sys.executable, "-m", "benchmarks.peers.msmq_loop"))


class Running:
    """A program that runs."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self.pid = process.pid

    def check(self) -> None:
        """ChildProcessError if it has ended by itself."""
        if self._process.poll() is not None:
            raise ChildProcessError(f"ended by itself with {self._process.returncode}")


@contextmanager
def running(program: Program, bench: Bench) -> Iterator[Running]:
    """`program` on `bench` while the block runs. ChildProcessError, with what it printed, if anything goes wrong."""
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            program.command, cwd=ROOT, env=os.environ | bench.environment, stdout=log, stderr=subprocess.STDOUT
        )
        program_running = Running(process)
        try:
            yield program_running
            program_running.check()
        except (TimeoutError, ChildProcessError) as error:
            raise ChildProcessError(f"{program.name}: {error}\n{_printed(log.fileno())}") from error
        finally:
            _end(process)
        if process.returncode not in (0, -signal.SIGTERM):
            raise ChildProcessError(f"{program.name} ended with {process.returncode}\n{_printed(log.fileno())}")


def warm_up(bench: Bench, program: Running, count: int) -> None:
    """Let a program that was just started dispatch `count` messages, and empty the queue."""
    bench.store.store_many(bench.messages(count, bench.store.now()))
    bench.await_dispatched(count, meanwhile=program.check)
    bench.clear_queue()


def dispatched(bench: Bench, program: Running, count: int) -> int:
    """Wait until a program that was just started has dispatched `count` messages; how many are in the queue then."""
    deadline = time.monotonic() + PATIENCE
    while (depth := bench.depth()) < count:
        program.check()
        if time.monotonic() > deadline:
            raise TimeoutError(f"{depth} of {count} messages arrived within {PATIENCE:g} s")
        time.sleep(LOOK_EVERY)
    return depth


@dataclass(frozen=True)
class Speed:
    """How fast a program dispatched: messages a second, and what a message took of its process's processor time."""

    rate: float
    processor_seconds: float


def dispatch_rate(program: Program, bench: Bench, count: int, warm: int = 2000) -> float:
    """Messages a second, from the commit that made `count` messages due until all are in the queue, none in the store.

    Store and queue must hold nothing due.
    """
    return dispatch_speed(program, bench, count, warm).rate


def dispatch_speed(program: Program, bench: Bench, count: int, warm: int = 2000) -> Speed:
    """As `dispatch_rate`, with the processor time."""
    with running(program, bench) as process:
        warm_up(bench, process, min(warm, count))
        with bench.store.transaction() as transaction:
            transaction.store_many(bench.messages(count, bench.store.now()))
        began, before = time.perf_counter(), _processor_seconds(process)
        bench.await_dispatched(count, meanwhile=process.check)
        seconds, used = time.perf_counter() - began, _processor_seconds(process) - before
    return Speed(count / seconds, used / count)


def _processor_seconds(process: Running) -> float:
    times = psutil.Process(process.pid).cpu_times()
    return float(times.user + times.system)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _printed(log: int) -> str:
    size = os.fstat(log).st_size
    return os.pread(log, 4000, max(0, size - 4000)).decode(errors="replace")
