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
