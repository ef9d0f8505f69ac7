"""`TestDelivery` and `AsyncTestDelivery`: a delivery for tests, with a clock that tests set and handlers."""

import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from functools import partial
from inspect import isawaitable, iscoroutinefunction
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypedDict, Unpack

from typing_extensions import override

from delaystore.delivery import AsyncDelayedDelivery, DelayedDelivery
from delaystore.errors import ConfigurationError, InvalidMessageError
from delaystore.message import DelayedMessage, Position, are_same_time, utc
from delaystore.settings import DelayedDeliverySettings
from delaystore.stores import InMemoryDelayedMessageStore, ManagedDelayedMessageStore
from delaystore.stores.schedules import StoreWithSchedules
from delaystore.testing._fakes import RecordingTransport, SettableClock, moved, sum_of
from delaystore.text import Address, parse_address

if TYPE_CHECKING:
    from sqlalchemy import Engine

MOST_LISTED: Final = 20
"""Messages that a report lists, of each kind."""
MOST_SHOWN: Final = 80
"""Characters of a value that a report shows."""


class Absent(Enum):
    """Says that no JSON is expected, for which None is a value."""

    ABSENT = "absent"


ABSENT: Final = Absent.ABSENT


class Expected(TypedDict, total=False):
    """Expectations of a message, beside its destination and body; see `TestDelivery.assert_sent`."""

    json: Any
    delay: timedelta | float | None
    at: datetime | None
    headers: Mapping[str, Any] | None
    key: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """An expected message. None (of `json`: ABSENT) means any value. `now`: from when `delay` counts.

    `headers`: these at least.
    """

    now: datetime
    destination: str | None = None
    body: bytes | str | None = None
    json: Any = ABSENT
    delay: timedelta | float | None = None
    at: datetime | None = None
    headers: Mapping[str, Any] | None = None
    key: str | None = None

    def differences(self, message: DelayedMessage) -> Iterator[str]:
        """The differences of `message` from the expected one."""
        if self.destination is not None and parse_address(message.destination) != parse_address(self.destination):
            yield "destination"
        if self.body is not None and message.body != _bytes(self.body):
            yield "body"
        if self.json is not ABSENT and not _is_json(message.body, self.json):
            yield "body"
        if not all(are_same_time(due_time, message.due_time) for due_time in self._due_times()):
            yield "due time"
        if not (self.headers or {}).items() <= message.headers.items():
            yield "headers"
        if self.key is not None and message.key != self.key:
            yield "key"

    def is_met_by(self, message: DelayedMessage) -> bool:
        """Whether `message` is as expected."""
        return next(self.differences(message), None) is None

    def __str__(self) -> str:
        parts = [] if self.destination is None else [f"to {self.destination!r}"]
        parts += [] if self.body is None else [f"body {_short(_bytes(self.body))}"]
        parts += [] if self.json is ABSENT else [f"JSON {_short(self.json)}"]
        parts += [_due(due_time, self.now) for due_time in self._due_times()]
        parts += [f"headers {_short(dict(self.headers))}"] if self.headers else []
        parts += [] if self.key is None else [f"key {self.key!r}"]
        return ", ".join(parts) or "any"

    def _due_times(self) -> Iterator[datetime]:
        if self.delay is not None:
            yield moved(self.now, sum_of(self.delay))
        if self.at is not None:
            yield utc(self.at, "at")


def report(
    heading: str, expected: Expectation, waiting: Sequence[DelayedMessage], delivered: Sequence[DelayedMessage]
) -> str:
    """`heading`, and below it the messages, each with its differences."""
    lines = [heading]
    for name, messages in (("waiting", waiting), ("delivered", delivered)):
        lines.append(f"{name}:" if messages else f"{name}: nothing")
        lines += [f"  {_line(message, expected)}" for message in messages[:MOST_LISTED]]
        if len(messages) > MOST_LISTED:
            lines.append(f"  and {len(messages) - MOST_LISTED} more")
    return "\n".join(lines)


def _line(message: DelayedMessage, expected: Expectation) -> str:
    parts = [f"to {message.destination!r}", f"body {_short(message.body)}", _due(message.due_time, expected.now)]
    parts += [f"headers {_short(dict(message.headers))}"] if message.headers else []
    parts += [] if message.key is None else [f"key {message.key!r}"]
    parts += [f"failed {message.failure_count} times"] if message.failure_count else []
    different = ", ".join(dict.fromkeys(expected.differences(message)))
    return ", ".join(parts) + (f" [different: {different}]" if different else "")


