"""What commands print: results on standard output, remarks on standard error."""

import io
import json
import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

import typer

from delaystore.amounts import counted, roughly
from delaystore.errors import DelaystoreError

if TYPE_CHECKING:
    from delaystore.cli._tables import TableText
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
    from delaystore.cli._tables import table_text

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
