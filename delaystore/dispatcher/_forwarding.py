"""Giving a batch to the transport: due messages are sent, others are handed over into its native delay."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from delaystore.calls import elsewhere
from delaystore.dispatcher._context import DispatchContext
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


class Forwarder:
    """Sends through the transport, and returns outcomes even if that raises. Threads may share it."""

    def __init__(self, context: DispatchContext) -> None:
        self._transport = context.transport
        self._exactly_once = context.exactly_once
        self._hands_over = bool(context.settings.handover_horizon)
        self._timeout = context.settings.dispatch_timeout.total_seconds()

    def forward(self, tx: DelayedMessageStore, messages: Sequence[DelayedMessage]) -> Sent:
        """Send what is due, hand over what is not. Raises TransportRaisedError."""
        if not self._hands_over:
            return self.send(tx, messages)
        now = tx.now()
        due = [message for message in messages if message.due_time <= now]
        early = [message for message in messages if message.due_time > now]
        sent, handed_over = iter(self._send(tx, due)), iter(self._hand_over(early, now))
        return self._answer([next(sent if message.due_time <= now else handed_over) for message in messages])

    def send(self, tx: DelayedMessageStore, messages: Sequence[DelayedMessage]) -> Sent:
        """Send at once. Raises TransportRaisedError."""
        return self._answer(self._send(tx, messages))

    def _send(self, tx: DelayedMessageStore, messages: Sequence[DelayedMessage]) -> Sequence[Outcome]:
        if not messages:
            return ()
        try:
            if self._exactly_once:
                return _complete(self._transport.send(messages, tx, self._timeout), messages)
            with elsewhere():
                return _complete(self._transport.send(messages, None, self._timeout), messages)
        except Exception as error:
            if self._exactly_once:
                raise TransportRaisedError(f"the transport raised {type(error).__name__}: {error}") from error
            return _unsettled(error, messages)

    def _hand_over(self, messages: Sequence[DelayedMessage], now: datetime) -> Sequence[Outcome]:
        if not messages:
            return ()
        try:
            with elsewhere():
                return _complete(self._transport.send_delayed(messages, now, self._timeout), messages)
        except Exception as error:
            return _unsettled(error, messages)

    def _answer(self, outcomes: Sequence[Outcome]) -> Sent:
        """In an outage only DELIVERED is an answer of the broker: the transport decides other outcomes itself."""
        kinds = {outcome.kind for outcome in outcomes}
        outage = self._transport.unavailable() if kinds - {OutcomeKind.DELIVERED} else None
        settled = bool(kinds - {OutcomeKind.UNSETTLED}) and outage is None
        return Sent(outcomes, OutcomeKind.DELIVERED in kinds or settled, outage)


def _complete(outcomes: Sequence[Outcome], messages: Sequence[DelayedMessage]) -> Sequence[Outcome]:
    if len(outcomes) != len(messages):
        raise RuntimeError(f"{len(outcomes)} outcomes for {len(messages)} messages")
    return outcomes


def _unsettled(error: Exception, messages: Sequence[DelayedMessage]) -> Sequence[Outcome]:
    logger.error("the transport raised instead of returning outcomes; its messages stay in the store", exc_info=error)
    return [Outcome(OutcomeKind.UNSETTLED, f"the transport raised {type(error).__name__}")] * len(messages)
