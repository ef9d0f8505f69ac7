"""A batch goes to the transport, except messages for destinations that are suspended because they are unavailable."""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from functools import partial
from typing import Final

from delaystore.calls import elsewhere
from delaystore.dispatcher._context import DispatchContext
from delaystore.dispatcher._in_flight import keep_youngest
from delaystore.message import DelayedMessage
from delaystore.stores.abc import DelayedMessageStore
from delaystore.transports.abc import Outcome, OutcomeKind, PendingConfirm

logger = logging.getLogger("delaystore.dispatcher")
MOST_SUSPENDED: Final = 1000
"""The most destinations suspended. Messages for others are deferred, too, but each of them is tried."""

SHORTEST_GAP: Final = 1.0
LONGEST_GAP: Final = 5.0
"""Seconds between two probes of a destination: few at first, twice as many each time."""

UNASKED: Final = 600.0
"""Seconds without a message after which a destination may be forgotten: deferred messages come back sooner, so another
dispatcher has sent them, or they are cancelled."""

LATECOMERS: Final = 5.0
"""Seconds that older messages have to arrive once a younger one has arrived."""

_LOG_AGAIN: Final = 60.0
"""Seconds in which a destination that comes and goes is logged once."""

_MOST_PENDING: Final = 4
"""The most probes in flight whose confirms are awaited, for each destination."""


class GateDecision(Enum):
    """What is done with a message."""

    SEND = "send"
    PROBE = "probe"
    """It is sent to find out whether its destination takes messages again."""
    HOLD = "hold"
    """It is deferred without being sent."""


@dataclass(slots=True)
class _SuspendedDestination:
    reason: str
    since: float
    next_probe: float
    is_logged: bool
    gap: float = SHORTEST_GAP
    pending: deque[tuple[PendingConfirm, float]] = field(default_factory=lambda: deque(maxlen=_MOST_PENDING))
    """The confirms of messages in flight there, and when these were sent."""


@dataclass(frozen=True, slots=True)
class _Recovery:
    sent_at: float
    """When the message was sent that arrived."""
    at: float


class DestinationBreaker:
    """Remembers which destinations are unavailable, and when to try them. Threads may share it.

    `what` begins the lines of the log, as in "the destination". `monotonic` gives seconds.
    """

    def __init__(self, what: str, monotonic: Callable[[], float]) -> None:
        self._what = what
        self._monotonic = monotonic
        # So that of two workers only one sends a probe, and a destination is suspended and resumed once. Readers of one
        # entry do without: what they read may be outdated a moment later in any case.
        self._lock = threading.Lock()
        self._entries: dict[str, _SuspendedDestination] = {}
        self._recovered: dict[str, _Recovery] = {}
        self._full = False

    def __bool__(self) -> bool:
        return bool(self._entries)

    def decide(self, messages: Sequence[DelayedMessage]) -> Sequence[GateDecision]:
        """What to do with each of `messages`."""
        now = self._monotonic()
        with self._lock:
            for destination in {message.destination for message in messages} & self._entries.keys():
                self._resume_if_confirmed(destination, now)
            return [self._decide(message.destination, now) for message in messages]

    def reason(self, destination: str) -> str:
        """Why the destination is suspended."""
        entry = self._entries.get(destination)
        return "its destination is suspended" + ("" if entry is None else f": {entry.reason}")

    def gap(self, destination: str) -> float:
        """Seconds until the destination is tried again."""
        entry = self._entries.get(destination)
        return SHORTEST_GAP if entry is None else entry.gap

    def note(self, messages: Sequence[DelayedMessage], outcomes: Sequence[Outcome], sent_at: float) -> None:
        """Take notice of what became of messages that were sent."""
        unavailable = {
            message.destination: outcome
            for message, outcome in zip(messages, outcomes, strict=True)
            if outcome.kind is OutcomeKind.UNAVAILABLE
        }
        answered = {
            message.destination
            for message, outcome in zip(messages, outcomes, strict=True)
            if not outcome.kind.passes and message.destination in self._entries
        }
        now = self._monotonic()
        with self._lock:
            for destination in answered - unavailable.keys():
                self._resume(destination, sent_at, now)
            for destination, outcome in unavailable.items():
                self._suspend(destination, outcome, sent_at, now)

    def is_overtaken(self, destination: str, sent_at: float) -> bool:
        """Whether a message sent there at `sent_at` will hardly arrive: a younger one did, some seconds ago.

        Its channel may wait for a queue leader that is gone, long after fresh channels are answered.
        """
        recovery = self._recovered.get(destination)
        return recovery is not None and sent_at < recovery.sent_at and self._monotonic() - recovery.at >= LATECOMERS

    def _decide(self, destination: str, now: float) -> GateDecision:
        entry = self._entries.get(destination)
        if entry is None:
            return GateDecision.SEND
        if now < entry.next_probe:
            return GateDecision.HOLD
        entry.next_probe = now + entry.gap
        entry.gap = min(2 * entry.gap, LONGEST_GAP)
        return GateDecision.PROBE

    def _resume_if_confirmed(self, destination: str, now: float) -> None:
        """Resume the destination if a message in flight there was confirmed meanwhile.

        Probes wait a moment only, and a queue that recovers may answer later: without this, each probe would come too
        early, and the destination would stay suspended.
        """
        for pending, sent_at in self._entries[destination].pending:
            if pending.arrived:
                self._resume(destination, sent_at, now)
                return

    def _suspend(self, destination: str, outcome: Outcome, sent_at: float, now: float) -> None:
        entry = self._entries.get(destination)
        if entry is None:
            if len(self._entries) >= MOST_SUSPENDED and not self._forget_unasked(now):
                self._log_full()
                return
            recovery = self._recovered.get(destination)
            is_logged = recovery is None or now - recovery.at >= _LOG_AGAIN
            entry = _SuspendedDestination(outcome.reason, now, now + SHORTEST_GAP, is_logged)
            self._entries[destination] = entry
            (logger.warning if is_logged else logger.debug)(
                "%s %r is unavailable and suspended, until it takes messages again: %s",
                self._what,
                destination,
                outcome.reason,
            )
        entry.reason = outcome.reason
        if outcome.late is not None:
            entry.pending.append((outcome.late, sent_at))

    def _forget_unasked(self, now: float) -> bool:
        """Make room; False: messages for all of them still come."""
        unasked = [destination for destination, entry in self._entries.items() if now - entry.next_probe >= UNASKED]
        for destination in unasked:
            del self._entries[destination]
        return bool(unasked)

    def _resume(self, destination: str, sent_at: float, now: float) -> None:
        entry = self._entries.pop(destination, None)
        if entry is None:
            return
        self._full = False
        self._recovered.pop(destination, None)
        self._recovered[destination] = _Recovery(sent_at, now)
        keep_youngest(self._recovered, MOST_SUSPENDED)
        (logger.warning if entry.is_logged else logger.debug)(
            "%s %r takes messages again, after %.0f s", self._what, destination, now - entry.since
        )

    def _log_full(self) -> None:
        if not self._full:
            logger.warning("more than %d destinations are unavailable; no more are suspended", MOST_SUSPENDED)
        self._full = True


