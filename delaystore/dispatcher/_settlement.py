"""The outcomes of a batch go into the store: removed, counted as failures, shown again later, or in the error queue."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from delaystore.dispatcher._batch import PassBatch
from delaystore.dispatcher._context import DispatchContext
from delaystore.dispatcher._forwarding import Forwarder, SendOutcomes
from delaystore.dispatcher._in_flight import InFlightMessage, InFlightTracker
from delaystore.dispatcher._pauses_and_limits import AllowanceRequests, PauseAndLimitFilter
from delaystore.dispatcher._retries import Deferrals, NextAttempts, grouped
from delaystore.dispatcher.error_queue import ErrorQueueCopies, Failure
from delaystore.errors import InvalidMessageError
from delaystore.message import DelayedMessage, UnreadableMessage
from delaystore.stores.abc import DelayedMessageStore
from delaystore.text import counted
from delaystore.transports.abc import Outcome, OutcomeKind

logger = logging.getLogger("delaystore.dispatcher")


class ErrorCopies:
    """Sends the copies of a batch; threads may share it."""

    def __init__(
        self,
        error_queue: ErrorQueueCopies,
        forwarder: Forwarder,
        on_their_way: InFlightTracker,
        next_attempts: NextAttempts,
    ) -> None:
        self._error_queue = error_queue
        self._forwarder = forwarder
        self._on_their_way = on_their_way
        self._next_attempts = next_attempts

    def send(self, tx: DelayedMessageStore, batch: PassBatch) -> None:
        """Send copies of what cannot be delivered. In an outage the messages stay as they were."""
        if batch.undeliverable:
            self._send(tx, batch)
        self._log(batch.moved)

    def _send(self, tx: DelayedMessageStore, batch: PassBatch) -> None:
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

    def _sort(self, batch: PassBatch, failure: Failure, outcome: Outcome) -> None:
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

    def _send_unless_down(
        self, tx: DelayedMessageStore, copies: Sequence[DelayedMessage], outage: str | None
    ) -> SendOutcomes:
        """Send `copies`; if the first send has ended in an outage, return UNSETTLED for all without waiting."""
        if outage is not None:
            return SendOutcomes([Outcome(OutcomeKind.UNSETTLED, outage)] * len(copies), outage=outage)
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


NO_ANSWER_YET: Final = "sent by an earlier attempt, and without an answer so far"


class ClaimsLostError(Exception):
    """Claims on forwarded messages were lost; in exactly-once mode the whole transaction is then undone."""


class Settler:
    """Forwards batches; threads may share it. `random` gives numbers from 0 to 1."""

    def __init__(
        self,
        context: DispatchContext,
        deferrals: Deferrals,
        on_their_way: InFlightTracker,
        limits: AllowanceRequests,
        random: Callable[[], float],
    ) -> None:
        self._error_queue = context.error_queue
        self._exactly_once = context.exactly_once
        self._forwarder = Forwarder(context)
        self._on_their_way = on_their_way
        self._next_attempts = NextAttempts(context.settings, deferrals, random)
        self._admission = PauseAndLimitFilter(context.destinations, limits, self._next_attempts.shown_at)
        self._copies = ErrorCopies(context.error_queue, self._forwarder, on_their_way, self._next_attempts)

    def settle(self, tx: DelayedMessageStore, batch: PassBatch, long_outage: bool) -> None:
        """Forward `batch`, copy failures to the error queue, then remove and count; note it all in `batch`.

        Everything is sent before anything is written: a database with a single writer must not stay locked while a
        broker answers, or while a SQL queue writes to it. `long_outage`: the broker has not answered for long. Raises
        what the store raises, TransportRaisedError and ClaimsLostError.
        """
        self._forward(tx, batch)
        batch.sent_at = tx.now()
        self._defer(batch, long_outage)
        self._copies.send(tx, batch)
        self._remove(tx, batch)
        batch.counting = True
        self._next_attempts.write(tx, batch)
        batch.counting = False
        self._admission.withhold(batch)
        if self._exactly_once and batch.claims_lost:
            raise ClaimsLostError

    def settle_arrived(self, tx: DelayedMessageStore, batch: PassBatch, arrived: Sequence[DelayedMessage]) -> None:
        """Remove what arrived in an earlier pass, and leave the rest to the next one. Raises what the store raises."""
        batch.messages = batch.delivered = arrived
        self._remove(tx, batch)

    def _remove(self, tx: DelayedMessageStore, batch: PassBatch) -> None:
        batch.begin("settle")
        arrived = batch.arrived
        if arrived:
            batch.claims_lost = len(arrived) - tx.remove_many(arrived)

    def _forward(self, tx: DelayedMessageStore, batch: PassBatch) -> None:
        readable: list[DelayedMessage] = []
        delivered: list[DelayedMessage] = []
        batch.delivered = delivered
        for message in self._settle_underway(batch, delivered):
            if isinstance(message, UnreadableMessage):
                batch.undeliverable.append(Failure(message, "Unreadable", message.reason))
            else:
                readable.append(message)
        late = bool(batch.arrived)
        going = self._admission.admit(tx, batch, readable)
        sent = self._forwarder.forward(tx, going)
        batch.answered, batch.outage = sent.answered or late, sent.outage
        for message, outcome in zip(going, sent.outcomes, strict=True):
            if outcome.kind is OutcomeKind.DELIVERED:
                delivered.append(message)
            else:
                self._sort(batch, message, outcome, sent.probes.get(message.message_id))
                if outcome.late is not None:
                    self._on_their_way.note(message, outcome.late, sent.sent_at)

    def _settle_underway(self, batch: PassBatch, delivered: list[DelayedMessage]) -> Sequence[DelayedMessage]:
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
                self._next_attempts.give_way(batch, Failure(message, "Unsettled", NO_ANSWER_YET), on_its_way=True)
            elif known.failed is None:
                delivered.append(message)
            else:
                batch.moved.append(Failure(message, *known.failed))
        self._on_their_way.forget(message.message_id for message in others)
        return others

    def _is_gone(self, message: DelayedMessage, underway: InFlightMessage) -> bool:
        """Whether what was sent will not arrive, as far as anybody can tell."""
        if underway.late.arrived is not None:
            return not underway.late.arrived
        destination = message.destination if underway.failed is None else self._error_queue.name
        return self._forwarder.sending.set_aside.overtaken(destination, underway.sent_at)

    def _sort(self, batch: PassBatch, message: DelayedMessage, outcome: Outcome, soon: float | None) -> None:
        """Note what is to become of a message that was not delivered.

        `soon`: it tried a destination that was set aside, which is tried again in so many seconds; None: it did not.
        """
        on_its_way = outcome.late is not None
        if outcome.kind is OutcomeKind.UNREADY or (on_its_way and batch.outage is None):
            failure = Failure(message, outcome.kind.value.capitalize(), outcome.reason)
            self._next_attempts.give_way(batch, failure, on_its_way=on_its_way, at_most=soon)
        elif outcome.kind is OutcomeKind.UNSETTLED:
            batch.leave_unsettled(message, outcome.reason)
        elif outcome.kind is OutcomeKind.UNSUITED:
            if not batch.unsuited:
                logger.warning("%r is not delayed natively, but kept: %s", message.message_id, outcome.reason)
            batch.unsuited.append(message)
        elif outcome.kind is OutcomeKind.UNROUTABLE:
            batch.undeliverable.append(Failure(message, "Unroutable", outcome.reason))
        elif self._next_attempts.has_retries(message):
            batch.refused.append(Failure(message, "Refused", outcome.reason))
        else:
            batch.undeliverable.append(Failure(message, "Refused", outcome.reason))

    def _defer(self, batch: PassBatch, long_outage: bool) -> None:
        """Let messages without an answer give way to others, unless it is an outage.

        In an outage they stay as they are. But if the broker is there and does not answer for just these (their queue
        has lost its majority), they would come first again in every batch.
        """
        if not batch.unsettled or batch.outage is not None or not (batch.answered or long_outage):
            return
        first = batch.unsettled[0]
        self._next_attempts.defer(batch)
        logger.warning(
            "no answer for %d messages while the broker is there; deferred, first %r to %r",
            batch.deferred,
            first.message.message_id,
            first.message.destination,
        )
