"""Sending copies of failed messages to the error queue."""

import logging
from collections.abc import Sequence
from dataclasses import replace

from delaystore.amounts import counted
from delaystore.dispatcher._batch import Batch
from delaystore.dispatcher._error_queue import ErrorQueue, Failure
from delaystore.dispatcher._failure_log import grouped
from delaystore.dispatcher._forwarding import Forwarder, Sent
from delaystore.dispatcher._next_attempts import NextAttempts
from delaystore.dispatcher._on_their_way import OnTheirWay
from delaystore.errors import InvalidMessageError
from delaystore.message import DelayedMessage
from delaystore.stores.abc import DelayedMessageStore
from delaystore.transports.abc import Outcome, OutcomeKind

logger = logging.getLogger("delaystore.dispatcher")


class ErrorCopies:
    """Sends the copies of a batch; threads may share it."""

    def __init__(
        self, error_queue: ErrorQueue, forwarder: Forwarder, on_their_way: OnTheirWay, next_attempts: NextAttempts
    ) -> None:
        self._error_queue = error_queue
        self._forwarder = forwarder
        self._on_their_way = on_their_way
        self._next_attempts = next_attempts

    def send(self, tx: DelayedMessageStore, batch: Batch) -> None:
        """Send copies of what cannot be delivered. In an outage the messages stay as they were."""
        if batch.undeliverable:
            self._send(tx, batch)
        self._log(batch.moved)

    def _send(self, tx: DelayedMessageStore, batch: Batch) -> None:
        now = tx.now()
        copied: list[tuple[Failure, DelayedMessage]] = []
        for failure in batch.undeliverable:
            try:
                copied.append((failure, self._error_queue.copy(failure, now)))
            except InvalidMessageError as error:
                batch.not_moved.append(replace(failure, reason=str(error)))
        sent = self._send_unless_down(tx, [copy for _, copy in copied], batch.outage)
        batch.outage = sent.outage
        for (failure, _), outcome in zip(copied, sent.outcomes, strict=True):
            if outcome.late is not None:
                self._on_their_way.note(failure.message, outcome.late, sent.sent_at, failure)
            self._sort(batch, failure, outcome)

    def _sort(self, batch: Batch, failure: Failure, outcome: Outcome) -> None:
        """Note what is to become of a message whose copy was sent."""
        on_its_way = outcome.late is not None
        if outcome.kind is OutcomeKind.DELIVERED:
            batch.moved.append(failure)
        elif outcome.kind is OutcomeKind.UNREADY or (on_its_way and batch.outage is None):
            waiting = replace(failure, reason=f"{failure.reason}; the error queue: {outcome.reason}")
            self._next_attempts.give_way(batch, waiting, on_its_way=on_its_way)
        elif outcome.kind is OutcomeKind.UNSETTLED and batch.outage is not None:
            batch.leave_unsettled(failure.message, outcome.reason)
        else:
            reason = f"{failure.reason}; the error queue: {outcome.kind.value}: {outcome.reason}"
            batch.not_moved.append(replace(failure, reason=reason))

    def _send_unless_down(self, tx: DelayedMessageStore, copies: Sequence[DelayedMessage], outage: str | None) -> Sent:
        """Send `copies`; if the first send has ended in an outage, return UNSETTLED for all without waiting."""
        if outage is not None:
            return Sent([Outcome(OutcomeKind.UNSETTLED, outage)] * len(copies), outage=outage)
        return self._forwarder.send(tx, copies)

    def _log(self, moved: Sequence[Failure]) -> None:
        for alike, messages in grouped(moved).items():
            logger.warning(
                "moved %s to the error queue %r; first %r to %r: %s",
                counted(len(messages), "message"),
                self._error_queue.name,
                messages[0].message_id,
                alike.destination,
                alike.reason,
            )
