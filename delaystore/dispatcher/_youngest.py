"""Memories of a bounded size."""

from typing import Any


def keep_youngest(known: dict[Any, Any], most: int) -> None:
    """Forget the entries of `known` that were put in first, until there are at most so many."""
    while len(known) > most:
        del known[next(iter(known))]
