"""One run of the demo: schedule, wait, receive, compare."""

import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
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


@dataclass(slots=True)
class Demo:
    """One run: `messages` messages, due evenly over `seconds`. `stopped`: asked whether to end early."""

    endpoint: DemoEndpoint
    messages: int
    seconds: float
    listener: ProgressListener
    stopped: Callable[[], bool]
    _arrivals: Arrivals = field(default_factory=Arrivals, init=False)
    _sent: int = field(default=0, init=False)

    def run(self) -> DemoReport:
        """Run to the end, or until asked to stop. Raises what store and transport raise."""
        # asked once; never behind the store's clock, which would make arrivals look early
        clock = CarriedClock(self.endpoint.store.now, fresh_for=math.inf, never_behind=True)
        receiver = Receiver(self.endpoint.transport, self.endpoint.queue, self._arrivals, clock)
        lead = 0.5 + self.messages / _SCHEDULING_RATE
        deadline = time.monotonic() + lead + self.seconds + GRACE
        first_due = clock.now() + timedelta(seconds=lead)
        self.endpoint.delivery.start()
        receiver.start()
        try:
            self._schedule(first_due, deadline)
            self._await_arrivals(deadline)
        finally:
            self.endpoint.delivery.stop(timeout=10)
            receiver.stop(timeout=10)
        if receiver.error is not None and not self._arrivals.delivered:
            raise receiver.error
        return DemoReport(
            sent=self._sent,
            delivered=self._arrivals.delivered,
            duplicated=self._arrivals.duplicated,
            lateness=sorted(self._arrivals.lateness),
            exactly_once=self.endpoint.exactly_once,
            interrupted=self.stopped(),
        )

    def _schedule(self, first_due: datetime, deadline: float) -> None:
        for start in range(0, self.messages, _CHUNK):
            if self.stopped() or time.monotonic() > deadline:
                return
            end = min(start + _CHUNK, self.messages)
            self._sent += self.endpoint.delivery.send_many(self._chunk(range(start, end), first_due))
            self._show()

    def _chunk(self, numbers: Sequence[int], first_due: datetime) -> Iterator[DelayedMessage]:
        for number in numbers:
            message = DelayedMessage(
                message_id=new_message_id(),
                destination=self.endpoint.queue,
                due_time=first_due + timedelta(seconds=self.seconds * number / self.messages),
                body=json.dumps({"number": number}).encode(),
                headers={"kind": "demo"},
            )
            self._arrivals.expect(message.message_id, message.due_time)
            yield message

    def _await_arrivals(self, deadline: float) -> None:
        while self._arrivals.delivered < self._sent and not self.stopped() and time.monotonic() < deadline:
            self._show()
            time.sleep(_SHOWN_EVERY)
        self._show()

    def _show(self) -> None:
        self.listener("scheduled", self._sent, self.messages)
        self.listener("delivered", self._arrivals.delivered, self.messages)
