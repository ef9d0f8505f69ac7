"""The progress bar of a load."""

from types import TracebackType
from typing import TYPE_CHECKING, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

if TYPE_CHECKING:
    from delaystore.spark.loading.running import Tasks


class LoadBar:
    """Spark's tasks as a bar on standard error, where that is a terminal; else nothing."""

    def __init__(self) -> None:
        console = Console(stderr=True)
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description:>14}"),
            BarColumn(bar_width=40),
            MofNCompleteColumn(),
            TextColumn("tasks"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task("starting Spark", total=None)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._progress.stop()

    def show(self, tasks: "Tasks", *, stopping: bool) -> None:
        """Move the bar."""
        step = "stopping" if stopping else "finishing" if 0 < tasks.total == tasks.done else "loading"
        self._progress.update(self._task, description=step, completed=tasks.done, total=tasks.total or None)
