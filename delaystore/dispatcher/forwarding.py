"""Giving a batch to the transport: what is due at once, what is yet to wait into its native delay."""

import logging
from collections.abc import Sequence
from datetime import datetime

from delaystore.message import DelayedMessage
from delaystore.settings import DelayedDeliverySettings, TransactionMode
from delaystore.stores.abc import DelayedMessageStore
from delaystore.transports.abc import Outcome, OutcomeKind, Transport

logger = logging.getLogger("delaystore.dispatcher")


class TransportRaisedError(Exception):
    """Exactly once only: the transport raised, which may have spoilt the transaction it shares; undo it."""


class Forwarder:
    """Sends through one transport, and answers with outcomes whatever the transport does. Threads may share it."""

    def __init__(self, transport: Transport, settings: DelayedDeliverySettings) -> None:
        self._transport = transport
        self._exactly_once = settings.transaction_mode is TransactionMode.TRANSACTION_SCOPE
        self._hands_over = bool(settings.handover_horizon)
        self._timeout = settings.dispatch_timeout.total_seconds()

    def forward(self, tx: DelayedMessageStore, messages: Sequence[DelayedMessage]) -> Sequence[Outcome]:
        """Send what is due, hand over what is not; one outcome for each. Raises TransportRaisedError."""
        if not self._hands_over:
            return self.send(tx, messages)
        now = tx.now()
        due = [message for message in messages if message.due_time <= now]
        early = [message for message in messages if message.due_time > now]
        sent, handed_over = iter(self.send(tx, due)), iter(self._hand_over(early, now))
        return [next(sent if message.due_time <= now else handed_over) for message in messages]

    def send(self, tx: DelayedMessageStore, messages: Sequence[DelayedMessage]) -> Sequence[Outcome]:
        """Send at once; one outcome for each. Raises TransportRaisedError."""
        if not messages:
            return ()
        try:
            outcomes = self._transport.send(messages, tx if self._exactly_once else None, self._timeout)
            return _complete(outcomes, messages)
        except Exception as error:
            if self._exactly_once:
                raise TransportRaisedError(f"the transport raised {type(error).__name__}: {error}") from error
            return _unsettled(error, messages)

    def _hand_over(self, messages: Sequence[DelayedMessage], now: datetime) -> Sequence[Outcome]:
        if not messages:
            return ()
        try:
            return _complete(self._transport.send_delayed(messages, now, self._timeout), messages)
        except Exception as error:
            return _unsettled(error, messages)


def _complete(outcomes: Sequence[Outcome], messages: Sequence[DelayedMessage]) -> Sequence[Outcome]:
    if len(outcomes) != len(messages):
        raise RuntimeError(f"{len(outcomes)} outcomes for {len(messages)} messages")
    return outcomes


def _unsettled(error: Exception, messages: Sequence[DelayedMessage]) -> Sequence[Outcome]:
    logger.error("the transport raised instead of returning outcomes; its messages stay in the store", exc_info=error)
    return [Outcome(OutcomeKind.UNSETTLED, f"the transport raised {type(error).__name__}")] * len(messages)
