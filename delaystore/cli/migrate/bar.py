"""The progress bar of a migration."""

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, Task, TaskID, TextColumn, TimeRemainingColumn
from rich.text import Text


class _Rate(TextColumn):
    def __init__(self) -> None:
        super().__init__("")

    def render(self, task: Task) -> Text:
        """Messages a second, lately."""
        return Text("" if task.speed is None else f"{task.speed:,.0f}/s")


class MigrationBar:
    """A bar on standard error for each phase, with rate and time left, where that is a terminal; else nothing."""

    def __init__(self) -> None:
        console = Console(stderr=True)
        self._progress = Progress(
            TextColumn("{task.description:>10}"),
            BarColumn(bar_width=40),
            MofNCompleteColumn(),
            _Rate(),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._progress.stop()

    def phase(self, name: str, total: int) -> None:
        """Begin a bar; what was asked on the terminal before is not disturbed."""
        self._progress.start()
        self._task = self._progress.add_task(name, total=total)

    def advance(self, count: int) -> None:
        """Move the bar."""
        if self._task is not None:
            self._progress.advance(self._task, count)
