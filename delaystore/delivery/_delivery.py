"""`DelayedDelivery`, which a program embeds to send delayed messages and to dispatch them."""

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from itertools import compress, islice
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from typing_extensions import override

from delaystore.breakers import RepeatedFailuresOverTimeCircuitBreaker, StoreCalls, listener_of
from delaystore.calls import Call
from delaystore.delivery._sending import (
    Earliest,
    EnlistableStore,
    EnlistedDelivery,
    MessageFactory,
    Sender,
    store_by_rule,
    store_many,
)
from delaystore.dispatcher.dispatcher import Dispatcher
from delaystore.dispatcher.health import STATUS_TIMEOUT, Health, StatusCheck, StoreHealth, with_counts
from delaystore.dispatcher.observer import DispatchObserver, guarded
from delaystore.errors import (
    ConfigurationError,
    DuplicateKeyError,
    DuplicateMessageError,
    DurabilityUnknownError,
    KeyInUseError,
    MessageBeingDispatchedError,
    MessageBeingStoredError,
    StoreError,
    StoreUnavailableError,
)
from delaystore.message import DelayedMessage, IfDelivered, KeyRule, OnKey, Position
from delaystore.operations import EndpointAccess, Operations
from delaystore.operations.changes import Actor, MessageChanges
from delaystore.processes import actor_name, off_the_loop, renew_in_children
from delaystore.schedules.service import ScheduleAccess, Schedules
from delaystore.settings import Audit, DelayedDeliverySettings
from delaystore.stores.abc import Count, DelayedMessageStore, ManagedDelayedMessageStore, ManagementOutcome, Page
from delaystore.stores.history import DeduplicatingStore, HistoryEntry, HistoryFilter
from delaystore.stores.operable import OperableDelayedMessageStore
from delaystore.stores.records import Way
from delaystore.stores.schedules import ScheduleRows, StoreWithSchedules, no_schedules, schedule_rows
from delaystore.stores.shared import answer_about, check_one
from delaystore.transports.abc import Outcome, OutcomeKind, Transport

logger = logging.getLogger("delaystore.delivery")


class NativeSender:
    """Hands messages to a transport that delays natively; the rest is for the store.

    `now`: the store's clock. `timeout`: seconds to wait for the broker's answer. Raises ConfigurationError where native
    delays are switched off.
    """

    def __init__(self, now: Callable[[], datetime], transport: Transport | None, timeout: float) -> None:
        longest = None if transport is None else transport.longest_native_delay
        if transport is None or longest is None:
            raise ConfigurationError("native=True needs a transport with native delays, as in delays=NSERVICEBUS_V2")
        self._now = now
        self._transport = transport
        self._longest = longest
        self._timeout = timeout

    def send(self, messages: Sequence[DelayedMessage]) -> Sequence[DelayedMessage]:
        """Send messages that can wait in the broker; returns the other messages, for the store.

        The others have a key or a latest delivery, or are due already, or due after the longest delay, or cannot be
        delayed natively, or the broker did not confirm them. An unconfirmed message may be in the broker nevertheless:
        it then arrives twice, with the same message_id.
        """
        now = self._now()
        fits = [
            message.key is None and message.not_after is None and timedelta(0) < message.due_time - now <= self._longest
            for message in messages
        ]
        fitting = list(compress(messages, fits))
        send = partial(self._transport.send_delayed, fitting, now, self._timeout)
        outcomes = iter(off_the_loop("delaystore-native", send) if fitting else ())
        return [message for message, fit in zip(messages, fits, strict=True) if not (fit and _taken(message, outcomes))]


def _taken(message: DelayedMessage, outcomes: Iterator[Outcome]) -> bool:
    """Whether the broker has `message`, by the next of `outcomes`."""
    outcome = next(outcomes)
    if outcome.kind is OutcomeKind.DELIVERED:
        return True
    level = logging.INFO if outcome.kind is OutcomeKind.NOT_DELAYABLE else logging.WARNING
    logger.log(
        level,
        "no native delay for message %s to %r, storing it: %s",
        message.message_id,
        message.destination,
        outcome.reason,
    )
    return False


