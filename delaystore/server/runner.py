"""Components of a service: each runs in a thread, is started again when it dies, and is drained at the end."""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import IntEnum
from typing import Final, Protocol

from delaystore.errors import DelaystoreError, StoreUnavailableError, TransportUnavailableError
from delaystore.text import duration_text


class Component(Protocol):
    """One thing that a service does. It is run once; to run it again, another is made."""

    def run(self) -> None:
        """Do it, until `stop`; raises errors that it cannot handle. To return without having been stopped is to die."""
        ...

    def stop(self) -> None:
        """Have `run` finish the work in flight, and return. Does not wait; may be called often, at any time."""
        ...

    def problems(self) -> Sequence[str]:
        """Why it is not ready, a clause each; none: it is. May ask servers, for 2 s; raises nothing."""
        ...


class Rank(IntEnum):
    """In which order components end: each once those before have ended."""

    INTAKE = 0
    """Components that take messages in."""
    FORWARDING = 1
    """Components that send messages on."""


@dataclass(frozen=True, slots=True)
class ComponentPlan:
    """A component that an endpoint is to have. `configuration`: a component whose own has changed is replaced.

    `make`: may raise the same errors as `run`.
    """

    name: str
    rank: Rank
    configuration: object
    make: Callable[[], Component] = field(compare=False)


logger = logging.getLogger("delaystore.server")

_FIRST_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 30.0
_LONGEST_WAIT: Final = 5.0
"""Seconds between two attempts, in the end: of failed components, and of components that wait for a server."""
_PROVEN: Final = 60.0
"""Seconds that a component has run, after which its next death is as its first."""
_OUTAGES: Final = (StoreUnavailableError, TransportUnavailableError)
_OFTEN: Final = 0.1
"""Seconds after which a component that was asked to stop is asked again: it may not have been running before."""


class Runner:
    """Runs a component in a thread of its own. `name`: what people call it. `make`: a fresh component; may raise.

    `pause`: seconds before the first new start.
    """

    def __init__(self, name: str, make: Callable[[], Component], *, pause: float = _FIRST_PAUSE) -> None:
        self.name: Final = name
        self._make = make
        self._first_pause = pause
        self._stopping = threading.Event()
        self._component: Component | None = None
        self._trouble = "it is starting"
        self._reported: set[str] = set()
        self._thread = threading.Thread(target=self._run, name=f"delaystore-service-{name}", daemon=True)
        self.start: Final = self._thread.start
        """Begin; returns at once. Call it once."""

    def stop(self) -> None:
        """Have the component finish, and begin no other. Does not wait; may be called again, and before `start`."""
        self._stopping.set()
        component = self._component
        if component is not None:
            component.stop()

    def ended(self, seconds: float) -> bool:
        """Wait for the end, after `stop`, for so long at most; whether it has come."""
        deadline = time.monotonic() + seconds
        while self._thread.is_alive():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            self.stop()
            self._thread.join(min(left, _OFTEN))
        return True

    @property
    def is_alive(self) -> bool:
        """Whether the component runs, or will be started again."""
        return self._thread.is_alive()

    def problems(self) -> Sequence[str]:
        """Why it is not ready, a clause each; raises nothing."""
        component = self._component
        if self._stopping.is_set():
            return ["it is ending"]
        if component is None:
            return [self._trouble]
        try:
            return component.problems()
        except Exception as error:
            logger.exception("internal error while reading the health of %s", self.name)
            return [f"it cannot tell how it is: {_reason(error)}"]

    def _run(self) -> None:
        pause = self._first_pause
        while not self._stopping.is_set():
            began = time.monotonic()
            failure = self._run_once()
            if self._stopping.is_set():
                break
            if time.monotonic() - began > _PROVEN:
                pause = self._first_pause
                self._reported.clear()
            pause = min(pause, _LONGEST_WAIT if isinstance(failure, _OUTAGES) else _LONGEST_PAUSE)
            self._tell(failure, pause)
            self._stopping.wait(pause)
            pause *= 2

    def _run_once(self) -> Exception | None:
        """Why it ended; None: it returned."""
        try:
            self._component = component = self._make()
            component.run()
        except Exception as error:
            return error
        finally:
            self._component = None
        return None

    def _tell(self, failure: Exception | None, pause: float) -> None:
        """Note why it does not run; log each reason once, until it has run for a while."""
        reason = "it ended without being asked to" if failure is None else _reason(failure)
        waits = isinstance(failure, _OUTAGES)
        self._trouble = reason if waits else f"it died: {reason}; it is started again within {_within(pause)}"
        if reason in self._reported:
            return
        self._reported.add(reason)
        if waits:
            logger.warning("%s waits: %s", self.name, reason)
            return
        unexpected = failure is not None and not isinstance(failure, DelaystoreError)
        logger.error("%s: %s", self.name, self._trouble, exc_info=failure if unexpected else None)


def _reason(error: Exception) -> str:
    text = str(error) if isinstance(error, DelaystoreError) else f"{type(error).__name__}: {error}"
    return text or type(error).__name__


def _within(pause: float) -> str:
    return duration_text(timedelta(seconds=pause))


_KEEP_ALIVE_EVERY: Final = 0.5
"""Seconds between two calls of `keep_alive`."""
_MOMENT: Final = 0.5
"""Seconds that a turn has although the ones before have used up the time."""


def drained(turns: Iterable[Sequence[Runner]], deadline: float, keep_alive: Callable[[], bool]) -> list[str]:
    """Stop all of a turn, wait until they have ended, and go on with the next turn; returns the components that did
    not end by `deadline`.

    `deadline`: of `time.monotonic`. `keep_alive`: called again and again meanwhile; False: wait no longer.
    """
    unfinished = []
    for turn in turns:
        for runner in turn:
            runner.stop()
        until = max(deadline, time.monotonic() + _MOMENT)
        unfinished += [runner.name for runner in turn if not within(runner.ended, until, keep_alive)]
    return unfinished


def within(done: Callable[[float], bool], deadline: float, keep_alive: Callable[[], bool]) -> bool:
    """Whether `done`, which waits for the seconds it is given, returns True before `deadline`. `keep_alive`: see
    `drained`.
    """
    while not done(max(0.0, min(_KEEP_ALIVE_EVERY, deadline - time.monotonic()))):
        if time.monotonic() >= deadline or not keep_alive():
            return False
    return True
