"""The progress bar of `migrate` and `transfer`."""

from types import TracebackType
from typing import TYPE_CHECKING, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

if TYPE_CHECKING:
    from delaystore.transports.rabbitmq.moving.report import MoveReport


class _Rate(TextColumn):
    def __init__(self) -> None:
        super().__init__("")

    def render(self, task: Task) -> Text:
        """Messages a second, lately."""
        return Text("" if task.speed is None else f"{task.speed:,.0f}/s")


class MovingBar:
    """A bar on standard error, where that is a terminal, with rate and time left; else nothing."""

    def __init__(self) -> None:
        console = Console(stderr=True)
        self._progress = Progress(
            TextColumn("{task.description:>7}"),
            BarColumn(bar_width=40),
            MofNCompleteColumn(),
            _Rate(),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )
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
