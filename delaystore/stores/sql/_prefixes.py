"""How a text begins, as a condition that an index knows."""

from collections.abc import Iterator
from typing import Final

from sqlalchemy import ColumnElement

_LAST: Final = chr(0x10FFFF)
_SURROGATES: Final = range(0xD800, 0xE000)


def begins_with(column: ColumnElement[str], prefix: str) -> Iterator[ColumnElement[bool]]:
    """Bounds on a text that is compared byte by byte: an index knows them."""
    yield column >= prefix
    bound = _successor(prefix)
    if bound is not None:
        yield column < bound


def _successor(prefix: str) -> str | None:
    """The first text behind all that begin with `prefix`, in the order of UTF-8; None: there is none."""
    prefix = prefix.rstrip(_LAST)
    if not prefix:
        return None
    following = ord(prefix[-1]) + 1
    return prefix[:-1] + chr(_SURROGATES.stop if following in _SURROGATES else following)
