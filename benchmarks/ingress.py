"""An exchange with its ingress, and the programs that take from it into a table."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import uuid4

from psycopg import sql

from benchmarks.bench import LOOK_EVERY, PATIENCE, Bench
from benchmarks.programs import ROOT, Program, Running, running

DELAYSTORE: Final = str(Path(sys.executable).with_name("delaystore"))
_BARE_TABLE: Final = "bare_delayed"
_ANY_PORT: Final = "127.0.0.1:0"
WARM_UP: Final = 2000
"""Messages that a program takes before it is measured."""


@dataclass(frozen=True)
class Taker:
    """A program that takes what is published to an exchange into a table."""

    program: Program
    table: str

    def stored(self, bench: Bench) -> int:
        """How many messages are in its table."""
        query = sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(self.table))
        return int(bench.database.execute(query).fetchall()[0][0])

    def has_any(self, bench: Bench) -> bool:
        """Whether any is."""
        query = sql.SQL("SELECT EXISTS (SELECT FROM {})").format(sql.Identifier(self.table))
        return bool(bench.database.execute(query).fetchall()[0][0])

    def clear(self, bench: Bench) -> None:
        """Empty its table."""
        bench.database.execute(sql.SQL("TRUNCATE {}").format(sql.Identifier(self.table)))
        bench.settle()


@dataclass(frozen=True)
class Entrance:
    """An exchange with its ingress, made by `delaystore ingress create`."""

    bench: Bench
    exchange: str

    @property
    def queue(self) -> str:
        """The ingress queue."""
        return f"{self.exchange}.ingress"

    @property
    def out(self) -> str:
        """The exchange that due messages go to."""
        return f"{self.exchange}.out"

    @property
    def ours(self) -> Taker:
        """`delaystore ingress run`."""
        command = (DELAYSTORE, "ingress", "run", self.exchange)
        return Taker(Program("delaystore", command), self.bench.table)

    @property
    def service(self) -> Taker:
        """`delaystore serve`, with an ingress, a dispatcher, the web page and metrics."""
        command = (DELAYSTORE, "serve", "--ingress", self.exchange, "--web", _ANY_PORT, "--metrics", _ANY_PORT)
        return Taker(Program("delaystore", command), self.bench.table)

    @property
    def bare_loop(self) -> Taker:
        """The peer; its table is made here."""
        self.bench.database.execute(
            f"CREATE TABLE IF NOT EXISTS {_BARE_TABLE} (message_id text PRIMARY KEY, destination text NOT NULL, "
            "due_time timestamptz NOT NULL, body bytea NOT NULL)"
        )
        self.bench.database.execute(f"CREATE INDEX IF NOT EXISTS bare_due ON {_BARE_TABLE} (due_time)")
        command = (sys.executable, "-m", "benchmarks.peers.ingress_loop", self.queue, _BARE_TABLE)
        return Taker(Program("bare loop", command), _BARE_TABLE)

    def publish(self, count: int, per_second: int | None = None) -> tuple[float, float]:
        """Publish by a process of its own, see `benchmarks.publisher`; CalledProcessError if it fails."""
        arguments = (str(count),) if per_second is None else (str(count), str(per_second))
        printed = subprocess.check_output(
            (sys.executable, "-m", "benchmarks.publisher", *arguments), cwd=ROOT, env=os.environ | self._environment
        )
        began, confirmed = json.loads(printed)
        return began, confirmed

    def depth(self) -> int:
        """How many messages are ready in the ingress queue."""
        return self.bench.depth(self.queue)

    def await_taken(self) -> None:
        """Wait until the ingress queue is empty; TimeoutError."""
        deadline = time.monotonic() + PATIENCE
        while self.depth():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.depth()} messages are in {self.queue} after {PATIENCE:g} s")
            time.sleep(LOOK_EVERY)

    @property
    def _environment(self) -> Mapping[str, str]:
        return {**self.bench.environment, "BENCHMARK_EXCHANGE": self.exchange}


@contextmanager
def entrance(bench: Bench) -> Iterator[Entrance]:
    """An exchange with its ingress, gone after the block."""
    made = Entrance(bench, f"bench-{uuid4()}")
    command = (DELAYSTORE, "ingress", "create", made.exchange, "--type", "topic")
    subprocess.run(
        command, env=os.environ | bench.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True
    )
    try:
        yield made
    finally:
        kept = (made.queue, f"{made.queue}.expired", f"{made.queue}.rejected")
        bench.delete((made.exchange, made.out, f"{made.queue}.expired"), kept)


def drain_rate(entrance: Entrance, taker: Taker, count: int) -> float:
    """Messages a second of a program that finds `count` in the queue, from its first commit to its last."""
    entrance.publish(count)
    with running(taker.program, entrance.bench) as process:
        await_true(lambda: taker.has_any(entrance.bench), "it stores messages", process)
        began, before = time.perf_counter(), taker.stored(entrance.bench)
        await_stored(entrance, taker, count, process)
        return (count - before) / (time.perf_counter() - began)


def intake_rate(entrance: Entrance, taker: Taker, count: int) -> float:
    """Messages a second, from the first publish to the last commit, while they are being published."""
    with running(taker.program, entrance.bench) as process:
        warm_up(entrance, taker, min(WARM_UP, count), process)
        taker.clear(entrance.bench)
        began, _ = entrance.publish(count)
        await_stored(entrance, taker, count, process)
        return count / (time.time() - began)


def warm_up(entrance: Entrance, taker: Taker, count: int, process: Running) -> None:
    """Let a program that was just started take `count` messages."""
    entrance.publish(count)
    await_stored(entrance, taker, count, process)


def await_stored(
    entrance: Entrance, taker: Taker, count: int, process: Running, meanwhile: Callable[[], object] = lambda: None
) -> None:
    """Wait until the ingress queue is empty, and `count` messages are in the table. Counting is left for the end."""
    bench = entrance.bench
    await_true(lambda: not entrance.depth(), "the ingress queue is empty", process, meanwhile)
    await_true(lambda: taker.stored(bench) >= count, f"{count} messages are stored", process, meanwhile)


def await_true(
    question: Callable[[], bool], what: str, process: Running, meanwhile: Callable[[], object] = lambda: None
) -> None:
    """Wait for it; look at `meanwhile` each time. TimeoutError, ChildProcessError if the program ends."""
    deadline = time.monotonic() + PATIENCE
    while not question():
        process.check()
        meanwhile()
        if time.monotonic() > deadline:
            raise TimeoutError(f"it took longer than {PATIENCE:g} s until {what}")
        time.sleep(LOOK_EVERY)
