"""The ingress' batches: what is taken in, acknowledged, or retried later."""

from collections.abc import Callable, Sequence

from typing_extensions import override

from delaystore.ingress._entry import Entry, Fate, size_of
from delaystore.ingress._intake import Intake
from delaystore.ingress._kept_back import KeptBack
from delaystore.ingress._tally import Tally
from delaystore.ingress.arrival import Arrival
from delaystore.ingress.consuming import BatchHandler
from delaystore.ingress.settings import IngressSettings
from delaystore.transports.rabbitmq.consuming import Consumed, Consumer


class IngressHandler(BatchHandler[Entry]):
    """Has batches taken in, acknowledges what has a fate, and retries the rest."""

    def __init__(self, queues: Sequence[str], settings: IngressSettings, intake: Intake, tally: Tally) -> None:
        self._queues = queues
        self._intake = intake
        self._tally = tally
        self._kept_back = KeptBack(settings)
        self._trouble: str | None = None
        """Why some of the last batch have no fate."""
        tally.left(0, None)  # what an earlier connection kept back is in its queue, and may go to others

    @property
    @override
    def held_bytes(self) -> int:
        return self._kept_back.held_bytes

    @override
    def next_batch(self, take: Callable[[], Sequence[Consumed]]) -> Sequence[Entry] | None:
        return self._kept_back.to_try() or [self._entry(each) for each in take()] or None

    @override
    def size_of(self, batch: Sequence[Entry]) -> int:
        return size_of(batch)

    @override
    def handle(self, batch: Sequence[Entry]) -> None:
        self._trouble = self._intake.take_in(batch, self._kept_back.ids)

    @override
    def settle(self, batch: Sequence[Entry], consumer: Consumer, *, failed: bool) -> None:
        settled = [entry for entry in batch if entry.fate is not None]
        if len(settled) < len(batch):
            consumer.keep_back()
        consumer.acknowledge(entry.arrival.tag for entry in settled)
        self._tally.add(settled)
        if any(entry.fate is Fate.REJECTED for entry in settled):
            consumer.give_back(self._kept_back.to_give_back())
        if failed:
            return
        if self._trouble is not None:
            self._kept_back.add([entry for entry in batch if entry.fate is None], self._trouble)
        consumer.give_back(self._kept_back.overdue())
        self._tally.left(len(self._kept_back), self._kept_back.trouble)

    def _entry(self, consumed: Consumed) -> Entry:
        _, tag, redelivered, exchange, key, properties, body = consumed.delivery
        queue = self._queues[consumed.queue]
        return Entry(Arrival(queue, exchange, key, properties, body, redelivered, tag), consumed.at)
