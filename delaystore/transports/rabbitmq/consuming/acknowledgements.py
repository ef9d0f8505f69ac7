"""Which deliveries to acknowledge, in as few acknowledgements as possible."""

from collections.abc import Iterable
from typing import NamedTuple


class Acknowledgement(NamedTuple):
    """A delivery tag. `multiple`: all before it are acknowledged too."""

    tag: int
    multiple: bool


class Acknowledgements:
    """Which deliveries of one channel to acknowledge. Tags count from 1.

    As long as none is kept back, one acknowledgement covers all before the first that is not done. Those behind it are
    acknowledged singly: if they waited for it, a kill would leave more of them in both places.
    """

    def __init__(self) -> None:
        self._before = 0
        """All up to this tag are done."""
        self._behind: set[int] = set()
        self._kept_back = False

    def done(self, tags: Iterable[int]) -> list[Acknowledgement]:
        """What to acknowledge now that these are done."""
        fresh = sorted(tags)
        if not self._kept_back:
            self._behind.update(fresh)
            while self._before + 1 in self._behind:
                self._before += 1
                self._behind.remove(self._before)
        covered = [tag for tag in fresh if tag <= self._before]
        together = [Acknowledgement(covered[-1], multiple=True)] if covered else []
        return together + [Acknowledgement(tag, multiple=False) for tag in fresh[len(covered) :]]

    def keep_back(self) -> None:
        """One delivery may never be done; from now on each is acknowledged by itself."""
        self._kept_back = True
        self._behind.clear()
