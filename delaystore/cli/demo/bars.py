"""The demo's progress bars."""

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


class Bars:
    """Two bars on standard error, where that is a terminal; else nothing."""

    def __init__(self, messages: int) -> None:
        console = Console(stderr=True)
        self._progress = Progress(
            TextColumn("{task.description:>9}"),
            BarColumn(bar_width=40),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._scheduled = self._progress.add_task("scheduled", total=messages)
        self._delivered = self._progress.add_task("delivered", total=messages)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._progress.stop()

    def show(self, scheduled: int, delivered: int) -> None:
        """Move the bars."""
        self._progress.update(self._scheduled, completed=scheduled)
        self._progress.update(self._delivered, completed=delivered)
