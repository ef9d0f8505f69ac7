"""What the workload's processes have in common: their options, a clean end at SIGTERM, a death with their parent."""

import ctypes
import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Self

from delaystore.settings import DelayedDeliverySettings, TransactionMode
from tests.chaos.history import Recorder

ENDPOINT = "chaos"
QUORUM, CLASSIC, MISSING, ERROR = "orders", "billing", "nowhere", "error"
"""A quorum queue, a classic one, one that does not exist, and where the messages for that go."""
QUEUES = (QUORUM, CLASSIC, ERROR)
ENTRANCE, REJECTED = "chaos", "chaos.ingress.rejected"
"""The exchange that an ingress stands behind, and where it puts what it cannot read."""
ORDERS = "chaos_orders"
"""The table of business rows, each written in the transaction that sends its message."""
PR_SET_PDEATHSIG = 1  # <linux/prctl.h>


@dataclass(frozen=True)
class Load:
    """How much is sent: `rate` messages a second by each of the senders, due after `shortest` to `longest` seconds."""

    senders: int = 2
    dispatchers: int = 3
    ingests: int = 2
    rate: float = 40.0
    shortest: float = 0.0
    longest: float = 15.0
    batch: int = 150
    """Messages of a send_many; half of these calls send messages that are due all at once."""
    linger: float = 0.1
    """Seconds that a batch is under way longer than it need, before it is sent and after; at most."""
    lease: float = 2.0
    """Of claims in SQLite, in seconds."""


@dataclass(frozen=True)
class Options:
    """What a process of the workload is told, as JSON on its command line.

    `consumer_urls`: tried in turn. `queue`: a consumer's.
    """

    name: str
    folder: str
    store_url: str
    transport_url: str
    consumer_urls: Sequence[str]
    mode: str
    seed: int
    parent: int
    queue: str = ""
    load: Load = field(default_factory=Load)

    def json(self) -> str:
        """For the command line."""
        return json.dumps(asdict(self))

    @classmethod
    def parse(cls, text: str) -> Self:
        """The inverse."""
        values = json.loads(text)
        return cls(**{**values, "load": Load(**values["load"])})

    def settings(self) -> DelayedDeliverySettings:
        """Of the endpoint."""
        return DelayedDeliverySettings(
            transaction_mode=TransactionMode(self.mode), max_body_bytes=1024, batch_size=AT_ONCE, error_queue=ERROR
        )


AT_ONCE = 200
"""The most that one worker of a dispatcher has under way."""


class Program:
    """A process of the workload: its options, its recorder, and whether it shall end."""

    def __init__(self) -> None:
        self.options = Options.parse(sys.argv[1])
        self.ended = threading.Event()
        _die_with(self.options.parent)
        signal.signal(signal.SIGTERM, lambda *_: self.ended.set())
        logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(name)s %(message)s")
        logging.getLogger("pika").setLevel(logging.CRITICAL)
        self.recorder = Recorder(Path(self.options.folder), self.options.name)
        self.recorder.note("process_runs", pid=os.getpid())


def _die_with(parent: int) -> None:
    """Have the kernel kill this process when the thread of `parent` that started it ends. Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit("the run is gone")
