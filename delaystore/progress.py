"""Telling a listener how far some work has come."""

from typing import Protocol


class ProgressListener(Protocol):
    """Called as work goes on, from any thread, but one at a time. It must not raise."""

    def __call__(self, step: str, done: int, total: int | None, /) -> object:
        """`done` of `total` have passed `step`, such as "moved". `total` may still change; None: it is unknown."""
        ...


def unwatched(_step: str, _done: int, _total: int | None, /) -> None:
    """A listener that ignores everything."""
