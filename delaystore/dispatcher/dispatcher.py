"""The dispatcher: forwards what is due, in a thread of its own or in the caller's."""

import threading
from datetime import datetime, timedelta

from delaystore.dispatcher.error_queue import ErrorQueue
from delaystore.dispatcher.forks import renew_in_children
from delaystore.dispatcher.health import NOTHING_DONE, DispatchReport, Health, Tally
from delaystore.dispatcher.loop import DispatchLoop
from delaystore.dispatcher.passes import Breakers, DispatchPass
from delaystore.dispatcher.wakeup import WakeUp
from delaystore.errors import ConfigurationError, TransportUnavailableError, UnsupportedModeError
from delaystore.settings import DelayedDeliverySettings, TransactionMode
from delaystore.stores.abc import DelayedMessageStore
from delaystore.transports.abc import Transport


def check_pair(store: DelayedMessageStore, transport: Transport, settings: DelayedDeliverySettings) -> None:
    """UnsupportedModeError when TRANSACTION_SCOPE is asked for and the two share no transaction.

    ConfigurationError for a `handover_horizon` beyond what the transport delays natively.
    """
    longest = transport.longest_native_delay or timedelta(0)
    if settings.handover_horizon > longest:
        raise ConfigurationError(
            f"handover_horizon {settings.handover_horizon} is beyond what {transport!r} delays natively, {longest}; "
            "give it a native delay, as in delays=..., or lower the horizon"
        )
    scope = settings.transaction_mode is TransactionMode.TRANSACTION_SCOPE
    if scope and not transport.shares_transaction_with(store):
        raise UnsupportedModeError(
            f"TRANSACTION_SCOPE (exactly once) needs a transport in the store's own database, which "
            f"{type(transport).__name__} with {type(store).__name__} is not; use a SqlQueueTransport on the store's "
            f"engine, or another transaction_mode (at least once)"
        )


class Dispatcher:
    """Forwards the messages of one store as they fall due, and moves those that cannot be forwarded to the error queue.

    Any number of dispatchers, in any number of processes, may work on one store. After a fork the child has no
    dispatcher running and may start its own. Neither store nor transport is closed by it.

    `endpoint`: initializes the store for it; None: that was done. Raises UnsupportedModeError, ConfigurationError.
    """

    def __init__(
        self,
        store: DelayedMessageStore,
        transport: Transport,
        settings: DelayedDeliverySettings | None = None,
        endpoint: str | None = None,
    ) -> None:
        self._store = store
        self._transport = transport
        self._loop: DispatchLoop | None = None
        self._settings = settings or DelayedDeliverySettings()
        self._name = "delaystore-dispatcher" if endpoint is None else f"delaystore-dispatcher-{endpoint}"
        if endpoint is not None:
            store.initialize(endpoint, self._settings.transaction_mode)
        check_pair(store, transport, self._settings)
        self._inherited: list[DispatchLoop] = []
        self._assemble()
        renew_in_children(self)

    def start(self) -> None:
        """Dispatch in a daemon thread; returns at once, also while store or broker are down. May be called twice.

        After a `stop` that came back with False the thread first waits until what was in flight then has ended.
        """
        with self._lifecycle:
            if self._is_running():
                return
            former, loop = self._loop, self._new_loop()
            self._loop = loop
            try:
                threading.Thread(target=loop.run, name=self._name, daemon=True).start()
            except RuntimeError:
                self._loop = former  # no thread to be had: there is nothing else that stop could wait for
                raise

    def run(self) -> None:
        """Dispatch in the calling thread until `stop` is called from a signal handler or another thread.

        Returns at once when this dispatcher is running already.
        """
        with self._lifecycle:
            if self._is_running():
                return
            loop = self._loop = self._new_loop()
        loop.run()

    def stop(self, timeout: float | None = None) -> bool:
        """Finish what is in flight and end. May be called twice, never started, and from a signal handler.

        Waits up to `timeout` seconds (None: as long as it takes, which is without end where a database neither answers
        nor breaks the connection). True: it has ended; False: it is still finishing, as it is when a thread of its own
        calls this.
        """
        loop = self._loop
        if loop is None:
            return True
        loop.wake.stop()
        if loop.is_current_thread():
            return loop.finished.is_set()
        return loop.finished.wait(timeout)

    def dispatch_due(self) -> DispatchReport:
        """Forward what is due now, in the calling thread, and return what was done: for tests and for cron.

        It ends early when the broker stops answering.
        Raises TransportUnavailableError when the transport cannot send, and what the store raises.
        """
        WakeUp().pause(self._settings.dispatch_timeout.total_seconds(), self._can_send, poll=0.02)
        reason = self._transport.unavailable()
        if reason is not None:
            raise TransportUnavailableError(reason)
        self._error_queue.ensure()
        at = self._store.now() + self._settings.handover_horizon
        total = NOTHING_DONE
        while True:
            result = self._passes.run(at)
            total += result.report
            if result.delay or not result.report.progress:
                return total

    def wake_up(self, due_time: datetime | None = None) -> None:
        """Something was stored that is due at `due_time` (None: perhaps now). Cheap; nothing unless running."""
        loop = self._loop
        if loop is not None:
            loop.wake.wake_up(due_time)

    def health(self) -> Health:
        """How it is doing; asks the store once, and raises nothing.

        The transport is asked only while the loop runs: asking it may make it connect.
        """
        overdue = store_reason = None
        try:
            wanted = self._store.next()
            now = self._store.now()
            overdue = None if wanted is None or wanted >= now else now - wanted
        except Exception as error:
            store_reason = str(error) or type(error).__name__
        running = self._is_running()
        total = self._tally.total
        return Health(
            running=running,
            breakers=self._breakers.states(),
            oldest_overdue=overdue,
            last_success=self._tally.last_success,
            delivered=total.delivered,
            moved_to_error_queue=total.moved_to_error_queue,
            failed=total.failed,
            store=store_reason,
            transport=self._transport.unavailable() if running else None,
            subscription_alive=running and self._loop is not None and self._loop.subscription.alive,
        )

    def renew_after_fork(self) -> None:
        """In a forked child: the parent's thread is not here, and its locks may be held for ever."""
        if self._loop is not None:
            # Kept, so that nothing closes the parent's connections from here.
            self._inherited.append(self._loop)
            self._loop = None
        self._assemble()

    def _assemble(self) -> None:
        self._lifecycle = threading.RLock()
        self._tally = Tally()
        self._breakers = Breakers(self._settings)
        self._error_queue = ErrorQueue(self._transport, self._settings)
        self._passes = DispatchPass(
            self._store, self._transport, self._settings, self._breakers, self._error_queue, self._tally
        )

    def _new_loop(self) -> DispatchLoop:
        return DispatchLoop(
            self._store,
            self._transport,
            self._settings,
            self._passes,
            self._breakers,
            self._error_queue,
            self._name,
            self._loop,
        )

    def _is_running(self) -> bool:
        """Whether a loop runs that was not told to stop."""
        loop = self._loop
        return loop is not None and not loop.wake.stopped and not loop.finished.is_set()

    def _can_send(self) -> bool:
        return self._transport.unavailable() is None
