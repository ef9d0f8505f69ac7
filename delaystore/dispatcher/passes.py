"""One look at the store: claim what is due, forward it, settle it, and tell the breakers."""

import logging
import random
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from delaystore.dispatcher.arrivals import UnremovedArrivals
from delaystore.dispatcher.batches import BatchSizer
from delaystore.dispatcher.breakers import (
    BreakerState,
    FailureRateCircuitBreaker,
    RepeatedFailuresOverTimeCircuitBreaker,
)
from delaystore.dispatcher.deferrals import Deferrals
from delaystore.dispatcher.error_queue import ErrorQueue
from delaystore.dispatcher.forwarding import TransportRaisedError
from delaystore.dispatcher.health import NOTHING_DONE, DispatchReport, Tally
from delaystore.dispatcher.settlement import (
    Attempt,
    ClaimsLostError,
    Settled,
    Settler,
)
from delaystore.errors import TransportError
from delaystore.settings import DelayedDeliverySettings, TransactionMode
from delaystore.stores.abc import DelayedMessageStore
from delaystore.transports.abc import Transport

logger = logging.getLogger("delaystore.dispatcher")


class Breakers:
    """The dispatcher's three circuit breakers."""

    def __init__(self, settings: DelayedDeliverySettings) -> None:
        action = settings.on_critical_error
        self.fetch: Final = RepeatedFailuresOverTimeCircuitBreaker(
            "fetching due messages from the store", settings.time_to_trigger_fetch_circuit_breaker, action
        )
        self.dispatch: Final = RepeatedFailuresOverTimeCircuitBreaker(
            "forwarding to the broker", settings.time_to_trigger_dispatch_circuit_breaker, action
        )
        self.recovery: Final = FailureRateCircuitBreaker(
            "moving failed messages to the error queue", settings.maximum_recovery_failures_per_second, action
        )

    def states(self) -> dict[str, str]:
        """Each breaker's state by name."""
        return {
            "fetch": self.fetch.state.value,
            "dispatch": self.dispatch.state.value,
            "recovery": self.recovery.state.value,
        }


@dataclass(frozen=True, slots=True)
class PassResult:
    """What a pass did, and how to go on."""

    report: DispatchReport
    at: datetime
    """It looked for what was due at this time."""
    full: bool = False
    """As many came as were asked for: there may be more."""
    delay: float = 0.0
    """Seconds that a breaker asks to wait."""


class DispatchPass:
    """Passes over one store; may be shared by threads.

    What goes wrong for one message of a batch keeps no other from being removed. A crash at any point leaves a
    message in the store, at its destination or in the error queue: perhaps in two of them, never in none.
    """

    def __init__(
        self,
        store: DelayedMessageStore,
        transport: Transport,
        settings: DelayedDeliverySettings,
        breakers: Breakers,
        error_queue: ErrorQueue,
        tally: Tally,
    ) -> None:
        self._store = store
        self._breakers = breakers
        self._error_queue = error_queue
        self._tally = tally
        self._horizon = settings.handover_horizon
        self._exactly_once = settings.transaction_mode is TransactionMode.TRANSACTION_SCOPE
        self._arrivals = UnremovedArrivals()
        self._deferrals = Deferrals()
        self._settler = Settler(transport, settings, self._deferrals, random.random)
        self._sizer = BatchSizer(settings.batch_size, settings.batch_bytes, settings.max_body_bytes)

    def run(self, at: datetime | None = None) -> PassResult:
        """Forward one batch of what is due at `at` (None: within the horizon). Raises what the store raises."""
        now = self._store.now()
        at = at or now + self._horizon
        attempt = Attempt()
        try:
            settled, full = self._claim_and_settle(at, attempt)
        except ClaimsLostError as lost:
            logger.warning("%d claims were lost to another dispatcher; undone", lost.report.claims_lost)
            return PassResult(NOTHING_DONE, at)
        except TransportRaisedError as error:
            return PassResult(NOTHING_DONE, at, delay=self._breakers.dispatch.failure(error))
        except Exception as error:
            if attempt.recovering:
                self._breakers.recovery.failure(error)
            if attempt.arrived and not self._exactly_once:
                self._arrivals.keep(attempt.arrived)
                logger.warning("%d messages that have arrived are yet to be removed: %s", len(attempt.arrived), error)
            raise
        self._arrivals.forget(attempt.arrived)
        self._deferrals.forget(attempt.arrived)
        self._breakers.fetch.success()
        if settled is None:
            return PassResult(NOTHING_DONE, at)
        self._deferrals.note([*settled.deferred, *settled.unsuited])
        self._tally.add(settled.report, now)
        return PassResult(settled.report, at, full, self._tell_breakers(settled))

    def _claim_and_settle(self, at: datetime, attempt: Attempt) -> tuple[Settled | None, bool]:
        limit = self._sizer.limit
        outage = self._breakers.dispatch.state is BreakerState.TRIGGERED
        with self._store.transaction() as tx:
            batch = tx.fetch_due(at, limit)
            if not batch:
                return None, False
            self._sizer.learn(batch)
            attempt.arrived = self._arrivals.among(batch)
            if attempt.arrived:
                # By themselves, so that nothing that goes wrong with the others can undo it again.
                settled = self._settler.remove(tx, attempt.arrived)
                return settled, settled.report.progress
            try:
                return self._settler.settle(tx, batch, outage, attempt), len(batch) >= limit
            finally:
                if not self._exactly_once:
                    # While they are claimed: once the transaction is undone, the other lane may fetch them.
                    self._arrivals.note(attempt.arrived)

    def _tell_breakers(self, settled: Settled) -> float:
        if settled.report.claims_lost:
            logger.warning(
                "%d forwarded messages were no longer claimed by this dispatcher; another may have sent them too",
                settled.report.claims_lost,
            )
        if settled.parked:
            self._report_parked(settled)
        if settled.answered:
            self._breakers.dispatch.success()
        if settled.deferred:
            self._sizer.slow_down()
        if settled.unsettled is None:
            return 0.0
        return self._breakers.dispatch.failure(TransportError(settled.unsettled.reason or "no answer from the broker"))

    def _report_parked(self, settled: Settled) -> None:
        first = settled.parked[0]
        self._error_queue.refused()
        logger.error(
            "the error queue did not take %d messages, which stay in the store; first %s: %s",
            len(settled.parked),
            first.message.message_id,
            first.reason,
        )
        self._breakers.recovery.failure(TransportError(first.reason), len(settled.parked))
