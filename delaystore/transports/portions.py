"""How many messages to take at once, so that their bodies fit into memory."""

from collections.abc import Iterable
from typing import Final

BYTES: Final = 16 * 1024 * 1024
"""Bytes of bodies that one portion should have at most; a single message may exceed it."""
_FIRST: Final = 16
"""Messages of the first portion, when nothing is known of their sizes."""
_GROWTH: Final = 4


class Portions:
    """Sizes of portions, by the bodies that were seen: a queue does not tell them before."""

    def __init__(self) -> None:
        self._next = _FIRST

    def next(self, limit: int) -> int:
        """How many messages the next portion may have: `limit` at most, one at least."""
        return max(1, min(limit, self._next))

    def seen(self, sizes: Iterable[int]) -> None:
        """Note the sizes of the bodies of a portion that came."""
        largest = max(sizes, default=0)
        self._next = min(_GROWTH * self._next, BYTES // max(1, largest)) or 1
