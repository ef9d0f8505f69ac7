"""Destinations that take nothing at present."""

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from delaystore.dispatcher._youngest import keep_youngest
from delaystore.message import DelayedMessage
from delaystore.transports.abc import Outcome, OutcomeKind, PendingConfirm

logger = logging.getLogger("delaystore.dispatcher")

MOST_SET_ASIDE: Final = 1000
"""The most destinations set aside. Messages for others give way too, but each of them is tried."""
SHORTEST_GAP: Final = 1.0
LONGEST_GAP: Final = 5.0
"""Seconds between two probes of a destination: few at first, twice as many each time."""
UNASKED: Final = 600.0
"""Seconds without a message after which a destination may be forgotten: what gives way comes back sooner, so another
dispatcher has sent it, or somebody has cancelled it."""
LATECOMERS: Final = 5.0
"""Seconds that older messages have to arrive once a younger one has arrived."""
_LOG_AGAIN: Final = 60.0
"""Seconds in which a destination that comes and goes is told of once."""
_LATES: Final = 4
"""Probes on their way of which the answer is awaited, for each destination."""


class Part(Enum):
    """What is done with a message."""

    SEND = "send"
    PROBE = "probe"
    """It is sent to find out whether its destination takes messages again."""
    HOLD = "hold"
    """It gives way without being sent."""


@dataclass(slots=True)
class _Entry:
    reason: str
    since: float
    next_probe: float
    told: bool
    gap: float = SHORTEST_GAP
    lates: deque[tuple[PendingConfirm, float]] = field(default_factory=lambda: deque(maxlen=_LATES))
    """What is on its way there, and since when."""


@dataclass(frozen=True, slots=True)
class _Recovery:
    sent_at: float
    """When the message was sent that arrived."""
    at: float


class SetAside:
    """Remembers which destinations take nothing at present, and when to try them. Threads may share it.

    `what` begins the lines of the log, as in "the destination". `monotonic` gives seconds.
    """

    def __init__(self, what: str, monotonic: Callable[[], float]) -> None:
        self._what = what
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._entries: dict[str, _Entry] = {}
        self._recovered: dict[str, _Recovery] = {}
        self._full = False

    def __bool__(self) -> bool:
        return bool(self._entries)

    def parts(self, messages: Sequence[DelayedMessage]) -> Sequence[Part]:
        """What to do with each of `messages`."""
        now = self._monotonic()
        with self._lock:
            for destination in {message.destination for message in messages} & self._entries.keys():
                self._hear(destination, now)
            return [self._part(message.destination, now) for message in messages]

    def reason(self, destination: str) -> str:
        """Why the destination is set aside."""
        entry = self._entries.get(destination)
        return "its destination is set aside" + ("" if entry is None else f": {entry.reason}")

    def gap(self, destination: str) -> float:
        """Seconds until the destination is tried again."""
        entry = self._entries.get(destination)
        return SHORTEST_GAP if entry is None else entry.gap

    def note(self, messages: Sequence[DelayedMessage], outcomes: Sequence[Outcome], sent_at: float) -> None:
        """Take notice of what became of messages that were sent."""
        unready = {
            message.destination: outcome
            for message, outcome in zip(messages, outcomes, strict=True)
            if outcome.kind is OutcomeKind.UNREADY
        }
        answered = {
            message.destination
            for message, outcome in zip(messages, outcomes, strict=True)
            if not outcome.kind.passes and message.destination in self._entries
        }
        now = self._monotonic()
        with self._lock:
            for destination in answered - unready.keys():
                self._take_back(destination, sent_at, now)
            for destination, outcome in unready.items():
                self._set_aside(destination, outcome, sent_at, now)

    def overtaken(self, destination: str, sent_at: float) -> bool:
        """Whether a message sent there at `sent_at` will hardly arrive: a younger one did, some seconds ago."""
        recovery = self._recovered.get(destination)
        return recovery is not None and sent_at < recovery.sent_at and self._monotonic() - recovery.at >= LATECOMERS

    def _part(self, destination: str, now: float) -> Part:
        entry = self._entries.get(destination)
        if entry is None:
            return Part.SEND
        if now < entry.next_probe:
            return Part.HOLD
        entry.next_probe = now + entry.gap
        entry.gap = min(2 * entry.gap, LONGEST_GAP)
        return Part.PROBE

    def _hear(self, destination: str, now: float) -> None:
        """Take the destination back if something has arrived there meanwhile."""
        for late, sent_at in self._entries[destination].lates:
            if late.arrived:
                self._take_back(destination, sent_at, now)
                return

    def _set_aside(self, destination: str, outcome: Outcome, sent_at: float, now: float) -> None:
        entry = self._entries.get(destination)
        if entry is None:
            if len(self._entries) >= MOST_SET_ASIDE and not self._forget_unasked(now):
                self._tell_full()
                return
            recovery = self._recovered.get(destination)
            told = recovery is None or now - recovery.at >= _LOG_AGAIN
            entry = self._entries[destination] = _Entry(outcome.reason, now, now + SHORTEST_GAP, told)
            (logger.warning if told else logger.debug)(
                "%s %r takes nothing and is set aside, until it does again: %s",
                self._what,
                destination,
                outcome.reason,
            )
        entry.reason = outcome.reason
        if outcome.late is not None:
            entry.lates.append((outcome.late, sent_at))

    def _forget_unasked(self, now: float) -> bool:
        """Make room; False: messages for all of them still come."""
        unasked = [destination for destination, entry in self._entries.items() if now - entry.next_probe >= UNASKED]
        for destination in unasked:
            del self._entries[destination]
        return bool(unasked)

    def _take_back(self, destination: str, sent_at: float, now: float) -> None:
        entry = self._entries.pop(destination, None)
        if entry is None:
            return
        self._full = False
        self._recovered.pop(destination, None)
        self._recovered[destination] = _Recovery(sent_at, now)
        keep_youngest(self._recovered, MOST_SET_ASIDE)
        (logger.warning if entry.told else logger.debug)(
            "%s %r takes messages again, after %.0f s", self._what, destination, now - entry.since
        )

    def _tell_full(self) -> None:
        if not self._full:
            logger.warning("more than %d destinations take nothing; no more are set aside", MOST_SET_ASIDE)
        self._full = True
