"""Looking at what would be moved."""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from delaystore.transports.rabbitmq.moving.forwarding import Fate, FateKind, Forwarded
from delaystore.transports.rabbitmq.moving.messages import WaitingMessage
from delaystore.transports.rabbitmq.moving.planning import Planner, UnmovableError
from delaystore.transports.rabbitmq.moving.reading import Reader
from delaystore.transports.rabbitmq.moving.report import MoveReport

_AT_ONCE: Final = 1000
_TICK: Final = 0.1


class Looker:
    """Reads what is at the front of each level queue, acknowledges nothing, and counts what would become of it."""

    MOST: Final = 1000
    """Messages of each level that are looked at; they are in nobody's reach meanwhile."""

    def __init__(self, reader: Reader, planner: Planner, report: MoveReport, quiet: float) -> None:
        self._reader = reader
        self._planner = planner
        self._report = report
        self._quiet = quiet

    def run(self, stopping: Callable[[], bool], show: Callable[[], object]) -> None:
        """Look until nothing comes for a moment."""
        came = time.monotonic()
        while not stopping() and time.monotonic() - came < self._quiet:
            self._reader.receive(_TICK)
            messages = self._reader.take(_AT_ONCE, _AT_ONCE * _AT_ONCE)
            if messages:
                came = time.monotonic()
                fates = [self._fate(message) for message in messages]
                self._report.add(Forwarded(messages, fates, repeated=0, trouble=None))
            show()

    def _fate(self, message: WaitingMessage) -> Fate:
        try:
            plan = self._planner.plan(message, datetime.now(UTC))
        except UnmovableError as error:
            return Fate(FateKind.POISONED, str(error))
        return Fate(FateKind.MOVED, destination=plan.destination, disagreeing=plan.disagreeing)
