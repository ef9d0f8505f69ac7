"""One connection's worth of an ingress: consumed, taken in, acknowledged."""

import time
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Final

from delaystore.calls import StopFlag
from delaystore.ingress._entry import Entry, Fate, size_of
from delaystore.ingress._intake import Intake
from delaystore.ingress._kept_back import KeptBack
from delaystore.ingress._tally import Tally
from delaystore.ingress.arrival import Arrival
from delaystore.ingress.settings import IngressSettings
from delaystore.transports.rabbitmq.consuming.consumer import Consumed, Consumer

_TICK: Final = 0.5
"""Seconds between two looks at whether somebody asked to stop."""
_FULL_TICK: Final = 0.05
"""Seconds, while nothing more is read from the broker."""
_MANY: Final = 10
"""Messages. Where a batch has as many, it is worth while to gather them; where few come, they are stored at once."""
_GATHERED_FOR: Final = 0.04
"""Seconds from the beginning of such a batch to that of the next one, unless this is full sooner."""


class Session:
    """Consumes until it is stopped, or something fails. One batch is taken in while the next one is prefetched."""

    def __init__(
        self,
        consumer: Consumer,
        queues: tuple[str, ...],
        settings: IngressSettings,
        intake: Intake,
        tally: Tally,
        stopping: StopFlag,
    ) -> None:
        self._consumer = consumer
        self._queues = queues
        self._settings = settings
        self._intake = intake
        self._tally = tally
        self._stopping = stopping
        self._batch: list[Entry] = []
        """What is being taken in."""
        self._batch_bytes = 0
        self._last = 0
        """How many messages the batch had that was taken in last."""
        self._began = 0.0
        self._future: Future[str | None] | None = None
        self._kept_back = KeptBack(settings)

    def run(self) -> None:
        """Raises TransportUnavailableError, TransportError, StoreError. What is not acknowledged goes back."""
        self._tally.left(0, None)  # what an earlier connection kept back is in its queue, and may go to others
        with ThreadPoolExecutor(1, thread_name_prefix="delaystore-ingress-store") as worker:
            try:
                while not self._stopping.is_set():
                    self._receive()
                    self._finish()
                    self._begin(worker)
                self._consumer.stop()
            finally:
                if self._future is not None:
                    wait([self._future])
            self._finish()
        self._consumer.finish()

    def _receive(self) -> None:
        """Take in what comes, and answer heartbeats. Where memory is full, no more is read until the batch is done."""
        room = self._kept_back.room - self._batch_bytes
        if self._consumer.prefetched_bytes >= room:
            if self._future is not None:
                wait([self._future], _FULL_TICK)
                self._consumer.keep_alive()
        elif self._future is not None:
            self._consumer.receive(_TICK, room)  # nobody has use for a message before the batch is done
        elif self._consumer.prefetched:
            self._consumer.receive(self._gathering, room)
        else:
            self._consumer.receive(_TICK)

    @property
    def _gathering(self) -> float:
        """Seconds for which the next batch waits for more: a commit for every few messages costs as much as many do."""
        if self._last < _MANY or self._is_full:
            return 0.0
        return max(0.0, self._began + _GATHERED_FOR - time.monotonic())

    @property
    def _is_full(self) -> bool:
        """Whether the next batch has all that it may have."""
        consumer, settings = self._consumer, self._settings
        most = min(settings.batch_size, settings.prefetch)
        return len(consumer.prefetched) >= most or consumer.prefetched_bytes >= settings.memory_bytes // 2

    def _begin(self, worker: ThreadPoolExecutor) -> None:
        if self._future is not None or self._gathering:
            return
        self._batch = self._kept_back.to_try() or [self._entry(each) for each in self._taken()]
        if self._batch:
            self._began = time.monotonic()
            self._batch_bytes = size_of(self._batch)
            self._future = worker.submit(self._intake.take_in, self._batch, self._kept_back.ids)
            self._future.add_done_callback(self._consumer.wake)

    def _taken(self) -> list[Consumed]:
        return self._consumer.take(self._settings.batch_size, self._settings.memory_bytes // 2)

    def _finish(self) -> None:
        """Acknowledge what has a fate, once the batch is done; then raise what ended it."""
        future = self._future
        if future is None or not future.done():
            return
        batch, self._batch, self._batch_bytes = self._batch, [], 0
        self._future, self._last = None, len(batch)
        settled = [entry for entry in batch if entry.fate is not None]
        if len(settled) < len(batch):
            self._consumer.keep_back()
        self._consumer.acknowledge(entry.arrival.tag for entry in settled)
        self._tally.add(settled)
        if any(entry.fate is Fate.REJECTED for entry in settled):
            self._consumer.give_back(self._kept_back.to_give_back())
        trouble = future.result()
        if trouble is not None:
            self._kept_back.add([entry for entry in batch if entry.fate is None], trouble)
        self._consumer.give_back(self._kept_back.overdue())
        self._tally.left(len(self._kept_back), self._kept_back.trouble)

    def _entry(self, consumed: Consumed) -> Entry:
        _, tag, redelivered, exchange, key, properties, body = consumed.delivery
        queue = self._queues[consumed.queue]
        return Entry(Arrival(queue, exchange, key, properties, body, redelivered, tag), consumed.at)
