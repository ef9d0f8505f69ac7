"""Destinations that are paused, resumed and limited."""

import math
from collections.abc import Callable
from datetime import datetime

from delaystore.errors import ConfigurationError, InvalidMessageError
from delaystore.message import check_destination, utc
from delaystore.operations._access import Access

CountListener = Callable[[int], object]
"""Called as work goes on with how many messages are done. What it raises ends the work, which can be done again."""


def pause(access: Access, destination: str, until: datetime | None, listener: CountListener | None) -> int:
    """Pause a destination and park what is due for it; returns how many messages were parked."""
    check_destination(destination)
    store = access.operable()
    with access.call("pausing a destination"):
        now = store.now()
        if until is not None and utc(until, "until") <= now:
            raise InvalidMessageError(f"until {until.isoformat()} is over already; give a time to come")
        store.pause(destination, by=access.by, until=until)
    parked = _repeated(access, "parking messages", lambda: store.park(now), listener)
    access.note("pause", destination if until is None else f"{destination} until {until.isoformat()}", parked)
    return parked


def resume(access: Access, destination: str, listener: CountListener | None) -> int:
    """Resume a destination and show what is parked for it; returns how many messages were."""
    check_destination(destination)
    store = access.operable()
    with access.call("resuming a destination"):
        was_paused = store.resume(destination, by=access.by)
    shown = _repeated(access, "showing parked messages", store.unpark, listener)
    if was_paused or shown:
        access.note("resume", destination, shown)
        access.wake_up(None)
    return shown


def limit_rate(access: Access, destination: str, max_rate: float | None) -> None:
    """Limit a destination to so many messages a second; None: no limit any more."""
    check_destination(destination)
    if max_rate is not None and not (isinstance(max_rate, int | float) and math.isfinite(max_rate) and max_rate > 0):
        raise ConfigurationError(f"max_rate must be a number of messages a second above 0, or None, not {max_rate!r}")
    store = access.operable()
    with access.call("limiting a destination"):
        store.limit_rate(destination, max_rate, by=access.by)
    access.note("limit", destination if max_rate is None else f"{destination} to {max_rate:g}/s", 0)


def _repeated(access: Access, purpose: str, step: Callable[[], int], listener: CountListener | None) -> int:
    """Take steps until one finds nothing; returns how many messages all of them changed."""
    total = 0
    while True:
        with access.call(purpose):
            done = step()
        if not done:
            return total
        total += done
        if listener is not None:
            listener(total)
