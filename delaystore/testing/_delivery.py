"""A delayed delivery for tests of the program that uses it."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, ClassVar, Final, Unpack

from typing_extensions import override

from delaystore.address import parse_address
from delaystore.delivery import DelayedDelivery
from delaystore.errors import ConfigurationError, InvalidMessageError
from delaystore.message import DelayedMessage, Position
from delaystore.settings import DelayedDeliverySettings
from delaystore.stores import InMemoryDelayedMessageStore, ManagedDelayedMessageStore
from delaystore.testing._clock import SettableClock, moved, sum_of
from delaystore.testing._expectation import Expectation, Expected, report
from delaystore.testing._handlers import Handler, Handlers, Turn
from delaystore.testing._recording import RecordingTransport

if TYPE_CHECKING:
    from sqlalchemy import Engine

MOST_ROUNDS: Final = 100
"""How often handlers may send what is due at once, within one `dispatch_due`."""
_PAGE: Final = 1000
_NEXT_INSTANT: Final = timedelta.resolution


class TestDelivery(DelayedDelivery):
    """A DelayedDelivery whose time a test sets, and which forwards when the test says so, in the test's own thread.

    Store, passes, retries and error queue are the real ones; `transport` records what arrives, and answers as told.
    `start` and `with` start no dispatcher.

    `clock` None: one of its own, which stands at noon of 2027-01-01 UTC. `store` None: in memory. A store that is given
    must go by `clock`. `settings` None: the defaults. Raises ConfigurationError where the store goes by another clock.
    """

    __test__: ClassVar = False  # pytest takes each class Test... for tests

    def __init__(
        self,
        endpoint: str = "test",
        store: ManagedDelayedMessageStore | None = None,
        *,
        clock: SettableClock | None = None,
        settings: DelayedDeliverySettings | None = None,
    ) -> None:
        self.clock: Final = SettableClock() if clock is None else clock
        self.transport: Final = RecordingTransport()
        store = InMemoryDelayedMessageStore(self.clock) if store is None else store
        super().__init__(endpoint, store, self.transport, settings)
        if store.now() != self.clock.now():
            raise ConfigurationError(f"{store!r} goes by another clock; make both with the same, as in clock=clock")
        self._handlers = Handlers()

    @override
    def start(self) -> None:
        """Set up the store; nothing is forwarded but by `dispatch_due` and `dispatch_for`."""
        self.prepare()

    @property
    def engine(self) -> "Engine":
        """The SQLAlchemy Engine of a SQL store, for Sessions to enlist; ConfigurationError for another store."""
        engine: Engine | None = getattr(self._store, "engine", None)
        if engine is None:
            raise ConfigurationError(f"{type(self._store).__name__} has no engine; use the SQL store")
        return engine

    def on(self, destination: str, handler: Handler) -> None:
        """Call `handler(message)` for each message that arrives at `destination`, in place of an earlier handler.

        Raises ConfigurationError for one that would have to be awaited.
        """
        if iscoroutinefunction(handler):
            raise ConfigurationError(f"{handler!r} is asynchronous; give a function, or use AsyncTestDelivery")
        self._handlers.add(destination, handler)

    def dispatch_due(self) -> Sequence[DelayedMessage]:
        """Forward what is due by the clock, and call the handlers; returns what arrived, in that order.

        What handlers send, and is due at once, arrives in the same call; copies in the error queue are among what
        arrived. In a pretended outage nothing does. Raises what a handler raises: all that was due has arrived then,
        and the next call calls the other handlers. Raises AssertionError after 100 rounds in which handlers have sent
        what is due at once.
        """
        arrived: list[DelayedMessage] = []
        for call in self._turns(arrived):
            call()
        return arrived

    def dispatch_for(
        self,
        span: timedelta | float = 0,
        *,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
    ) -> Sequence[DelayedMessage]:
        """Let so much time pass as `clock.advance` would, but stop to forward whenever something is due on the way.

        So handlers see the clock of the moment in which their message arrives. Returns and raises as `dispatch_due`;
        InvalidMessageError also for what is negative, or no length of time.
        """
        arrived: list[DelayedMessage] = []
        for call in self._turns_for(sum_of(span, days=days, hours=hours, minutes=minutes, seconds=seconds), arrived):
            call()
        return arrived

    def waiting(self, destination: str | None = None) -> Sequence[DelayedMessage]:
        """All that waits, or what waits for `destination`, in the order in which it will be forwarded."""
        found: list[DelayedMessage] = []
        after: Position | None = None
        while True:
            page = self.list(after=after, limit=_PAGE)
            found += page.messages
            after = page.next_key
            if after is None:
                return _for(destination, found)

    def delivered(self, destination: str | None = None) -> Sequence[DelayedMessage]:
        """All that has arrived, or what has arrived at `destination`, in that order."""
        return _for(destination, self.transport.sent)

    def assert_sent(
        self, destination: str | None = None, body: bytes | str | None = None, **expected: Unpack[Expected]
    ) -> DelayedMessage:
        """The first message like this that waits or has arrived; AssertionError, listing all there are, if none is.

        What is left out may be anything. A `body` of str is meant in UTF-8; `json` is what the body holds as JSON;
        `delay` (a timedelta or seconds) counts from the clock's present, `at` is the due time; `headers`: these at
        least; `key`. What was cancelled or rolled back was not sent.
        """
        __tracebackhide__ = True
        wanted = Expectation(now=self.clock.now(), destination=destination, body=body, **expected)
        waiting, delivered = self.waiting(), self.delivered()
        for message in (*waiting, *delivered):
            if wanted.is_met_by(message):
                return message
        raise AssertionError(report(f"no such message was sent: {wanted}", wanted, waiting, delivered))

    def assert_not_sent(
        self, destination: str | None = None, body: bytes | str | None = None, **expected: Unpack[Expected]
    ) -> None:
        """Raise AssertionError if a message like this waits or has arrived; without arguments, if any does."""
        __tracebackhide__ = True
        wanted = Expectation(now=self.clock.now(), destination=destination, body=body, **expected)
        waiting = [message for message in self.waiting() if wanted.is_met_by(message)]
        delivered = [message for message in self.delivered() if wanted.is_met_by(message)]
        if waiting or delivered:
            heading = f"{len(waiting) + len(delivered)} sent, where none was expected: {wanted}"
            raise AssertionError(report(heading, wanted, waiting, delivered))

    def _turns(self, arrived: list[DelayedMessage]) -> Iterator[Turn]:
        """The calls of handlers of one `dispatch_due`, each to be made before the next; notes what has `arrived`."""
        for _ in range(MOST_ROUNDS):
            new = self._forward()
            arrived += new
            self._handlers.note(new)
            called = False
            while (turn := self._handlers.next()) is not None:
                yield turn
                called = True
            if not called:
                return
        raise AssertionError(
            f"handlers have sent what is due at once {MOST_ROUNDS} times in a row, last to {arrived[-1].destination!r}"
        )

    def _turns_for(self, span: timedelta, arrived: list[DelayedMessage]) -> Iterator[Turn]:
        """The calls of handlers of one `dispatch_for`."""
        if span < timedelta(0):
            raise InvalidMessageError(f"no time passes in {span}; to go back, use clock.advance")
        end = moved(self.clock.now(), span)
        yield from self._turns(arrived)
        while (moment := self._next_moment(end)) is not None:
            self.clock.set(moment)
            yield from self._turns(arrived)
        self.clock.set(max(end, self.clock.now()))  # a handler may have let more time pass

    def _forward(self) -> Sequence[DelayedMessage]:
        assert self._dispatcher is not None  # there is a transport
        self.prepare()
        before = len(self.transport.sent)
        if self.transport.unavailable() is None:
            self._dispatcher.dispatch_due()
        return self.transport.sent[before:]

    def _next_moment(self, end: datetime) -> datetime | None:
        """When the next attempt after the present is, up to `end`; None: there is none."""
        after = self.clock.now() + _NEXT_INSTANT
        messages = self.list(since=after, until=end + _NEXT_INSTANT, limit=1).messages
        return messages[0].next_attempt if messages else None


def _for(destination: str | None, messages: Sequence[DelayedMessage]) -> Sequence[DelayedMessage]:
    if destination is None:
        return messages
    wanted = parse_address(destination)
    return [message for message in messages if parse_address(message.destination) == wanted]
