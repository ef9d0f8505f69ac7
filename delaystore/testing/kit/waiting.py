"""Waiting for what comes true soon, with deadlines that no slow machine reaches."""

import time
from collections.abc import Callable
from datetime import datetime
from typing import Final

from delaystore.stores.abc import DelayedMessageStore

DEADLINE: Final = 60.0
"""Seconds."""


def eventually(holds: Callable[[], bool], what: str, deadline: float = DEADLINE) -> None:
    """Return once `holds()`; fail, saying `what`, when it does not within `deadline` seconds."""
    end = time.monotonic() + deadline
    while not holds():
        assert time.monotonic() < end, f"not within {deadline:g} s: {what}"
        time.sleep(0.02)


def eventually_next(store: DelayedMessageStore, expected: datetime | None, deadline: float = DEADLINE) -> None:
    """Fail unless `next()` is `expected`.

    For a moment it may be sooner (a store may want another look at what it passed over): that costs a dispatcher a
    look in vain. Later would make a message late.
    """

    def holds() -> bool:
        found = store.next()
        if expected is not None:
            assert found is not None, f"next() is None, though a message waits for {expected}"
            assert found <= expected, f"next() is {found}, too late for the message of {expected}"
        return found == expected

    eventually(holds, f"next() == {expected}", deadline)
