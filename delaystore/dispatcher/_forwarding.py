"""A batch goes to the transport, except messages for destinations that are suspended because they are unavailable."""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import Enum
from functools import partial
from typing import Final

from delaystore.calls import call_paused
from delaystore.dispatcher._context import DispatchContext
from delaystore.dispatcher._in_flight import keep_youngest
from delaystore.errors import InvalidMessageError
from delaystore.message import DelayedMessage, unmarked
from delaystore.settings import AddedHeader
from delaystore.stores.abc import DelayedMessageStore
from delaystore.stores.documents import instant
from delaystore.stores.operable import OperableTransaction
from delaystore.transports.abc import Outcome, OutcomeKind, PendingConfirm, Transport

logger = logging.getLogger("delaystore.dispatcher")
MOST_SUSPENDED: Final = 1000
"""The most destinations suspended. Messages for others are deferred, too, but each of them is tried."""

SHORTEST_GAP: Final = 1.0
LONGEST_GAP: Final = 5.0
"""Seconds between two probes of a destination: few at first, twice as many each time."""

FORGET_AFTER: Final = 600.0
"""Seconds without a message after which a destination may be forgotten: deferred messages come back sooner, so another
dispatcher has sent them, or they are cancelled."""

OLDER_MESSAGES_TIMEOUT: Final = 5.0
"""Seconds that older messages have to arrive once a younger one has arrived."""

_LOG_AGAIN: Final = 60.0
"""Seconds in which a destination that comes and goes is logged once."""

_MOST_PENDING: Final = 4
"""The most probes in flight whose confirms are awaited, for each destination."""


class GateDecision(Enum):
    """Decisions about a message."""

    SEND = "send"
    PROBE = "probe"
    """It is sent to find out whether its destination is available again."""
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


PROBE_SECONDS: Final = 0.3
"""Seconds that probes wait for their answers. Later ones count, too: a confirm in flight is asked for in each pass."""

Send = Callable[[Sequence[DelayedMessage], float], Sequence[Outcome]]
"""Gives messages to the transport, with seconds to wait; returns their outcomes."""


@dataclass(slots=True)
class SendOutcomes:
    """The outcomes of sending some messages, in their order."""

    outcomes: Sequence[Outcome] = ()
    kinds: set[OutcomeKind] = field(default_factory=set)
    """The kinds of outcomes that the transport returned; messages that were not sent have no part in it."""
    sent_at: float = 0.0
    """By time.monotonic."""
    probes: dict[str, float] = field(default_factory=dict)
    """By message_id of the probes of suspended destinations: seconds until the destination is tried again."""
    outage: str | None = None
    """Why the transport could send nothing more; None: it could, or everything was delivered."""
    early_from: datetime | None = None
    """Messages that were due later were handed over to the native delay; None: none were."""

    @property
    def answered(self) -> bool:
        """Whether the broker is known to have settled any of the messages.

        In an outage only DELIVERED is an answer of the broker: the transport decides other outcomes itself.
        """
        if self.outage is not None:
            return OutcomeKind.DELIVERED in self.kinds
        return bool(self.kinds - {OutcomeKind.UNCONFIRMED})


