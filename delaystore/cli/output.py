"""What commands print: results on standard output, remarks on standard error."""

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final, Literal

import typer

_ENDLESS: Final = 1_000_000
"""A width for what is no terminal: files and pipes get whole lines."""
_HEX_WIDTH: Final = 32


def print_document(document: Any) -> None:
    """One JSON document, in ASCII, so that no terminal's encoding can spoil it."""
    typer.echo(json.dumps(document, indent=2))


def say(remark: str) -> None:
    """A line for people, on standard error."""
    typer.echo(remark, err=True)


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    right: Sequence[str] = (),
    unbroken: Sequence[str] = (),
) -> None:
    """A table; the columns named in `right` are set flush right, those in `unbroken` are never wrapped."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        justify: Literal["left", "right"] = "right" if column in right else "left"
        table.add_column(column, justify=justify, no_wrap=column in unbroken, overflow="fold")
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))  # Text: a message's own [brackets] are no markup
    console = Console()
    if not console.is_terminal:
        console.width = table.__rich_measure__(console, console.options.update_width(_ENDLESS)).maximum
    console.print(table)


def printable(text: str) -> str:
    """`text` without what would move the cursor or change the terminal."""
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)


def body_preview(body: bytes, limit: int = 2000) -> str:
    """The body as text where it is text, else in hexadecimal; cut after `limit` bytes, and saying so."""
    start = body[:limit]
    try:
        # a character cut in the middle is no reason for hexadecimal
        text = start.decode(errors="strict" if len(start) == len(body) else "ignore")
        body.decode()
        shown = "\n".join(printable(line) for line in text.splitlines())
    except UnicodeDecodeError:
        lines = (start[begin : begin + _HEX_WIDTH] for begin in range(0, len(start), _HEX_WIDTH))
        shown = "\n".join(line.hex(" ") for line in lines)
    return shown if len(start) == len(body) else f"{shown}\n... {len(body):,} bytes in all; --body writes them"
