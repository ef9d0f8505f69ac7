"""A dry run: what would be moved, and where to."""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from delaystore.cascades.moving._forwarding import BatchResult, Result, ResultKind
from delaystore.cascades.moving._messages import WaitingMessage
from delaystore.cascades.moving._planning import Planner, UnmovableError
from delaystore.cascades.moving._reading import Reader
from delaystore.cascades.moving.report import MoveReport

_AT_ONCE: Final = 1000
_TICK: Final = 0.1


class DryRun:
    """Reads the messages at the front of each level queue, acknowledges none, and counts what would become of them."""

    MOST: Final = 1000
    """Messages of each level that are read; nobody else can get them meanwhile."""

    def __init__(self, reader: Reader, planner: Planner, report: MoveReport, quiet: float) -> None:
        self._reader = reader
        self._planner = planner
        self._report = report
        self._quiet = quiet

    def run(self, stopping: Callable[[], bool], show_progress: Callable[[], object]) -> None:
        """Read until nothing comes for a moment."""
        came = time.monotonic()
        while not stopping() and time.monotonic() - came < self._quiet:
            self._reader.receive(_TICK)
            messages = self._reader.take(_AT_ONCE, _AT_ONCE * _AT_ONCE)
            if messages:
                came = time.monotonic()
                results = [self._result(message) for message in messages]
                self._report.add(BatchResult(messages, results, repeated=0, trouble=None))
            show_progress()

    def _result(self, message: WaitingMessage) -> Result:
        try:
            plan = self._planner.plan(message, datetime.now(UTC))
        except UnmovableError as error:
            return Result(ResultKind.POISONED, str(error))
        return Result(ResultKind.MOVED, destination=plan.destination, disagreeing=plan.disagreeing)
