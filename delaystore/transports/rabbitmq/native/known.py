"""What was seen to on the broker a short while ago."""

import time
from collections.abc import Iterable
from typing import Final

LIFE: Final = 30.0
"""Seconds after which it is seen to again: somebody may have deleted it, and its bindings with it."""


class Known:
    """Names, each for a while. Threads share it, without a lock that a fork could leave held."""

    def __init__(self) -> None:
        self._until: dict[str, float] = {}

    def lacks(self, names: Iterable[str]) -> list[str]:
        """Those of `names` that are to be seen to."""
        now = time.monotonic()
        return [name for name in names if self._until.get(name, 0.0) <= now]

    def add(self, name: str) -> None:
        """It was seen to just now."""
        self._until[name] = time.monotonic() + LIFE