PROBE_SECONDS: Final = 0.3
"""Seconds that probes wait for their answers. Later ones count, too: a confirm in flight is asked for in each pass."""

Give = Callable[[Sequence[DelayedMessage], float], Sequence[Outcome]]
"""Gives messages to the transport, with seconds to wait; returns their outcomes."""


@dataclass(frozen=True, slots=True)
class GateOutcomes:
    """The outcomes of giving some messages to the transport, in their order."""

    outcomes: Sequence[Outcome]
    kinds: Set[OutcomeKind]
    """The kinds of outcomes that the transport returned: of what was held back it knows nothing."""
    sent_at: float
    """By time.monotonic."""
    probes: Mapping[str, float] = field(default_factory=dict)
    """By message_id of the probes of suspended destinations: seconds until the destination is tried again."""


class DestinationGate:
    """Sends messages, but holds back those for suspended destinations. Threads may share it.

    `what`: how the log names a destination. `timeout`: seconds that messages wait for their answers.
    """

    def __init__(self, what: str, timeout: float) -> None:
        self._monotonic = time.monotonic
        self.suspended: Final = DestinationBreaker(what, self._monotonic)
        self._timeout = timeout

    def give(self, messages: Sequence[DelayedMessage], give: Give) -> GateOutcomes:
        """Send `messages` by `give`; messages for suspended destinations are not sent, and are UNAVAILABLE."""
        now = self._monotonic()
        if not self.suspended:
            outcomes, kinds = self._give(messages, give, self._timeout, now)
            return GateOutcomes(outcomes, kinds, now)
        decisions = self.suspended.decide(messages)
        send, sent_kinds = self._give(_of(GateDecision.SEND, messages, decisions), give, self._timeout, now)
        probing = _of(GateDecision.PROBE, messages, decisions)
        probe, probe_kinds = self._give(probing, give, min(PROBE_SECONDS, self._timeout), now)
        given = {GateDecision.SEND: iter(send), GateDecision.PROBE: iter(probe)}
        outcomes = [
            self._held(message) if decision is GateDecision.HOLD else next(given[decision])
            for message, decision in zip(messages, decisions, strict=True)
        ]
        probes = {message.message_id: self.suspended.gap(message.destination) for message in probing}
        return GateOutcomes(outcomes, sent_kinds | probe_kinds, now, probes)

    def _give(
        self, messages: Sequence[DelayedMessage], give: Give, timeout: float, now: float
    ) -> tuple[Sequence[Outcome], set[OutcomeKind]]:
        if not messages:
            return (), set()
        outcomes = give(messages, timeout)
        kinds = {outcome.kind for outcome in outcomes}
        if self.suspended or OutcomeKind.UNAVAILABLE in kinds:
            self.suspended.note(messages, outcomes, now)
        return outcomes, kinds

    def _held(self, message: DelayedMessage) -> Outcome:
        return Outcome(OutcomeKind.UNAVAILABLE, self.suspended.reason(message.destination))


