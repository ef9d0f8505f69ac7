"""Renewing, in a forked child, what stays the parent's: locks that were taken, threads and sockets."""

import os
from collections.abc import Callable
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

Thing = TypeVar("Thing")

_renewals: Final[WeakKeyDictionary[Any, Callable[[Any], object]]] = WeakKeyDictionary()


def renew_in_children(thing: Thing, renew: Callable[[Thing], object]) -> None:
    """Have `renew(thing)` called in every child forked while `thing` lives, before anything else runs there.

    `renew` must not refer to `thing`, or `thing` would live for ever.
    """
    _renewals[thing] = renew


def _renew_all() -> None:
    for thing, renew in list(_renewals.items()):
        renew(thing)


os.register_at_fork(after_in_child=_renew_all)
