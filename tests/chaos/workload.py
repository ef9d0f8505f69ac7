"""Senders, dispatchers and consumers on a topology: set up, running, settled."""

import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import pika
from sqlalchemy import exc, text

from delaystore.delivery import DelayedDelivery
from delaystore.errors import StoreError
from delaystore.stores.sql import SqlDelayedMessageStore
from delaystore.transports import SqlQueueTransport
from tests.chaos.history import LAST, Recorder
from tests.chaos.processes import Process, Processes
from tests.chaos.program import CLASSIC, ENDPOINT, ERROR, ORDERS, QUEUES, QUORUM, Load, Options
from tests.chaos.recording_store import key_of
from tests.chaos.topology import Topology

SETTLE = 150.0
"""Seconds that what is due may take when all faults have ended; a message gives way for at most 60."""
SENDING = 600.0
"""Seconds that the rest of the messages that a plan wants may take."""
QUIET = 3.0
"""Seconds without a delivery after which consumers have taken everything."""
LOOK = 0.5
PAGE = 1000


class Workload:
    """What runs on one topology, which has been started. `folder`: of histories and logs."""

    queues: Sequence[str] = QUEUES
    """Those that are consumed."""

    def __init__(self, topology: Topology, folder: Path, seed: int, load: Load, recorder: Recorder) -> None:
        self._topology, self._folder, self._seed, self._load = topology, folder, seed, load
        self._recorder = recorder
        self._store = SqlDelayedMessageStore(topology.database.url)
        self._delivery = DelayedDelivery(ENDPOINT, self._store, settings=self._options("checker").settings())
        self.processes = Processes([*self._processes()])

    def set_up(self) -> None:
        """Create tables and queues."""
        self._delivery.setup_infrastructure()
        with self._store.engine.begin() as connection:
            connection.execute(text(f"CREATE TABLE {ORDERS} (id varchar(100) PRIMARY KEY)"))
        self._declare_queues()
        self._topology.broker.queues_declared()

    def await_begun(self, patience: float = 60.0) -> None:
        """Wait until each sender and consumer has something in the history."""
        await_true(
            lambda: all(
                any(path.stat().st_size for path in self._folder.glob(f"{process.name}-*.jsonl"))
                for process in self.processes.named()
            ),
            patience,
        )

    def await_sent(self, count: int, patience: float = SENDING) -> None:
        """Wait until so many messages were sent, and acknowledged."""
        await_true(lambda: self._acknowledged() >= count, patience)

    def settle(self, patience: float = SETTLE) -> None:
        """End the senders, wait until nothing is left to deliver, and note what waits all the same."""
        self._recorder.note("settling")
        self.processes.terminate("sender")
        deadline = time.monotonic() + patience
        await_true(self._is_done, patience)
        self._await_quiet(deadline)
        self.processes.terminate()
        self._note_rest()

    def note_tracebacks(self) -> None:
        """Note every traceback that a process has logged: of the product, or of the workload."""
        for process in self.processes.named():
            log = process.log.read_text(errors="replace") if process.log.exists() else ""
            for found in re.finditer(r"^Traceback.*(?:\n[ ].*|\n)*\n.*$", log, re.MULTILINE):
                self._recorder.note("traceback", name=process.name, text=found.group()[-1500:])

    def close(self) -> None:
        """Give back what this process has open."""
        self._delivery.close()

    def _processes(self) -> Sequence[Process]:
        found = [
            Process(f"tests.chaos.{module}", self._options(f"{name}-{number}"), self._recorder)
            for name, (module, count) in self._programs().items()
            for number in range(1, count + 1)
        ]
        return [
            *found,
            *(
                Process("tests.chaos.consuming", self._options(f"consumer-{queue}", queue), self._recorder)
                for queue in self.queues
            ),
        ]

    def _programs(self) -> Mapping[str, tuple[str, int]]:
        """What runs beside the consumers: by name its module, and how often."""
        return {"dispatcher": ("dispatching", self._load.dispatchers), "sender": ("sending", self._load.senders)}

    def _options(self, name: str, queue: str = "") -> Options:
        topology = self._topology
        return Options(
            name=name,
            folder=str(self._folder),
            store_url=topology.database.url,
            transport_url=topology.broker.url,
            consumer_urls=topology.broker.consumer_urls,
            mode=topology.mode,
            seed=self._seed,
            parent=os.getpid(),
            queue=queue,
            load=self._load,
        )

    def _declare_queues(self) -> None:
        if not self._topology.broker.url.startswith("amqp"):
            transport = SqlQueueTransport(self._store.engine)
            for queue in QUEUES:
                transport.declare(queue)
            return
        connection = pika.BlockingConnection([pika.URLParameters(url) for url in self._topology.broker.consumer_urls])
        for queue, kind in ((QUORUM, "quorum"), (CLASSIC, "classic"), (ERROR, "quorum")):
            connection.channel().queue_declare(queue, durable=True, arguments={"x-queue-type": kind})
        connection.close()

    def _is_done(self) -> bool:
        """Whether nothing waits any more; False as well while nobody knows."""
        with suppress(StoreError):
            return self._delivery.count() == 0
        return False

    def _await_quiet(self, deadline: float) -> None:
        size, since = -1, time.monotonic()
        while time.monotonic() - since < QUIET and time.monotonic() < deadline + QUIET:
            if (now := self._delivered_bytes()) != size:
                size, since = now, time.monotonic()
            time.sleep(LOOK)

    def _acknowledged(self) -> int:
        return sum(path.read_bytes().count(b'"acknowledged"') for path in self._folder.glob("sender-*.jsonl"))

    def _delivered_bytes(self) -> int:
        return sum(path.stat().st_size for path in self._folder.glob("consumer-*.jsonl"))

    def _note_rest(self) -> None:
        page = self._delivery.list(limit=PAGE)
        while True:
            for message in page.messages:
                self._recorder.note(
                    "waiting",
                    key=key_of(message.body),
                    id=message.message_id,
                    failures=message.failure_count,
                    next_attempt=message.next_attempt.timestamp(),
                )
            if page.next_key is None:
                break
            page = self._delivery.list(limit=PAGE, after=page.next_key)
        with self._store.engine.connect() as connection, suppress(exc.NoSuchTableError):
            for (key,) in connection.execute(text(f"SELECT id FROM {ORDERS}")):
                self._recorder.note("order", key=key)
        self._recorder.note(LAST)


def await_true(condition: Callable[[], object], patience: float) -> bool:
    """Poll until `condition` holds. False: it does not after `patience` seconds."""
    deadline = time.monotonic() + patience
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(LOOK)
    return True
