"""A sender in a process of its own: as many messages a second as it is told, in batches. Run by `lateness`.

It stores COUNT messages, PER_SECOND, each one to two seconds before it is due, and prints as JSON how close to its due
time a message was stored at the worst, in seconds.
"""

import json
import os
import random
import sys
import time
from datetime import timedelta
from typing import Final

from benchmarks.bench import message_due
from delaystore.settings import TransactionMode
from delaystore.stores import SqlDelayedMessageStore

BATCHES_PER_SECOND: Final = 50
"""Each a `store_many`: a transaction."""


class Sender:
    """Stores for the queue that its environment names."""

    def __init__(self) -> None:
        self._queue = os.environ["BENCHMARK_QUEUE"]
        self._store = SqlDelayedMessageStore(os.environ["DELAYSTORE_STORE"])
        self._store.initialize(os.environ["DELAYSTORE_ENDPOINT"], TransactionMode.RECEIVE_ONLY)
        self._source = random.Random(1)  # repeatable data, no secret

    def run(self, count: int, per_second: int) -> float:
        """Seconds between storing and the due time, at the least. It catches up when it was held up."""
        batch = max(1, per_second // BATCHES_PER_SECOND)
        began, least = time.monotonic(), float("inf")
        for sent in range(0, count, batch):
            time.sleep(max(0.0, began + sent / per_second - time.monotonic()))
            least = min(least, self._send(min(batch, count - sent)))
        self._store.close()
        return least

    def _send(self, count: int) -> float:
        now = self._store.now()
        due_times = [now + timedelta(seconds=self._source.uniform(1, 2)) for _ in range(count)]
        self._store.store_many([message_due(due_time, self._queue) for due_time in due_times])
        return (min(due_times) - self._store.now()).total_seconds()


if __name__ == "__main__":
    print(json.dumps(Sender().run(int(sys.argv[1]), int(sys.argv[2]))))
