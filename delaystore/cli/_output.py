"""Output of commands: lines, tables, JSON, progress bars, logs."""

import io
import json
import logging
import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, Self

import typer
from rich.box import SIMPLE_HEAD
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, Task, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text
from typing_extensions import override

from delaystore.errors import DelaystoreError
from delaystore.text import counted, roughly

if TYPE_CHECKING:
    from delaystore.stores.abc import Count

_HEX_WIDTH: Final = 32


class OutputError(DelaystoreError):
    """Standard output cannot be written."""


class ReaderGoneError(OutputError):
    """Nobody reads the pipe any more."""


def tell(text: str) -> None:
    """Print a line of the result, with escapes for what is not printable. Raises OutputError."""
    write(f"{printable(text)}\n")


def write(text: str) -> None:
    """Print a piece of the result as it is. Raises OutputError."""
    with _writing():
        typer.echo(text, nl=False)


def write_bytes(data: bytes) -> None:
    """Print bytes of the result as they are. Raises OutputError."""
    with _writing():
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


def print_document(document: Any) -> None:
    """Print a JSON document, in ASCII, which any encoding has. Raises OutputError; ValueError for NaN and infinity."""
    write(json.dumps(document, indent=2, allow_nan=False) + "\n")


def say(remark: str) -> None:
    """Print a line for people on standard error, escaped as by `tell`; goes on where that cannot be written."""
    with suppress(OSError):
        typer.echo(printable(remark), err=True)


def is_terminal() -> bool:
    """Whether standard output is a terminal."""
    return sys.stdout is not None and sys.stdout.isatty()


def somebody_can_be_asked() -> bool:
    """Whether a question on standard error reaches a terminal, and standard input has its answer."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))


def print_rows(rows: Iterable[Sequence[str]]) -> None:
    """Print tab-separated cells for other programs, all rows at once. Raises OutputError."""
    text = "".join("\t".join(map(printable, row)) + "\n" for row in rows)
    if text:
        write(text)


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    right: Sequence[str] = (),
    unbroken: Sequence[str] = (),
    cut: Sequence[str] = (),
    wide: bool | None = None,
) -> None:
    """Print a table that fits the terminal; files and pipes get whole lines. Raises OutputError.

    Columns in `right` are aligned right, and their cells are not broken, nor those in `unbroken`. Where there is no
    room, those in `cut` are cut in the middle. `wide`: nothing is cut or broken; False: a remark tells of that option.
    """
    table = _laid_out(columns, rows, right=right, unbroken=unbroken, cut=cut, wide=bool(wide))
    write(table.text)
    if table.cut and wide is not None:
        say(f"{' and '.join(table.cut)} cut to fit; --wide shows all")


def table_lines(columns: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[str] = ()) -> list[str]:
    """The lines of a table as `print_table` prints it, without the empty ones around it. Raises OutputError."""
    lines = _laid_out(columns, rows, right=right).text.splitlines()
    told = [at for at, line in enumerate(lines) if line.strip()]
    return [line.rstrip() for line in lines[told[0] : told[-1] + 1]]


def _laid_out(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    right: Sequence[str],
    unbroken: Sequence[str] = (),
    cut: Sequence[str] = (),
    wide: bool = False,
) -> "TableText":

    with _writing():
        encoding = sys.stdout.encoding
    return table_text(
        columns,
        [[printable(cell) for cell in row] for row in rows],
        width=terminal_width() if is_terminal() and not wide else None,
        encoding=encoding,
        styled=is_terminal(),
        right=right,
        unbroken=unbroken,
        cut=cut,
    )


def terminal_width() -> int:
    """Cells in a line of standard output's terminal; 80 where it does not say."""
    return shutil.get_terminal_size().columns


def about(count: "Count", remark: str = "") -> str:
    """`12,345`, or of an estimate three digits and the remark: `about 10,200,000 (estimated; --exact counts)`."""
    if count.exact:
        return f"{count.messages:,}"
    estimated = "; ".join(filter(None, ("estimated", remark)))
    return f"{roughly(count.messages)} ({estimated})"


def printable(text: str) -> str:
    """`text` with escapes for what would begin another line, move the cursor or change the terminal."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)


def body_preview(body: bytes, limit: int = 2000) -> str:
    """The body as text if it is text, else in hexadecimal; at most `limit` bytes, and a line about the rest."""
    start = body[:limit]
    try:
        # a character that the limit cuts in two is ignored
        text = start.decode(errors="strict" if len(start) == len(body) else "ignore")
        body.decode()
        shown = "\n".join(printable(line) for line in text.splitlines())
    except UnicodeDecodeError:
        lines = (start[begin : begin + _HEX_WIDTH] for begin in range(0, len(start), _HEX_WIDTH))
        shown = "\n".join(line.hex(" ") for line in lines)
    return shown if len(start) == len(body) else f"{shown}\n... {counted(len(body), 'byte')} in all; --body writes them"


def show_any_character() -> None:
    """From now on, print an escape for a character that standard output's encoding lacks, and do not fail."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def drop_unwritable_output() -> None:
    """Drop output that cannot be written. Called last: Python would try again at exit, and change the exit code."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except OSError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)


@contextmanager
def _writing() -> Iterator[None]:
    if sys.stdout is None:
        raise OutputError("the output cannot be written: standard output is closed")
    try:
        yield
    except BrokenPipeError:
        raise ReaderGoneError("nobody reads the output any more") from None
    except OSError as error:
        raise OutputError(f"the output cannot be written: {error.strerror or error}") from None


_ENDLESS: Final = 1_000_000


"""The width of a table that is not to be broken."""


SHORTEST_CUT: Final = 13


"""Cells that are left of an id at least, as in 0198a1f2…9c3e."""


_NARROWEST: Final = 10


"""Cells that a column whose lines are broken has at least; a table without room for that is no table any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableText:
    """A table as text. `cut`: the columns of which something was left out, so that it fits."""

    text: str
    cut: Sequence[str] = ()


