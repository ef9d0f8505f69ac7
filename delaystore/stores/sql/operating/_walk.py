"""A walk through an index: so many of its entries, from a point on, and where it ended."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from sqlalchemy import ColumnElement, Select

Point = TypeVar("Point")


@dataclass(frozen=True, slots=True)
class Walk(Generic[Point]):
    """The entries that meet `conditions`: those up to `end`; None: up to the last one."""

    conditions: Sequence[ColumnElement[bool]]
    end: Point | None


def walk(
    rows: Callable[[Select[Any]], Sequence[Any]],
    search: Select[Any],
    behind: Sequence[ColumnElement[bool]],
    examine: int,
    point_of: Callable[[Any], Point | None],
    up_to: Callable[[Point], ColumnElement[bool]],
) -> Walk[Point]:
    """The next `examine` entries of `search`, which is in order, behind a point.

    More of them where the walk would end at an entry that makes no point: the next walk could not begin there.
    """
    ends = rows(search.where(*behind).offset(examine - 1).limit(2))
    if len(ends) < 2:
        return Walk(behind, None)
    end = point_of(ends[0])
    if end is None:
        return walk(rows, search, behind, 2 * examine, point_of, up_to)
    return Walk([*behind, up_to(end)], end)
