"""One run of the demo: schedule, wait, receive, compare."""

import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final

from delaystore.clock import CarriedClock
from delaystore.demo._arrivals import Arrivals
from delaystore.demo._endpoint import DemoEndpoint
from delaystore.demo._receiver import Receiver
from delaystore.demo._report import DemoReport
from delaystore.message import DelayedMessage, new_message_id
from delaystore.progress import ProgressListener

GRACE: Final = 30.0
"""Seconds after the last due time; what has not arrived by then counts as lost."""
_CHUNK: Final = 1000
_SCHEDULING_RATE: Final = 10_000
"""Messages a second that any store takes; the first message is due once the last should be stored."""
_SHOWN_EVERY: Final = 0.05
"""Seconds."""


class Demo:
    """One run: `messages` messages, due evenly over `seconds`. `stopped`: asked whether to end early."""

    def __init__(
        self,
        endpoint: DemoEndpoint,
        messages: int,
        seconds: float,
        listener: ProgressListener,
        stopped: Callable[[], bool],
    ) -> None:
        self._endpoint = endpoint
        self._messages = messages
        self._seconds = seconds
        self._listener = listener
        self._stopped = stopped
        self._arrivals = Arrivals()
        self._sent = 0

    def run(self) -> DemoReport:
        """Run to the end, or until asked to stop. Raises what store and transport raise."""
        # asked once; never behind the store's clock, which would make arrivals look early
        clock = CarriedClock(self._endpoint.store.now, fresh_for=math.inf, never_behind=True)
        receiver = Receiver(self._endpoint.transport, self._endpoint.queue, self._arrivals, clock)
        lead = 0.5 + self._messages / _SCHEDULING_RATE
        deadline = time.monotonic() + lead + self._seconds + GRACE
        first_due = clock.now() + timedelta(seconds=lead)
        self._endpoint.delivery.start()
        receiver.start()
        try:
            self._schedule(first_due, deadline)
            self._await_arrivals(deadline)
        finally:
            self._endpoint.delivery.stop(timeout=10)
            receiver.stop(timeout=10)
        if receiver.error is not None and not self._arrivals.delivered:
            raise receiver.error
        return self._report()

    def _schedule(self, first_due: datetime, deadline: float) -> None:
        for start in range(0, self._messages, _CHUNK):
            if self._stopped() or time.monotonic() > deadline:
                return
            end = min(start + _CHUNK, self._messages)
            self._sent += self._endpoint.delivery.send_many(self._chunk(range(start, end), first_due))
            self._show()

    def _chunk(self, numbers: Sequence[int], first_due: datetime) -> Iterator[DelayedMessage]:
        for number in numbers:
            message = DelayedMessage(
                message_id=new_message_id(),
                destination=self._endpoint.queue,
                due_time=first_due + timedelta(seconds=self._seconds * number / self._messages),
                body=json.dumps({"number": number}).encode(),
                headers={"kind": "demo"},
            )
            self._arrivals.expect(message.message_id, message.due_time)
            yield message

    def _await_arrivals(self, deadline: float) -> None:
        while self._arrivals.delivered < self._sent and not self._stopped() and time.monotonic() < deadline:
            self._show()
            time.sleep(_SHOWN_EVERY)
        self._show()

    def _show(self) -> None:
        self._listener("scheduled", self._sent, self._messages)
        self._listener("delivered", self._arrivals.delivered, self._messages)

    def _report(self) -> DemoReport:
        return DemoReport(
            sent=self._sent,
            delivered=self._arrivals.delivered,
            duplicated=self._arrivals.duplicated,
            lateness=sorted(self._arrivals.lateness),
            exactly_once=self._endpoint.exactly_once,
            interrupted=self._stopped(),
        )
