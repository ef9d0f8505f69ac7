"""A store that is full, and a cascade that its messages move into."""

import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Final

from benchmarks.arena import Arena
from benchmarks.bench import BODY_BYTES, ENDPOINT, Bench
from benchmarks.cascades import QUEUE, Cascade, cascade, delay_of
from delaystore.message import DelayedMessage, new_message_id
from delaystore.migrations import runner
from delaystore.migrations.abc import MigrationSource, MigrationTarget
from delaystore.migrations.sources import open_source
from delaystore.migrations.targets import open_target
from delaystore.transports.rabbitmq.topology import NSERVICEBUS_V2

OURS: Final = "migrate run"
BODY: Final = b"x" * BODY_BYTES


class Removal:
    """The store in PostgreSQL and the cascade of NServiceBus."""

    def __init__(self, bench: Bench, made: Cascade) -> None:
        self.bench = bench
        self.cascade = made
        self.target_url = f"{made.url}?delays=nservicebus-v2"

    def fill(self, count: int, later: timedelta = timedelta(0)) -> None:
        """Store so many, each its own delay, and `later` than that."""
        now = self.bench.store.now() + later
        self.bench.store.store_many(
            DelayedMessage(message_id=new_message_id(), destination=QUEUE, due_time=now + delay_of(number), body=BODY)
            for number in range(count)
        )
        self.bench.settle()

    def clear(self) -> None:
        """Empty both."""
        self.cascade.clear()
        self.bench.clear()

    def run(self) -> int:
        """`migrate run`, in this process; how many have moved."""
        with self._ends() as (source, target):
            return runner.run(source, target, ENDPOINT, runner.RunSettings()).counts.moved

    def clean_up(self) -> None:
        """`migrate cleanup`."""
        with self._ends() as (source, target):
            runner.clean_up(source, target, ENDPOINT)

    @property
    def command(self) -> list[str]:
        """`migrate run` as a program; its URLs are in `environment`."""
        return [str(Path(sys.executable).with_name("delaystore")), "migrate", "run", "--yes", "--json"]

    @property
    def environment(self) -> dict[str, str]:
        """What the program needs to know, kept off its command line for the passwords."""
        return {
            "DELAYSTORE_MIGRATE_FROM": self.bench.store_url,
            "DELAYSTORE_MIGRATE_TO": self.target_url,
            "DELAYSTORE_MIGRATE_ENDPOINT": ENDPOINT,
        }

    @contextmanager
    def _ends(self) -> Iterator[tuple[MigrationSource, MigrationTarget]]:
        with (
            closing(open_source(self.bench.store_url)) as source,
            closing(open_target(self.target_url, ENDPOINT)) as target,
        ):
            yield source, target


@contextmanager
def removal(arena: Arena) -> Iterator[Removal]:
    """Both ends, while the block runs."""
    with arena.bench() as bench, cascade(arena, NSERVICEBUS_V2) as made:
        yield Removal(bench, made)
