"""What commands print: results on standard output, remarks on standard error."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

import typer


def print_document(document: Any) -> None:
    """One JSON document, in ASCII, so that no terminal's encoding can spoil it."""
    typer.echo(json.dumps(document, indent=2))


def say(remark: str) -> None:
    """A line for people, on standard error."""
    typer.echo(remark, err=True)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[str] = ()) -> None:
    """A table; the columns named in `right` are numbers."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        numeric = column in right
        table.add_column(column, justify="right" if numeric else "left", no_wrap=numeric, overflow="fold")
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))  # Text: a message's own [brackets] are no markup
    Console(soft_wrap=False).print(table)


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
        shown = start.hex(" ", 1)
    return shown if len(start) == len(body) else f"{shown}\n... {len(body):,} bytes in all; --body writes them"
