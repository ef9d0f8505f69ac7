"""Processes of our own look for garbage less often."""

import gc
import weakref

from delaystore.cli._signals import look_for_garbage_seldom

USUAL = (700, 10, 10)
"""Python's own; commands that other tests ran in this process may have left another."""


class Cycle:
    """Refers to itself, so that only a look frees it."""

    def __init__(self) -> None:
        self.itself = self


def test_what_many_messages_take_is_looked_at_less_often_and_cycles_still_go() -> None:
    before = gc.get_threshold()
    try:
        gc.set_threshold(*USUAL)
        gc.collect()
        look_for_garbage_seldom()
        assert gc.get_threshold()[0] > 10 * USUAL[0]
        assert gc.get_threshold()[1:] == USUAL[1:]
        assert gc.get_freeze_count() > 0
        gone = weakref.ref(Cycle())
        assert all(not each for each in [[] for _ in range(3 * gc.get_threshold()[0])])
        assert gone() is None
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
