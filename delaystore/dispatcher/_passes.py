"""One pass: claim due messages, forward them, settle them, and note the result in the breakers."""

import logging
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from delaystore.breakers import BreakerState
from delaystore.dispatcher._batch import BatchSizer, PassBatch, observed
from delaystore.dispatcher._context import AT_ONCE, NEVER, DispatchContext
from delaystore.dispatcher._forwarding import Forwarder, TransportRaisedError
from delaystore.dispatcher._in_flight import InFlightTracker
from delaystore.dispatcher._pauses_and_limits import AllowanceRequests
from delaystore.dispatcher._retries import FailureLog
from delaystore.dispatcher._settlement import ClaimsLostError, Settler
from delaystore.dispatcher.health import NOTHING_DONE, DispatchReport
from delaystore.errors import StoreUnavailableError, TransportError
from delaystore.message import DelayedMessage
from delaystore.stores.abc import ManagedDelayedMessageStore
from delaystore.stores.operable import OperableTransaction

logger = logging.getLogger("delaystore.dispatcher")
MANY: Final = 16
"""Messages of one pass from which on others are expected to become due before it ends. Two workers then take turns, so
that these messages do not wait for the confirms and the commit of the pass."""


@dataclass(frozen=True, slots=True)
class PassResult:
    """The result of a pass, and how to go on."""

    report: DispatchReport = NOTHING_DONE
    at: datetime = AT_ONCE
    """It fetched messages due at this time; AT_ONCE: it did not fetch."""
    full: bool = False
    """As many were fetched as were asked for: there may be more."""
    again: bool = False
    """Some were left that may go in the next pass."""
    delay: float = 0.0
    """Seconds that a breaker asks to wait."""
    outage: str | None = None
    """Why nothing can be sent; None: no outage was noticed. If nothing was fetched, it was noticed before the claim."""

    @property
    def keep_going(self) -> bool:
        """Whether to pass again at once, beside another worker: more messages are due, or will be in a moment."""
        return self.full or self.report.fetched >= MANY

    @property
    def hindered(self) -> bool:
        """Whether another pass at once would fare no better."""
        return self.outage is not None or bool(self.delay)


