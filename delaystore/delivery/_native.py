"""Sending straight into the transport's native delay, without the store."""

import logging
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import partial
from itertools import compress

from delaystore.bridge import off_the_loop
from delaystore.errors import ConfigurationError
from delaystore.message import DelayedMessage
from delaystore.transports.abc import Outcome, OutcomeKind, Transport

logger = logging.getLogger("delaystore.delivery")


class NativeSender:
    """Hands messages to a transport that delays natively; the rest is for the store.

    `now`: the store's clock. `timeout`: seconds to wait for the broker's answer. Raises ConfigurationError where native
    delays are switched off.
    """

    def __init__(self, now: Callable[[], datetime], transport: Transport | None, timeout: float) -> None:
        longest = None if transport is None else transport.longest_native_delay
        if transport is None or longest is None:
            raise ConfigurationError("native=True needs a transport with native delays, as in delays=NSERVICEBUS_V2")
        self._now = now
        self._transport = transport
        self._longest = longest
        self._timeout = timeout

    def send(self, messages: Sequence[DelayedMessage]) -> Sequence[DelayedMessage]:
        """Send what can wait in the broker; returns the other messages, for the store.

        The others have a key, or are due already, or due after the longest delay, or unsuited, or the broker did not
        confirm them. An unconfirmed message may be in the broker nevertheless: it then arrives twice, with the same
        message_id.
        """
        now = self._now()
        fits = [message.key is None and timedelta(0) < message.due_time - now <= self._longest for message in messages]
        fitting = list(compress(messages, fits))
        send = partial(self._transport.send_delayed, fitting, now, self._timeout)
        outcomes = iter(off_the_loop("delaystore-native", send) if fitting else ())
        return [message for message, fit in zip(messages, fits, strict=True) if not (fit and _taken(message, outcomes))]


def _taken(message: DelayedMessage, outcomes: Iterator[Outcome]) -> bool:
    """Whether the broker has `message`, by the next of `outcomes`."""
    outcome = next(outcomes)
    if outcome.kind is OutcomeKind.DELIVERED:
        return True
    level = logging.INFO if outcome.kind is OutcomeKind.UNSUITED else logging.WARNING
    logger.log(level, "message %s to %r goes to the store: %s", message.message_id, message.destination, outcome.reason)
    return False
