"""A publisher in a process of its own: delayed messages, pipelined and confirmed. Run by `ingress`.

It publishes COUNT messages to the exchange that its environment names, as fast as they are confirmed, each with an
x-delay of hours; or, given PER_SECOND, so many a second, with an x-delay of DELAY, whose bodies tell when they are due.
When the last one is confirmed it prints as JSON when the first was published and when the last was confirmed, in
seconds since 1970, and ends.
"""

import json
import os
import random
import sys
import time
from collections.abc import Callable
from typing import Any, Final
from uuid import UUID

import pika
from pika import frame, spec

from benchmarks.bench import BODY_BYTES, DUE
from benchmarks.peers.pipelined import PERSISTENT

DELAY: Final = 2.0
"""Seconds, of what is published at a rate."""
ROUTING_KEY: Final = "bench"
_WINDOW: Final = 4000
"""Publishes without an answer, at most."""
_AT_ONCE: Final = 200
"""Messages in one system call."""
_TICK: Final = 0.005
_HOUR: Final = 3_600_000
_PADDING: Final = b"x" * (BODY_BYTES - DUE.size)
_CHANNEL: Final = 1


class Messages:
    """Messages as the frames of a publish."""

    def __init__(self, exchange: str) -> None:
        publish = spec.Basic.Publish(exchange=exchange, routing_key=ROUTING_KEY, mandatory=True)
        self._method = frame.Method(_CHANNEL, publish).marshal()
        self._source = random.Random()

    def far(self) -> bytes:
        """Due in an hour to a day."""
        return self._frames(self._source.randrange(_HOUR, 24 * _HOUR), b"x" * BODY_BYTES)

    def near(self, _number: int) -> bytes:
        """Due in DELAY; its body tells when."""
        return self._frames(round(DELAY * 1000), DUE.pack(round((time.time() + DELAY) * 1_000_000)) + _PADDING)

    def _frames(self, delay: int, body: bytes) -> bytes:
        properties = pika.BasicProperties(
            headers={"x-delay": delay},
            delivery_mode=PERSISTENT,
            message_id=str(UUID(int=self._source.getrandbits(128), version=4)),
        )
        header = frame.Header(_CHANNEL, len(body), properties).marshal()
        return bytes(self._method + header + frame.Body(_CHANNEL, body).marshal())


class Publisher:
    """Publishes `count` messages, the frames of each by its number; `per_second` None: as fast as it can."""

    def __init__(self, url: str, message: Callable[[int], bytes], count: int, per_second: int | None) -> None:
        self._message = message
        self._count = count
        self._per_second = per_second
        self._sent = 0
        self._confirmed = 0
        """All up to this tag are."""
        self._singly: set[int] = set()
        """Those behind it that are."""
        self._began = 0.0
        parameters = pika.URLParameters(url)
        parameters.heartbeat = 0
        self._connection = pika.SelectConnection(parameters, on_open_callback=self._opened)

    def run(self) -> tuple[float, float]:
        """When the first was published and the last confirmed."""
        self._connection.ioloop.start()
        return self._began, time.time()

    def _opened(self, connection: Any) -> None:
        connection.channel(_CHANNEL, on_open_callback=self._select)

    def _select(self, channel: Any) -> None:
        channel.confirm_delivery(self._answered, callback=lambda _: self._begin())

    def _begin(self) -> None:
        self._began = time.time()
        self._tick()

    def _tick(self) -> None:
        self._publish()
        self._connection.ioloop.call_later(_TICK, self._tick)

    def _publish(self) -> None:
        while pieces := [self._message(number) for number in range(self._sent, min(self._sent + _AT_ONCE, self._most))]:
            self._connection._output_marshaled_frames([b"".join(pieces)])
            self._sent += len(pieces)

    @property
    def _most(self) -> int:
        """How many may have been published by now."""
        most = min(self._count, self._confirmed + len(self._singly) + _WINDOW)
        return most if self._per_second is None else min(most, int((time.time() - self._began) * self._per_second))

    def _answered(self, answer: Any) -> None:
        if not isinstance(answer.method, spec.Basic.Ack):
            raise RuntimeError("a publish was nacked")
        tag = answer.method.delivery_tag
        if answer.method.multiple:
            self._confirmed = max(self._confirmed, tag)
            self._singly = {each for each in self._singly if each > tag}
        else:
            self._singly.add(tag)
        while self._confirmed + 1 in self._singly:
            self._confirmed += 1
            self._singly.remove(self._confirmed)
        if self._confirmed == self._count:
            self._connection.ioloop.stop()
        elif self._per_second is None:
            self._publish()


def main() -> None:
    count, per_second = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else None
    messages = Messages(os.environ["BENCHMARK_EXCHANGE"])
    made = [messages.far() for _ in range(count)] if per_second is None else []
    message = made.__getitem__ if made else messages.near
    print(json.dumps(Publisher(os.environ["DELAYSTORE_TRANSPORT"], message, count, per_second).run()))


if __name__ == "__main__":
    main()
