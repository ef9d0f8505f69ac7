"""Telling others how far a migration is."""

from typing import Protocol


class Listener(Protocol):
    """Is told of progress; calls may come from several threads, one at a time."""

    def phase(self, name: str, total: int) -> None:
        """Now `total` messages are being prepared, moved or given back."""

    def advance(self, count: int) -> None:
        """So many more of the phase are done."""


class Quiet:
    """A listener that does nothing."""

    def phase(self, name: str, total: int) -> None:
        """Nobody watches."""

    def advance(self, count: int) -> None:
        """Nobody watches."""
