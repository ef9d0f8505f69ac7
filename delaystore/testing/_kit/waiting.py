"""Waiting for what comes true soon, with deadlines that no slow machine reaches."""

import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from delaystore.stores.abc import DelayedMessageStore

DEADLINE = 60.0
"""Seconds."""
_SOON: Final = timedelta(minutes=1)


def eventually(holds: Callable[[], bool], what: str, deadline: float | None = None) -> None:
    """Return once `holds()`; fail, saying `what`, when it does not within `deadline` seconds (None: DEADLINE)."""
    deadline = DEADLINE if deadline is None else deadline
    end = time.monotonic() + deadline
    while not holds():
        assert time.monotonic() < end, f"not within {deadline:g} s: {what}"
        time.sleep(0.02)


def eventually_next(store: DelayedMessageStore, expected: datetime | None) -> None:
    """Fail unless `next()` is `expected`.

    For a moment it may be about now instead: a store may ask for another pass over what it has skipped, which then
    finds nothing. A later time would make a message late.
    """

    def holds() -> bool:
        found = store.next()
        if found == expected:
            return True
        assert found is not None, f"next() is None, though a message waits for {expected}"
        assert expected is None or found < expected, f"next() is {found}, too late for the message of {expected}"
        assert found <= store.now() + _SOON, f"next() is {found}, though nothing waits before {expected}"
        return False

    eventually(holds, f"next() == {expected}")
