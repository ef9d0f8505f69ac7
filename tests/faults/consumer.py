"""A consumer that notes what arrives, and when."""

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

from tests.faults.patience import PATIENCE
from tests.integration.cascades import channel_to

PREFETCH = 1000
STALLED = 60.0  # seconds without an arrival, after which what is not there is lost


@dataclass(frozen=True)
class Arrived:
    """`at`: by time.time(), once the client has it."""

    message_id: str
    at: float


class Consumer:
    """Takes everything out of `queue`, in a thread, as long as the context lasts."""

    def __init__(self, url: str, queue: str) -> None:
        self.arrived: list[Arrived] = []
        self._url = url
        self._queue = queue
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="consumer", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive(), "the consumer does not end"

    @property
    def times(self) -> Counter[str]:
        """How often each message_id has arrived."""
        return Counter(one.message_id for one in self.arrived)

    def await_quiet(self, count: int, quiet: float = 1.0) -> None:
        """Wait until `count` different messages have arrived, or nothing more comes, and then none for a moment."""
        self._await_pause(lambda: len(self.times) >= count, STALLED)
        self._await_pause(lambda: False, quiet)

    def _await_pause(self, enough: Callable[[], bool], pause: float) -> None:
        """Wait until it is enough, or nothing has come for `pause` seconds."""
        seen, since = len(self.arrived), time.monotonic()
        while not enough() and time.monotonic() - since < pause:
            time.sleep(0.1)
            if len(self.arrived) > seen:
                seen, since = len(self.arrived), time.monotonic()

    def _run(self) -> None:
        with channel_to(self._url) as channel:
            channel.basic_qos(prefetch_count=PREFETCH)
            channel.basic_consume(self._queue, self._take)
            while not self._ended.is_set():
                channel.connection.process_data_events(time_limit=0.1)

    def _take(self, channel: Any, method: Any, properties: Any, _body: bytes) -> None:
        self.arrived.append(Arrived(properties.message_id, time.time()))
        channel.basic_ack(method.delivery_tag)
