"""The outcomes of a batch go into the store: removed, counted as failures, shown again later, or in the error queue."""

import logging
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from delaystore.dispatcher._batch import PassBatch
from delaystore.dispatcher._context import DispatchContext
from delaystore.dispatcher._forwarding import Forwarder, SendOutcomes
from delaystore.dispatcher._in_flight import Ended, FetchedMessages, InFlightTracker
from delaystore.dispatcher._pauses_and_limits import AllowanceRequests, PauseAndLimitFilter
from delaystore.dispatcher._retries import NO_ANSWER, UNAVAILABLE, Deferral, NextAttempts, deferral_of, grouped
from delaystore.dispatcher.error_queue import EXPIRED, ErrorQueueCopies, Failure
from delaystore.errors import InvalidMessageError
from delaystore.message import DelayedMessage, UnreadableMessage
from delaystore.settings import OnExpired
from delaystore.stores.abc import DelayedMessageStore
from delaystore.stores.operable import AuditedStore
from delaystore.stores.records import Change, ChangeAction, Ending, Way
from delaystore.text import counted, time_text
from delaystore.transports.abc import Outcome, OutcomeKind

logger = logging.getLogger("delaystore.dispatcher")


class ErrorCopies:
    """Sends the copies of a batch; threads may share it."""

    def __init__(
        self,
        error_queue: ErrorQueueCopies,
        forwarder: Forwarder,
        in_flight: InFlightTracker,
        next_attempts: NextAttempts,
    ) -> None:
        self._error_queue = error_queue
        self._forwarder = forwarder
        self._in_flight = in_flight
        self._next_attempts = next_attempts

    def send(self, tx: DelayedMessageStore, batch: PassBatch) -> None:
        """Send copies of undeliverable messages. In an outage the messages stay as they were."""
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
        for (failure, copy), outcome in zip(copied, sent.outcomes, strict=True):
            if outcome.late is not None:
                self._in_flight.note_unconfirmed(failure.message, outcome.late, copy.destination, sent.sent_at, failure)
            self._sort(batch, failure, outcome)

    def _sort(self, batch: PassBatch, failure: Failure, outcome: Outcome) -> None:
        """Note the next step for a message whose copy was sent."""
        if outcome.kind is OutcomeKind.DELIVERED:
            batch.moved.append(failure)
            return
        # A copy without an answer is not deferred, but counts as a failure, so that the recovery breaker notices an
        # error queue that does not work.
        deferral = deferral_of(outcome, batch.outage, answers_others=False)
        if deferral is not None:
            deferred = replace(failure, reason=f"{failure.reason}; the error queue: {outcome.reason}")
            self._next_attempts.defer(batch, deferred, deferral, in_flight=outcome.late is not None)
        elif outcome.kind is OutcomeKind.UNCONFIRMED and batch.outage is not None:
            batch.leave_unconfirmed(failure.message, outcome.reason)
        else:
            reason = f"{failure.reason}; the error queue: {outcome.kind.value}: {outcome.reason}"
            batch.not_moved.append(replace(failure, reason=reason))

    def _send_unless_down(
        self, tx: DelayedMessageStore, copies: Sequence[DelayedMessage], outage: str | None
    ) -> SendOutcomes:
        """Send `copies`; if the first send has ended in an outage, return UNCONFIRMED for all without waiting."""
        if outage is not None:
            return SendOutcomes([Outcome(OutcomeKind.UNCONFIRMED, outage)] * len(copies), outage=outage)
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
    """Forwards batches; threads may share it."""

    def __init__(
        self,
        context: DispatchContext,
        forwarder: Forwarder,
        in_flight: InFlightTracker,
        limits: AllowanceRequests,
    ) -> None:
        self._exactly_once = context.exactly_once
        self._drops = context.settings.on_expired is OnExpired.DROP
        self._drop_change = Change(by=context.known_as, way=Way.DISPATCHER, action=ChangeAction.EXPIRE)
        self._forwarder = forwarder
        self._in_flight = in_flight
        self._next_attempts = NextAttempts(context.settings, in_flight, random.random)
        self._filter = PauseAndLimitFilter(context.destinations, limits, self._next_attempts.shown_at)
        self._copies = ErrorCopies(context.error_queue, forwarder, in_flight, self._next_attempts)

    def settle(self, tx: DelayedMessageStore, batch: PassBatch, long_outage: bool) -> None:
        """Forward `batch`, copy failures to the error queue, then remove and count; note it all in `batch`.

        Everything is sent before anything is written: a database with a single writer must not stay locked while a
        broker answers, or while a SQL queue writes to it.

        Args:
            tx: The transaction that has claimed the messages.
            batch: The messages.
            long_outage: Whether the broker has not answered for long.

        Raises:
            ClaimsLostError: Exactly once, and another dispatcher has removed some of the messages.
            TransportRaisedError: The transport has raised, and shares the transaction.
            StoreError: The store fails.

        """
        fetched = self._in_flight.sort(batch.messages)
        if fetched.undeleted:
            # In a transaction of their own, so that no failure of the other messages can undo it. The others stay as
            # they were, for the next pass.
            batch.messages = batch.delivered = [each for found in fetched.undeleted.values() for each in found]
            batch.begin("settle")
            self._remove(tx, batch, fetched.undeleted)
            batch.full = len(batch.messages) > batch.claims_lost
            return
        self._forward(tx, batch, fetched, long_outage)
        # The time after the sends: a broker may have answered seconds after the batch was claimed, and the next
        # attempts are counted from then.
        batch.sent_at = tx.now()
        if batch.undeliverable or batch.moved:
            self._copies.send(tx, batch)
        batch.begin("settle")
        self._remove(tx, batch, batch.endings)
        if batch.dropped:
            self._drop(tx, batch)
        batch.counting = True
        self._next_attempts.write(tx, batch)
        batch.counting = False
        self._filter.park_and_postpone(batch)
        # Fewer rows removed than messages forwarded: another dispatcher has claimed some since, and will forward them,
        # or has. Exactly once, the whole transaction is undone; at least once, such a message arrives twice, and the
        # rows that are left are the other dispatcher's to remove.
        if self._exactly_once and batch.claims_lost:
            raise ClaimsLostError

    def _remove(
        self, tx: DelayedMessageStore, batch: PassBatch, endings: Mapping[Ended, Sequence[DelayedMessage]]
    ) -> None:
        for ended, messages in endings.items():
            if batch.operable is None:
                removed = tx.remove_many(messages)
            else:
                removed = batch.operable.remove_ended(messages, ended.ending, ended.at)
            batch.claims_lost += len(messages) - removed

    def _drop(self, tx: DelayedMessageStore, batch: PassBatch) -> None:
        """Delete expired messages, and note how many: if the process dies, both are done, or neither."""
        expired = [failure.message for failure in batch.dropped]
        before = batch.claims_lost
        self._remove(tx, batch, {Ended(Ending.EXPIRED, batch.ended_at): expired})
        removed = len(expired) - (batch.claims_lost - before)
        if removed and isinstance(tx, AuditedStore):
            tx.note_changes([self._drop_change.of_expired(tx.now(), expired[0], removed)])

    def _forward(self, tx: DelayedMessageStore, batch: PassBatch, fetched: FetchedMessages, long_outage: bool) -> None:
        batch.delivered, batch.moved = delivered, _ = fetched.delivered, fetched.copied
        has_confirms = bool(delivered or batch.moved)
        for message in fetched.unconfirmed:
            failure = Failure(message, "Unconfirmed", NO_ANSWER_YET)
            self._next_attempts.defer(batch, failure, UNAVAILABLE, in_flight=True)
        in_time = self._in_time(tx, batch, self._readable(batch, fetched.to_send))
        going = self._filter.sendable(tx, batch, in_time)
        sent = self._forwarder.forward(tx, going)
        batch.answered, batch.outage = sent.answered or has_confirms, sent.outage
        batch.early_from = sent.early_from
        for message, outcome in zip(going, sent.outcomes, strict=True):
            if outcome.kind is OutcomeKind.DELIVERED:
                delivered.append(message)
                continue
            if outcome.late is not None:
                # Noted at once, not at the commit: undoing the transaction does not call the message back, and the
                # next pass must not send it again.
                self._in_flight.note_unconfirmed(message, outcome.late, message.destination, sent.sent_at)
            deferral = deferral_of(outcome, batch.outage, answers_others=batch.answered or long_outage)
            if deferral is None:
                self._sort(batch, message, outcome)
            else:
                self._defer(batch, message, outcome, deferral, sent.probes.get(message.message_id))
        if batch.unanswered:
            logger.warning(
                "the broker did not confirm %d messages; they are deferred, first %r to %r",
                len(batch.unanswered),
                batch.unanswered[0].message_id,
                batch.unanswered[0].destination,
            )

    def _readable(self, batch: PassBatch, messages: Sequence[DelayedMessage]) -> Sequence[DelayedMessage]:
        """Return the messages that can be sent, and note in `batch` that the others are for the error queue."""
        readable: list[DelayedMessage] = []
        for message in messages:
            if isinstance(message, UnreadableMessage):
                batch.undeliverable.append(Failure(message, "Unreadable", message.reason))
            else:
                readable.append(message)
        return readable

    def _in_time(
        self, tx: DelayedMessageStore, batch: PassBatch, messages: Sequence[DelayedMessage]
    ) -> Sequence[DelayedMessage]:
        """Return the messages whose latest delivery has not passed, and note in `batch` that the others have expired.

        Parked and postponed messages are looked at whenever they are fetched, so no pause extends a latest delivery.
        """
        if not [True for message in messages if message.not_after is not None]:
            return messages
        now = tx.now()
        drops = self._drops and batch.operable is not None and isinstance(tx, AuditedStore)
        expired = batch.dropped if drops else batch.undeliverable
        in_time: list[DelayedMessage] = []
        for message in messages:
            if message.not_after is None or message.not_after >= now:
                in_time.append(message)
            else:
                reason = f"the latest delivery has passed: it was {time_text(message.not_after)}"
                expired.append(Failure(message, EXPIRED, reason))
        return in_time

    def _defer(
        self, batch: PassBatch, message: DelayedMessage, outcome: Outcome, deferral: Deferral, at_most: float | None
    ) -> None:
        failure = Failure(message, outcome.kind.value.capitalize(), outcome.reason)
        if deferral is NO_ANSWER:
            batch.silence = batch.silence or outcome.reason
            batch.unanswered.append(message)
        self._next_attempts.defer(batch, failure, deferral, in_flight=outcome.late is not None, at_most=at_most)

    def _sort(self, batch: PassBatch, message: DelayedMessage, outcome: Outcome) -> None:
        """Note the next step for a message that was neither delivered nor deferred."""
        if outcome.kind is OutcomeKind.UNCONFIRMED:
            batch.leave_unconfirmed(message, outcome.reason)
        elif outcome.kind is OutcomeKind.NOT_DELAYABLE:
            if not batch.not_delayable:
                logger.warning(
                    "message %r stays in the store instead of a native delay: %s", message.message_id, outcome.reason
                )
            batch.not_delayable.append(message)
        elif outcome.kind is OutcomeKind.UNROUTABLE:
            batch.undeliverable.append(Failure(message, "Unroutable", outcome.reason))
        elif self._next_attempts.has_retries(message):
            batch.refused.append(Failure(message, "Refused", outcome.reason))
        else:
            batch.undeliverable.append(Failure(message, "Refused", outcome.reason))
