"""Forwarding one claimed batch and settling every message of it, inside one store transaction."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from delaystore.dispatcher._batch import Batch
from delaystore.dispatcher._context import DispatchContext
from delaystore.dispatcher._error_queue import Failure
from delaystore.dispatcher._forwarding import Forwarder, Sent
from delaystore.dispatcher._retries import LONGEST_GAP_PAST_RETRIES, Deferrals, back_off, next_attempt
from delaystore.errors import InvalidMessageError
from delaystore.message import DelayedMessage, UnreadableMessage
from delaystore.stores.abc import DelayedMessageStore
from delaystore.transports.abc import Outcome, OutcomeKind

logger = logging.getLogger("delaystore.dispatcher")

LONGEST_DEFERRAL: Final = timedelta(seconds=LONGEST_GAP_PAST_RETRIES)


class ClaimsLostError(Exception):
    """Claims on forwarded messages were lost; in exactly-once mode the whole transaction is then undone."""


class Settler:
    """Forwards batches; threads may share it. `random` gives numbers from 0 to 1."""

    def __init__(self, context: DispatchContext, deferrals: Deferrals, random: Callable[[], float]) -> None:
        self._settings = context.settings
        self._error_queue = context.error_queue
        self._exactly_once = context.exactly_once
        self._forwarder = Forwarder(context)
        self._deferrals = deferrals
        self._random = random

    def settle(self, tx: DelayedMessageStore, batch: Batch, long_outage: bool) -> None:
        """Forward `batch`, copy failures to the error queue, then remove and count; note it all in `batch`.

        Everything is sent before anything is written: a database with a single writer must not stay locked while a
        broker answers, or while a SQL queue writes to it. `long_outage`: the broker has not answered for long. Raises
        what the store raises, TransportRaisedError and ClaimsLostError.
        """
        self._forward(tx, batch)
        if batch.stopwatch is not None:
            batch.stopwatch.sent_at = tx.now()
        self._defer(batch, long_outage)
        self._move_to_error_queue(tx, batch)
        self._remove(tx, batch)
        batch.counting = True
        self._count_failures(tx, batch)
        self._keep_until_due(tx, batch)
        batch.counting = False
        if self._exactly_once and batch.claims_lost:
            raise ClaimsLostError

    def settle_arrived(self, tx: DelayedMessageStore, batch: Batch, arrived: Sequence[DelayedMessage]) -> None:
        """Remove what arrived in an earlier pass, and leave the rest to the next one. Raises what the store raises."""
        batch.messages = batch.delivered = arrived
        self._remove(tx, batch)

    def _remove(self, tx: DelayedMessageStore, batch: Batch) -> None:
        batch.begin("settle")
        arrived = batch.arrived
        if arrived:
            batch.claims_lost = len(arrived) - tx.remove_many(arrived)

    def _forward(self, tx: DelayedMessageStore, batch: Batch) -> None:
        readable: list[DelayedMessage] = []
        for message in batch.messages:
            if isinstance(message, UnreadableMessage):
                batch.undeliverable.append(Failure(message, "Unreadable", message.reason))
            else:
                readable.append(message)
        sent = self._forwarder.forward(tx, readable)
        batch.answered, batch.outage = sent.answered, sent.outage
        batch.delivered = delivered = []
        for message, outcome in zip(readable, sent.outcomes, strict=True):
            if outcome.kind is OutcomeKind.DELIVERED:
                delivered.append(message)
            else:
                self._sort(batch, message, outcome)

    def _sort(self, batch: Batch, message: DelayedMessage, outcome: Outcome) -> None:
        """Note what is to become of a message that was not delivered."""
        if outcome.kind is OutcomeKind.UNSETTLED:
            batch.leave_unsettled(message, outcome.reason)
        elif outcome.kind is OutcomeKind.UNSUITED:
            if not batch.unsuited:
                logger.warning("%r is not delayed natively, but kept: %s", message.message_id, outcome.reason)
            batch.unsuited.append(message)
        elif outcome.kind is OutcomeKind.UNROUTABLE:
            batch.undeliverable.append(Failure(message, "Unroutable", outcome.reason))
        elif self._deferrals.failures(message) < self._settings.number_of_retries:
            batch.refused.append(message)
        else:
            batch.undeliverable.append(Failure(message, "Refused", outcome.reason))

    def _defer(self, batch: Batch, long_outage: bool) -> None:
        """Let messages without an answer give way to others, unless it is an outage.

        In an outage they stay as they are. But if the broker is there and does not answer for just these (their queue
        has lost its majority), they would come first again in every batch.
        """
        if not batch.unsettled or batch.outage is not None or not (batch.answered or long_outage):
            return
        batch.deferred, batch.unsettled = batch.unsettled, []
        logger.warning(
            "no answer for %d messages while the broker is there; deferred, first %r to %r",
            len(batch.deferred),
            batch.deferred[0].message_id,
            batch.deferred[0].destination,
        )

    def _move_to_error_queue(self, tx: DelayedMessageStore, batch: Batch) -> None:
        """Send copies to the error queue. In an outage the messages stay as they were."""
        if not batch.undeliverable:
            return
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
            if outcome.kind is OutcomeKind.DELIVERED:
                batch.moved.append(failure)
            elif outcome.kind is OutcomeKind.UNSETTLED and sent.outage is not None:
                batch.leave_unsettled(failure.message, outcome.reason)
            else:
                batch.not_moved.append(replace(failure, reason=f"{outcome.kind.value}: {outcome.reason}"))
        self._log_moved(batch.moved)

    def _send_unless_down(self, tx: DelayedMessageStore, copies: Sequence[DelayedMessage], outage: str | None) -> Sent:
        """Send `copies`; if the first send has ended in an outage, return UNSETTLED for all without waiting."""
        if outage is not None:
            return Sent([Outcome(OutcomeKind.UNSETTLED, outage)] * len(copies), outage=outage)
        return self._forwarder.send(tx, copies)

    def _log_moved(self, moved: Sequence[Failure]) -> None:
        if moved:
            logger.warning(
                "moved %d messages to the error queue %r; first %r to %r: %s",
                len(moved),
                self._settings.error_queue,
                moved[0].message.message_id,
                moved[0].message.destination,
                moved[0].reason,
            )

    def _count_failures(self, tx: DelayedMessageStore, batch: Batch) -> None:
        """Count failures; the store shows these messages again later, counted from now."""
        failed = [*batch.refused, *(failure.message for failure in batch.not_moved)]
        if not failed and not batch.deferred:
            return
        now = tx.now()
        gaps = [(message, self._gap(self._deferrals.failures(message))) for message in failed]
        gaps += [(message, min(self._gap(message.failure_count), LONGEST_DEFERRAL)) for message in batch.deferred]
        batch.failed = tx.increment_failure_counts(
            [(message, self._shown_at(_not_late(message, now, next_attempt(now, gap)))) for message, gap in gaps]
        )

    def _keep_until_due(self, tx: DelayedMessageStore, batch: Batch) -> None:
        if batch.unsuited:
            tx.increment_failure_counts([(message, self._shown_at(message.due_time)) for message in batch.unsuited])

    def _shown_at(self, time: datetime) -> datetime:
        """The next attempt with which a message is fetched at `time`: passes fetch a horizon ahead."""
        return next_attempt(time, self._settings.handover_horizon)

    def _gap(self, earlier_failures: int) -> timedelta:
        settings = self._settings
        return back_off(earlier_failures + 1, settings.number_of_retries, settings.retry_span, self._random)


def _not_late(message: DelayedMessage, now: datetime, attempt: datetime) -> datetime:
    """`attempt`, but no later than the due time of a message that is not due yet."""
    return min(attempt, message.due_time) if message.due_time > now else attempt
