"""The dispatcher: forwards due messages, in a thread of its own or in the caller's."""

import logging
import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Final

from delaystore.calls import in_background
from delaystore.dispatcher._background import DispatcherHeartbeats, ScheduleThread, unpark_resuming
from delaystore.dispatcher._context import DispatchContext, WakeUp
from delaystore.dispatcher._loop import DispatchLoop, forget_old
from delaystore.dispatcher._passes import DispatchPass
from delaystore.dispatcher.health import STATUS_TIMEOUT, DispatchReport, Health, StatusCheck, with_counts
from delaystore.dispatcher.observer import DispatchObserver
from delaystore.errors import ConfigurationError, StoreError, TransportUnavailableError, UnsupportedModeError
from delaystore.processes import renew_in_children
from delaystore.settings import DelayedDeliverySettings, TransactionMode
from delaystore.stores.abc import DelayedMessageStore
from delaystore.stores.history import StoreWithHistory
from delaystore.transports.abc import Transport

logger = logging.getLogger("delaystore.dispatcher")

_LONGEST_NAME: Final = 255
"""Bytes."""


def check_pair(store: DelayedMessageStore, transport: Transport, settings: DelayedDeliverySettings) -> None:
    """Check that a store and a transport can work together with these settings.

    Raises:
        UnsupportedModeError: For TRANSACTION_SCOPE, where the two cannot share a transaction.
        ConfigurationError: For a `handover_horizon` longer than the transport can delay natively, or a history that the
            store cannot keep.

    """
    if settings.history and not isinstance(store, StoreWithHistory):
        raise ConfigurationError(
            f"{type(store).__name__} cannot keep a history; leave the setting out, or use another store, such as "
            "SqlDelayedMessageStore"
        )
    longest = transport.longest_native_delay or timedelta(0)
    if settings.handover_horizon > longest:
        raise ConfigurationError(
            f"handover_horizon {settings.handover_horizon} is longer than {transport!r} delays natively ({longest}); "
            "give it a native delay, as in delays=..., or lower the horizon"
        )
    scope = settings.transaction_mode is TransactionMode.TRANSACTION_SCOPE
    if scope and not transport.shares_transaction_with(store):
        raise UnsupportedModeError(
            f"TRANSACTION_SCOPE (exactly once) needs a transport in the store's own database, which "
            f"{type(transport).__name__} with {type(store).__name__} is not; use a SqlQueueTransport on the store's "
            f"engine, or another transaction_mode (at least once)"
        )


def check_dispatcher_name(name: str) -> str:
    """Return `name` if it is printable and short enough; raise ConfigurationError otherwise."""
    if not name.strip() or not name.isprintable() or len(name.encode(errors="replace")) > _LONGEST_NAME:
        raise ConfigurationError(
            f"a dispatcher's name cannot be {name[:80]!r}; give it up to {_LONGEST_NAME} bytes of printable characters"
        )
    return name


