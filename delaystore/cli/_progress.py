"""Progress bars; imported where one is shown, since rich takes its time."""

from typing import Final, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, Task, TaskID, TextColumn, TimeRemainingColumn
from rich.text import Text
from typing_extensions import override


class ProgressBar:
    """A bar for each step on standard error, with its rate and the time left; nothing where that is no terminal.

    It appears with the first step. `transient`: only the present step is shown, and nothing remains after the block.
    """

    def __init__(self, *, transient: bool = False) -> None:
        console = Console(stderr=True)
        self._progress = Progress(
            TextColumn("{task.description:>14}"),
            BarColumn(bar_width=40),
            MofNCompleteColumn(),
            _Rate(""),
            TimeRemainingColumn(elapsed_when_finished=True),
            console=console,
            transient=transient,
            disable=not console.is_terminal,
        )
        self._transient = transient
        self._bars: dict[str, TaskID] = {}
        self.end: Final = self._progress.stop
        """Leave the bar as it is, so that lines may follow; may be called twice."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def show(self, step: str, done: int, total: int | None) -> None:
        """Move the bar of `step`; a `ProgressListener`."""
        if step not in self._bars:
            self._begin(step)
        self._progress.update(self._bars[step], completed=done, total=total)

    def _begin(self, step: str) -> None:
        if self._transient:
            for bar in self._bars.values():
                self._progress.remove_task(bar)
            self._bars.clear()
        self._progress.start()
        self._bars[step] = self._progress.add_task(step, total=None)


class _Rate(TextColumn):
    @override
    def render(self, task: Task) -> Text:
        return Text("" if task.speed is None else f"{task.speed:,.0f}/s")
