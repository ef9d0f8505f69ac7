"""Output of commands: lines, tables, JSON, logs. The report of a missing typer imports this without typer."""

import io
import json
import logging
import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, Literal

from typing_extensions import override

from delaystore.errors import DelaystoreError
from delaystore.text import counted, hex_dump, roughly

if TYPE_CHECKING:
    from delaystore.stores.abc import Count


class OutputError(DelaystoreError):
    """Standard output cannot be written."""


class ReaderGoneError(OutputError):
    """The reader of the pipe has closed it."""


def print_line(text: str) -> None:
    """Print a line of the result, with escapes for characters that are not printable. Raises OutputError."""
    write(f"{printable(text)}\n")


def write(text: str) -> None:
    """Print a piece of the result as it is. Raises OutputError."""
    import typer

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


def print_note(remark: str) -> None:
    """Print a line for people on standard error, escaped as by `print_line`; goes on where that cannot be written."""
    import typer

    with suppress(OSError):
        typer.echo(printable(remark), err=True)


def is_terminal() -> bool:
    """Whether standard output is a terminal."""
    return sys.stdout is not None and sys.stdout.isatty()


def can_ask() -> bool:
    """Whether a question on standard error reaches a terminal, and standard input has its answer."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))


def confirm(question: str, otherwise: str) -> None:
    """Ask on the terminal. If the answer is no, or the input ends, say `otherwise`, and raise typer.Exit."""
    import typer

    try:
        agreed = typer.confirm(question, err=True)
    except typer.Abort as error:
        if isinstance(error.__context__, KeyboardInterrupt):
            raise error.__context__ from None
        agreed = False
    if not agreed:
        print_note(otherwise)
        raise typer.Exit(1)


def message_lines(document: Mapping[str, Any], *without: str) -> Iterator[str]:
    """The lines that show a message, whose document it is: a field, a header or a property each; not its body."""
    for name, value in document.items():
        if name in ("headers", "properties"):
            kind = "header" if name == "headers" else "property"
            yield from (f"{kind:<15}{key}: {item}" for key, item in value.items())
        elif not name.startswith("body") and name not in without:
            yield f"{name:<15}{'-' if value is None else value}"


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    right: Sequence[str] = (),
    unbroken: Sequence[str] = (),
    wide: bool | None = None,
    headed: bool = True,
) -> None:
    """Print a table that fits the terminal; files and pipes get whole lines, aligned by spaces. Raises OutputError.

    Columns in `right` are aligned right. Cells of those and of `unbroken` are broken only where there is no other room.
    `wide`: no line is broken; False: a remark names that option. `headed`: begin with the columns' names.
    """
    text, is_broken = _laid_out(columns, rows, right=right, unbroken=unbroken, wide=bool(wide), headed=headed)
    write(text)
    if is_broken and wide is not None:
        print_note("lines are broken to fit; --wide shows them whole")


BAR: Final = 40
"""Characters of the longest bar."""
_BLOCKS: Final = "█░"


def bar(numbers: Sequence[int], highest: int) -> str:
    """A bar of one part for each number, at most two; with `highest` it is full. Any number above 0 shows."""
    ends = [BAR * end // max(1, highest) for end in accumulate(numbers)]
    parts = zip(_BLOCKS, numbers, ends, [0, *ends], strict=False)
    return "".join(block * max(end - begin, 1 if number else 0) for block, number, end, begin in parts)


def table_lines(columns: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[str] = ()) -> list[str]:
    """The lines of a table as `print_table` prints it, without the empty ones around it. Raises OutputError."""
    text, _ = _laid_out(columns, rows, right=right)
    return text.strip("\n").splitlines()


def _laid_out(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    right: Sequence[str],
    unbroken: Sequence[str] = (),
    wide: bool = False,
    headed: bool = True,
) -> tuple[str, bool]:
    """A table as text, and whether its lines are broken to fit the terminal."""
    from rich.box import SIMPLE_HEAD
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    shown = is_terminal()
    with _writing():
        width = terminal_width() if shown and not wide else _ENDLESS
        console = Console(file=sys.stdout, force_terminal=shown, width=width, height=_LINES)
    shown_rows = [[printable(cell) for cell in row] for row in rows]

    def table(kept: Sequence[str]) -> Table:
        made = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_header=headed)
        if not shown:
            made.box, made.padding = None, (0, 2, 0, 0)  # the frame has a blank between columns
        for name in columns:
            justify: Literal["left", "right"] = "right" if name in right else "left"
            made.add_column(name, justify=justify, no_wrap=name in kept, overflow="fold")
        for row in shown_rows:
            made.add_row(*map(Text, row))  # Text, so that [brackets] in messages are not markup
        return made

    kept = (*right, *unbroken)
    laid_out = table(kept)
    needed = laid_out.__rich_measure__(console, console.options.update(width=_ENDLESS)).maximum
    if needed > width:
        least = [
            max(map(cell_len, cells)) if cells[0] in kept else _NARROWEST
            for cells in zip(columns, *shown_rows, strict=True)
        ]
        if sum(least) + 2 * len(least) > width:
            laid_out = table(())
    with _writing(), console.capture() as capture:
        console.print(laid_out)
    return "".join(f"{line.rstrip()}\n" for line in capture.get().splitlines()), needed > width


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
    """`text` with escapes for characters that would begin another line, move the cursor or change the terminal."""
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
        shown = hex_dump(start)
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
        raise ReaderGoneError("the reader of the output has closed the pipe") from None
    except OSError as error:
        raise OutputError(f"the output cannot be written: {error.strerror or error}") from None


_ENDLESS: Final = 1_000_000
"""The width of a table that is not to be broken."""
_LINES: Final = 25
"""Lines of the screen, which rich must know: otherwise it takes a dumb terminal to have 80 columns."""
_NARROWEST: Final = 10
"""Cells that a column whose lines are broken has at least; with less room, all columns are broken."""


class _OneLine(logging.Formatter):
    """Escapes characters that are not printable: a log line may contain text of other programs. Tracebacks keep
    their lines.
    """

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
