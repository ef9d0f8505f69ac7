"""Operations for asyncio: the same, awaited."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from delaystore.bridge import in_thread
from delaystore.delivery._async_errors import AsyncErrorQueue
from delaystore.delivery._awaited import awaited
from delaystore.delivery._delivery import DelayedDelivery
from delaystore.filters import MessageFilter
from delaystore.message import DelayedMessage, Position
from delaystore.operations import Operations, Overview
from delaystore.stores.operable import Way


class AsyncOperations:
    """Operations for asyncio: what that says of calls, arguments and errors holds here.

    `progress` is called on the event loop, and must not block it. A call that is cancelled ends between two steps; an
    operation can be resumed.
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
    cancel_all = awaited(Operations.cancel_all)
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

    async def export(self, wanted: MessageFilter, *, after: Position | None = None) -> AsyncIterator[DelayedMessage]:
        """As `Operations.export`."""
        chunks = self._operations.chunks(wanted, after=after)
        while (chunk := await self._call(lambda _: chunks.next())) is not None:
            for message in chunk:
                yield message

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
        """What `method` of the Operations behind this one returns."""

        def operate(_: DelayedDelivery) -> Any:
            return method(self._operations, *arguments, **named)

        return await self._call_delivery(operate)
