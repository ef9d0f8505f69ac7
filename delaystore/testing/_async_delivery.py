"""A delayed delivery for tests of the asyncio program that uses it."""

from collections.abc import Iterable, Sequence
from datetime import timedelta
from inspect import isawaitable
from typing import ClassVar, Final, Unpack

from delaystore.delivery import AsyncDelayedDelivery
from delaystore.message import DelayedMessage
from delaystore.settings import DelayedDeliverySettings
from delaystore.stores import InMemoryDelayedMessageStore
from delaystore.testing._clock import SettableClock, sum_of
from delaystore.testing._delivery import TestDelivery
from delaystore.testing._expectation import Expected
from delaystore.testing._handlers import Handler, Turn


class AsyncTestDelivery(AsyncDelayedDelivery):
    """An AsyncDelayedDelivery with what TestDelivery has, and a store in memory.

    What it says of methods and arguments holds here. `dispatch_due` and `dispatch_for` are awaited, and so are handlers
    that ask for it; the others answer at once. Belongs to one event loop.
    """

    __test__: ClassVar = False  # pytest takes each class Test... for tests

    def __init__(
        self,
        endpoint: str = "test",
        *,
        clock: SettableClock | None = None,
        settings: DelayedDeliverySettings | None = None,
    ) -> None:
        self.clock: Final = SettableClock() if clock is None else clock
        store = InMemoryDelayedMessageStore(self.clock)
        super().__init__(endpoint, store, settings=settings)
        self._delivery = self._test = TestDelivery(endpoint, store, clock=self.clock, settings=settings)
        self.transport: Final = self._test.transport

    def on(self, destination: str, handler: Handler) -> None:
        """Call `handler(message)`, and await what it returns if that can be, for each message that arrives there."""
        self._test._handlers.add(destination, handler)

    async def dispatch_due(self) -> Sequence[DelayedMessage]:
        """As `TestDelivery.dispatch_due`."""
        arrived: list[DelayedMessage] = []
        await _make(self._test._turns(arrived))
        return arrived

    async def dispatch_for(
        self,
        span: timedelta | float = 0,
        *,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
    ) -> Sequence[DelayedMessage]:
        """As `TestDelivery.dispatch_for`."""
        arrived: list[DelayedMessage] = []
        span = sum_of(span, days=days, hours=hours, minutes=minutes, seconds=seconds)
        await _make(self._test._turns_for(span, arrived))
        return arrived

    def waiting(self, destination: str | None = None) -> Sequence[DelayedMessage]:
        """As `TestDelivery.waiting`."""
        return self._test.waiting(destination)

    def delivered(self, destination: str | None = None) -> Sequence[DelayedMessage]:
        """As `TestDelivery.delivered`."""
        return self._test.delivered(destination)

    def assert_sent(
        self, destination: str | None = None, body: bytes | str | None = None, **expected: Unpack[Expected]
    ) -> DelayedMessage:
        """As `TestDelivery.assert_sent`."""
        __tracebackhide__ = True
        return self._test.assert_sent(destination, body, **expected)

    def assert_not_sent(
        self, destination: str | None = None, body: bytes | str | None = None, **expected: Unpack[Expected]
    ) -> None:
        """As `TestDelivery.assert_not_sent`."""
        __tracebackhide__ = True
        self._test.assert_not_sent(destination, body, **expected)


async def _make(turns: Iterable[Turn]) -> None:
    """Make the calls, one after the other."""
    for turn in turns:
        result = turn()
        if isawaitable(result):
            await result
