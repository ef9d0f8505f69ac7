"""The demo itself: schedule, wait, receive, compare."""

import json
import time
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final, Protocol

from delaystore.cli.demo.arrivals import Arrivals
from delaystore.cli.demo.clock import StoreClock
from delaystore.cli.demo.receiver import Receiver
from delaystore.cli.demo.report import DemoReport
from delaystore.cli.demo.stage import Stage
from delaystore.cli.signals import StopRequest
from delaystore.message import DelayedMessage, new_message_id

GRACE: Final = 30.0
"""Seconds after the last due time at which what has not arrived counts as lost."""
_CHUNK: Final = 1000
_SCHEDULING_RATE: Final = 10_000
"""Messages a second that any store can be trusted to take: the first is due once the last is stored."""
_LOOK: Final = 0.05


class Watcher(Protocol):
    """Is shown how far the demo is."""

    def show(self, scheduled: int, delivered: int) -> None:
        """Called about 20 times a second."""
        ...


class Demo:
    """One run: `messages` messages, due evenly over `seconds`."""

    def __init__(self, stage: Stage, messages: int, seconds: float, watcher: Watcher, stop: StopRequest) -> None:
        self._stage = stage
        self._messages = messages
        self._seconds = seconds
        self._watcher = watcher
        self._stop = stop
        self._arrivals = Arrivals()
        self._sent = 0

    def run(self) -> DemoReport:
        """Play it to its end, or until asked to stop; raises what store and transport raise."""
        clock = StoreClock(self._stage.store)
        receiver = Receiver(self._stage.transport, self._stage.queue, self._arrivals, clock)
        lead = 0.5 + self._messages / _SCHEDULING_RATE
        deadline = time.monotonic() + lead + self._seconds + GRACE
        first_due = clock.now() + timedelta(seconds=lead)
        self._stage.delivery.start()
        receiver.start()
        try:
            self._schedule(first_due, deadline)
            self._await_arrivals(deadline)
        finally:
            self._stage.delivery.stop(timeout=10)
            receiver.stop(timeout=10)
        if receiver.error is not None and not self._arrivals.delivered:
            raise receiver.error
        return self._report()

    def _schedule(self, first_due: datetime, deadline: float) -> None:
        for start in range(0, self._messages, _CHUNK):
            if self._stop.made or time.monotonic() > deadline:
                return
            end = min(start + _CHUNK, self._messages)
            self._sent += self._stage.delivery.send_many(self._chunk(range(start, end), first_due))
            self._show()

    def _chunk(self, numbers: Sequence[int], first_due: datetime) -> Iterator[DelayedMessage]:
        for number in numbers:
            message = DelayedMessage(
                message_id=new_message_id(),
                destination=self._stage.queue,
                due_time=first_due + timedelta(seconds=self._seconds * number / self._messages),
                body=json.dumps({"number": number}).encode(),
                headers={"kind": "demo"},
            )
            self._arrivals.expect(message.message_id, message.due_time)
            yield message

    def _await_arrivals(self, deadline: float) -> None:
        while self._arrivals.delivered < self._sent and not self._stop.made and time.monotonic() < deadline:
            self._show()
            time.sleep(_LOOK)
        self._show()

    def _show(self) -> None:
        self._watcher.show(self._sent, self._arrivals.delivered)

    def _report(self) -> DemoReport:
        return DemoReport(
            sent=self._sent,
            delivered=self._arrivals.delivered,
            duplicated=self._arrivals.duplicated,
            lateness=sorted(self._arrivals.lateness),
            exactly_once=self._stage.exactly_once,
            interrupted=self._stop.made,
        )
