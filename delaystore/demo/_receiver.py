"""The consumer of the demo's messages."""

import threading
import time
from typing import Final

from delaystore.clock import Clock
from delaystore.demo._arrivals import Arrivals
from delaystore.errors import TransportError
from delaystore.transports.abc import Transport

_AT_ONCE: Final = 1000
_WAIT: Final = 0.25
"""Seconds."""


class Receiver:
    """Receives what arrives in `queue`, in a thread of its own. Outages of the transport do not end it."""

    def __init__(self, transport: Transport, queue: str, arrivals: Arrivals, clock: Clock) -> None:
        self._transport = transport
        self._queue = queue
        self._arrivals = arrivals
        self._clock = clock
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="delaystore-demo-receiver", daemon=True)
        self.error: TransportError | None = None
        """The last failure; None: there was none."""

    def start(self) -> None:
        """Begin to receive."""
        self._thread.start()

    def stop(self, timeout: float) -> None:
        """Receive what is there already, and end. Waits for at most `timeout` seconds."""
        self._stopping = True
        self._thread.join(timeout)

    def _run(self) -> None:
        while True:
            stopping = self._stopping
            try:
                with self._transport.receive(self._queue, _AT_ONCE, _WAIT) as messages:
                    self._arrivals.note((message.message_id for message in messages), self._clock.now())
            except TransportError as error:
                self.error = error
                time.sleep(_WAIT)
                messages = []
            if stopping and not messages:
                return