class DispatchPass:
    """Passes over one store; threads may share it.

    A message that fails does not keep others of its batch from being removed. A crash at any point leaves a message in
    the store, at its destination or in the error queue: in at least one of them, and perhaps in two.
    """

    def __init__(self, context: DispatchContext) -> None:
        self._context = context
        self._breakers = context.breakers
        forwarder = Forwarder(context)
        self._in_flight = InFlightTracker(forwarder.is_presumed_lost)
        self._limits = AllowanceRequests(context.operability, context.store_calls)
        self._settler = Settler(context, forwarder, self._in_flight, self._limits)
        self._failure_log = FailureLog()
        settings = context.settings
        self._sizer = BatchSizer(settings.batch_size, settings.batch_bytes, settings.max_body_bytes)

    def run(self, at: datetime | None = None) -> PassResult:
        """Forward one batch of messages due at `at` (None: within the horizon); in an outage, claim nothing. Raises
        the store's errors.
        """
        outage = self._context.transport.unavailable()
        if outage is not None:
            return PassResult(outage=outage)
        self._context.error_queue.declaration.ensure()
        self._context.keep_history()
        self._context.destinations.read()
        self._limits.request_ahead()
        self._forget_removed()
        batch = PassBatch(NEVER if at is None else at)
        if self._context.observer is None:
            return self._attempt(batch)
        with observed(self._context.observer, batch):
            result = self._attempt(batch)
        self._breakers.states()  # the recovery breaker notices the end of its window when it is asked
        return result

    def _forget_removed(self) -> None:
        """Forget remembered messages that are no longer in the store."""
        ids, store = self._in_flight.ids_to_look_up(), self._context.store
        if ids and isinstance(store, ManagedDelayedMessageStore):
            with self._context.store_calls.call("looking for messages that are removed"):
                waiting = set(store.waiting_ids(ids))
            self._in_flight.forget_ids(message_id for message_id in ids if message_id not in waiting)

    def _attempt(self, batch: PassBatch) -> PassResult:
        taken: list[DelayedMessage] = []
        try:
            try:
                with self._context.store_calls.call("fetching and settling due messages"):
                    self._claim_and_settle(batch, taken)
            except Exception as error:
                batch.undone = error
                return self._on_undone(batch, error)
            return self._on_committed(batch)
        finally:
            # Only after delivered messages are noted or forgotten: another worker may have fetched the same messages,
            # or others that were stored under their ids.
            self._in_flight.release(taken)

    def _claim_and_settle(self, batch: PassBatch, taken: list[DelayedMessage]) -> None:
        """Note in `taken` the messages that no other worker may send."""
        limit = self._sizer.limit
        with self._context.store.transaction() as tx:
            batch.began = tx.now()
            # A time that was asked for may be ahead of this server's clock: it may come from a server that is gone.
            batch.at = min(batch.at, batch.began + self._context.settings.handover_horizon)
            fetched = tx.fetch_batch(batch.at, limit, self._context.settings.batch_bytes)
            taken += self._in_flight.take(fetched)
            batch.messages = list(taken)
            if self._context.operability.found is not None and isinstance(tx, OperableTransaction):
                batch.operable = tx
            if not taken:
                return
            batch.full = len(fetched) >= limit
            batch.begin("forward")
            self._sizer.learn(taken)
            self._settler.settle(tx, batch, self._breakers.dispatch.state is BreakerState.TRIGGERED)

    def _on_undone(self, batch: PassBatch, error: Exception) -> PassResult:
        """React to an undone transaction; a later pass removes messages that have arrived. Raises the store's
        errors.
        """
        # At least once: undoing the transaction did not call back the messages that have arrived. They are remembered,
        # so that the next pass deletes them instead of sending them again. Exactly once: that is undone, too.
        arrived = () if self._context.exactly_once else batch.arrived
        for ended, messages in batch.endings.items() if arrived else ():
            self._in_flight.note_undeleted(messages, ended)
        if isinstance(error, ClaimsLostError):
            logger.warning("lost %d claims to another dispatcher; batch rolled back", batch.claims_lost)
            return PassResult(at=batch.at)
        if isinstance(error, TransportRaisedError):
            return PassResult(at=batch.at, delay=self._breakers.dispatch.failure(error))
        if isinstance(error, StoreUnavailableError) and not batch.messages:
            self._sizer.slow_down()  # a batch too large for the network never comes within store_timeout
        if batch.counting:
            self._breakers.recovery.failure(error)
        if arrived:
            logger.warning("cannot remove %d delivered messages yet, will retry: %s", len(arrived), error)
        raise error

    def _on_committed(self, batch: PassBatch) -> PassResult:
        self._in_flight.forget(batch.arrived)
        self._breakers.fetch.success()
        if not batch.messages:
            return PassResult(at=batch.at)
        if batch.deferred:
            self._in_flight.note_deferred([failure.message for failure, _ in batch.deferred])
        if batch.not_delayable and batch.operable is None:
            self._in_flight.note_deferred(batch.not_delayable)
        report = batch.report()
        self._context.tally.add(report, batch.began)
        if batch.operable is not None:
            self._context.activity.note(batch, report, batch.began)
        self._failure_log.log(batch)
        return PassResult(report, batch.at, batch.full, batch.again, self._note_in_breakers(batch), batch.outage)

    def _note_in_breakers(self, batch: PassBatch) -> float:
        """Note in the breakers how the pass went; returns the seconds to wait."""
        if batch.claims_lost:
            logger.warning(
                "%d forwarded messages were no longer claimed by this dispatcher; another may have sent them too",
                batch.claims_lost,
            )
        if batch.not_moved:
            self._report_not_moved(batch)
        if batch.answered:
            self._breakers.dispatch.success()
        if batch.unanswered:
            self._sizer.slow_down()
        if not batch.silent:
            return 0.0
        return self._breakers.dispatch.failure(TransportError(batch.silence or "no answer from the broker"))

    def _report_not_moved(self, batch: PassBatch) -> None:
        first, count = batch.not_moved[0], len(batch.not_moved)
        self._context.error_queue.declaration.again()
        logger.error(
            "the error queue refused %d messages; they stay in the store; first %r: %s",
            count,
            first.message.message_id,
            first.reason,
        )
        self._breakers.recovery.failure(TransportError(first.reason), count)