def _due(due_time: datetime, now: datetime) -> str:
    gap = due_time - now
    said = f"in {gap}" if gap > timedelta(0) else f"{-gap} ago" if gap else "now"
    return f"due {due_time.astimezone(UTC).isoformat(sep=' ')} ({said})"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."


def _bytes(body: bytes | str) -> bytes:
    return body.encode() if isinstance(body, str) else body


def _is_json(body: bytes, expected: Any) -> bool:
    try:
        return bool(json.loads(body) == expected)
    except ValueError:
        return False


Handler = Callable[[DelayedMessage], Any]
Turn = Callable[[], Any]
"""A call of a handler."""


class DestinationHandlers:
    """One handler for each destination; what none is for is left alone."""

    def __init__(self) -> None:
        self._handlers: dict[Address, Handler] = {}
        self._pending: deque[DelayedMessage] = deque()

    def add(self, destination: str, handler: Handler) -> None:
        """Give `handler` the messages that arrive at `destination` from now on, in place of an earlier handler."""
        self._handlers[parse_address(destination)] = handler

    def note(self, messages: Iterable[DelayedMessage]) -> None:
        """Keep those of `messages`, which have just arrived, that a handler is for."""
        self._pending.extend(each for each in messages if parse_address(each.destination) in self._handlers)

    def next(self) -> Turn | None:
        """The next call that is to be made, in the order of the notes; None: there is none."""
        if not self._pending:
            return None
        message = self._pending.popleft()
        return partial(self._handlers[parse_address(message.destination)], message)


MOST_ROUNDS: Final = 100
"""How often handlers may send messages that are due at once, within one `dispatch_due`."""
_PAGE: Final = 1000
_NEXT_INSTANT: Final = timedelta.resolution


