"""Parts for tests: a settable clock, a recording transport, and a transaction without a database."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from threading import Condition, Lock
from types import TracebackType
from typing import Final, Self

from typing_extensions import override

from delaystore.errors import InvalidMessageError, TransportSetupError
from delaystore.message import DelayedMessage, utc
from delaystore.stores.abc import DelayedMessageStore
from delaystore.text import named_queue
from delaystore.transports.abc import DELIVERED, Outcome, OutcomeKind, ReceivedMessage, Transport

_START: Final = datetime(2027, 1, 1, 12, tzinfo=UTC)


class SettableClock:
    """A `Clock` for tests. Threads may share it.

    Args:
        now: Where it starts; aware.

    Example:
        ```python
        clock = SettableClock()
        store = InMemoryDelayedMessageStore(clock)
        clock.advance(days=3)
        ```

    Raises:
        InvalidMessageError: `now` is naive.

    """

    def __init__(self, now: datetime = _START) -> None:
        self._lock = Lock()
        self._now = utc(now, "now")

    def __repr__(self) -> str:
        return f"SettableClock({self.now().isoformat()})"

    def now(self) -> datetime:
        """The instant it was set to, aware, in UTC."""
        with self._lock:
            return self._now

    def advance(
        self,
        span: timedelta | float = 0,
        *,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
    ) -> datetime:
        """Move on; back, if the sum of the arguments is negative.

        Args:
            span: A timedelta or seconds.
            days: Days.
            hours: Hours.
            minutes: Minutes.
            seconds: Seconds.

        Returns:
            The new instant.

        Raises:
            InvalidMessageError: The sum is no length of time, or leads too far.

        """
        span = sum_of(span, days=days, hours=hours, minutes=minutes, seconds=seconds)
        with self._lock:
            self._now = moved(self._now, span)
            return self._now

    def set(self, now: datetime) -> None:
        """Set the clock, forwards or back.

        Args:
            now: The new instant, an aware datetime.

        Raises:
            InvalidMessageError: It has no time zone, or is out of range.

        """
        now = utc(now, "now")
        with self._lock:
            self._now = now


def sum_of(
    span: timedelta | float, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0
) -> timedelta:
    """`span`, a timedelta or seconds, and the named parts, together; raises InvalidMessageError for a value that is
    no length.
    """
    try:
        span = span if isinstance(span, timedelta) else timedelta(seconds=span)
        return span + timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
    except (TypeError, ValueError, OverflowError) as error:  # also NaN and infinity
        raise InvalidMessageError(f"time cannot pass by that much: {error}") from None


def moved(now: datetime, span: timedelta) -> datetime:
    """The instant `span` after `now`; raises InvalidMessageError where there is none."""
    try:
        return utc(now + span, "now")
    except OverflowError:
        raise InvalidMessageError(f"the clock cannot go from {now.isoformat()} by {span}") from None


ScriptedAnswer = Outcome | Callable[[DelayedMessage], Outcome]


class RecordingTransport(Transport):
    """Delivers messages to all destinations except those in `outcomes`, and keeps a record.

    Args:
        outcomes: By destination, an Outcome or a function of the message that returns one; the attribute may be changed
            at any time. UNAVAILABLE pretends that the destination is unavailable, though the broker is there.
        unavailable_reason: Why nothing can be sent, in a pretended outage. None: messages can be sent.

    Example:
        ```python
        transport = RecordingTransport({"billing": Outcome(OutcomeKind.REFUSED, "it is full")})
        delivery = DelayedDelivery("sales", InMemoryDelayedMessageStore(), transport)
        delivery.send("shipping", b"{}", delay=0)
        delivery.start()
        assert transport.wait_for_sent(1)[0].destination == "shipping"
        ```

    """

    def __init__(
        self, outcomes: Mapping[str, ScriptedAnswer] | None = None, *, unavailable_reason: str | None = None
    ) -> None:
        self.outcomes: dict[str, ScriptedAnswer] = dict(outcomes or {})
        self.unavailable_reason = unavailable_reason
        self._changed = Condition()
        self._attempts: list[tuple[DelayedMessage, Outcome]] = []
        self._queues: dict[str, list[ReceivedMessage]] = {}

    @property
    def attempts(self) -> Sequence[tuple[DelayedMessage, Outcome]]:
        """Everything it was given to send, with the outcome, in that order."""
        with self._changed:
            return list(self._attempts)

    @property
    def sent(self) -> Sequence[DelayedMessage]:
        """The messages that were delivered, in that order."""
        return [message for message, outcome in self.attempts if outcome.kind is OutcomeKind.DELIVERED]

    @property
    def declared(self) -> frozenset[str]:
        """The queues that were declared."""
        with self._changed:
            return frozenset(self._queues)

    def wait_for_sent(self, count: int, timeout: float = 30) -> Sequence[DelayedMessage]:
        """Wait until messages are sent.

        Args:
            count: Number of messages at least.
            timeout: Seconds to wait.

        Returns:
            As `sent`.

        Raises:
            TimeoutError: Fewer were sent in that time.

        """
        with self._changed:
            self._changed.wait_for(lambda: len(self.sent) >= count, timeout)
            sent = self.sent
        if len(sent) < count:
            raise TimeoutError(f"{len(sent)} messages were sent within {timeout:g} s, not {count}")
        return sent

    @override
    def send(
        self,
        messages: Sequence[DelayedMessage],
        transaction: DelayedMessageStore | None,
        timeout: float,
    ) -> Sequence[Outcome]:
        """Record each message with its outcome by `outcomes`; in an outage, UNCONFIRMED for all."""
        outcomes = [self._outcome_of(message) for message in messages]
        with self._changed:
            for message, outcome in zip(messages, outcomes, strict=True):
                self._attempts.append((message, outcome))
                if outcome.kind is OutcomeKind.DELIVERED:
                    self._queues.setdefault(message.destination, []).append(_received(message))
            self._changed.notify_all()
        return outcomes

    @override
    def declare(self, queue: str) -> None:
        """Note `queue` in `declared`; other queues can be sent to as well."""
        named_queue(queue)
        with self._changed:
            self._queues.setdefault(queue, [])

    @override
    @contextmanager
    def receive(self, queue: str, limit: int = 1, timeout: float = 0) -> Iterator[Sequence[ReceivedMessage]]:
        """Take delivered messages; raises TransportSetupError for a queue neither declared nor delivered to."""
        with self._changed:
            if queue not in self._queues:
                raise TransportSetupError(f"there is no queue {queue!r}; declare it first")
            waiting = self._queues[queue]
            self._changed.wait_for(lambda: waiting, timeout)
            taken = waiting[:limit]
            del waiting[:limit]
        try:
            yield taken
        except BaseException:
            with self._changed:
                waiting[:0] = taken
                self._changed.notify_all()
            raise

    @override
    def unavailable(self) -> str | None:
        return self.unavailable_reason

    def _outcome_of(self, message: DelayedMessage) -> Outcome:
        if self.unavailable_reason is not None:
            return Outcome(OutcomeKind.UNCONFIRMED, self.unavailable_reason)
        answer = self.outcomes.get(message.destination, DELIVERED)
        return answer if isinstance(answer, Outcome) else answer(message)


def _received(message: DelayedMessage) -> ReceivedMessage:
    return ReceivedMessage(
        message_id=message.message_id, body=message.body, headers=message.headers, properties=message.properties
    )


class FakeTransaction:
    """Stands in for the Session or connection that code under test gives to `enlist`, where the store is in memory.

    `commit` and `rollback` end the transaction that is open, and begin the next. A `with` block commits at its end, and
    rolls back on an error. It has no savepoints. Derive from it to add other methods of a Session that your code uses.
    """

    def __init__(self) -> None:
        self._on_commit: list[Callable[[], object]] = []
        self._on_rollback: list[Callable[[], object]] = []

    def on_commit(self, action: Callable[[], object]) -> None:
        """Have a function called after the commit of the transaction that is open; a rollback forgets it.

        Args:
            action: The function.

        """
        self._on_commit.append(action)

    def on_rollback(self, action: Callable[[], object]) -> None:
        """Have a function called after the rollback of the transaction that is open; a commit forgets it.

        Args:
            action: The function.

        """
        self._on_rollback.append(action)

    def commit(self) -> None:
        """Let enlisted changes take effect, and call the actions in their order; raises the error of one of them."""
        self._end(self._on_commit)

    def rollback(self) -> None:
        """Undo enlisted changes, and call the actions in their order; raises the error of one of them."""
        self._end(self._on_rollback)

    def close(self) -> None:
        """Roll back an open transaction."""
        self.rollback()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            self.commit()
        else:
            self.rollback()

    def _end(self, actions: list[Callable[[], object]]) -> None:
        self._on_commit, self._on_rollback = [], []
        for action in actions:
            action()


class AsyncFakeTransaction:
    """A FakeTransaction whose `commit`, `rollback` and `close` are awaited, for an AsyncSession or AsyncConnection."""

    def __init__(self) -> None:
        self.sync_session = FakeTransaction()
        """The transaction to enlist in, as in an AsyncSession."""

    def on_commit(self, action: Callable[[], object]) -> None:
        """As `FakeTransaction.on_commit`."""
        self.sync_session.on_commit(action)

    def on_rollback(self, action: Callable[[], object]) -> None:
        """As `FakeTransaction.on_rollback`."""
        self.sync_session.on_rollback(action)

    async def commit(self) -> None:
        """As `FakeTransaction.commit`."""
        self.sync_session.commit()

    async def rollback(self) -> None:
        """As `FakeTransaction.rollback`."""
        self.sync_session.rollback()

    async def close(self) -> None:
        """As `FakeTransaction.close`."""
        self.sync_session.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.sync_session.__exit__(kind, error, traceback)
