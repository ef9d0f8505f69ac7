"""Waiting for what must happen, however slow the machine is."""

import time
from collections.abc import Callable
from typing import Final

from delaystore.errors import DelaystoreError

PATIENCE: Final = 240.0
PAUSE: Final = 0.02


def wait_until(condition: Callable[[], object], what: str, patience: float = PATIENCE, *, pause: float = PAUSE) -> None:
    """Poll until `condition` holds; it may raise delaystore's errors while a server is down.

    `pause`: seconds between two looks; longer ones for looks that cost much.
    """
    deadline = time.monotonic() + patience
    while not _holds(condition):
        assert time.monotonic() < deadline, f"waited {patience:g} s in vain until {what}"
        time.sleep(pause)


def _holds(condition: Callable[[], object]) -> bool:
    try:
        return bool(condition())
    except DelaystoreError:
        return False
