"""Floats that a transport would change, and batches cut into portions."""

from collections.abc import Iterable
from dataclasses import replace
from math import isfinite
from typing import Any, Final

from delaystore.message import DelayedMessage

_AS_LARGE: Final = 2**62
"""Takes as many bytes as a float."""


def without_floats(message: DelayedMessage) -> DelayedMessage:
    """The message with whole numbers of the same size in place of floats, for a transport's check.

    A check refuses floats for the sender's sake, as some clients read them as whole numbers. A message that holds
    one already, as an ingress took it, is checked without. Infinities, and values that are no numbers, stay.
    """
    return replace(message, headers={name: _without(value) for name, value in message.headers.items()})


def _without(value: Any) -> Any:
    if type(value) is float and isfinite(value):
        return _AS_LARGE
    if type(value) is list:
        return [_without(item) for item in value]
    return {name: _without(item) for name, item in value.items()} if type(value) is dict else value


BYTES: Final = 16 * 1024 * 1024
"""Bytes of bodies that one portion should have at most; a single message may exceed it."""
_FIRST: Final = 16
"""Messages of the first portion, when nothing is known of their sizes."""
_GROWTH: Final = 4


class PortionSizes:
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
