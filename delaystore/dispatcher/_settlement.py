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
from delaystore.dispatcher._on_their_way import OnTheirWay, Underway
from delaystore.dispatcher._retries import Deferrals, back_off, deferral, next_attempt
from delaystore.errors import InvalidMessageError
from delaystore.message import DelayedMessage, UnreadableMessage
from delaystore.stores.abc import DelayedMessageStore
from delaystore.transports.abc import Outcome, OutcomeKind

logger = logging.getLogger("delaystore.dispatcher")

_STILL_ON_ITS_WAY: Final = 2
"""Times `dispatch_timeout` that a message on its way is not shown, as other dispatchers would send it again."""


class ClaimsLostError(Exception):
    """Claims on forwarded messages were lost; in exactly-once mode the whole transaction is then undone."""


class Settler:
    """Forwards batches; threads may share it. `random` gives numbers from 0 to 1."""

    def __init__(
        self,
        context: DispatchContext,
        deferrals: Deferrals,
        on_their_way: OnTheirWay,
        random: Callable[[], float],
    ) -> None:
        self._settings = context.settings
        self._error_queue = context.error_queue
        self._exactly_once = context.exactly_once
        self._forwarder = Forwarder(context)
        self._deferrals = deferrals
        self._on_their_way = on_their_way
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
        delivered: list[DelayedMessage] = []
        batch.delivered = delivered
        for message in self._settle_underway(batch, delivered):
            if isinstance(message, UnreadableMessage):
                batch.undeliverable.append(Failure(message, "Unreadable", message.reason))
            else:
                readable.append(message)
        late = bool(batch.arrived)
        sent = self._forwarder.forward(tx, readable)
        batch.answered, batch.outage = sent.answered or late, sent.outage
        for message, outcome in zip(readable, sent.outcomes, strict=True):
            if outcome.kind is OutcomeKind.DELIVERED:
                delivered.append(message)
            else:
                self._sort(batch, message, outcome, message.message_id in sent.probes)
                if outcome.late is not None:
                    self._on_their_way.note(message, outcome.late, sent.sent_at)

    def _settle_underway(self, batch: Batch, delivered: list[DelayedMessage]) -> Sequence[DelayedMessage]:
        """Settle what an earlier pass sent, if it has arrived or may arrive yet; returns the others of the batch."""
        underway = self._on_their_way.among(batch.messages)
        if not underway:
            return batch.messages
        others: list[DelayedMessage] = []
        for message in batch.messages:
            known = underway.get(message.message_id)
            if known is None or self._is_gone(message, known):
                others.append(message)
            elif not known.late.arrived:
                self._give_way(batch, message, on_its_way=True)
            elif known.failure is None:
                delivered.append(message)
            else:
                batch.moved.append(known.failure)
        self._on_their_way.forget(others)
        return others

    def _is_gone(self, message: DelayedMessage, underway: Underway) -> bool:
        """Whether what was sent will not arrive, as far as anybody can tell."""
        if underway.late.arrived is not None:
            return not underway.late.arrived
        destination = message.destination if underway.failure is None else self._settings.error_queue
        return self._forwarder.sending.set_aside.overtaken(destination, underway.sent_at)

    def _sort(self, batch: Batch, message: DelayedMessage, outcome: Outcome, probe: bool) -> None:
        """Note what is to become of a message that was not delivered. `probe`: it tried its destination."""
        on_its_way = outcome.late is not None
        if outcome.kind is OutcomeKind.UNREADY or (on_its_way and batch.outage is None):
            self._give_way(batch, message, on_its_way=on_its_way, probe=probe)
        elif outcome.kind is OutcomeKind.UNSETTLED:
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

    def _give_way(
        self, batch: Batch, message: DelayedMessage, *, on_its_way: bool = False, probe: bool = False
    ) -> None:
        """Let `message` give way to others for a while, at no retry's cost."""
        gap = deferral(self._gap(message.failure_count), self._random)
        if on_its_way:
            gap = max(gap, _STILL_ON_ITS_WAY * self._settings.dispatch_timeout)
        elif probe:
            gap = min(gap, timedelta(seconds=self._forwarder.sending.set_aside.gap(message.destination)))
        batch.giving_way.append((message, gap))

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
            if outcome.late is not None:
                self._on_their_way.note(failure.message, outcome.late, sent.sent_at, failure)
            if outcome.kind is OutcomeKind.DELIVERED:
                batch.moved.append(failure)
            elif outcome.kind is OutcomeKind.UNSETTLED and sent.outage is not None:
                batch.leave_unsettled(failure.message, outcome.reason)
            elif outcome.kind is OutcomeKind.UNREADY or outcome.late is not None:
                self._give_way(batch, failure.message, on_its_way=outcome.late is not None)
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
        if not failed and not batch.deferred and not batch.giving_way:
            return
        now = tx.now()
        gaps = [(message, self._gap(self._deferrals.failures(message))) for message in failed]
        gaps += [(message, deferral(self._gap(message.failure_count), self._random)) for message in batch.deferred]
        batch.failed = self._show_later(tx, gaps, now)
        batch.gave_way = self._show_later(tx, batch.giving_way, now)

    def _show_later(
        self, tx: DelayedMessageStore, gaps: Sequence[tuple[DelayedMessage, timedelta]], now: datetime
    ) -> int:
        """Count a failure of each message, and show it again after its gap; returns how many were there."""
        if not gaps:
            return 0
        return tx.increment_failure_counts(
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