def table_text(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    width: int | None,
    encoding: str,
    styled: bool,
    right: Sequence[str] = (),
    unbroken: Sequence[str] = (),
    cut: Sequence[str] = (),
) -> TableText:
    """A table of printable cells that is at most `width` wide; None: as wide as its cells.

    Columns in `cut` are cut in the middle, as little as will do; then lines are broken of those that are neither in
    `right` nor in `unbroken`. What does not fit even so is written as blocks, a line for each cell. `styled`: with
    bold names, and colours where the environment allows them.
    """
    frame = _measured(_table(columns, [], right, unbroken), encoding) - sum(map(cell_len, columns))
    room = None if width is None else width - frame
    fit = _fit(columns, rows, room, breakable=[name not in (*right, *unbroken, *cut) for name in columns], cut=cut)
    if fit is None:
        return TableText(text=_blocks(columns, rows))
    shown = [[cut_middle(cell, fit.widths[at]) if fit.cut[at] else cell for at, cell in enumerate(row)] for row in rows]
    table = _table(columns, shown, right, (*unbroken, *cut), fit.names)
    page = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="backslashreplace")
    console = Console(file=page, force_terminal=styled, width=_ENDLESS if width is None else width)
    if width is None:
        console.width = table.__rich_measure__(console, console.options).maximum
    console.print(table)
    page.seek(0)
    return TableText(text=page.read(), cut=[name for name, is_cut in zip(columns, fit.cut, strict=True) if is_cut])


@dataclass(frozen=True, slots=True)
class _Fit:
    """How columns fit: their names, perhaps in several lines, their widths, and which are cut."""

    names: Sequence[str]
    widths: Sequence[int]
    cut: Sequence[bool]


def _fit(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    room: int | None,
    *,
    breakable: Sequence[bool],
    cut: Sequence[str],
) -> _Fit | None:
    """How the columns fit into `room` (None: any); None: not at all. Lines of `breakable` ones are yet to be broken."""
    widths = _widths(columns, rows)
    if room is None or sum(widths) <= room:
        return _Fit(columns, widths, [False] * len(columns))
    names = [name.replace("-", "-\n").replace(" ", "\n") for name in columns]
    widths = _widths(names, rows)
    excess, are_cut = sum(widths) - room, [False] * len(columns)
    for at, name in enumerate(columns):
        less = min(excess, widths[at] - SHORTEST_CUT) if name in cut else 0
        if less > 0:
            widths[at], excess, are_cut[at] = widths[at] - less, excess - less, True
    least = [max(_NARROWEST, one) for one in _widths(names, [])]
    spare = sum(max(0, widths[at] - least[at]) for at in range(len(columns)) if breakable[at])
    return None if excess > spare else _Fit(names, widths, are_cut)


def cut_middle(text: str, width: int) -> str:
    """`text` in `width` cells at most: of a longer one the beginning, an ellipsis, and the end, which is shorter."""
    if cell_len(text) <= width:
        return text
    end = (width - 1) // 3
    tail = ""
    while cell_len(text[-len(tail) - 1 :]) <= end:
        tail = text[-len(tail) - 1 :]
    return f"{set_cell_size(text, width - 1 - end).rstrip()}…{tail}"


def _widths(names: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    """The cells that each column takes; a name may have several lines."""
    return [max(map(cell_len, (*name.split("\n"), *(row[at] for row in rows)))) for at, name in enumerate(names)]


def _table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    right: Sequence[str],
    unbroken: Sequence[str],
    names: Sequence[str] | None = None,
) -> Table:
    """`names`: as they are shown; None: as they are."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for column, name in zip(columns, names or columns, strict=True):
        justify: Literal["left", "right"] = "right" if column in right else "left"
        table.add_column(name, justify=justify, no_wrap=column in (*right, *unbroken), overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))  # Text, so that [brackets] in messages are not markup
    return table


def _measured(table: Table, encoding: str) -> int:
    console = Console(file=io.TextIOWrapper(io.BytesIO(), encoding=encoding), width=_ENDLESS)
    return table.__rich_measure__(console, console.options).maximum


def _blocks(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    longest = max(map(cell_len, columns))
    blocks = (
        "".join(f"{set_cell_size(name, longest)}  {cell}\n" for name, cell in zip(columns, row, strict=True) if cell)
        for row in rows
    )
    return "\n".join(blocks)


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
            _Rate(),
            TimeRemainingColumn(elapsed_when_finished=True),
            console=console,
            transient=transient,
            disable=not console.is_terminal,
        )
        self._transient = transient
        self._bars: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Leave the bar as it is, so that lines may follow; may be called twice."""
        self._progress.stop()

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
    def __init__(self) -> None:
        super().__init__("")

    @override
    def render(self, task: Task) -> Text:
        return Text("" if task.speed is None else f"{task.speed:,.0f}/s")


class _OneLine(logging.Formatter):
    """Escapes what is not printable: what a log line names may be somebody else's text. Tracebacks keep their lines."""

    @override
    def formatMessage(self, record: logging.LogRecord) -> str:
        return printable(super().formatMessage(record))


def log_to_standard_error(*filters: logging.Filter, verbose: bool = False) -> None:
    """Log there, from warnings on, what all `filters` let pass. `verbose`: of delaystore's loggers, everything."""
    handler = logging.StreamHandler(sys.stderr)
    for each in filters:
        handler.addFilter(each)
    handler.setFormatter(_OneLine("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
    if verbose:
        logging.getLogger("delaystore").setLevel(logging.DEBUG)
