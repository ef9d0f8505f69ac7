"""Progress through a number of messages."""

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, Task, TextColumn, TimeRemainingColumn
from rich.text import Text


class _Rate(TextColumn):
    def __init__(self) -> None:
        super().__init__("")

    def render(self, task: Task) -> Text:
        """Messages a second, lately."""
        return Text("" if task.speed is None else f"{task.speed:,.0f}/s")


def messages_progress(width: int) -> Progress:
    """Bars on standard error with rate and time left, their names `width` wide; nothing where that is no terminal."""
    console = Console(stderr=True)
    return Progress(
        TextColumn(f"{{task.description:>{width}}}"),
        BarColumn(bar_width=40),
        MofNCompleteColumn(),
        _Rate(),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
    )