class DestinationBreaker:
    """Suspends destinations that are unavailable: defers their messages, except a probe now and then.

    Threads may share it.

    Args:
        what: How lines of the log begin, such as "the destination".
        monotonic: The clock, in seconds.

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

    def give(self, messages: Sequence[DelayedMessage], send: Send, timeout: float) -> SendOutcomes:
        """Send `messages`, except messages that are held because their destination is suspended.

        Args:
            messages: The messages.
            send: Gives messages to the transport.
            timeout: Seconds that messages wait for their answers.

        Returns:
            The outcomes; a held message has UNAVAILABLE.

        """
        now = self._monotonic()
        # Without the lock: nearly always no destination is suspended, and a batch must not wait for the other worker.
        # An entry that appears just now is noticed by the next batch.
        if not self._entries:
            return SendOutcomes(*self._send(messages, send, timeout, now), now)
        decisions = self.decide(messages)
        sent, kinds = self._send(_of(GateDecision.SEND, messages, decisions), send, timeout, now)
        probing = _of(GateDecision.PROBE, messages, decisions)
        probed, probe_kinds = self._send(probing, send, min(PROBE_SECONDS, timeout), now)
        given = {GateDecision.SEND: iter(sent), GateDecision.PROBE: iter(probed)}
        outcomes = [
            Outcome(OutcomeKind.UNAVAILABLE, self._reason(message.destination))
            if decision is GateDecision.HOLD
            else next(given[decision])
            for message, decision in zip(messages, decisions, strict=True)
        ]
        probes = {message.message_id: self._gap(message.destination) for message in probing}
        return SendOutcomes(outcomes, kinds | probe_kinds, now, probes)

    def _send(
        self, messages: Sequence[DelayedMessage], send: Send, timeout: float, now: float
    ) -> tuple[Sequence[Outcome], set[OutcomeKind]]:
        if not messages:
            return (), set()
        outcomes = send(messages, timeout)
        kinds = {outcome.kind for outcome in outcomes}
        if self._entries or OutcomeKind.UNAVAILABLE in kinds:
            self.note(messages, outcomes, now)
        return outcomes, kinds

    def decide(self, messages: Sequence[DelayedMessage]) -> Sequence[GateDecision]:
        """Decide what to do with each of `messages`."""
        now = self._monotonic()
        with self._lock:
            for destination in {message.destination for message in messages} & self._entries.keys():
                self._resume_if_confirmed(destination, now)
            return [self._decide(message.destination, now) for message in messages]

    def _reason(self, destination: str) -> str:
        entry = self._entries.get(destination)
        return "its destination is suspended" + ("" if entry is None else f": {entry.reason}")

    def _gap(self, destination: str) -> float:
        """Seconds until the destination is tried again."""
        entry = self._entries.get(destination)
        return SHORTEST_GAP if entry is None else entry.gap

    def note(self, messages: Sequence[DelayedMessage], outcomes: Sequence[Outcome], sent_at: float) -> None:
        """Take notice of the results of sent messages."""
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

    def is_presumed_lost(self, destination: str, sent_at: float) -> bool:
        """Whether a message sent there at `sent_at` will hardly arrive: a younger one did, some seconds ago.

        Its channel may wait for a queue leader that is gone, long after fresh channels are answered.
        """
        recovery = self._recovered.get(destination)
        return (
            recovery is not None
            and sent_at < recovery.sent_at
            and self._monotonic() - recovery.at >= OLDER_MESSAGES_TIMEOUT
        )

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
                "%s %r is unavailable and suspended, until it is available again: %s",
                self._what,
                destination,
                outcome.reason,
            )
        entry.reason = outcome.reason
        if outcome.late is not None:
            entry.pending.append((outcome.late, sent_at))

    def _forget_unasked(self, now: float) -> bool:
        """Make room; False: messages for all of them still come."""
        unasked = [
            destination for destination, entry in self._entries.items() if now - entry.next_probe >= FORGET_AFTER
        ]
        for destination in unasked:
            del self._entries[destination]
        return bool(unasked)

    def _resume(self, destination: str, sent_at: float, now: float) -> None:
        entry = self._entries.pop(destination, None)
        if entry is None:
            return
        self._full = False
        # Taken out first, so that it moves to the end: `keep_youngest` forgets the entries at the front.
        self._recovered.pop(destination, None)
        self._recovered[destination] = _Recovery(sent_at, now)
        keep_youngest(self._recovered, MOST_SUSPENDED)
        (logger.warning if entry.is_logged else logger.debug)(
            "%s %r is available again, after %.0f s", self._what, destination, now - entry.since
        )

    def _log_full(self) -> None:
        if not self._full:
            logger.warning(
                "more than %d destinations are unavailable; further ones are not suspended and can delay others",
                MOST_SUSPENDED,
            )
        self._full = True


def _of(
    wanted: GateDecision, messages: Sequence[DelayedMessage], decisions: Sequence[GateDecision]
) -> Sequence[DelayedMessage]:
    return [message for message, decision in zip(messages, decisions, strict=True) if decision is wanted]


MOST_LOADS: Final = 1_000
"""The most loads whose ids are remembered."""
WithHeaders = Callable[[Sequence[DelayedMessage]], Sequence[DelayedMessage]]
"""Makes of messages the ones to send: copies with added headers."""


class HeaderAdder:
    """Adds the headers of the setting `added_headers`. Threads may share it."""

    def __init__(self, chosen: Sequence[AddedHeader], transport: Transport) -> None:
        self._chosen = [(each, each.header) for each in chosen]
        self._finds_loads = AddedHeader.LOAD in chosen
        self._check = transport.check
        self._load_ids: Mapping[int, str] = {}

    def for_batch(self, tx: DelayedMessageStore, messages: Sequence[DelayedMessage]) -> WithHeaders:
        """Ask the store for its time and, if chosen, for the loads of `messages`. Raises its errors."""
        clock = tx.now() - timedelta(seconds=time.monotonic())
        return partial(self._added, clock, self._loads_of(tx, messages) if self._finds_loads else {})

    def _loads_of(self, tx: DelayedMessageStore, messages: Sequence[DelayedMessage]) -> Mapping[str, str]:
        """The ids of the messages' loads, by message_id."""
        if not isinstance(tx, OperableTransaction):
            return {}
        numbers = tx.loads_of([message.message_id for message in messages])
        ids = self._load_ids
        unknown = set(numbers.values()) - ids.keys()
        if unknown:
            ids = {**ids, **tx.load_ids(unknown)}
            self._load_ids = ids if len(ids) <= MOST_LOADS else {}
        return {message_id: ids[number] for message_id, number in numbers.items() if number in ids}

    def _added(
        self, clock: datetime, loads: Mapping[str, str], messages: Sequence[DelayedMessage]
    ) -> Sequence[DelayedMessage]:
        """Copies of `messages`. `clock`: the store's, when time.monotonic was 0."""
        sent_at = instant(clock + timedelta(seconds=time.monotonic()))
        return [self._with_headers(message, sent_at, loads.get(message.message_id)) for message in messages]

    def _with_headers(self, message: DelayedMessage, sent_at: str | None, load: str | None) -> DelayedMessage:
        values: Mapping[AddedHeader, object] = {
            AddedHeader.DUE_TIME: instant(unmarked(message)),
            AddedHeader.ATTEMPT: message.failure_count + 1,
            AddedHeader.SENT_AT: sent_at,
            AddedHeader.LOAD: load,
        }
        added = {header: values[each] for each, header in self._chosen if values[each] is not None}
        copy = replace(message, headers={**added, **message.headers})
        try:
            self._check(copy)
        except InvalidMessageError:  # there is no room for another header: the message comes first
            return message
        return copy


