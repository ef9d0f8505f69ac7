"""Destinations that are paused, resumed and limited."""

from collections.abc import Callable, Iterator
from datetime import datetime

from delaystore.amounts import limit_text
from delaystore.errors import InvalidMessageError
from delaystore.message import check_destination, utc
from delaystore.operations._access import Access
from delaystore.times import time_text

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
        store.pause(destination, by=access.actor.by, until=until)
    about = destination if until is None else f"{destination} until {time_text(until)}"
    steps = _steps(access, "parking messages", lambda: store.park(now))
    return _noted(access, "pause", about, destination, steps, listener)


def resume(access: Access, destination: str, listener: CountListener | None) -> int:
    """Resume a destination and show what is parked for it; returns how many messages were."""
    check_destination(destination)
    store = access.operable()
    with access.call("resuming a destination"):
        was_paused = store.resume(destination, by=access.actor.by)
    steps = _steps(access, "showing parked messages", store.unpark)
    shown = _noted(access, "resume" if was_paused else None, destination, destination, steps, listener)
    access.wake_up(None)
    return shown


def limit_rate(access: Access, destination: str, max_rate: float | None) -> None:
    """Limit a destination to so many messages a second, where the store takes that; None: no limit any more."""
    check_destination(destination)
    store = access.operable()
    with access.call("limiting a destination"):
        store.limit_rate(destination, max_rate, by=access.actor.by)
    limit = ": no limit any more" if max_rate is None else f" to {limit_text(max_rate)}"
    access.note("limit", f"{destination}{limit}", 0, destination)


def _steps(access: Access, purpose: str, step: Callable[[], int]) -> Iterator[int]:
    """Take steps until one finds nothing; yields how many messages all of them have changed so far."""
    total = 0
    while True:
        with access.call(purpose):
            done = step()
        if not done:
            return
        total += done
        yield total


def _noted(
    access: Access,
    action: str | None,
    about: str,
    destination: str,
    steps: Iterator[int],
    listener: CountListener | None,
) -> int:
    """How many messages `steps` changed; noted also where they end early. `action` None: not noted."""
    total = 0
    try:
        for total in steps:
            if listener is not None:
                listener(total)
    finally:
        if action is not None:
            access.note(action, about, total, destination)
    return total