class Dispatcher:
    """Forwards due messages of one store, and moves messages that it cannot forward to the error queue.

    Any number of dispatchers, in any number of processes, may work on one store. After a fork the child has no
    dispatcher running and may start its own. A dispatcher closes neither its store nor its transport.

    Args:
        store: Where the messages wait.
        transport: The way to their destinations.
        settings: Retries, time limits and batch sizes, among others; None: the defaults.
        endpoint: The store is initialized for this endpoint; None: it is initialized already.
        observer: Hears of passes and breakers, for metrics and traces; None: there is no observer.
        name: The dispatcher's name, as in `delaystore status`; None: the endpoint's name.

    Raises:
        UnsupportedModeError: For TRANSACTION_SCOPE, where store and transport cannot share a transaction.
        ConfigurationError: For a name that cannot be shown, or a `handover_horizon` beyond the native delay.

    Example:
        ```python
        dispatcher = Dispatcher(store, transport, endpoint="sales")
        dispatcher.start()
        ...
        dispatcher.stop(timeout=30)
        ```

    """

    def __init__(
        self,
        store: DelayedMessageStore,
        transport: Transport,
        settings: DelayedDeliverySettings | None = None,
        endpoint: str | None = None,
        *,
        observer: DispatchObserver | None = None,
        name: str | None = None,
    ) -> None:
        self._store = store
        self._transport = transport
        self._observer = observer
        self._loop: DispatchLoop | None = None
        self._settings = settings or DelayedDeliverySettings()
        self._name = "delaystore-dispatcher" if endpoint is None else f"delaystore-dispatcher-{endpoint}"
        self._known_as = (endpoint or "dispatcher") if name is None else check_dispatcher_name(name)
        if endpoint is not None:
            store.initialize(endpoint, self._settings.transaction_mode)
        check_pair(store, transport, self._settings)
        self._inherited: list[DispatchLoop] = []
        self._assemble()
        renew_in_children(self, Dispatcher._renew_after_fork)

    def start(self) -> None:
        """Dispatch in a daemon thread; returns at once, also while store or broker are down. May be called twice.

        After a `stop` that returned False, the new thread first waits until the old one has finished.

        Raises:
            RuntimeError: No thread can be started.

        """
        with self._lifecycle:
            if self._is_running():
                return
            former = self._loop
            loop = self._loop = DispatchLoop(self._context, self._passes, self._name, self._known_as, former)
            try:
                threading.Thread(target=loop.run, name=self._name, daemon=True).start()
            except RuntimeError:
                self._loop = former  # no thread can be started: stop still has only the former run to wait for
                raise

    def run(self) -> None:
        """Dispatch in the calling thread until `stop` is called from a signal handler or another thread.

        Returns at once when this dispatcher is running already.
        """
        with self._lifecycle:
            if self._is_running():
                return
            loop = self._loop = DispatchLoop(self._context, self._passes, self._name, self._known_as, self._loop)
        loop.run()

    def stop(self, timeout: float | None = None) -> bool:
        """Settle the batches in flight, and end. May be called twice, without `start`, and from a signal handler.

        A call from one of the dispatcher's own threads does not wait.

        Args:
            timeout: Seconds to wait for the end; None: as long as it takes, which has no end if a database neither
                answers nor breaks the connection.

        Returns:
            True: it has ended. False: it is still settling.

        """
        loop = self._loop
        if loop is None:
            return True
        loop.wake.stop()
        if loop.is_current_thread():
            return loop.finished.is_set()
        return loop.finished.wait(timeout)

    def when_ended(self, action: Callable[[], object]) -> None:
        """Have a function called once the present run has ended, unless another one has begun by then.

        Args:
            action: The function; it is called in a thread of its own.

        """
        loop = self._loop
        if loop is None:
            return

        def wait() -> None:
            loop.finished.wait()
            if not self._is_running():
                action()

        in_background(f"{self._name}-end", wait)

    def dispatch_due(self) -> DispatchReport:
        """Forward all messages that are due now, in the calling thread: for tests and for cron.

        Occurrences of schedules are made first, those of the next two minutes, too.

        Ends early when the broker stops answering. Parked messages of a destination that resumes are due, too. The
        store gets a report, for `delaystore status`.

        Returns:
            The number of messages by outcome.

        Raises:
            TransportUnavailableError: The transport cannot send.
            StoreError: The store fails.

        """
        seconds = self._settings.dispatch_timeout.total_seconds()
        WakeUp().pause(seconds, lambda: self._transport.unavailable() is None, poll=0.02)
        try:
            self.make_occurrences()
        except StoreError as error:
            logger.warning("cannot make occurrences of schedules: %s; due messages are forwarded nevertheless", error)
        unpark_resuming(self._context)
        result = self._passes.run()
        if result.outage is not None and not result.report.fetched:
            raise TransportUnavailableError(result.outage)
        total = result.report
        while (result.report.progress or result.again) and not result.hindered:
            result = self._passes.run(result.at)
            total += result.report
        if not (self._is_running() or self._context.activity.is_empty):  # the heartbeats of a loop report it
            DispatcherHeartbeats(self._context, self._name, self._known_as).report_once()
        return total

    def make_occurrences(self) -> None:
        """Make the occurrences of schedules that are due within two minutes; `dispatch_due` begins with this.

        Raises:
            StoreError: The store fails.

        """
        ScheduleThread(self._context, self._name, WakeUp()).work()

    def clean_up(self) -> None:
        """Delete old entries of the audit trail and the history: for cron, after `dispatch_due`.

        A running dispatcher does it once a minute, without this call.

        Raises:
            StoreError: The store fails.

        """
        with self._context.store_calls.call("cleaning up"):
            self._store.clean_up()
        while forget_old(self._context):
            pass

    def wake_up(self, due_time: datetime | None = None) -> None:
        """Begin a pass, since a message was stored. Cheap; does nothing unless running.

        Args:
            due_time: When to begin it, an aware datetime; None: now.

        """
        loop = self._loop
        if loop is not None:
            loop.wake.wake_up(due_time)

    def health(self, timeout: timedelta | float = STATUS_TIMEOUT) -> Health:
        """How the dispatcher is doing; raises nothing.

        The transport is asked only while the loop runs: asking it may make it connect.

        Args:
            timeout: How long the store may take to answer, as a timedelta or in seconds.

        Returns:
            The health.

        """
        store = self._status_check.health(timeout)
        running = self._is_running()
        tally = self._context.tally
        done: dict[str, Any] = {**tally.total.counts()}
        health = Health(
            **done,
            running=running,
            breakers=self._context.breakers.states(),
            oldest_overdue=store.oldest_overdue,
            last_success=tally.last_success,
            store=store.problem,
            slow_store_call=self._context.store_calls.longest(),
            transport=self._transport.unavailable() if running else None,
            error_queue=self._context.error_queue.declaration.problem,
            subscription_alive=running and self._loop is not None and self._loop.subscription.alive,
        )
        return with_counts(health, store.counts)

    def _renew_after_fork(self) -> None:
        """In a forked child: go on without the parent's thread, and with new locks in place of its own."""
        if self._loop is not None:
            # Kept alive: its end would close the parent's connections.
            self._inherited.append(self._loop)
            self._loop = None
        self._assemble()

    def _assemble(self) -> None:
        self._lifecycle = threading.RLock()
        self._context = DispatchContext(self._store, self._transport, self._settings, self._observer, self._known_as)
        self._passes = DispatchPass(self._context)
        self._status_check = StatusCheck(self._store, self._settings.error_queue)

    def _is_running(self) -> bool:
        """Whether a loop runs that is not to stop."""
        loop = self._loop
        return loop is not None and not loop.wake.stopped and not loop.finished.is_set()
