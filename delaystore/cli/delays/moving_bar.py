"""The progress bar of `migrate` and `transfer`."""

from types import TracebackType
from typing import TYPE_CHECKING, Self

from delaystore.cli.messages_progress import messages_progress

if TYPE_CHECKING:
    from delaystore.transports.rabbitmq.moving.report import MoveReport


class MovingBar:
    """A bar on standard error, where that is a terminal, with rate and time left; else nothing."""

    def __init__(self) -> None:
        self._progress = messages_progress(7)
        self._task = self._progress.add_task("moved", total=None)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._progress.stop()

    def show(self, report: "MoveReport") -> None:
        """Move the bar."""
        total = max(report.source_before, report.read)
        self._progress.update(self._task, completed=report.settled, total=total)
