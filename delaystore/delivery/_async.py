"""DelayedDelivery for asyncio: the same operations, awaited."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from importlib import import_module
from types import TracebackType
from typing import Any, Self, TypeVar

from delaystore.bridge import in_thread
from delaystore.delivery._async_operations import AsyncOperations
from delaystore.delivery._awaited import awaited
from delaystore.delivery._bridged import BridgedDelivery, LoopStatusCheck, LoopStore, bridged, directly
from delaystore.delivery._delivery import LONGEST_CLOSE, DelayedDelivery
from delaystore.delivery._enlisted import EnlistedDelivery
from delaystore.delivery._loop import OwnLoop
from delaystore.dispatcher.health import STATUS_TIMEOUT, Health
from delaystore.dispatcher.observer import DispatchObserver
from delaystore.errors import ConfigurationError
from delaystore.settings import DelayedDeliverySettings
from delaystore.stores import InMemoryDelayedMessageStore
from delaystore.stores.abc import DelayedMessageStore
from delaystore.transports.abc import Transport

R = TypeVar("R")


class AsyncDelayedDelivery:
    """DelayedDelivery for asyncio: what it says of operations, arguments and errors holds here.

    `store`: an AsyncSqlDelayedMessageStore, or an InMemoryDelayedMessageStore. The other arguments are those of
    DelayedDelivery. No call blocks the event loop; the dispatcher runs in a thread, with a connection of its own.

    Belongs to one event loop. `async with` starts the dispatcher if there is a transport, and closes everything. A call
    that is cancelled may have done its work: send again with the same message_id, and DuplicateMessageError means that
    the message is stored. Raises as DelayedDelivery, MissingDependencyError where the dispatcher's driver is missing;
    its calls raise ConfigurationError on another loop, and once it is closed, until it is started or entered again.
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
    ) -> None:
        self._store = store
        self._status_check: LoopStatusCheck | None = None
        self._run: Callable[..., Awaitable[Any]] = directly
        if isinstance(store, LoopStore):
            self._run = bridged
            self._delivery: DelayedDelivery = BridgedDelivery(
                endpoint, store, transport, settings, native=native, observer=observer
            )
            error_queue = (settings or DelayedDeliverySettings()).error_queue
            self._status_check = None if transport is not None else LoopStatusCheck(store, error_queue)
        elif isinstance(store, InMemoryDelayedMessageStore):
            if native:
                raise ConfigurationError("native=True takes an AsyncSqlDelayedMessageStore on an event loop")
            self._delivery = DelayedDelivery(endpoint, store, transport, settings, observer=observer)
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
    list = awaited(DelayedDelivery.list)
    get_many = awaited(DelayedDelivery.get_many)
    get_unclaimed = awaited(DelayedDelivery.get_unclaimed)
    message_ids = awaited(DelayedDelivery.message_ids)
    count = awaited(DelayedDelivery.count)
    estimate_count = awaited(DelayedDelivery.estimate_count)
    count_by_due_time = awaited(DelayedDelivery.count_by_due_time)
    cancel = awaited(DelayedDelivery.cancel)
    reschedule = awaited(DelayedDelivery.reschedule)

    def enlist(self, transaction: Any) -> "AsyncEnlistedDelivery":
        """Send, cancel, reschedule and look up in your own transaction in the store's database.

        `transaction`: an AsyncConnection, AsyncSession or async_scoped_session (this task's session) of SQLAlchemy, or
        a psycopg.AsyncConnection where that is the store's driver. The calls of what this returns raise as those of
        what `DelayedDelivery.enlist` returns.
        """
        return AsyncEnlistedDelivery(self._call_as_it_is, transaction)

    @property
    def operations(self) -> AsyncOperations:
        """As `DelayedDelivery.operations`, awaited."""
        blocks = not isinstance(self._store, LoopStore)
        return AsyncOperations(self._call, self._call_as_it_is, self._delivery.operations, blocks=blocks)

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
        """What `method` of the DelayedDelivery behind this one, its first argument, returns; it is not set up first."""
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
        except BaseException:  # nobody else would close what is open by now
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
        """Import what the set-up needs in a thread, for it takes a third of a second."""
        if self._run is bridged:
            await in_thread("delaystore-setup", lambda: import_module("alembic.operations"))


class AsyncEnlistedDelivery:
    """EnlistedDelivery for asyncio: what it says holds here; made by `AsyncDelayedDelivery.enlist`.

    Belongs to the transaction, which is the caller's, and to the task that runs it. Calls at the same time, as by
    `asyncio.gather`, are made one after the other.
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

    async def _call(self, method: Callable[..., R], *arguments: Any, **named: Any) -> R:
        async with self._turn:  # one connection takes one statement, and one savepoint, after the other
            result: R = await self._run(partial(self._in_it, method), *arguments, **named)
        return result

    def _in_it(self, method: Callable[..., R], delivery: DelayedDelivery, *arguments: Any, **named: Any) -> R:
        if self._enlisted is None:
            self._enlisted = delivery.enlist(self._target)
        return method(self._enlisted, *arguments, **named)


def _behind(target: Any) -> Any:
    """What something of SQLAlchemy's for asyncio wraps; of an async_scoped_session, this task's session."""
    known: Any = sys.modules.get("sqlalchemy.ext.asyncio")
    if known is not None and isinstance(target, known.async_scoped_session):
        target = target()
    return getattr(target, "sync_connection", None) or getattr(target, "sync_session", target)
