"""Forks: what stays the parent's is renewed in the child, and what may not be cut in two holds forks off."""

import logging
import os
import threading
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

logger = logging.getLogger("delaystore")

Thing = TypeVar("Thing")

LONGEST_HOLD: Final = 10.0
"""Seconds that a fork waits at most."""

_renewals: Final[WeakKeyDictionary[Any, Callable[[Any], object]]] = WeakKeyDictionary()


def renew_in_children(thing: Thing, renew: Callable[[Thing], object]) -> None:
    """Have `renew(thing)` called in every child forked while `thing` lives, before anything else runs there.

    `renew` must not refer to `thing`, or `thing` would live for ever.
    """
    _renewals[thing] = renew


class _Holds:
    """Who holds forks off, and whether one is going on."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._holders: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
        """The threads, by what they are using."""
        self._forking = False
        self._cut = False

    def hold_off(self, holder: Any) -> None:
        """Hold forks off; waits for one that has begun to wait, unless that waits for this thread already."""
        me = threading.get_ident()
        with self._changed:
            if self._forking and me not in self._holders.values():
                self._changed.wait_for(lambda: not self._forking, LONGEST_HOLD)
            self._holders[holder] = me

    def let_go(self, holder: Any) -> None:
        """Allow forks again, as far as `holder` is concerned."""
        with self._changed:
            self._holders.pop(holder, None)
            if self._forking:
                self._changed.notify_all()

    def before(self) -> None:
        """Wait for the holders of other threads; nobody begins to hold until `after`."""
        me = threading.get_ident()
        self._changed.acquire()
        self._forking = True
        end = time.monotonic() + LONGEST_HOLD
        while any(thread != me for thread in self._holders.values()) and (left := end - time.monotonic()) > 0:
            self._changed.wait(left)
        self._cut = bool(self._holders)

    def after(self) -> None:
        """In the parent."""
        cut, self._forking = self._cut, False
        self._changed.notify_all()
        self._changed.release()
        if cut:
            logger.warning(
                "forked in the middle of a write to SQLite, which did not end in %g s or is the forking thread's own; "
                "the child cannot write to that database: fork outside of transactions",
                LONGEST_HOLD,
            )


_holds = _Holds()


def hold_off(holder: Any) -> None:
    """Let no other thread fork until `let_go(holder)`, or for LONGEST_HOLD; `holder` must be hashable."""
    _holds.hold_off(holder)


def let_go(holder: Any) -> None:
    """Undo `hold_off`; may be called twice."""
    _holds.let_go(holder)


def _before() -> None:
    _holds.before()


def _after_in_parent() -> None:
    _holds.after()


def _after_in_child() -> None:
    global _holds
    _holds = _Holds()  # the lock of the other one is taken, by a thread that the child does not have
    for thing, renew in list(_renewals.items()):
        renew(thing)


os.register_at_fork(before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
