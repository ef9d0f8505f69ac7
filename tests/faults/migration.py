"""A migration of the fault tests' store, as users run it, and what its tables say."""

import json
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, create_engine, inspect, text

from delaystore.migrations.abc import Report, RunCounts
from delaystore.migrations.runner import abort, verify
from delaystore.migrations.sources import open_source
from delaystore.migrations.targets import open_target
from delaystore.transports import open_transport
from delaystore.transports.rabbitmq.topology import NSERVICEBUS_V2
from tests.faults.backlog import DESTINATION, ENDPOINT
from tests.faults.patience import PATIENCE, wait_until
from tests.integration.cascades import arrivals, channel_to, ready
from tests.integration.cli import started

HIDDEN = f"{ENDPOINT}_delayed_migrating"
BATCHES = f"{ENDPOINT}_delayed_migration_batches"
LOOK = 0.1  # seconds between looks, each of which connects anew


@dataclass(frozen=True)
class Ended:
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """What `--json` printed for the one endpoint."""
        assert self.code == 0, self
        (endpoint,) = json.loads(self.out)["endpoints"]
        return endpoint


class Migration:
    """From the store at one URL into NServiceBus' cascade on a broker."""

    def __init__(self, store: str, broker: str, *options: str) -> None:
        self._broker = broker
        self._target = f"{broker}?delays=nservicebus-v2"
        self._ends = ["--from", store, "--to", self._target, "--endpoint", ENDPOINT]
        self._options = options
        self.store = store

    def but(self, *options: str) -> "Migration":
        """The same with other options; they win over its own."""
        return Migration(self.store, self._broker, *self._options, *options)

    def set_up(self) -> None:
        """The destination, and the cascade that leads to it."""
        transport = open_transport(self._broker)
        transport.declare(DESTINATION)
        transport.close()
        with closing(open_target(self._target, ENDPOINT)) as target:
            target.set_up({DESTINATION: 1})

    @contextmanager
    def running(self) -> Iterator[subprocess.Popen[str]]:
        """`migrate run` in a process; killed at the end of the block if it still runs."""
        with started(["migrate", "run", *self._ends, "--yes", "--json", *self._options], {}) as process:
            try:
                yield process
            finally:
                process.kill()

    def run(self) -> Ended:
        """`migrate run`, to its end."""
        with self.running() as process:
            return ended(process)

    def abort(self) -> Report:
        """Give back what has not moved."""
        with closing(open_source(self.store)) as source:
            return abort(source, ENDPOINT)

    def verified(self) -> RunCounts:
        """What became of everything, after `verify` has passed."""
        with closing(open_source(self.store)) as source, closing(open_target(self._target, ENDPOINT)) as target:
            verified = verify(source, target, ENDPOINT)
        assert verified.good, verified.findings
        return verified.counts

    def await_moved(self, process: subprocess.Popen[str], count: int) -> None:
        """Wait until the run has completed batches with `count` messages; AssertionError if it ends before."""

        def has_moved() -> bool:
            assert process.poll() is None, process.communicate()
            return self.moved() >= count

        wait_until(has_moved, f"{count} messages have moved", pause=LOOK)

    def moved(self) -> int:
        """How many the run counts as moved."""
        query = f"SELECT coalesce(sum(prepared - rejected - returned), 0) FROM {BATCHES} WHERE status = 'completed'"
        with self._database() as connection:
            if not inspect(connection).has_table(BATCHES):
                return 0
            return int(connection.execute(text(query)).scalar_one())

    def in_flight(self) -> set[str]:
        """The message_ids of batches that are staged: these alone may be sent twice."""
        query = f"SELECT message_id FROM {HIDDEN} JOIN {BATCHES} ON number = migration_batch WHERE status = 'staged'"
        with self._database() as connection:
            if not inspect(connection).has_table(BATCHES):
                return set()
            return set(connection.execute(text(query)).scalars())

    def await_lock(self) -> None:
        """Wait until the database has seen that a killed process is gone."""

        def is_free() -> bool:
            with closing(open_source(self.store)) as source, source.lock(ENDPOINT, "a test"):
                return True

        wait_until(is_free, "the lock of a killed process is free", pause=LOOK)

    def waiting(self) -> Counter[str]:
        """How often each message_id waits in the cascade, which is empty afterwards; nothing may fall due."""
        found = Counter[str]()
        with channel_to(self._broker) as channel:
            for number in range(NSERVICEBUS_V2.levels):
                level = NSERVICEBUS_V2.level(number)
                while count := ready(channel, level):
                    found.update(one.properties.message_id for one in arrivals(channel, [level], count))
        return found

    @contextmanager
    def _database(self) -> Iterator[Connection]:
        engine = create_engine(self.store)
        try:
            with engine.connect() as connection:
                yield connection
        finally:
            engine.dispose()


def ended(process: subprocess.Popen[str]) -> Ended:
    """What a process has to say at its end."""
    out, err = process.communicate(timeout=PATIENCE)
    assert "Traceback" not in err, err
    return Ended(process.returncode, out, err)
