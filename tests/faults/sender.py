"""An application that sends and sends."""

import threading
import time
from typing import Self

from delaystore.delivery import DelayedDelivery
from delaystore.errors import StoreError
from delaystore.message import new_message_id
from tests.faults.backlog import DESTINATION
from tests.faults.patience import PATIENCE, wait_until


class Sender:
    """Sends one message after another, in a thread, as long as the context lasts.

    `acknowledged`: message_ids whose send returned. `doubtful`: whose send raised StoreError, so that nobody knows.
    """

    def __init__(self, delivery: DelayedDelivery, pause: float = 0.002) -> None:
        self.acknowledged: list[str] = []
        self.doubtful: list[str] = []
        self.slowest = 0.0
        """Seconds that the slowest acknowledged send has taken."""
        self._delivery = delivery
        self._pause = pause
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sender", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive(), "a send does not return"

    def await_more(self, count: int) -> None:
        """Wait until so many more messages were acknowledged."""
        wanted = len(self.acknowledged) + count
        wait_until(lambda: len(self.acknowledged) >= wanted, f"{count} more messages are sent")

    def _run(self) -> None:
        while not self._ended.wait(self._pause):
            self._send()

    def _send(self) -> None:
        message_id = new_message_id()
        began = time.monotonic()
        try:
            self._delivery.send(DESTINATION, b"x" * 200, delay=0.05, message_id=message_id)
        except StoreError:
            self.doubtful.append(message_id)
        else:
            self.acknowledged.append(message_id)
            self.slowest = max(self.slowest, time.monotonic() - began)
