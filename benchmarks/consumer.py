"""A consumer in a process of its own: how late each message arrives. Run by `lateness` and `schedules`.

It takes COUNT messages, prints their lateness in milliseconds as one JSON list, and ends. With `occurrences` in place
of COUNT it takes occurrences of schedules until it is told to stop by SIGTERM.
"""

import json
import os
import signal
import sys
import time
from datetime import datetime
from typing import Any, Final

import pika

from benchmarks.bench import DUE
from delaystore.schedules.definition import NOMINAL_TIME

OCCURRENCES: Final = "occurrences"
STARTING: Final = 2.0
"""Seconds after the first occurrence: those that were due before have waited for the dispatcher to start."""


class Consumer:
    """Notes when each message arrives and when it was due. `count`: of all messages; None: of occurrences, endless."""

    def __init__(self, count: int | None) -> None:
        self._count = count
        self._arrivals: list[tuple[float, Any, bytes]] = []
        parameters = pika.URLParameters(os.environ["DELAYSTORE_TRANSPORT"])
        parameters.heartbeat = 0
        self._connection = pika.SelectConnection(parameters, on_open_callback=self._opened)

    def run(self) -> list[float]:
        """The lateness of each message, in milliseconds, in the order of arrival."""
        self._connection.ioloop.start()
        if self._count is not None:
            return [(arrived - DUE.unpack_from(body)[0] / 1_000_000) * 1000 for arrived, _, body in self._arrivals]
        begin = self._arrivals[0][0] + STARTING if self._arrivals else 0
        due = [datetime.fromisoformat(of.headers[NOMINAL_TIME]).timestamp() for _, of, _ in self._arrivals]
        return [(each[0] - at) * 1000 for each, at in zip(self._arrivals, due, strict=True) if at >= begin]

    def stop(self, *_: object) -> None:
        """End `run`; a signal handler."""
        self._connection.ioloop.add_callback_threadsafe(self._connection.ioloop.stop)

    def _opened(self, connection: Any) -> None:
        connection.channel(on_open_callback=self._consume)

    def _consume(self, channel: Any) -> None:
        channel.basic_consume(os.environ["BENCHMARK_QUEUE"], self._arrived, auto_ack=True)

    def _arrived(self, _channel: Any, _method: Any, properties: Any, body: bytes) -> None:
        self._arrivals.append((time.time(), properties, body))
        if len(self._arrivals) == self._count:
            self._connection.ioloop.stop()


if __name__ == "__main__":
    consumer = Consumer(None if sys.argv[1] == OCCURRENCES else int(sys.argv[1]))
    signal.signal(signal.SIGTERM, consumer.stop)
    print(json.dumps(consumer.run()))
