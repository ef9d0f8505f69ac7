"""`AsyncDelayedDelivery`: the same delivery, awaited."""

import asyncio
import logging
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from dataclasses import replace
from datetime import timedelta
from functools import partial, wraps
from importlib import import_module
from time import monotonic
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Protocol, Self, TypeVar, cast, runtime_checkable

from typing_extensions import override

from delaystore.calls import Call, TaskCalls
from delaystore.delivery._delivery import LONGEST_CLOSE, DelayedDelivery
from delaystore.delivery._sending import EnlistedDelivery
from delaystore.dispatcher.dispatcher import Dispatcher
from delaystore.dispatcher.health import STATUS_TIMEOUT, Health, StoreCounts, StoreHealth, counts_of
from delaystore.dispatcher.observer import DispatchObserver
from delaystore.errors import ConfigurationError
from delaystore.filters import MessageFilter
from delaystore.message import DelayedMessage, Position
from delaystore.operations import ErrorQueue, Loads, Operations, Overview
from delaystore.processes import WouldBlockError, in_thread, renew_in_children, without_pauses
from delaystore.schedules.service import Schedules
from delaystore.settings import DelayedDeliverySettings
from delaystore.stores import InMemoryDelayedMessageStore
from delaystore.stores.abc import DelayedMessageStore
from delaystore.stores.records import Way
from delaystore.transports.abc import Transport

P = ParamSpec("P")
R = TypeVar("R")


def awaited(
    method: Callable[Concatenate[Any, P], R],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]:
    """`method` of the synchronous class, with its signature and its words, to be awaited."""

    @wraps(method)
    async def call(self: Any, *arguments: P.args, **named: P.kwargs) -> R:
        result: R = await self._call(method, *arguments, **named)
        return result

    # a wrapper's `self` could be named in a call, but no caller does
    return cast(Callable[Concatenate[Any, P], Coroutine[Any, Any, R]], call)


logger = logging.getLogger("delaystore.operations")


