"""Sending straight into the transport's native delay, without the store."""

import logging
from collections.abc import Sequence
from datetime import timedelta

from delaystore.errors import ConfigurationError
from delaystore.message import DelayedMessage
from delaystore.stores.abc import DelayedMessageStore
from delaystore.transports.abc import OutcomeKind, Transport

logger = logging.getLogger("delaystore.delivery")


class NativeSender:
    """Hands messages to a transport that delays natively; the rest is for the store.

    `timeout`: seconds to wait for the broker's answer. Raises ConfigurationError where native delays are switched off.
    """

    def __init__(self, store: DelayedMessageStore, transport: Transport | None, timeout: float) -> None:
        longest = None if transport is None else transport.longest_native_delay
        if transport is None or longest is None:
            raise ConfigurationError("native=True needs a transport with native delays, as in delays=NSERVICEBUS_V2")
        self._store = store
        self._transport = transport
        self._longest = longest
        self._timeout = timeout

    def send(self, messages: Sequence[DelayedMessage]) -> Sequence[DelayedMessage]:
        """Send what can wait in the broker, confirmed; returns the others, for the store.

        Those are due already, or beyond the longest delay, or cannot be delayed natively, or the broker did not
        confirm them: it may have them all the same, and then they arrive twice, with one message_id.
        """
        now = self._store.now()
        fitting = [message for message in messages if timedelta(0) < message.due_time - now <= self._longest]
        outcomes = self._transport.send_delayed(fitting, now, self._timeout) if fitting else ()
        taken: set[str] = set()
        for message, outcome in zip(fitting, outcomes, strict=True):
            if outcome.kind is OutcomeKind.DELIVERED:
                taken.add(message.message_id)
            elif outcome.kind is not OutcomeKind.UNSUITED:
                logger.warning(
                    "message %s to %r goes to the store instead: %s",
                    message.message_id,
                    message.destination,
                    outcome.reason,
                )
        return [message for message in messages if message.message_id not in taken]
