"""Ending parts in turns, within a time."""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from delaystore.service.runner import Runner

_BEAT: Final = 0.5
"""Seconds between two calls of `beat`."""
_MOMENT: Final = 0.5
"""Seconds that a turn has although the ones before have used up the time."""


def drained(turns: Iterable[Sequence[Runner]], deadline: float, beat: Callable[[], bool]) -> list[str]:
    """Stop all of a turn, wait until they have ended, and go on with the next turn; what did not end by `deadline`.

    `deadline`: of `time.monotonic`. `beat`: called again and again meanwhile; False: wait no longer.
    """
    unfinished = []
    for turn in turns:
        for runner in turn:
            runner.stop()
        until = max(deadline, time.monotonic() + _MOMENT)
        unfinished += [runner.name for runner in turn if not within(runner.ended, until, beat)]
    return unfinished


def within(done: Callable[[float], bool], deadline: float, beat: Callable[[], bool]) -> bool:
    """Whether `done`, which waits for so many seconds, says so before `deadline`. `beat`: see `drained`."""
    while not done(max(0.0, min(_BEAT, deadline - time.monotonic()))):
        if time.monotonic() >= deadline or not beat():
            return False
    return True
