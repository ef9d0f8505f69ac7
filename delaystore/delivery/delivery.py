"""What an endpoint embeds: a store, and the dispatcher that forwards from it."""

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import islice
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from delaystore.delivery.composer import Composer, Earliest
from delaystore.delivery.enlisted import EnlistableStore, EnlistedDelivery
from delaystore.delivery.native import NativeSender
from delaystore.dispatcher.breakers import RepeatedFailuresOverTimeCircuitBreaker
from delaystore.dispatcher.dispatcher import Dispatcher
from delaystore.dispatcher.forks import renew_in_children
from delaystore.dispatcher.health import Health
from delaystore.errors import ConfigurationError, DuplicateMessageError, StoreError
from delaystore.message import DelayedMessage
from delaystore.settings import DelayedDeliverySettings
from delaystore.stores.abc import (
    DelayedMessageStore,
    ManagedDelayedMessageStore,
    ManagementOutcome,
    Page,
    PageKey,
)
from delaystore.transports.abc import Transport

W = TypeVar("W")
R = TypeVar("R")

logger = logging.getLogger("delaystore.delivery")

LONGEST_CLOSE: Final = 60.0
"""Seconds that closing waits for the dispatcher, unless told otherwise."""


class DelayedDelivery:
    """Stores messages until they are due, and forwards them then.

    `endpoint`: whose messages the store holds; it names the store's table. `transport` None: this process only sends
    to the store, and another one dispatches. `settings` None: the defaults. `native`: send straight into the
    transport's native delay what fits it, confirmed; it can be neither listed nor cancelled then. The store takes the
    rest, and what the broker does not confirm, and goes on being emptied.
    May be shared by threads. Sending needs no `start`, and works in forked children.

    Raises ConfigurationError for names that cannot work, UnsupportedModeError for a transaction mode that the store,
    or the store and transport together, cannot honour.
    """

    def __init__(
        self,
        endpoint: str,
        store: DelayedMessageStore,
        transport: Transport | None = None,
        settings: DelayedDeliverySettings | None = None,
        *,
        native: bool = False,
    ) -> None:
        self._settings = settings or DelayedDeliverySettings()
        self._store = store
        self._transport = transport
        store.initialize(endpoint, self._settings.transaction_mode)
        self._dispatcher = None if transport is None else Dispatcher(store, transport, self._settings, endpoint)
        self._composer = Composer(store, transport, self._settings.max_body_bytes)
        timeout = self._settings.dispatch_timeout.total_seconds()
        self._native = NativeSender(store, transport, timeout) if native else None
        self._ready = not self._settings.automatic_setup
        self.renew_after_fork()
        renew_in_children(self)

    def send(
        self,
        destination: str,
        body: bytes,
        *,
        delay: timedelta | float | None = None,
        at: datetime | None = None,
        headers: Mapping[str, Any] | None = None,
        properties: Mapping[str, Any] | None = None,
        message_id: str | None = None,
    ) -> str:
        """Store a message for `destination`, due after `delay` (a timedelta or seconds) or `at` (an aware datetime).

        Returns its message_id: a fresh one, unless given. It is durable once this returns. A time in the past means
        at once. Native: the broker has it, or the store; an id that waits in the broker is not noticed. Raises
        InvalidMessageError for what cannot be carried, DuplicateMessageError for an id that waits already, another
        StoreError when the store fails.
        """
        if not self._ready:
            self._set_up()
        message = self._composer.compose(destination, body, delay, at, headers, properties, message_id)
        if self._native is not None and not self._native.send([message]):
            return message.message_id
        self._guarded(self._store.store, message)
        if self._dispatcher is not None:
            self._dispatcher.wake_up(message.due_time)
        return message.message_id

    def send_many(self, messages: Iterable[DelayedMessage]) -> int:
        """Store all of `messages`, which may be a generator, and return how many.

        All or nothing where the store has transactions. Native: in batches, each with what it leaves to the store;
        what went before a failure stays sent. Raises as `send`.
        """
        if not self._ready:
            self._set_up()
        earliest = Earliest()
        checked = self._composer.checked(messages, earliest)
        if self._native is not None:
            return self._send_many_natively(self._native, checked)
        count = self._guarded(self._store.store_many, checked)
        if self._dispatcher is not None and earliest.time is not None:
            self._dispatcher.wake_up(earliest.time)
        return count

    def enlist(self, connection_or_session: Any) -> EnlistedDelivery:
        """Send in the transaction of a SQLAlchemy Connection or Session to the store's database.

        An AsyncSession goes through `run_sync`. Raises ConfigurationError when the store cannot take part.
        """
        if not isinstance(self._store, EnlistableStore):
            raise ConfigurationError(
                f"{type(self._store).__name__} cannot write in somebody else's transaction; use a SQL store"
            )
        self._ensure_set_up()
        return EnlistedDelivery(self._store, connection_or_session, self._composer, self._wake_up)

    def get(self, message_id: str) -> DelayedMessage | None:
        """The waiting message; None: not (or no longer) in the store."""
        return self._managed().get(message_id)

    def list(
        self,
        *,
        destination: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        after: PageKey | None = None,
        limit: int = 100,
    ) -> Page:
        """A page of what waits, by (attention time, message_id), following `after`; `since` <= attention < `until`."""
        return self._managed().list(destination=destination, since=since, until=until, after=after, limit=limit)

    def count(self, *, destination: str | None = None) -> int:
        """How many messages wait."""
        return self._managed().count(destination=destination)

    def count_by_due_time(self, bucket: timedelta, *, destination: str | None = None) -> Mapping[datetime, int]:
        """How many are due in each bucket of that length, by the bucket's start."""
        return self._managed().count_by_due_time(bucket, destination=destination)

    def cancel(self, message_id: str) -> ManagementOutcome:
        """Delete a waiting message, unless a dispatcher holds it."""
        return self._managed().cancel(message_id)

    def reschedule(
        self, message_id: str, *, delay: timedelta | float | None = None, at: datetime | None = None
    ) -> ManagementOutcome:
        """Give a waiting message a new due time and fresh retries, unless a dispatcher holds it."""
        store = self._managed()
        due_time = self._composer.due_time(delay, at)
        outcome = store.reschedule(message_id, due_time)
        if outcome is ManagementOutcome.DONE:
            self._wake_up(due_time)
        return outcome

    def setup_infrastructure(self) -> None:
        """Create or upgrade the store's tables, and declare the error queue where there is a transport.

        Raises StoreError, TransportSetupError, TransportUnavailableError.
        """
        self._store.setup_infrastructure()
        self._ready = True
        if self._transport is not None:
            self._transport.declare(self._settings.error_queue)

    def start(self) -> None:
        """Start the embedded dispatcher, and set up the store if `automatic_setup` says so; may be called twice.

        A broker that is down prevents nothing. Raises ConfigurationError without a transport, StoreError when the
        store cannot be set up.
        """
        if self._dispatcher is None:
            raise ConfigurationError("there is nothing to start without a transport; give DelayedDelivery one")
        self._ensure_set_up()
        self._dispatcher.start()

    def stop(self, timeout: float | None = None) -> bool:
        """Stop the dispatcher once what is in flight is finished; may be called twice, or never started.

        True: it has ended; False: it is still finishing after `timeout` seconds. None: wait as long as it takes, which
        is without end where a database neither answers nor breaks the connection.
        """
        return self._dispatcher is None or self._dispatcher.stop(timeout)

    def close(self, timeout: float | None = LONGEST_CLOSE) -> None:
        """Stop the dispatcher, and close transport and store; what a `with` block does at its end.

        After `timeout` seconds (None: never) it goes on although the dispatcher is still finishing: what was in
        flight then stays in the store, and may be forwarded twice.
        """
        if not self.stop(timeout):
            logger.warning("the dispatcher is still finishing after %g s; closing its store and transport", timeout)
        if self._transport is not None:
            self._transport.close()
        self._store.close()

    def health(self) -> Health:
        """How dispatching and storing are doing; raises nothing."""
        health = Health(running=False) if self._dispatcher is None else self._dispatcher.health()
        return replace(health, breakers={"store": self._store_breaker.state.value, **health.breakers})

    def renew_after_fork(self) -> None:
        """In a forked child (and at the beginning): locks that nobody holds."""
        self._setup_lock = threading.Lock()
        self._store_breaker = RepeatedFailuresOverTimeCircuitBreaker(
            "storing messages", self._settings.time_to_trigger_store_circuit_breaker, self._settings.on_critical_error
        )

    def __enter__(self) -> Self:
        if self._dispatcher is None:
            self._ensure_set_up()
        else:
            self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _guarded(self, store: Callable[[W], R], what: W) -> R:
        """Call `store`, and tell the store breaker how it went."""
        try:
            result = store(what)
        except DuplicateMessageError:
            raise
        except StoreError as error:
            self._store_breaker.failure(error)
            raise
        self._store_breaker.success()
        return result

    def _send_many_natively(self, native: NativeSender, messages: Iterator[DelayedMessage]) -> int:
        count = 0
        while batch := list(islice(messages, self._settings.batch_size)):
            rest = native.send(batch)
            if rest:
                self._guarded(self._store.store_many, rest)
                self._wake_up(min(message.attention_time for message in rest))
            count += len(batch)
        return count

    def _wake_up(self, due_time: datetime | None) -> None:
        if self._dispatcher is not None:
            self._dispatcher.wake_up(due_time)

    def _managed(self) -> ManagedDelayedMessageStore:
        if not isinstance(self._store, ManagedDelayedMessageStore):
            raise ConfigurationError(
                f"{type(self._store).__name__} cannot list or change what waits in it; "
                f"that takes a ManagedDelayedMessageStore"
            )
        self._ensure_set_up()
        return self._store

    def _ensure_set_up(self) -> None:
        if not self._ready:
            self._set_up()

    def _set_up(self) -> None:
        """Once per process; the store itself sees to several processes doing it."""
        with self._setup_lock:
            if not self._ready:
                try:
                    self._store.setup_infrastructure()
                except StoreError as error:
                    self._store_breaker.failure(error)
                    raise
                self._ready = True
