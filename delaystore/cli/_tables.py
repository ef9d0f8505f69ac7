"""Tables for people, laid out for the width of their terminal."""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.table import Table
from rich.text import Text

_ENDLESS: Final = 1_000_000
"""The width of a table that is not to be broken."""
SHORTEST_CUT: Final = 13
"""Cells that are left of an id at least, as in 0198a1f2…9c3e."""
_NARROWEST: Final = 12
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
    widths = [max(map(cell_len, (name, *(row[at] for row in rows)))) for at, name in enumerate(columns)]
    spaces = _table(columns, [], right, unbroken)
    frame = _measured(spaces, encoding) - sum(map(cell_len, columns))
    excess = 0 if width is None else sum(widths) + frame - width
    shortened = set()
    for at, name in enumerate(columns):
        if name in cut and excess > 0:
            less = min(excess, max(0, widths[at] - max(SHORTEST_CUT, cell_len(name))))
            widths[at], excess = widths[at] - less, excess - less
            shortened |= {at} if less else set()
    spare = sum(
        max(0, widths[at] - max(_NARROWEST, cell_len(name)))
        for at, name in enumerate(columns)
        if name not in (*right, *unbroken, *cut)
    )
    if excess > spare:
        return TableText(text=_blocks(columns, rows))
    shown = [[cut_middle(cell, widths[at]) if at in shortened else cell for at, cell in enumerate(row)] for row in rows]
    table = _table(columns, shown, right, (*unbroken, *cut))
    page = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="backslashreplace")
    console = Console(file=page, force_terminal=styled, width=_ENDLESS if width is None else width)
    if width is None:
        console.width = table.__rich_measure__(console, console.options).maximum
    console.print(table)
    page.seek(0)
    return TableText(text=page.read(), cut=[columns[at] for at in sorted(shortened)])


def cut_middle(text: str, width: int) -> str:
    """`text` in `width` cells at most: of a longer one the beginning, an ellipsis, and the end, which is shorter."""
    if cell_len(text) <= width:
        return text
    end = (width - 1) // 3
    tail = ""
    while cell_len(text[-len(tail) - 1 :]) <= end:
        tail = text[-len(tail) - 1 :]
    return f"{set_cell_size(text, width - 1 - end).rstrip()}…{tail}"


def _table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[str], unbroken: Sequence[str]
) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        justify: Literal["left", "right"] = "right" if column in right else "left"
        table.add_column(column, justify=justify, no_wrap=column in (*right, *unbroken), overflow="fold")
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
