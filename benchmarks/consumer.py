"""A consumer in a process of its own: how late each message arrives. Run by `lateness`.

It takes COUNT messages, prints their lateness in milliseconds as one JSON list, and ends.
"""

import json
import os
import sys
import time
from typing import Any

import pika

from benchmarks.bench import DUE


class Consumer:
    """Notes when each message arrives and when it was due."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._arrivals: list[tuple[float, bytes]] = []
        parameters = pika.URLParameters(os.environ["DELAYSTORE_TRANSPORT"])
        parameters.heartbeat = 0
        self._connection = pika.SelectConnection(parameters, on_open_callback=self._opened)

    def run(self) -> list[float]:
        """The lateness of each message, in milliseconds, in the order of arrival."""
        self._connection.ioloop.start()
        return [(arrived - DUE.unpack_from(body)[0] / 1_000_000) * 1000 for arrived, body in self._arrivals]

    def _opened(self, connection: Any) -> None:
        connection.channel(on_open_callback=self._consume)

    def _consume(self, channel: Any) -> None:
        channel.basic_consume(os.environ["BENCHMARK_QUEUE"], self._arrived, auto_ack=True)

    def _arrived(self, _channel: Any, _method: Any, _properties: Any, body: bytes) -> None:
        self._arrivals.append((time.time(), body))
        if len(self._arrivals) == self._count:
            self._connection.ioloop.stop()


if __name__ == "__main__":
    print(json.dumps(Consumer(int(sys.argv[1])).run()))
