"""What a store says of itself: for `delaystore health` and `status`."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from delaystore.cli._arguments import parse_duration
from delaystore.cli._output import about
from delaystore.errors import ConfigurationError, StoreUnavailableError

if TYPE_CHECKING:
    from delaystore.cli._endpoint import OpenedEndpoint
    from delaystore.stores.abc import Count

T = TypeVar("T")

MaxOverdue = Annotated[
    str, typer.Option(metavar="DURATION", help="How long a message may be overdue before that is unhealthy.")
]
Timeout = Annotated[
    str, typer.Option(metavar="DURATION", help="How long the store may take to answer before that is unhealthy.")
]


@dataclass(frozen=True, slots=True)
class StoreReport:
    """What the store says of itself. `problem`: what is wrong with it. `waiting` None: not counted in time."""

    problem: str | None
    waiting: "Count | None" = None
    overdue: timedelta | None = None
    first_due: datetime | None = None

    def healthy(self, max_overdue: timedelta) -> bool:
        """Whether the store answers and can be written, and nothing is overdue for longer than `max_overdue`."""
        return self.problem is None and (self.overdue is None or self.overdue <= max_overdue)

    @property
    def lateness(self) -> str:
        """What is overdue, in words."""
        return f"the first is overdue for {self.overdue}" if self.overdue else "nothing is overdue"

    def document(self, *, healthy: bool) -> dict[str, Any]:
        """The same for JSON; `exact` None: not counted in time."""
        return {
            "healthy": healthy,
            "waiting": self.waiting.messages if self.waiting else None,
            "exact": self.waiting.exact if self.waiting else None,
            "oldest_overdue": self.overdue.total_seconds() if self.overdue else None,
        }

    def __str__(self) -> str:
        if self.problem is not None:
            return self.problem
        waiting = "not counted in time how many are" if self.waiting is None else about(self.waiting)
        return f"{waiting} waiting, {self.lateness}"


class Patience:
    """Asks questions that all together may take `--timeout`; raises ConfigurationError where that is 0."""

    def __init__(self, timeout: str) -> None:
        self._seconds = parse_duration(timeout, "--timeout").total_seconds()
        if not self._seconds:
            raise ConfigurationError("--timeout is 0; give the store some time to answer, as in 5s")
        self._began = time.monotonic()

    def report(self, opened: "OpenedEndpoint") -> StoreReport:
        """What the store answers in time; raises StoreError where it cannot be asked at all."""
        from delaystore.calls import Question

        asked = Question("asking for the status", opened.store.status, self._seconds)
        try:
            status = asked.answer()
        except StoreUnavailableError as error:
            if not asked.too_late:
                raise
            return StoreReport(str(error))
        waiting = self.answer("counting", opened.delivery.estimate_count)
        return StoreReport(status.read_only, waiting, status.overdue, status.first_due)

    def required(self, purpose: str, ask: Callable[[], T]) -> T:
        """What the store answers in the time that is left; raises StoreError."""
        from delaystore.calls import Question

        return Question(purpose, ask, self._left).answer()

    def answer(self, purpose: str, ask: Callable[[], T]) -> T | None:
        """What the store answers in the time that is left; None: nothing, or it cannot be reached."""
        from delaystore.calls import Question

        try:
            return Question(purpose, ask, self._left).answer()
        except StoreUnavailableError:
            return None

    @property
    def _left(self) -> float:
        return max(0.0, self._seconds - (time.monotonic() - self._began))