class AsyncErrorQueue:
    """`ErrorQueue` for asyncio, with the same calls, arguments and errors.

    Each call works in a thread of its own, which calls `progress` and `stopping`, too. One that is cancelled ends after
    the batch under way.
    """

    def __init__(self, call_delivery: Callable[..., Awaitable[Any]], errors: ErrorQueue) -> None:
        self._call_delivery = call_delivery
        self._errors = errors

    @property
    def name(self) -> str:
        """The queue's name."""
        return self._errors.name

    depth = awaited(ErrorQueue.depth)
    groups = awaited(ErrorQueue.groups)
    messages = awaited(ErrorQueue.messages)
    get = awaited(ErrorQueue.get)
    replay = awaited(ErrorQueue.replay)
    discard = awaited(ErrorQueue.discard)

    async def _call(self, method: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """Call `method` of the queue behind this one."""
        loop, cancelled = asyncio.get_running_loop(), threading.Event()
        if method in (ErrorQueue.replay, ErrorQueue.discard):
            asked = named.get("stopping", lambda: False)
            named["stopping"] = lambda: cancelled.is_set() or asked()

        def note(action: str, about: str, count: int) -> None:
            noting = self._noting(action, about, count)
            try:
                asyncio.run_coroutine_threadsafe(noting, loop).result()
            except RuntimeError as error:  # the loop has been closed meanwhile
                noting.close()
                logger.error(
                    "%s: %s (%d messages) is done, but missing in the audit trail: %s", action, about, count, error
                )

        errors = self._errors.noting(note)
        try:
            return await in_thread("delaystore-errors", lambda: method(errors, *arguments, **named))
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async def _noting(self, action: str, about: str, count: int) -> None:
        await self._call_delivery(lambda _: self._errors.note(action, about, count))


class AsyncLoads:
    """`Loads` for asyncio, with the same calls, arguments and errors."""

    def __init__(self, call_delivery: Callable[..., Awaitable[Any]], loads: Loads) -> None:
        self._call_delivery = call_delivery
        self._loads = loads

    list = awaited(Loads.list)
    get = awaited(Loads.get)
    paused = awaited(Loads.paused)
    begin_cancel = awaited(Loads.begin_cancel)
    cancel = awaited(Loads.cancel)
    pause = awaited(Loads.pause)
    resume = awaited(Loads.resume)

    async def _call(self, method: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """Call `method` of the Loads behind this one."""
        return await self._call_delivery(lambda _: method(self._loads, *arguments, **named))


class AsyncSchedules:
    """`Schedules` for asyncio, with the same calls, arguments and errors."""

    def __init__(
        self,
        call: Callable[..., Awaitable[Any]],
        of: Callable[[Any], Schedules] = lambda scheduling: scheduling.schedules,
    ) -> None:
        self._call_with, self._of = call, of

    put = awaited(Schedules.put)
    put_schedule = awaited(Schedules.put_schedule)
    put_all = awaited(Schedules.put_all)
    pause = awaited(Schedules.pause)
    resume = awaited(Schedules.resume)
    skip = awaited(Schedules.skip)
    trigger = awaited(Schedules.trigger)
    backfill = awaited(Schedules.backfill)
    delete = awaited(Schedules.delete)
    get = awaited(Schedules.get)
    list = awaited(Schedules.list)
    upcoming = awaited(Schedules.upcoming)
    preview = awaited(Schedules.preview)

    async def _call(self, method: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """Call `method` of the Schedules behind this one."""
        return await self._call_with(lambda scheduling: method(self._of(scheduling), *arguments, **named))


class AsyncOperations:
    """`Operations` for asyncio, with the same calls, arguments and errors.

    `progress` is called on the event loop, and must not block it. A call that is cancelled ends between two steps; an
    operation can be resumed.

    Args:
        call: Calls a function with the delivery, on the event loop or in a thread.
        call_as_it_is: The same, without setting up the store before.
        operations: The operations.
        blocks: Whether the store blocks, so that `overview` takes a thread.

    """

    def __init__(
        self,
        call: Callable[..., Awaitable[Any]],
        call_as_it_is: Callable[..., Awaitable[Any]],
        operations: Operations,
        *,
        blocks: bool,
    ) -> None:
        self._call_delivery = call
        self._call_as_it_is = call_as_it_is
        self._operations = operations
        self._blocks = blocks

    @property
    def by(self) -> str:
        """In whose name changes are noted."""
        return self._operations.by

    @property
    def endpoint(self) -> str:
        """Whose messages these are."""
        return self._operations.endpoint

    def acting_as(self, by: str | None = None, *, way: Way | None = None) -> "AsyncOperations":
        """As `Operations.acting_as`."""
        operations = self._operations.acting_as(by, way=way)
        return AsyncOperations(self._call_delivery, self._call_as_it_is, operations, blocks=self._blocks)

    search = awaited(Operations.search)
    preview = awaited(Operations.preview)
    count_by_due_time = awaited(Operations.count_by_due_time)
    begin_cancel = awaited(Operations.begin_cancel)
    begin_reschedule = awaited(Operations.begin_reschedule)
    run = awaited(Operations.run)
    cancel = awaited(Operations.cancel)
    reschedule = awaited(Operations.reschedule)
    abandon = awaited(Operations.abandon)
    operation = awaited(Operations.operation)
    operations = awaited(Operations.operations)
    do_all = awaited(Operations.do_all)
    send_now = awaited(Operations.send_now)
    cancel_one = awaited(Operations.cancel_one)
    reschedule_one = awaited(Operations.reschedule_one)
    pause = awaited(Operations.pause)
    resume = awaited(Operations.resume)
    limit_rate = awaited(Operations.limit_rate)
    destinations = awaited(Operations.destinations)
    note = awaited(Operations.note)
    backlog = awaited(Operations.backlog)
    now = awaited(Operations.now)
    latest_now = awaited(Operations.latest_now)
    due = awaited(Operations.due)
    changes = awaited(Operations.changes)
    history = awaited(Operations.history)
    history_status = awaited(Operations.history_status)
    history_gaps = awaited(Operations.history_gaps)
    history_of = awaited(Operations.history_of)
    life = awaited(Operations.life)
    audit_kept = awaited(Operations.audit_kept)

    async def export(self, wanted: MessageFilter, *, after: Position | None = None) -> AsyncIterator[DelayedMessage]:
        """As `Operations.export`."""
        chunks = self._operations.chunks(wanted, after=after)
        while (chunk := await self._call(lambda _: chunks.next())) is not None:
            for message in chunk:
                yield message

    @property
    def loads(self) -> AsyncLoads:
        """As `Operations.loads`, awaited."""
        return AsyncLoads(self._call_delivery, self._operations.loads)

    @property
    def errors(self) -> AsyncErrorQueue:
        """As `Operations.errors`, awaited."""
        return AsyncErrorQueue(self._call_delivery, self._operations.errors)

    async def overview(self, timeout: float = 5.0) -> Overview:
        """As `Operations.overview`."""
        if self._blocks:
            return await in_thread("delaystore-overview", lambda: self._operations.overview(timeout))
        overview: Overview = await self._call_as_it_is(lambda _: self._operations.overview(timeout))
        return overview

    async def _call(self, method: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """Call `method` of the Operations behind this one."""
        return await self._call_delivery(lambda _: method(self._operations, *arguments, **named))


@runtime_checkable
class LoopStore(Protocol):
    """A store on an event loop, such as an AsyncSqlDelayedMessageStore."""

    @property
    def bridged(self) -> DelayedMessageStore:
        """The store whose calls are made in greenlets."""
        ...

    def for_dispatching(self, endpoint: str) -> DelayedMessageStore:
        """The store on the same messages for the dispatcher's thread."""
        ...

    async def close(self) -> None:
        """Close the connections that belong to the loop."""
        ...


class BridgedDelivery(DelayedDelivery):
    """A DelayedDelivery whose calls to the store are made in greenlets; its dispatcher has a store for threads.

    `stop` and `close` block; `close` leaves the store's own connections, which belong to the loop.
    """

    def __init__(
        self,
        endpoint: str,
        store: LoopStore,
        transport: Transport | None,
        settings: DelayedDeliverySettings | None,
        *,
        native: bool,
        observer: DispatchObserver | None,
        way: Way,
    ) -> None:
        self._dispatching = None if transport is None else store.for_dispatching(endpoint)
        super().__init__(endpoint, store.bridged, transport, settings, native=native, observer=observer, way=way)

    @override
    def _new_dispatcher(self, transport: Transport, endpoint: str) -> Dispatcher:
        assert self._dispatching is not None
        return Dispatcher(self._dispatching, transport, self._settings, endpoint, observer=self._observer)

    @override
    def _close_connections(self) -> None:
        for each in (self._transport, self._dispatching):
            if each is not None:
                each.close()


class LoopStatusCheck:
    """Asks a store with bridged calls how it is, one question at a time, even if a caller stops waiting for an answer.

    `error_queue`: the queue whose depth dispatchers report.
    """

    def __init__(self, store: LoopStore, error_queue: str) -> None:
        self._error_queue = error_queue
        self._store = store.bridged
        self._status: asyncio.Task[StoreHealth] | None = None
        self._counts: asyncio.Task[StoreCounts] | None = None

    async def health(self, timeout: timedelta | float) -> StoreHealth:
        """How the store is, asked for `timeout` (or seconds) at most; raises nothing but CancelledError."""
        seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
        ends = monotonic() + seconds
        if self._status is None or self._status.done():
            self._status = asyncio.ensure_future(self._ask_status(seconds))
        status = await _answer(self._status, seconds)
        if status is None:
            return StoreHealth(problem=f"the store does not answer within {seconds:g} s")
        if status.problem is not None:
            return status
        left = max(0.0, ends - monotonic())
        if self._counts is None or self._counts.done():
            self._counts = asyncio.ensure_future(self._ask_counts(left))
        counts = await _answer(self._counts, left)
        return status if counts is None else replace(status, counts=counts)

    async def close(self) -> None:
        """Leave questions that have no answer."""
        for question in (self._status, self._counts):
            if question is not None and not question.done():
                question.cancel()
                await asyncio.wait({question})

    async def _ask_status(self, seconds: float) -> StoreHealth:
        try:
            status = await bridged(_within, "asking for the status", seconds, self._store.status)
        except Exception as error:
            return StoreHealth(problem=str(error) or type(error).__name__)
        return StoreHealth(status.overdue, status.read_only)

    async def _ask_counts(self, seconds: float) -> StoreCounts:
        try:
            question = partial(counts_of, self._store, self._error_queue)
            return await bridged(_within, "counting waiting messages", seconds, question)
        except Exception:
            return StoreCounts()


async def _answer(question: "asyncio.Task[R]", seconds: float) -> R | None:
    done, _ = await asyncio.wait({question}, timeout=seconds)
    return question.result() if done else None


def _within(purpose: str, seconds: float, question: Callable[[], R]) -> R:
    with Call(purpose, seconds):
        return question()


async def bridged(work: Callable[P, R], *arguments: P.args, **named: P.kwargs) -> R:
    """Call `work` in a greenlet; the loop awaits whenever the greenlet would block."""
    from sqlalchemy.util import greenlet_spawn

    async with TaskCalls():
        return await greenlet_spawn(partial(work, *arguments, **named))


async def directly(work: Callable[P, R], *arguments: P.args, **named: P.kwargs) -> R:
    """Call `work` on a store in memory: at once, or in a thread where it has to wait."""
    try:
        with without_pauses():
            return work(*arguments, **named)
    except WouldBlockError:
        return await in_thread("delaystore-call", partial(work, *arguments, **named))


class OwnLoop:
    """The event loop of a delivery's first call, to which it belongs, and whether the delivery is closed.

    `is_bound`: whether it has connections, which belong to a loop.
    """

    def __init__(self, *, is_bound: bool) -> None:
        self._is_bound = is_bound
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_closed = False
        renew_in_children(self, OwnLoop._leave)

    def open(self) -> None:
        """Allow calls, also once more after `close`; raises as `check`."""
        self._is_closed = False
        self.check()

    def check(self) -> None:
        """Raise ConfigurationError on another loop, and after `close`."""
        running = asyncio.get_running_loop()
        if self._is_bound and self._loop not in (None, running):
            raise ConfigurationError(
                "this AsyncDelayedDelivery belongs to another event loop, that of its first call; make one in each loop"
            )
        if self._is_closed:
            raise ConfigurationError(
                "this AsyncDelayedDelivery is closed; make its calls before close(), or inside `async with`"
            )
        self._loop = running

    def close(self) -> None:
        """Refuse calls from now on."""
        self._is_closed = True

    def _leave(self) -> None:
        """A forked child has connections of its own, and a loop."""
        self._loop = None


class AsyncDelayedDelivery:
    """DelayedDelivery for asyncio: its methods have the same arguments, results and errors, and are awaited.

    No call blocks the event loop; the dispatcher runs in a thread, with a connection of its own. It belongs to one
    event loop. `async with` starts the dispatcher if there is a transport, and closes everything. A call that is
    cancelled may have done its work: send again with the same message_id, and DuplicateMessageError means that the
    message is stored. Calls raise ConfigurationError on another loop, and after `close`, until it is started or
    entered again.

    Args:
        endpoint: As of DelayedDelivery.
        store: An AsyncSqlDelayedMessageStore, or an InMemoryDelayedMessageStore.
        transport: As of DelayedDelivery.
        settings: As of DelayedDelivery.
        native: As of DelayedDelivery.
        observer: As of DelayedDelivery.
        way: As of DelayedDelivery.

    Raises:
        ConfigurationError: A name cannot work, or the store would block the event loop.
        UnsupportedModeError: The store, or the store and transport together, cannot honour the transaction mode.
        MissingDependencyError: The driver of the dispatcher's connection is not installed.

    Example:
        ::

            store = AsyncSqlDelayedMessageStore("postgresql+asyncpg://db/app")
            async with AsyncDelayedDelivery("sales", store) as delivery:
                await delivery.send("billing", b"pay me", delay=timedelta(days=3))

    """

    def __init__(
        self,
        endpoint: str,
        store: LoopStore | DelayedMessageStore,
        transport: Transport | None = None,
        settings: DelayedDeliverySettings | None = None,
        *,
        native: bool = False,
        observer: DispatchObserver | None = None,
        way: Way = Way.PROGRAM,
    ) -> None:
        self._store = store
        self._status_check: LoopStatusCheck | None = None
        self._run: Callable[..., Awaitable[Any]] = directly
        if isinstance(store, LoopStore):
            self._run = bridged
            self._delivery: DelayedDelivery = BridgedDelivery(
                endpoint, store, transport, settings, native=native, observer=observer, way=way
            )
            error_queue = (settings or DelayedDeliverySettings()).error_queue
            self._status_check = None if transport is not None else LoopStatusCheck(store, error_queue)
        elif isinstance(store, InMemoryDelayedMessageStore):
            if native:
                raise ConfigurationError("native=True takes an AsyncSqlDelayedMessageStore on an event loop")
            self._delivery = DelayedDelivery(endpoint, store, transport, settings, observer=observer, way=way)
        else:
            raise ConfigurationError(
                f"{type(store).__name__} would block the event loop; give AsyncDelayedDelivery an "
                "AsyncSqlDelayedMessageStore, as AsyncSqlDelayedMessageStore('postgresql+asyncpg://...')"
            )
        self._setting_up = asyncio.Lock()
        self._own_loop = OwnLoop(is_bound=isinstance(store, LoopStore))

    send = awaited(DelayedDelivery.send)
    send_many = awaited(DelayedDelivery.send_many)
    get = awaited(DelayedDelivery.get)
    history = awaited(DelayedDelivery.history)
    list = awaited(DelayedDelivery.list)
    get_many = awaited(DelayedDelivery.get_many)
    get_unclaimed = awaited(DelayedDelivery.get_unclaimed)
    message_ids = awaited(DelayedDelivery.message_ids)
    count = awaited(DelayedDelivery.count)
    estimate_count = awaited(DelayedDelivery.estimate_count)
    count_by_due_time = awaited(DelayedDelivery.count_by_due_time)
    cancel = awaited(DelayedDelivery.cancel)
    reschedule = awaited(DelayedDelivery.reschedule)
    send_now = awaited(DelayedDelivery.send_now)

    def enlist(self, transaction: Any) -> "AsyncEnlistedDelivery":
        """Send, cancel, reschedule and look up in your own transaction in the store's database.

        Args:
            transaction: An AsyncConnection, AsyncSession or async_scoped_session (this task's session) of SQLAlchemy,
                or a psycopg.AsyncConnection where that is the store's driver.

        Returns:
            A sender in that transaction. Its calls raise as `DelayedDelivery.enlist` and those of EnlistedDelivery.

        """
        return AsyncEnlistedDelivery(self._call_as_it_is, transaction)

    @property
    def operations(self) -> AsyncOperations:
        """As `DelayedDelivery.operations`, awaited."""
        blocks = not isinstance(self._store, LoopStore)
        return AsyncOperations(self._call, self._call_as_it_is, self._delivery.operations, blocks=blocks)

    @property
    def schedules(self) -> AsyncSchedules:
        """As `DelayedDelivery.schedules`, awaited."""
        return AsyncSchedules(self._call)

    def schedules_as(self, way: Way, by: str | None = None) -> AsyncSchedules:
        """As `DelayedDelivery.schedules_as`, awaited."""
        return AsyncSchedules(self._call, lambda delivery: delivery.schedules_as(way, by))

    async def setup_infrastructure(self) -> None:
        """As `DelayedDelivery.setup_infrastructure`."""
        self._own_loop.open()
        async with self._setting_up:
            await self._set_up_by(DelayedDelivery.setup_infrastructure)

    async def start(self) -> None:
        """As `DelayedDelivery.start`: the dispatcher runs in a thread of its own."""
        self._own_loop.open()
        self._delivery.check_startable()
        await self._prepared()
        self._delivery.start()

    async def stop(self, timeout: float | None = None) -> bool:
        """As `DelayedDelivery.stop`; cancelling it stops the dispatcher nevertheless."""
        return await in_thread("delaystore-stop", lambda: self._delivery.stop(timeout))

    async def close(self, timeout: float | None = LONGEST_CLOSE) -> None:
        """As `DelayedDelivery.close`; cancelling it closes everything nevertheless, a store on this loop at once."""
        try:
            await in_thread("delaystore-close", lambda: self._delivery.close(timeout))
        finally:
            self._own_loop.close()
            if self._status_check is not None:
                await self._status_check.close()
            if isinstance(self._store, LoopStore):
                await self._store.close()

    async def health(self, timeout: timedelta | float = STATUS_TIMEOUT) -> Health:
        """As `DelayedDelivery.health`."""
        if self._status_check is not None:
            return self._delivery.health_with(await self._status_check.health(timeout))
        return await in_thread("delaystore-health", lambda: self._delivery.health(timeout))

    async def _call_as_it_is(self, method: Callable[..., R], *arguments: Any, **named: Any) -> R:
        """Call `method` with the DelayedDelivery behind this one as its first argument, set up or not."""
        self._own_loop.check()
        if not self._delivery.is_ready:
            await self._import_set_up()
        result: R = await self._run(method, self._delivery, *arguments, **named)
        return result

    async def _prepared(self) -> DelayedDelivery:
        """The delivery whose calls are made for this one, with its tables set up."""
        if not self._delivery.is_ready:
            async with self._setting_up:
                if not self._delivery.is_ready:
                    await self._set_up_by(DelayedDelivery.prepare)
        return self._delivery

    async def __aenter__(self) -> Self:
        self._own_loop.open()
        try:
            if self._delivery.dispatches:
                await self.start()
            else:
                await self._prepared()
        except BaseException:  # no one else closes the connections that are open by now
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def _call(self, method: Callable[..., R], *arguments: Any, **named: Any) -> R:
        self._own_loop.check()
        delivery = self._delivery if self._delivery.is_ready else await self._prepared()
        result: R = await self._run(method, delivery, *arguments, **named)
        return result

    async def _set_up_by(self, method: Callable[[DelayedDelivery], None]) -> None:
        await self._import_set_up()
        await self._run(method, self._delivery)

    async def _import_set_up(self) -> None:
        """Import the set-up's modules in a thread, because that takes a third of a second."""
        if self._run is bridged:
            await in_thread("delaystore-setup", lambda: import_module("alembic.operations"))


class AsyncEnlistedDelivery:
    """`EnlistedDelivery` for asyncio, with the same calls and errors. `AsyncDelayedDelivery.enlist` makes it.

    Belongs to the transaction, which is the caller's, and to the task that runs it. Calls at the same time, as by
    `asyncio.gather`, are made one after the other.

    Args:
        run: Calls a function with the delivery, on the event loop.
        target: The transaction, as of `AsyncDelayedDelivery.enlist`.

    Example:
        ```python
        async with AsyncSession(engine) as session, session.begin():
            enlisted = delivery.enlist(session)
            await enlisted.cancel(key="order-7")
            await enlisted.send("billing", b"pay me", delay=3600)
        ```

    """

    def __init__(self, run: Callable[..., Awaitable[Any]], target: Any) -> None:
        self._run = run
        self._target = _behind(target)
        self._enlisted: EnlistedDelivery | None = None
        self._turn = asyncio.Lock()

    send = awaited(EnlistedDelivery.send)
    send_many = awaited(EnlistedDelivery.send_many)
    get = awaited(EnlistedDelivery.get)
    cancel = awaited(EnlistedDelivery.cancel)
    reschedule = awaited(EnlistedDelivery.reschedule)
    send_now = awaited(EnlistedDelivery.send_now)

    @property
    def schedules(self) -> AsyncSchedules:
        """As `EnlistedDelivery.schedules`, awaited."""
        return AsyncSchedules(self._call)

    def schedules_as(self, way: Way, by: str | None = None) -> AsyncSchedules:
        """As `EnlistedDelivery.schedules_as`, awaited."""
        return AsyncSchedules(self._call, lambda enlisted: enlisted.schedules_as(way, by))

    async def _call(self, method: Callable[..., R], *arguments: Any, **named: Any) -> R:
        async with self._turn:  # one connection takes one statement, and one savepoint, after the other
            result: R = await self._run(partial(self._in_it, method), *arguments, **named)
        return result

    def _in_it(self, method: Callable[..., R], delivery: DelayedDelivery, *arguments: Any, **named: Any) -> R:
        if self._enlisted is None:
            self._enlisted = delivery.enlist(self._target)
        return method(self._enlisted, *arguments, **named)


def _behind(target: Any) -> Any:
    """The synchronous object behind SQLAlchemy's for asyncio; of an async_scoped_session, this task's session."""
    known: Any = sys.modules.get("sqlalchemy.ext.asyncio")
    if known is not None and isinstance(target, known.async_scoped_session):
        target = target()
    return getattr(target, "sync_connection", None) or getattr(target, "sync_session", target)
