"""A process that publishes what is to be delayed, as programs do that know nothing of delaystore.

Each message is published again until the broker has confirmed it. Half of them have ids.
"""

import os
import random
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pika
from pika import exceptions
from pika.adapters.utils.connection_workflow import AMQPConnectorException

from tests.chaos.program import CLASSIC, ENTRANCE, MISSING, QUORUM, REJECTED, Program
from tests.chaos.recording_store import body_of

REPEAT_AFTER = 0.2  # seconds
GIVE_UP = 15.0  # seconds that an attempt is repeated after SIGTERM
FAILURES = (exceptions.AMQPError, AMQPConnectorException, OSError)
KEYS = (QUORUM, CLASSIC, MISSING, REJECTED)
OFTEN = (60, 35, 3, 2)


class Published(NamedTuple):
    """One message. `delay`: counts from when it is published; None: it says when it is due, at `at`."""

    key: str
    message_id: str | None
    routing_key: str
    headers: dict[str, Any]
    delay: float | None
    at: float = 0.0

    @property
    def due(self) -> float:
        """If it is published now: when it may arrive at the soonest, by time.time()."""
        return self.at if self.delay is None else time.time() + self.delay


class Delayed(NamedTuple):
    """What a message says, and what it means; see `Published`."""

    headers: dict[str, Any]
    delay: float | None
    at: float = 0.0


def by_x_delay(seconds: float) -> Delayed:
    """As for the plugin, in milliseconds."""
    return Delayed({"x-delay": int(seconds * 1000)}, int(seconds * 1000) / 1000)


def by_text(seconds: float) -> Delayed:
    """The same as text."""
    return Delayed({"x-delay": str(int(seconds * 1000))}, int(seconds * 1000) / 1000)


def by_due_time(seconds: float) -> Delayed:
    """The time itself."""
    at = time.time() + seconds
    return Delayed({"delaystore.due-time": datetime.fromtimestamp(at, UTC).isoformat()}, None, at)


def unreadable(_seconds: float) -> Delayed:
    """It goes to the rejected queue at once."""
    return Delayed({"x-delay": "soon"}, 0.0)


FORMS: dict[Callable[[float], Delayed], float] = {by_x_delay: 70, by_text: 10, by_due_time: 20}


class Publisher:
    """Publishes one message after another."""

    def __init__(self, program: Program) -> None:
        options = program.options
        self._program = program
        self._load = options.load
        self._random = random.Random(f"{options.seed} {options.name}")
        self._mark = f"{options.name}.{os.getpid()}"
        self._number = 0
        self._urls = [pika.URLParameters(url) for url in options.consumer_urls]
        self._channel: Any = None

    def run(self) -> None:
        """Until SIGTERM."""
        due = time.monotonic()
        while not self._program.ended.wait(max(0, due - time.monotonic())):
            self._publish()
            due = max(due, time.monotonic() - 1) + 1 / self._load.rate

    def _publish(self) -> None:
        self._number += 1
        key = f"{self._mark}.{self._number}"
        message_id = key if self._number % 2 else None
        (routing_key,) = self._random.choices(KEYS, OFTEN)
        (form,) = self._random.choices([*FORMS], [*FORMS.values()])
        delay = self._random.uniform(self._load.shortest, self._load.longest)
        delayed = (unreadable if routing_key == REJECTED else form)(delay)
        message = Published(key, message_id, routing_key, *delayed)
        give_up = float("inf")
        while not self._attempt(message) and time.monotonic() < give_up:
            if self._program.ended.wait(REPEAT_AFTER):
                give_up = min(give_up, time.monotonic() + GIVE_UP)
                time.sleep(REPEAT_AFTER)

    def _attempt(self, message: Published) -> bool:
        """Publish it once. False: nobody knows whether the broker has it."""
        note, key, routing_key = self._program.recorder.note, message.key, message.routing_key
        details = {"id": message.message_id, "destination": routing_key, "fresh": True, "how": "published"}
        note("attempted", key=key, due=message.due, **details)
        properties = pika.BasicProperties(message_id=message.message_id, headers=dict(message.headers), delivery_mode=2)
        try:
            self._open_channel().basic_publish(ENTRANCE, routing_key, body_of(key), properties, mandatory=True)
        except FAILURES as error:
            note("failed", key=key, error=f"{type(error).__name__}: {error}"[:300])
            self._close()
            return False
        note("acknowledged", key=key)
        return True

    def _open_channel(self) -> Any:
        if self._channel is None:
            self._channel = pika.BlockingConnection(self._urls).channel()
            self._channel.confirm_delivery()
        return self._channel

    def _close(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            with suppress(*FAILURES):
                channel.connection.close()


if __name__ == "__main__":
    Publisher(Program()).run()
