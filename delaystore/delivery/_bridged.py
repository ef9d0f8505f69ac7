"""What runs in greenlets on an event loop: the delivery itself, with a store of its own for the dispatcher's thread."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from time import monotonic
from typing import ParamSpec, Protocol, TypeVar, runtime_checkable

from typing_extensions import override

from delaystore.bridge import WouldBlockError, in_thread, without_pauses
from delaystore.calls import Call, TaskCalls
from delaystore.delivery._delivery import DelayedDelivery
from delaystore.dispatcher.dispatcher import Dispatcher
from delaystore.dispatcher.observer import DispatchObserver
from delaystore.dispatcher.status_check import StoreCounts, StoreHealth, counts_of
from delaystore.settings import DelayedDeliverySettings
from delaystore.stores.abc import DelayedMessageStore
from delaystore.transports.abc import Transport

P = ParamSpec("P")
R = TypeVar("R")


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
    ) -> None:
        self._dispatching = None if transport is None else store.for_dispatching(endpoint)
        super().__init__(endpoint, store.bridged, transport, settings, native=native, observer=observer)

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
    """Asks a store whose calls are bridged how it is, one question at a time, whoever stops waiting for the answer.

    `error_queue`: whose depth dispatchers have told it.
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
            ask = partial(counts_of, self._store, self._error_queue)
            return await bridged(_within, "counting what waits", seconds, ask)
        except Exception:
            return StoreCounts()


async def _answer(question: "asyncio.Task[R]", seconds: float) -> R | None:
    done, _ = await asyncio.wait({question}, timeout=seconds)
    return question.result() if done else None


def _within(purpose: str, seconds: float, ask: Callable[[], R]) -> R:
    with Call(purpose, seconds):
        return ask()


async def bridged(work: Callable[P, R], *arguments: P.args, **named: P.kwargs) -> R:
    """What `work` returns or raises; the loop awaits what it waits for."""
    from sqlalchemy.util import greenlet_spawn

    async with TaskCalls():
        return await greenlet_spawn(partial(work, *arguments, **named))


async def directly(work: Callable[P, R], *arguments: P.args, **named: P.kwargs) -> R:
    """What `work` on a store in memory returns or raises: called at once, or in a thread where it has to wait."""
    try:
        with without_pauses():
            return work(*arguments, **named)
    except WouldBlockError:
        return await in_thread("delaystore-call", partial(work, *arguments, **named))
