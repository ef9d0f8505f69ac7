"""The progress bar of a migration."""

from types import TracebackType
from typing import Self

from rich.progress import TaskID

from delaystore.cli.messages_progress import messages_progress


class MigrationBar:
    """A bar on standard error for each phase, with rate and time left, where that is a terminal; else nothing."""

    def __init__(self) -> None:
        self._progress = messages_progress(10)
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
