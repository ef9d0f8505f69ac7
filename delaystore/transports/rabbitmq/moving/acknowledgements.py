"""Which deliveries may be acknowledged, told in as few words as possible."""

from collections.abc import Iterable
from typing import NamedTuple


class Acknowledgement(NamedTuple):
    """A delivery tag; `multiple`: and all before it."""

    tag: int
    multiple: bool


class Acknowledgements:
    """The deliveries of one channel, whose tags count from 1.

    As long as none is kept back, all up to the first that is not done are acknowledged at once.
    """

    def __init__(self) -> None:
        self._acknowledged = 0
        """All up to this tag are acknowledged."""
        self._done: set[int] = set()
        self._kept_back = False

    def done(self, tags: Iterable[int]) -> list[Acknowledgement]:
        """These have been copied, and the copies confirmed: what to acknowledge now."""
        self._done.update(tags)
        if self._kept_back:
            return self._singly()
        first = self._acknowledged
        while self._acknowledged + 1 in self._done:
            self._acknowledged += 1
            self._done.remove(self._acknowledged)
        return [Acknowledgement(self._acknowledged, multiple=True)] if self._acknowledged > first else []

    def keep_back(self) -> list[Acknowledgement]:
        """There is one that will never be done: what to acknowledge now, and from now on, one at a time."""
        self._kept_back = True
        return self._singly()

    def _singly(self) -> list[Acknowledgement]:
        found = [Acknowledgement(tag, multiple=False) for tag in sorted(self._done)]
        self._done.clear()
        return found