class TestDelivery(DelayedDelivery):
    """A DelayedDelivery whose time a test sets, and which forwards when the test says so, in the test's own thread.

    Store, passes, retries and error queue are the real ones; `transport` records messages and answers as configured.
    `start` and `with` start no dispatcher.

    Args:
        endpoint: As of DelayedDelivery.
        store: A store that goes by `clock`. None: one in memory.
        clock: The clock. None: a new one, which stands at noon of 2027-01-01 UTC.
        settings: None: the defaults.

    Raises:
        ConfigurationError: The store goes by another clock.

    Example:
        ```python
        def test_reminder() -> None:
            with TestDelivery() as delivery:
                delivery.send("reminders", b"pay me", delay=timedelta(days=3))
                delivery.assert_sent("reminders", b"pay me", delay=timedelta(days=3))
                delivery.dispatch_for(days=3)
                assert len(delivery.delivered("reminders")) == 1
        ```

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
            raise ConfigurationError(f"{store!r} uses another clock; make both with the same one, as in clock=clock")
        self._handlers = DestinationHandlers()

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
        """Handle the messages that arrive at a destination.

        Args:
            destination: A queue's name or an address.
            handler: Called with each message, in place of an earlier handler.

        Raises:
            ConfigurationError: The handler would have to be awaited.

        """
        if iscoroutinefunction(handler):
            raise ConfigurationError(f"{handler!r} is asynchronous; give a function, or use AsyncTestDelivery")
        self._handlers.add(destination, handler)

    def dispatch_due(self) -> Sequence[DelayedMessage]:
        """Forward the messages that are due by the clock, and call the handlers.

        Messages that handlers send, and that are due at once, arrive in the same call. In a pretended outage none
        arrive.

        Returns:
            The messages that arrived, in that order, with copies in the error queue.

        Raises:
            AssertionError: Handlers have sent messages that are due at once in 100 rounds.
            Exception: A handler raised it. All due messages have arrived then, and the next call calls the other
                handlers.

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
        """Let time pass as `clock.advance` would, but stop to forward whenever a message is due on the way.

        So handlers see the clock of the moment in which their message arrives.

        Args:
            span: A timedelta or seconds, to which the other arguments are added.
            days: Days.
            hours: Hours.
            minutes: Minutes.
            seconds: Seconds.

        Returns:
            As `dispatch_due`.

        Raises:
            InvalidMessageError: The sum is negative, or no length of time.
            AssertionError, Exception: As `dispatch_due`.

        """
        arrived: list[DelayedMessage] = []
        for call in self._turns_for(sum_of(span, days=days, hours=hours, minutes=minutes, seconds=seconds), arrived):
            call()
        return arrived

    def waiting(self, destination: str | None = None) -> Sequence[DelayedMessage]:
        """The waiting messages.

        Args:
            destination: Only messages for it; None: all.

        Returns:
            The messages, in the order in which they will be forwarded.

        """
        found: list[DelayedMessage] = []
        after: Position | None = None
        while True:
            page = self.list(after=after, limit=_PAGE)
            found += page.messages
            after = page.next_key
            if after is None:
                return _for(destination, found)

    def delivered(self, destination: str | None = None) -> Sequence[DelayedMessage]:
        """The messages that have arrived.

        Args:
            destination: Only messages that arrived at it; None: all.

        Returns:
            The messages, in the order of their arrival.

        """
        return _for(destination, self.transport.sent)

    def assert_sent(
        self, destination: str | None = None, body: bytes | str | None = None, **expected: Unpack[Expected]
    ) -> DelayedMessage:
        """Assert that a message like this waits or has arrived. Cancelled and rolled back messages do not count.

        Args:
            destination: Its destination. None: any.
            body: Its body; a str is meant in UTF-8. None: any.
            **expected: `json`: the body's value as JSON. `delay`: a timedelta or seconds from the clock's present until
                it is due. `at`: its due time. `headers`: these at least. `key`: its key.

        Returns:
            The first such message.

        Raises:
            AssertionError: There is none. The text lists all there are.

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
        """Assert that no message like this waits or has arrived.

        Args:
            destination: As in `assert_sent`.
            body: As in `assert_sent`.
            **expected: As in `assert_sent`. Without any argument every message counts.

        Raises:
            AssertionError: There is one. The text lists them.

        """
        __tracebackhide__ = True
        wanted = Expectation(now=self.clock.now(), destination=destination, body=body, **expected)
        waiting = [message for message in self.waiting() if wanted.is_met_by(message)]
        delivered = [message for message in self.delivered() if wanted.is_met_by(message)]
        if waiting or delivered:
            heading = f"{len(waiting) + len(delivered)} sent, where none was expected: {wanted}"
            raise AssertionError(report(heading, wanted, waiting, delivered))

    def _turns(self, arrived: list[DelayedMessage]) -> Iterator[Turn]:
        """The calls of handlers of one `dispatch_due`, each to be made before the next; notes the `arrived`
        messages.
        """
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
            f"handlers have sent messages due at once {MOST_ROUNDS} times in a row, last to {arrived[-1].destination!r}"
        )

    def _turns_for(self, span: timedelta, arrived: list[DelayedMessage]) -> Iterator[Turn]:
        """The calls of handlers of one `dispatch_for`."""
        if span < timedelta(0):
            raise InvalidMessageError(f"the time span {span} is negative; to go back, use clock.advance")
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
        else:
            self._dispatcher.make_occurrences()
        return self.transport.sent[before:]

    def _next_moment(self, end: datetime) -> datetime | None:
        """When the next attempt after the present is, up to `end`; None: there is none."""
        after = self.clock.now() + _NEXT_INSTANT
        messages = self.list(since=after, until=end + _NEXT_INSTANT, limit=1).messages
        moments = [message.next_attempt for message in messages]
        if isinstance(self._store, StoreWithSchedules) and self._store.has_schedules:
            with self._opened("asking for the next schedule") as rows:
                look_at = rows.next_look()
            moments += [] if look_at is None else [look_at]
        return min((max(each, after) for each in moments if each <= end), default=None)


def _for(destination: str | None, messages: Sequence[DelayedMessage]) -> Sequence[DelayedMessage]:
    if destination is None:
        return messages
    wanted = parse_address(destination)
    return [message for message in messages if parse_address(message.destination) == wanted]


class AsyncTestDelivery(AsyncDelayedDelivery):
    """An AsyncDelayedDelivery with the methods of TestDelivery, and a store in memory. Belongs to one event loop.

    `dispatch_due` and `dispatch_for` are awaited, and so are asynchronous handlers; the other methods return at once.

    Args:
        endpoint: As of DelayedDelivery.
        clock: As of TestDelivery.
        settings: As of TestDelivery.

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
        """Have a handler called for each message that arrives at a destination.

        Args:
            destination: The destination.
            handler: Called with the message; an awaitable result is awaited.

        """
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
