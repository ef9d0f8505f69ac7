"""Giving a batch to the transport: due messages are sent, others are handed over into its native delay."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from delaystore.calls import elsewhere
from delaystore.dispatcher._context import DispatchContext
from delaystore.dispatcher._outlet import Given, Outlet
from delaystore.message import DelayedMessage
from delaystore.stores.abc import DelayedMessageStore
from delaystore.transports.abc import Outcome, OutcomeKind

logger = logging.getLogger("delaystore.dispatcher")


class TransportRaisedError(Exception):
    """The transport raised where it shares the transaction (exactly once), which it may have spoilt: undo it."""


@dataclass(frozen=True, slots=True)
class Sent:
    """The outcomes of sending some messages, in their order."""

    outcomes: Sequence[Outcome] = ()
    answered: bool = False
    """Whether the broker is known to have settled any of them."""
    outage: str | None = None
    """Why the transport could send nothing more; None: it could, or everything was delivered."""
    sent_at: float = 0.0
    """By time.monotonic."""
    probes: Mapping[str, float] = field(default_factory=dict)
    """By message_id of what tried a destination that was set aside: seconds until that is tried again."""


class Forwarder:
    """Sends through the transport, and returns outcomes even if that raises. Threads may share it."""

    def __init__(self, context: DispatchContext) -> None:
        self._transport = context.transport
        self._exactly_once = context.exactly_once
        self._hands_over = bool(context.settings.handover_horizon)
        timeout = context.settings.dispatch_timeout.total_seconds()
        self.sending: Final = Outlet("the destination", timeout)
        self._handing_over = Outlet("the native delay to", timeout)

    def forward(self, tx: DelayedMessageStore, messages: Sequence[DelayedMessage]) -> Sent:
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
            Given(outcomes, sent.kinds | handed_over.kinds, sent.sent_at, {**sent.probes, **handed_over.probes})
        )

    def send(self, tx: DelayedMessageStore, messages: Sequence[DelayedMessage]) -> Sent:
        """Send at once. Raises TransportRaisedError."""
        return self._answer(self._send(tx, messages))

    def _send(self, tx: DelayedMessageStore, messages: Sequence[DelayedMessage]) -> Given:
        return self.sending.give(messages, lambda some, timeout: self._send_now(tx, some, timeout))

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
            return _unsettled(error, messages)

    def _hand_over(self, messages: Sequence[DelayedMessage], now: datetime, timeout: float) -> Sequence[Outcome]:
        try:
            with elsewhere():
                return _complete(self._transport.send_delayed(messages, now, timeout), messages)
        except Exception as error:
            return _unsettled(error, messages)

    def _answer(self, given: Given) -> Sent:
        """In an outage only DELIVERED is an answer of the broker: the transport decides other outcomes itself."""
        kinds = given.kinds
        outage = self._transport.unavailable() if kinds - {OutcomeKind.DELIVERED} else None
        settled = bool(kinds - {OutcomeKind.UNSETTLED}) and outage is None
        return Sent(given.outcomes, OutcomeKind.DELIVERED in kinds or settled, outage, given.sent_at, given.probes)


def _complete(outcomes: Sequence[Outcome], messages: Sequence[DelayedMessage]) -> Sequence[Outcome]:
    if len(outcomes) != len(messages):
        raise RuntimeError(f"{len(outcomes)} outcomes for {len(messages)} messages")
    return outcomes


def _unsettled(error: Exception, messages: Sequence[DelayedMessage]) -> Sequence[Outcome]:
    logger.error("the transport raised instead of returning outcomes; its messages stay in the store", exc_info=error)
    return [Outcome(OutcomeKind.UNSETTLED, f"the transport raised {type(error).__name__}")] * len(messages)