def _of(
    wanted: GateDecision, messages: Sequence[DelayedMessage], decisions: Sequence[GateDecision]
) -> Sequence[DelayedMessage]:
    return [message for message, decision in zip(messages, decisions, strict=True) if decision is wanted]


class TransportRaisedError(Exception):
    """The transport raised where it shares the transaction (exactly once), which it may have spoilt: undo it."""


@dataclass(frozen=True, slots=True)
class SendOutcomes:
    """The outcomes of sending some messages, in their order."""

    outcomes: Sequence[Outcome] = ()
    answered: bool = False
    """Whether the broker is known to have settled any of them."""
    outage: str | None = None
    """Why the transport could send nothing more; None: it could, or everything was delivered."""
    sent_at: float = 0.0
    """By time.monotonic."""
    probes: Mapping[str, float] = field(default_factory=dict)
    """By message_id of the probes of suspended destinations: seconds until the destination is tried again."""


class Forwarder:
    """Sends through the transport, and returns outcomes even if that raises. Threads may share it."""

    def __init__(self, context: DispatchContext) -> None:
        self._transport = context.transport
        self._exactly_once = context.exactly_once
        self._hands_over = bool(context.settings.handover_horizon)
        timeout = context.settings.dispatch_timeout.total_seconds()
        self._sending = DestinationGate("the destination", timeout)
        self._handing_over = DestinationGate("the native delay to", timeout)

    def forward(self, tx: DelayedMessageStore, messages: Sequence[DelayedMessage]) -> SendOutcomes:
        """Send what is due, hand over what is not. Raises TransportRaisedError."""
        if not self._hands_over:
            return self.send(tx, messages)
        now = tx.now()
        due = [message for message in messages if message.due_time <= now]
        early = [message for message in messages if message.due_time > now]
        sent = self._send(tx, due)
        handed_over = self._handing_over.give(early, lambda some, timeout: self._hand_over(some, now, timeout))
        ways = iter(sent.outcomes), iter(handed_over.outcomes)
        outcomes = [next(ways[message.due_time > now]) for message in messages]
        return self._answer(
            GateOutcomes(outcomes, sent.kinds | handed_over.kinds, sent.sent_at, {**sent.probes, **handed_over.probes})
        )

    def send(self, tx: DelayedMessageStore, messages: Sequence[DelayedMessage]) -> SendOutcomes:
        """Send at once. Raises TransportRaisedError."""
        return self._answer(self._send(tx, messages))

    def is_overtaken(self, destination: str, sent_at: float) -> bool:
        """Whether a message sent there at that time (by time.monotonic) will hardly arrive."""
        return self._sending.suspended.is_overtaken(destination, sent_at)

    def _send(self, tx: DelayedMessageStore, messages: Sequence[DelayedMessage]) -> GateOutcomes:
        return self._sending.give(messages, partial(self._send_now, tx))

    def _send_now(
        self, tx: DelayedMessageStore, messages: Sequence[DelayedMessage], timeout: float
    ) -> Sequence[Outcome]:
        try:
            if self._exactly_once:
                return _complete(self._transport.send(messages, tx, timeout), messages)
            with elsewhere():
                return _complete(self._transport.send(messages, None, timeout), messages)
        except Exception as error:
            if self._exactly_once:
                raise TransportRaisedError(f"the transport raised {type(error).__name__}: {error}") from error
            return _unconfirmed(error, messages)

    def _hand_over(self, messages: Sequence[DelayedMessage], now: datetime, timeout: float) -> Sequence[Outcome]:
        try:
            with elsewhere():
                return _complete(self._transport.send_delayed(messages, now, timeout), messages)
        except Exception as error:
            return _unconfirmed(error, messages)

    def _answer(self, given: GateOutcomes) -> SendOutcomes:
        """In an outage only DELIVERED is an answer of the broker: the transport decides other outcomes itself."""
        kinds = given.kinds
        outage = self._transport.unavailable() if kinds - {OutcomeKind.DELIVERED} else None
        settled = bool(kinds - {OutcomeKind.UNCONFIRMED}) and outage is None
        return SendOutcomes(
            given.outcomes, OutcomeKind.DELIVERED in kinds or settled, outage, given.sent_at, given.probes
        )


def _complete(outcomes: Sequence[Outcome], messages: Sequence[DelayedMessage]) -> Sequence[Outcome]:
    if len(outcomes) != len(messages):
        raise RuntimeError(f"{len(outcomes)} outcomes for {len(messages)} messages")
    return outcomes


def _unconfirmed(error: Exception, messages: Sequence[DelayedMessage]) -> Sequence[Outcome]:
    logger.error("the transport raised instead of returning outcomes; its messages stay in the store", exc_info=error)
    return [Outcome(OutcomeKind.UNCONFIRMED, f"the transport raised {type(error).__name__}")] * len(messages)
