"""Forwarding one claimed batch and settling every message of it, inside one store transaction."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from delaystore.dispatcher.deferrals import Deferrals
from delaystore.dispatcher.failures import Failure, error_copy
from delaystore.dispatcher.forwarding import Forwarder
from delaystore.dispatcher.health import DispatchReport
from delaystore.dispatcher.retries import LONGEST_PARKED_GAP, back_off, next_attempt
from delaystore.errors import InvalidMessageError
from delaystore.message import DelayedMessage, UnreadableMessage
from delaystore.settings import DelayedDeliverySettings, TransactionMode
from delaystore.stores.abc import DelayedMessageStore
from delaystore.transports.abc import Outcome, OutcomeKind, Transport

logger = logging.getLogger("delaystore.dispatcher")

LONGEST_DEFERRAL: Final = timedelta(seconds=LONGEST_PARKED_GAP)


class ClaimsLostError(Exception):
    """Exactly once only: some forwarded messages were no longer ours, so the whole transaction is undone."""

    def __init__(self, report: DispatchReport) -> None:
        super().__init__("claims lost")
        self.report = report


@dataclass(slots=True)
class Attempt:
    """How far settling a batch got, for when it fails."""

    arrived: Sequence[DelayedMessage] = ()
    """At their destination or in the error queue; an exception undoes their removal where there are transactions."""
    recovering: bool = False
    """Whether failures were being counted."""


@dataclass(slots=True)
class Sorted:
    """A batch by what became of its messages."""

    delivered: list[DelayedMessage] = field(default_factory=list)
    hopeless: list[Failure] = field(default_factory=list)
    """For the error queue."""
    retriable: list[Failure] = field(default_factory=list)
    unsettled: list[Failure] = field(default_factory=list)
    unsuited: list[DelayedMessage] = field(default_factory=list)
    """Not due yet, and only then to be sent."""
    answered: bool = False
    """Whether the broker is known to have settled any of them."""


@dataclass(frozen=True, slots=True)
class Settled:
    """What became of a batch, for the report and the breakers."""

    report: DispatchReport
    answered: bool
    """Whether the broker is known to have settled any message of it."""
    unsettled: Failure | None
    """One of those without an answer, where that looks like an outage."""
    deferred: Sequence[DelayedMessage]
    """Those without an answer that gave way to others."""
    parked: Sequence[Failure]
    """Those the error queue did not take, with its reason."""
    unsuited: Sequence[DelayedMessage]
    """Those the transport cannot delay, which the store keeps until they are due."""


class Settler:
    """Forwards batches; threads may share it. `random` gives numbers from 0 to 1."""

    def __init__(
        self,
        transport: Transport,
        settings: DelayedDeliverySettings,
        deferrals: Deferrals,
        random: Callable[[], float],
    ) -> None:
        self._transport = transport
        self._settings = settings
        self._deferrals = deferrals
        self._random = random
        self._exactly_once = settings.transaction_mode is TransactionMode.TRANSACTION_SCOPE
        self._forwarder = Forwarder(transport, settings)

    def settle(
        self,
        tx: DelayedMessageStore,
        batch: Sequence[DelayedMessage],
        outage: bool,
        attempt: Attempt,
    ) -> Settled:
        """Forward `batch`, copy failures to the error queue, then remove and count; `attempt` follows it.

        Everything is sent before anything is written: a database with a single writer is not kept locked while a
        broker answers, and a SQL queue can write to it. `outage`: the broker has answered nothing for long.
        Raises what the store raises, and the errors above.
        """
        found = self._forward(tx, batch)
        attempt.arrived = found.delivered
        deferred = self._take_deferrable(found, found.answered or outage)
        moved, parked = self._move_to_error_queue(tx, found)
        attempt.arrived = found.delivered + [failure.message for failure in moved]
        removed = tx.remove_many(attempt.arrived) if attempt.arrived else 0
        attempt.recovering = True
        failed = self._count_failures(tx, found.retriable + parked, deferred)
        self._keep_until_due(tx, found.unsuited)
        attempt.recovering = False
        report = DispatchReport(
            fetched=len(batch),
            delivered=len(found.delivered),
            moved_to_error_queue=len(moved),
            failed=failed,
            unsettled=len(found.unsettled),
            claims_lost=len(attempt.arrived) - removed,
        )
        if self._exactly_once and report.claims_lost:
            raise ClaimsLostError(report)
        unsettled = found.unsettled or ([] if found.answered else deferred)
        gave_way = [failure.message for failure in deferred]
        return Settled(report, found.answered, unsettled[0] if unsettled else None, gave_way, parked, found.unsuited)

    def remove(self, tx: DelayedMessageStore, arrived: Sequence[DelayedMessage]) -> Settled:
        """Remove what has arrived in an earlier attempt. Raises what the store raises."""
        count = len(arrived)
        lost = count - tx.remove_many(arrived)
        report = DispatchReport(fetched=count, delivered=count, claims_lost=lost)
        return Settled(report, answered=False, unsettled=None, deferred=(), parked=(), unsuited=())

    def _forward(self, tx: DelayedMessageStore, batch: Sequence[DelayedMessage]) -> Sorted:
        found = Sorted()
        sound: list[DelayedMessage] = []
        for message in batch:
            if isinstance(message, UnreadableMessage):
                found.hopeless.append(Failure(message, "Unreadable", message.reason))
            else:
                sound.append(message)
        outcomes = self._forwarder.forward(tx, sound)
        found.answered = self._answered(outcomes)
        for message, outcome in zip(sound, outcomes, strict=True):
            if outcome.kind is OutcomeKind.DELIVERED:
                found.delivered.append(message)
            elif outcome.kind is OutcomeKind.UNSETTLED:
                found.unsettled.append(Failure(message, "Unsettled", outcome.reason))
            elif outcome.kind is OutcomeKind.UNSUITED:
                if not found.unsuited:
                    logger.warning("%s is not delayed natively, but kept: %s", message.message_id, outcome.reason)
                found.unsuited.append(message)
            elif outcome.kind is OutcomeKind.UNROUTABLE:
                found.hopeless.append(Failure(message, "Unroutable", outcome.reason))
            else:
                last = self._deferrals.failures(message) >= self._settings.number_of_retries
                (found.hopeless if last else found.retriable).append(Failure(message, "Refused", outcome.reason))
        return found

    def _answered(self, outcomes: Sequence[Outcome]) -> bool:
        """Whether the broker is there. What the transport itself can tell to be hopeless says nothing of it."""
        kinds = {outcome.kind for outcome in outcomes}
        if OutcomeKind.DELIVERED in kinds:
            return True
        return bool(kinds - {OutcomeKind.UNSETTLED}) and self._transport.unavailable() is None

    def _take_deferrable(self, found: Sorted, others_should_pass: bool) -> list[Failure]:
        """Take out of `found.unsettled` what is to give way to messages behind it.

        An outage is no message's fault. But where the broker is there and leaves just these without an answer (a
        queue without its majority), they would come first again in every batch.
        """
        if not found.unsettled or not others_should_pass or self._transport.unavailable() is not None:
            return []
        deferred, found.unsettled = found.unsettled, []
        logger.warning(
            "no answer for %d messages while the broker is there; deferred, first %s to %r",
            len(deferred),
            deferred[0].message.message_id,
            deferred[0].message.destination,
        )
        return deferred

    def _move_to_error_queue(self, tx: DelayedMessageStore, found: Sorted) -> tuple[list[Failure], list[Failure]]:
        """Send copies to the error queue; returns the failures it took, and those it did not (with its reason).

        Those that meet an outage join `found.unsettled`: they stay as they were.
        """
        if not found.hopeless:
            return [], []
        now = tx.now()
        copies: list[DelayedMessage] = []
        copied: list[Failure] = []
        moved: list[Failure] = []
        parked: list[Failure] = []
        for failure in found.hopeless:
            try:
                copies.append(error_copy(failure, self._settings.error_queue, now, self._transport.check))
                copied.append(failure)
            except InvalidMessageError as error:
                parked.append(Failure(failure.message, failure.kind, str(error)))
        for failure, outcome in zip(copied, self._send_unless_down(tx, copies), strict=True):
            if outcome.kind is OutcomeKind.DELIVERED:
                moved.append(failure)
            elif outcome.kind is OutcomeKind.UNSETTLED and self._transport.unavailable() is not None:
                found.unsettled.append(Failure(failure.message, failure.kind, outcome.reason))
            else:
                parked.append(Failure(failure.message, failure.kind, f"{outcome.kind.value}: {outcome.reason}"))
        self._log_moved(moved)
        return moved, parked

    def _send_unless_down(self, tx: DelayedMessageStore, copies: Sequence[DelayedMessage]) -> Sequence[Outcome]:
        """Send, without a wait where the first send has shown that the broker is gone."""
        reason = self._transport.unavailable() if copies else None
        if reason is not None:
            return [Outcome(OutcomeKind.UNSETTLED, reason)] * len(copies)
        return self._forwarder.send(tx, copies)

    def _log_moved(self, moved: Sequence[Failure]) -> None:
        if moved:
            logger.warning(
                "moved %d messages to the error queue %r; first %s to %r: %s",
                len(moved),
                self._settings.error_queue,
                moved[0].message.message_id,
                moved[0].message.destination,
                moved[0].reason,
            )

    def _count_failures(self, tx: DelayedMessageStore, failures: Sequence[Failure], deferred: Sequence[Failure]) -> int:
        """Show them again later, counted from now, when the sending is over; returns how many were there."""
        if not failures and not deferred:
            return 0
        now = tx.now()
        gaps = [(failure.message, self._gap(self._deferrals.failures(failure.message))) for failure in failures]
        gaps += [
            (failure.message, min(self._gap(failure.message.failure_count), LONGEST_DEFERRAL)) for failure in deferred
        ]
        return tx.increment_failure_counts(
            [(message, self._shown_at(_not_late(message, now, next_attempt(now, gap)))) for message, gap in gaps]
        )

    def _keep_until_due(self, tx: DelayedMessageStore, unsuited: Sequence[DelayedMessage]) -> None:
        if unsuited:
            tx.increment_failure_counts([(message, self._shown_at(message.due_time)) for message in unsuited])

    def _shown_at(self, time: datetime) -> datetime:
        """The next attempt that makes the store show a message at `time`: it is asked for what comes later, too."""
        return next_attempt(time, self._settings.handover_horizon)

    def _gap(self, earlier_failures: int) -> timedelta:
        settings = self._settings
        return back_off(earlier_failures + 1, settings.number_of_retries, settings.retry_span, self._random)


def _not_late(message: DelayedMessage, now: datetime, attempt: datetime) -> datetime:
    """`attempt`, but what was handed over early is tried again when it is due at the latest."""
    return min(attempt, message.due_time) if message.due_time > now else attempt