class TransportRaisedError(Exception):
    """The transport raised where it shares the transaction (exactly once), which it may have spoilt: undo it."""


class Forwarder:
    """Sends through the transport, and returns outcomes even if that raises. Threads may share it."""

    def __init__(self, context: DispatchContext) -> None:
        self._transport = context.transport
        self._exactly_once = context.exactly_once
        self._hands_over = bool(context.settings.handover_horizon)
        self._timeout = context.settings.dispatch_timeout.total_seconds()
        added = context.settings.added_headers
        self._adder = HeaderAdder(added, context.transport) if added else None
        self._sending = DestinationBreaker("the destination", time.monotonic)
        self._handing_over = DestinationBreaker("the native delay to", time.monotonic)
        self.is_presumed_lost: Final = self._sending.is_presumed_lost

    def forward(self, tx: DelayedMessageStore, messages: Sequence[DelayedMessage]) -> SendOutcomes:
        """Send due messages, and hand over messages that are not due yet, all with the headers of `added_headers`.

        The store is asked before anything is sent: if it fails, no message is at its destination yet. Raises
        TransportRaisedError, and the store's errors.
        """
        add = None if self._adder is None else self._adder.for_batch(tx, messages)
        if not self._hands_over:
            return self.send(tx, messages, add)
        now = tx.now()
        due = [message for message in messages if message.due_time <= now]
        early = [message for message in messages if message.due_time > now]
        sent = self._sending.give(due, partial(self._send, tx, add), self._timeout)
        handed_over = self._handing_over.give(early, partial(self._hand_over, now, add), self._timeout)
        sent.early_from = now if early else None
        ways = iter(sent.outcomes), iter(handed_over.outcomes)
        sent.outcomes = [next(ways[message.due_time > now]) for message in messages]
        sent.kinds |= handed_over.kinds
        sent.probes |= handed_over.probes
        return self._with_outage(sent)

    def send(
        self, tx: DelayedMessageStore, messages: Sequence[DelayedMessage], add: WithHeaders | None = None
    ) -> SendOutcomes:
        """Send at once; `add` None: as they are. Raises TransportRaisedError."""
        return self._with_outage(self._sending.give(messages, partial(self._send, tx, add), self._timeout))

    def _with_outage(self, sent: SendOutcomes) -> SendOutcomes:
        if sent.kinds - {OutcomeKind.DELIVERED}:
            sent.outage = self._transport.unavailable()
        return sent

    def _send(
        self, tx: DelayedMessageStore, add: WithHeaders | None, messages: Sequence[DelayedMessage], timeout: float
    ) -> Sequence[Outcome]:
        try:
            if add is not None:
                messages = add(messages)
            if self._exactly_once:
                return _complete(self._transport.send(messages, tx, timeout), messages)
            with call_paused():
                return _complete(self._transport.send(messages, None, timeout), messages)
        except Exception as error:
            if self._exactly_once:
                raise TransportRaisedError(f"the transport raised {type(error).__name__}: {error}") from error
            return _unconfirmed(error, messages)

    def _hand_over(
        self, now: datetime, add: WithHeaders | None, messages: Sequence[DelayedMessage], timeout: float
    ) -> Sequence[Outcome]:
        try:
            if add is not None:
                messages = add(messages)
            with call_paused():
                return _complete(self._transport.send_delayed(messages, now, timeout), messages)
        except Exception as error:
            return _unconfirmed(error, messages)


def _complete(outcomes: Sequence[Outcome], messages: Sequence[DelayedMessage]) -> Sequence[Outcome]:
    if len(outcomes) != len(messages):
        raise RuntimeError(f"{len(outcomes)} outcomes for {len(messages)} messages")
    return outcomes


def _unconfirmed(error: Exception, messages: Sequence[DelayedMessage]) -> Sequence[Outcome]:
    logger.error(
        "the transport raised an error instead of returning outcomes; the messages of the batch stay in the store",
        exc_info=error,
    )
    return [Outcome(OutcomeKind.UNCONFIRMED, f"the transport raised {type(error).__name__}")] * len(messages)