_AnswerT = TypeVar("_AnswerT")
LONGEST_CLOSE: Final = 60.0
"""Seconds that closing waits for the dispatcher, by default."""
_ANSWERS: Final = (
    DuplicateMessageError,
    DuplicateKeyError,
    KeyInUseError,
    DurabilityUnknownError,
    MessageBeingDispatchedError,
    MessageBeingStoredError,
)
"""Errors of a store that works."""


class DelayedDelivery(Sender):
    """Stores messages until they are due, and forwards them then.

    Threads may share it. Sending needs no `start`, and works in forked children.

    Args:
        endpoint: The name of the program that the messages belong to; the store's table is named after it.
        store: Where messages wait.
        transport: Where due messages go; None: this process only stores messages, and another one dispatches.
        settings: None: the defaults.
        native: Send messages straight into the transport's native delay if they fit, confirmed; these cannot be listed
            or cancelled. The others, and those not confirmed, go into the store, which is dispatched as usual.
        observer: Hears of passes, breakers and sends; None: there is no observer.
        way: By which way its changes of waiting messages are asked for; those of operators are noted in the store.

    Raises:
        ConfigurationError: A name cannot work.
        UnsupportedModeError: The store, or the store and transport together, cannot honour the transaction mode.

    Example:
        ::

            store = SqlDelayedMessageStore("postgresql://db/app")
            with DelayedDelivery("sales", store, RabbitMQTransport("amqp://broker")) as delivery:
                delivery.send("billing", b"pay me", delay=timedelta(days=3), message_id="invoice-7")

    """

    def __init__(
        self,
        endpoint: str,
        store: DelayedMessageStore,
        transport: Transport | None = None,
        settings: DelayedDeliverySettings | None = None,
        *,
        native: bool = False,
        observer: DispatchObserver | None = None,
        way: Way = Way.PROGRAM,
    ) -> None:
        self._settings = settings or DelayedDeliverySettings()
        self._actor = Actor(way=way, notes_all=self._settings.audit is Audit.ALL)
        self._endpoint = endpoint
        self._store = store
        self._transport = transport
        store.initialize(endpoint, self._settings.transaction_mode)
        self._observer = guarded(observer)
        self._dispatcher = None if transport is None else self._new_dispatcher(transport, endpoint)
        self._factory = MessageFactory(
            self._now,
            transport,
            self._settings.max_body_bytes,
            self._observer,
            keeps_not_after=store.keeps_not_after,
        )
        timeout = self._settings.dispatch_timeout.total_seconds()
        self._native = NativeSender(self._now, transport, timeout) if native else None
        self._ready = not self._settings.automatic_setup
        self._renew_after_fork()
        renew_in_children(self, DelayedDelivery._renew_after_fork)

    def send_many(
        self,
        messages: Iterable[DelayedMessage],
        *,
        on_key: OnKey | str | None = None,
        max_wait: timedelta | float | None = None,
        if_delivered: IfDelivered | str = IfDelivered.SEND,
    ) -> int:
        """Store many messages: all or none, where the store has transactions.

        Those with a key are stored last, in their order, and are kept in memory until then. With `native` messages go
        in batches; batches before a failure stay sent.

        Args:
            messages: Checked one by one, so that a generator is possible.
            on_key: As in `send`.
            max_wait: As in `send`; a timedelta or seconds.
            if_delivered: As in `send`; with `reject`, one delivered message refuses all.

        Returns:
            How many were stored, or are in the broker; a message that is left out for the one that waits is not.

        Raises:
            StoreError, InvalidMessageError, ConfigurationError: As `send`.

        """
        rule, new = KeyRule.of(on_key, max_wait), IfDelivered.rejects(if_delivered)
        self._check_new(new=new)
        self.prepare()
        earliest = Earliest()
        with self._factory.followed() as stamp:
            checked = self._factory.checked(messages, earliest, stamp)
            if self._native is not None:
                return self._send_many_natively(self._native, checked, rule)
            count = self._store_many(checked, rule, new=new)
        if earliest.time is not None:
            self._wake_up(earliest.time if rule.max_wait is None else None)
        return count

    def enlist(self, transaction: Any) -> EnlistedDelivery:
        """Send, cancel, reschedule and look up in your own transaction in the store's database.

        The transaction is not committed, rolled back or changed here, and every statement runs on its connection.
        Before the first connection of a driver is enlisted, the store connects once, to learn which server it has.

        Args:
            transaction: A Connection or Session of SQLAlchemy, a connection of psycopg 3, sqlite3 or PyMySQL, or
                Django's connection inside `atomic`; with the in-memory store, a TransactionHooks.

        Returns:
            A sender that belongs to the transaction and its thread.

        Raises:
            ConfigurationError: The store cannot take part: it is another kind of transaction, leads to another
                database, or none is open and the driver would begin none.
            StoreSetupError: `automatic_setup` cannot make the tables while the transaction is open.

        Example:
            ::

                with engine.begin() as connection:
                    connection.execute(insert(orders).values(id=7))
                    delivery.enlist(connection).send("billing", b"pay me", delay=3600)

        """
        if not isinstance(self._store, EnlistableStore):
            raise ConfigurationError(
                f"{type(self._store).__name__} cannot write in another program's transaction; use a SQL store"
            )
        set_up = not self._ready
        enlisted = EnlistedDelivery(self._store, transaction, self._factory, self._wake_up, self._actor, set_up=set_up)
        self._ready = True
        return enlisted

    def get(self, message_id: str | None = None, *, key: str | None = None) -> DelayedMessage | None:
        """Look up a waiting message by its id or its key.

        Args:
            message_id: Its id; or else give `key`.
            key: Its key; or else give `message_id`.

        Returns:
            The message, claimed or not; None: it is not, or no longer, in the store.

        Raises:
            ConfigurationError: The store cannot look up messages, or does not support keys.
            StoreError: The store fails.

        """
        store = self._managed()
        with self._calls.call("looking up a message"):
            return answer_about(store, store.get, message_id, key, None)

    def history(self, message_id: str | None = None, *, key: str | None = None) -> Sequence[HistoryEntry]:
        """Look up how messages of one id, or of one key, have left the store.

        Args:
            message_id: Their id; or else give `key`.
            key: Their key; or else give `message_id`.

        Returns:
            The entries of the history, the newest first, 100 at most. There are none for messages that left before the
            history was kept (see the setting `history`), or longer ago than it is kept.

        Raises:
            InvalidMessageError: Not exactly one of `message_id` and `key` is given.
            ConfigurationError: The store cannot keep a history.
            StoreError: The store fails.

        Example:
            ```python
            for entry in delivery.history("invoice-7"):
                print(entry.ending, entry.ended, entry.late)
            ```

        """
        check_one(message_id, key)
        return self.operations.history(HistoryFilter(message_id=message_id, key=key)).entries

    def list(
        self,
        *,
        destination: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        after: Position | None = None,
        limit: int = 100,
    ) -> Page:
        """List a page of waiting messages, in the order of positions: by next attempt and id.

        Args:
            destination: Only messages for it. A SQL store may read all waiting messages then.
            since: Only messages whose next attempt is at or after this aware datetime.
            until: Only messages whose next attempt is before this aware datetime.
            after: `next_key` of the page before.
            limit: Maximum number of messages of the page.

        Returns:
            The page, with the key of the next one.

        """
        return self._managed().list(destination=destination, since=since, until=until, after=after, limit=limit)

    def count(self, *, destination: str | None = None) -> int:
        """Count the waiting messages, however long it takes.

        Args:
            destination: Only messages for it; None: all.

        Returns:
            The number of messages, claimed ones included.

        Raises:
            ConfigurationError: The store cannot look up messages.
            StoreError: The store fails.

        """
        return self._managed().count(destination=destination)

    def estimate_count(self) -> Count:
        """Count up to 100,000 waiting messages; more may be estimated, so that it takes milliseconds."""
        return self._managed().estimate_count()

    def count_by_due_time(self, bucket: timedelta, *, destination: str | None = None) -> Mapping[datetime, int]:
        """Count waiting messages by when they are due.

        Args:
            bucket: The length of time for which one number is given.
            destination: Only messages for it.

        Returns:
            The number of messages of each bucket that has some, by the bucket's start, UTC.

        """
        return self._managed().count_by_due_time(bucket, destination=destination)

    def get_many(self, message_ids: Sequence[str]) -> Mapping[str, DelayedMessage]:
        """Look up messages by their ids.

        Args:
            message_ids: The ids.

        Returns:
            The messages that wait, claimed or not, by their ids.

        Raises:
            ConfigurationError: The store cannot look up messages.
            StoreError: The store fails.

        """
        store = self._managed()
        with self._calls.call("looking up messages"):
            return store.get_many(message_ids)

    def get_unclaimed(self, message_ids: Sequence[str]) -> Mapping[str, DelayedMessage]:
        """Look up messages that no dispatcher has claimed: each is forwarded after this call has begun.

        Args:
            message_ids: The ids.

        Returns:
            The messages that wait unclaimed, by their ids.

        Raises:
            ConfigurationError: The store cannot look up messages.
            StoreError: The store fails.

        """
        store = self._managed()
        with self._calls.call("looking up messages"):
            return store.get_unclaimed(message_ids)

    def message_ids(self, prefix: str, limit: int = 1000) -> Sequence[str]:
        """List ids of waiting messages that begin with a prefix.

        Args:
            prefix: The beginning of the ids.
            limit: Maximum number of ids.

        Returns:
            The first ids, in their order.

        Raises:
            ConfigurationError: The store cannot look up messages.
            StoreError: The store fails.

        """
        store = self._managed()
        with self._calls.call("looking for messages by their ids"):
            return store.message_ids(prefix, limit)

    def cancel(self, message_id: str | None = None, *, key: str | None = None) -> ManagementOutcome:
        """Delete a waiting message, unless a dispatcher has claimed it.

        Args:
            message_id: Its id; or else give `key`.
            key: Its key; or else give `message_id`.

        Returns:
            DONE, NOT_FOUND, or BEING_DISPATCHED: a dispatcher has claimed it.

        Raises:
            ConfigurationError: The store cannot change waiting messages, or does not support keys.
            StoreError: The store fails; the call can be made again.

        """
        return self._changes.cancel(message_id, key=key)

    def reschedule(
        self,
        message_id: str | None = None,
        *,
        key: str | None = None,
        delay: timedelta | float | None = None,
        at: datetime | None = None,
        by: timedelta | float | None = None,
        time_zone: str | None = None,
    ) -> ManagementOutcome:
        """Give a waiting message a new due time and fresh retries, unless a dispatcher has claimed it.

        Args:
            message_id: Its id; or else give `key`.
            key: Its key; or else give `message_id`.
            delay: The new due time as a timedelta or seconds from now; or else give `at` or `by`.
            at: The new due time as an aware datetime; `max_wait` of the message's key does not limit it.
            by: The span by which the due time moves, a timedelta or seconds; negative: to an earlier time.
            time_zone: The time zone, such as `Europe/Berlin`, whose calendar days whole days of `by` are, also when
                clocks change. None: a day is 24 hours.

        Returns:
            DONE, NOT_FOUND, or BEING_DISPATCHED: a dispatcher has claimed it.

        Raises:
            InvalidMessageError: Not exactly one of `delay`, `at` and `by` is given, or the due time is out of range.
            ConfigurationError: The store cannot change waiting messages, or does not support keys, or the time zone is
                unknown.
            StoreError: The store fails; the call can be made again, with `by` only if the due time shows that it did
                nothing.

        """
        return self._changes.reschedule(message_id, key=key, delay=delay, at=at, by=by, time_zone=time_zone)

    def send_now(self, message_id: str | None = None, *, key: str | None = None) -> ManagementOutcome:
        """Make a waiting message due now, with fresh retries, unless a dispatcher has claimed it.

        Args:
            message_id: Its id; or else give `key`.
            key: Its key; or else give `message_id`.

        Returns:
            DONE, NOT_FOUND, or BEING_DISPATCHED: a dispatcher has claimed it.

        Raises:
            ConfigurationError: The store cannot change waiting messages, or does not support keys.
            StoreError: The store fails; the call can be made again.

        """
        return self._changes.send_now(message_id, key=key)

    def changes_as(self, way: Way, by: str | None = None) -> MessageChanges:
        """Cancel, reschedule and send messages now, by another way than this program's own, for integrations.

        Changes by an operator's way are noted in the store; others only with `audit="all"`.

        Args:
            way: The way.
            by: In whose name changes are noted; None: the user of this process, and the host.

        Returns:
            The changes by that way.

        Raises:
            InvalidMessageError: `by` is no name.

        """
        return self._changes.acting(actor_name(by), way)

    def sending_as(self, way: Way, by: str | None = None) -> Sender:
        """Send by another way than this program's own; replaced messages are noted as with `changes_as`."""
        return _SenderAs(self, self._actor.acting(actor_name(by), way))

    @property
    def schedules(self) -> Schedules:
        """Recurring schedules: create, change, pause, skip, list. Any dispatcher of the endpoint makes occurrences.

        Example:
            ```python
            delivery.schedules.put("reports", cron="0 9 * * 1", zone="Europe/Berlin", destination="reports", body=b"")
            ```

        """
        return self.schedules_as(self._actor.way)

    def schedules_as(self, way: Way, by: str | None = None) -> Schedules:
        """The schedules, whose changes are made by another way; noted as with `changes_as`."""
        actor = self._actor.acting(actor_name(by), way)
        wake_up = partial(self._wake_up, None)
        access = ScheduleAccess(opened=self._opened, check=self._factory.check, wake_up=wake_up, actor=actor)
        return Schedules(access)

    @contextmanager
    def _opened(self, purpose: str) -> Iterator[ScheduleRows]:
        """The rows of schedules in a transaction. Raises ConfigurationError where the store has none."""
        if not isinstance(self._store, StoreWithSchedules):
            raise no_schedules(self._store)
        self.prepare()
        with self._telling_breaker(self._calls.call(purpose)), self._store.transaction() as transaction:
            yield schedule_rows(transaction)

    @property
    def operations(self) -> Operations:
        """Operations of operators: search, cancel, reschedule and export by filter, pause destinations."""
        return self._operations

    def setup_infrastructure(self) -> None:
        """Create or upgrade the store's tables, and declare the error queue where there is a transport.

        Missing tables and indexes are made again. Defects that only you can repair are logged as warnings.

        Raises:
            StoreError: The store fails, or this user may not create its tables.
            TransportSetupError: The broker refuses the error queue.
            TransportUnavailableError: The broker does not answer.

        """
        self._store.setup_infrastructure()
        for defect in self._store.repair(logger.info):
            logger.warning("the store of endpoint %r has a defect: %s", self._endpoint, defect)
        self._ready = True
        if self._transport is not None:
            declare = partial(self._transport.declare_error_queue, self._settings.error_queue)
            off_the_loop("delaystore-setup", declare)

    def start(self) -> None:
        """Start the embedded dispatcher, and set up the store if `automatic_setup` says so; may be called twice.

        It also starts while the broker is down.

        Raises:
            ConfigurationError: There is no transport.
            StoreError: The store cannot be set up.

        """
        dispatcher = self.check_startable()
        self.prepare()
        dispatcher.start()

    def check_startable(self) -> Dispatcher:
        """The dispatcher; raises ConfigurationError where there is none, because there is no transport."""
        if self._dispatcher is None:
            raise ConfigurationError(
                "this delivery cannot dispatch, because it has no transport; give DelayedDelivery one"
            )
        return self._dispatcher

    def stop(self, timeout: float | None = None) -> bool:
        """Stop the dispatcher once messages in flight are finished; may be called twice, and without `start`.

        Args:
            timeout: Seconds to wait; None: as long as it takes, which has no end if a database neither answers nor
                breaks the connection.

        Returns:
            Whether it has ended; False: it is still finishing.

        """
        return self._dispatcher is None or self._dispatcher.stop(timeout)

    def close(self, timeout: float | None = LONGEST_CLOSE) -> None:
        """Stop the dispatcher, and close transport and store, as a `with` block does at its end.

        Args:
            timeout: Seconds after which it closes them although the dispatcher is still finishing: messages in flight
                then stay in the store, and may be forwarded twice. None: it waits as long as it takes.

        """
        if self._dispatcher is not None and not self._dispatcher.stop(timeout):
            logger.warning("the dispatcher has not finished in time; closing its store and transport")
            self._dispatcher.when_ended(self._close_connections)  # it may open some until then
        self._close_connections()

    def _close_connections(self) -> None:
        if self._transport is not None:
            self._transport.close()
        self._store.close()

    def health(self, timeout: timedelta | float = STATUS_TIMEOUT) -> Health:
        """Report how dispatching and storing are doing; raises nothing.

        Args:
            timeout: A timedelta or seconds within which the store has to answer.

        Returns:
            The health.

        """
        if self._dispatcher is None:
            return self.health_with(self._status_check.health(timeout))
        return self._with_own(self._dispatcher.health(timeout))

    def health_with(self, store: StoreHealth) -> Health:
        """The health without a dispatcher.

        Args:
            store: How the store is doing.

        Returns:
            The health.

        """
        health = Health(running=False, dispatches=False, oldest_overdue=store.oldest_overdue, store=store.problem)
        return self._with_own(with_counts(health, store.counts))

    def _with_own(self, health: Health) -> Health:
        """`health` with the state of storing."""
        slow = [each for each in (self._calls.longest(), health.slow_store_call) if each is not None]
        return replace(
            health,
            breakers={"store": self._store_breaker.state.value, **health.breakers},
            slow_store_call=max(slow, default=None),
        )

    def _new_dispatcher(self, transport: Transport, endpoint: str) -> Dispatcher:
        return Dispatcher(self._store, transport, self._settings, endpoint, observer=self._observer)

    def _renew_after_fork(self) -> None:
        """Make new locks, at construction and in a forked child, where the parent's may stay taken forever."""
        self._setup_lock = threading.Lock()
        self._store_breaker = RepeatedFailuresOverTimeCircuitBreaker(
            "storing messages",
            self._settings.time_to_trigger_store_circuit_breaker,
            self._settings.on_critical_error,
            on_change=listener_of("store", None if self._observer is None else self._observer.breaker_changed),
        )
        self._calls = StoreCalls(self._store_breaker, self._settings.store_timeout)
        self._status_check = StatusCheck(self._store, self._settings.error_queue)
        self._changes = MessageChanges(
            self._managed, self._actor, self._factory.due_time, self._calls.call, self._wake_up
        )
        self._operations = Operations(
            EndpointAccess(
                endpoint=self._endpoint,
                store=self._store,
                transport=self._transport,
                settings=self._settings,
                prepare=self.prepare,
                wake_up=self._wake_up,
                call=self._calls.call,
                due_time=self._factory.due_time,
                actor=self._actor.acting(way=Way.OPERATIONS),
            )
        )

    def __enter__(self) -> Self:
        try:
            if self._dispatcher is None:
                self.prepare()
            else:
                self.start()
        except BaseException:  # no one else closes the connections that are open by now
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @override
    def _keep(self, message: DelayedMessage) -> None:
        if self._native is not None and not self._native.send([message]):
            return
        self._store_one(message, self._store.store)
        self._wake_up(message.due_time)

    @override
    def _keep_by_rule(self, message: DelayedMessage, rule: KeyRule, *, new: bool) -> str:
        return self._keep_by_rule_as(self._actor, message, rule, new=new)

    def _keep_by_rule_as(self, actor: Actor, message: DelayedMessage, rule: KeyRule, *, new: bool) -> str:
        self._check_new(new=new)
        stored = self._store_one(message, lambda message: store_by_rule(self._store, message, rule, actor, new=new))
        self._wake_up(message.due_time if rule.max_wait is None else None)
        return stored

    def _check_new(self, *, new: bool) -> None:
        """Raise ConfigurationError if delivered messages are to be refused, and some never reach the history."""
        if new and self._native is not None:
            raise ConfigurationError(
                "nothing was stored, because native=True sends messages past the store, and its history does not know "
                "them; leave native or if_delivered='reject' out"
            )

    def _store_one(self, message: DelayedMessage, store: Callable[[DelayedMessage], _AnswerT]) -> _AnswerT:
        call = self._calls.call("storing a message")
        try:
            with self._telling_breaker(call):
                answer = store(message)
        except DurabilityUnknownError as error:  # a caller that gave no message_id could not look for it otherwise
            raise DurabilityUnknownError(f"the message {message.message_id!r}: {error}") from None
        except StoreError as error:
            if not call.overdue or isinstance(
                error, DuplicateMessageError | DuplicateKeyError | MessageBeingDispatchedError
            ):
                raise
            raise StoreUnavailableError(
                f"{error}; the message {message.message_id!r} may be stored nevertheless: send it again with this "
                "message_id, and DuplicateMessageError means that it is"
            ) from None
        self._store_breaker.success()
        return answer

    def _now(self) -> datetime:
        with self._telling_breaker(self._calls.call("asking for the time")):
            return self._store.now()

    def _store_many(self, messages: Iterable[DelayedMessage], rule: KeyRule, *, new: bool = False) -> int:
        with self._telling_breaker():
            count = store_many(self._store, messages, rule, self._actor, new=new)
        self._store_breaker.success()
        return count

    @contextmanager
    def _telling_breaker(self, call: Call | None = None) -> Iterator[None]:
        """Tell the store breaker of a failure of the block, which is `call`; None: a call without a limit."""
        try:
            with call or nullcontext():
                yield
        except _ANSWERS:
            self._store_breaker.success()
            raise
        except StoreError as error:
            self._store_breaker.failure(error, lasted=0.0 if call is None else call.seconds)
            raise

    def _send_many_natively(self, native: NativeSender, messages: Iterator[DelayedMessage], rule: KeyRule) -> int:
        count = 0
        while batch := list(islice(messages, self._settings.batch_size)):
            rest = native.send(batch)
            count += len(batch) - len(rest)
            if rest:
                count += self._store_many(rest, rule)
                self._wake_up(min(message.next_attempt for message in rest))
        return count

    def _wake_up(self, due_time: datetime | None) -> None:
        if self._dispatcher is not None:
            self._dispatcher.wake_up(due_time)

    def _managed(self) -> ManagedDelayedMessageStore:
        if not isinstance(self._store, ManagedDelayedMessageStore):
            raise ConfigurationError(
                f"{type(self._store).__name__} cannot list or change waiting messages; "
                f"use a ManagedDelayedMessageStore, such as SqlDelayedMessageStore"
            )
        self.prepare()
        return self._store

    def replace_many(
        self,
        messages: Sequence[DelayedMessage],
        replaced: Collection[str],
        changes: MessageChanges,
        *,
        new: bool = False,
    ) -> None:
        """As `send_many` into the store, but those of `replaced` take the places of the waiting messages of their ids.

        All is one transaction; see `MessageChanges.replace_many`. `changes`: in whose name, by `changes_as`.
        """
        with self._factory.followed() as stamp, self._telling_breaker():
            changes.replace_many(list(self._factory.checked(messages, Earliest(), stamp)), replaced, new=new)
        self._store_breaker.success()

    def check(self, message: DelayedMessage) -> None:
        """Check a message as `send_many` does, and store nothing.

        Args:
            message: The message.

        Raises:
            InvalidMessageError: `send_many` would refuse it: it is too long, or the transport cannot carry it.

        """
        self._factory.check(message)

    @property
    def manages(self) -> bool:
        """Whether the store can look up and change waiting messages."""
        return isinstance(self._store, ManagedDelayedMessageStore)

    @property
    def deduplicates(self) -> bool:
        """Whether the store can refuse messages that were delivered, while it keeps a history."""
        return isinstance(self._store, DeduplicatingStore)

    def operable_store(self) -> OperableDelayedMessageStore | None:
        """The store, for what reports to it; None: it keeps no reports, or not yet, as its tables are of an earlier
        release. Sets nothing up. Raises StoreError.
        """
        store = self._store
        return store if isinstance(store, OperableDelayedMessageStore) and store.is_operable else None

    @property
    def dispatches(self) -> bool:
        """Whether there is a transport, and so a dispatcher."""
        return self._dispatcher is not None

    @property
    def is_ready(self) -> bool:
        """Whether the store is set up, as far as this process is to do that."""
        return self._ready

    @override
    def prepare(self) -> None:
        """Set up the store, once per process; several processes may set up the same store."""
        if self._ready:
            return
        with self._setup_lock:
            if not self._ready:
                with self._telling_breaker():
                    self._store.setup_infrastructure()
                self._ready = True


class _SenderAs(Sender):
    """Sends as a delivery does, in the name of another actor."""

    def __init__(self, delivery: DelayedDelivery, actor: Actor) -> None:
        self._delivery = delivery
        self._factory = delivery._factory
        self._actor = actor

    @override
    def prepare(self) -> None:
        self._delivery.prepare()

    @override
    def _keep(self, message: DelayedMessage) -> None:
        self._delivery._keep(message)

    @override
    def _keep_by_rule(self, message: DelayedMessage, rule: KeyRule, *, new: bool) -> str:
        return self._delivery._keep_by_rule_as(self._actor, message, rule, new=new)
