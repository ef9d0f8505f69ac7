"""What the dispatcher's tests share: a transport that answers as told, small stores, patience."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, TypeVar

from delaystore.dispatcher import Dispatcher
from delaystore.message import DelayedMessage
from delaystore.settings import DelayedDeliverySettings, TransactionMode
from delaystore.stores.abc import DelayedMessageStore, StoreStatus
from delaystore.stores.memory import InMemoryDelayedMessageStore
from delaystore.testing import RecordingTransport
from delaystore.transports.abc import Outcome, OutcomeKind, ReceivedMessage, Transport

NOON = datetime(2027, 1, 1, 12, tzinfo=UTC)
REFUSED = Outcome(OutcomeKind.REFUSED, "the queue is full")
UNROUTABLE = Outcome(OutcomeKind.UNROUTABLE, "no such queue")
UNCONFIRMED = Outcome(OutcomeKind.UNCONFIRMED, "no answer in time")
PATIENCE = 30.0

Result = TypeVar("Result")


class ScriptedTransport(RecordingTransport):
    """Records batches and declarations as well; may be told to raise."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[list[str]] = []
        self.declarations: list[str] = []
        self.declare_error: Exception | None = None
        self.check_error: Callable[[DelayedMessage], Exception | None] = lambda message: None

    def send(
        self, messages: Sequence[DelayedMessage], transaction: DelayedMessageStore | None, timeout: float
    ) -> Sequence[Outcome]:
        self.batches.append([message.message_id for message in messages])
        return super().send(messages, transaction, timeout)

    def declare(self, queue: str) -> None:
        if self.declare_error is not None:
            raise self.declare_error
        self.declarations.append(queue)
        super().declare(queue)

    def check(self, message: DelayedMessage) -> None:
        error = self.check_error(message)
        if error is not None:
            raise error

    def bodies(self, queue: str) -> list[bytes]:
        """What has arrived in `queue`, taken out of it."""
        return [message.body for message in self.arrived(queue)]

    def arrived(self, queue: str) -> list[ReceivedMessage]:
        super().declare(queue)
        with self.receive(queue, 100_000) as messages:
            return list(messages)


def raising(error: Exception) -> Callable[[DelayedMessage], Outcome]:
    """An answer for `ScriptedTransport.outcomes`: a transport with a bug."""

    def answer(message: DelayedMessage) -> Outcome:
        raise error

    return answer


class CountingStore(InMemoryDelayedMessageStore):
    """An initialized store that counts calls, and fails when told to. It has no schedules: only passes are counted."""

    has_schedules = False

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.asked: Counter[str] = Counter()
        self.error: Exception | None = None
        self.initialize("sales", TransactionMode.RECEIVE_ONLY)

    @contextmanager
    def transaction(self) -> Iterator[DelayedMessageStore]:
        self._note("transaction")
        with super().transaction() as tx:
            yield tx

    def waiting_ids(self, message_ids: Sequence[str]) -> Collection[str]:
        self._note("waiting_ids")
        return super().waiting_ids(message_ids)

    def next(self) -> datetime | None:
        self._note("next")
        return super().next()

    def status(self) -> StoreStatus:
        self._note("status")
        return super().status()

    def _note(self, what: str) -> None:
        self.asked[what] += 1
        if self.error is not None:
            raise self.error


class FiveMethodStore(DelayedMessageStore):
    """What the contract asks for at least, with claims that last until the message is settled."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[str, DelayedMessage] = {}
        self._claimed: set[str] = set()

    def initialize(self, endpoint: str, mode: TransactionMode) -> None:
        pass

    def store(self, message: DelayedMessage) -> None:
        with self._lock:
            self._waiting[message.message_id] = message

    def fetch_next_due_timeout(self, at: datetime) -> DelayedMessage | None:
        with self._lock:
            free = [one for key, one in self._waiting.items() if key not in self._claimed and one.next_attempt <= at]
            if not free:
                return None
            first = min(free, key=lambda message: message.next_attempt)
            self._claimed.add(first.message_id)
            return first

    def remove(self, message: DelayedMessage) -> bool:
        with self._lock:
            self._claimed.discard(message.message_id)
            return self._waiting.pop(message.message_id, None) is not None

    def increment_failure_count(self, message: DelayedMessage, next_attempt: datetime | None = None) -> bool:
        with self._lock:
            self._claimed.discard(message.message_id)
            waiting = self._waiting[message.message_id]
            self._waiting[message.message_id] = DelayedMessage(
                message_id=waiting.message_id,
                destination=waiting.destination,
                due_time=waiting.due_time,
                body=waiting.body,
                failure_count=waiting.failure_count + 1,
                next_attempt=next_attempt,
            )
            return True

    def next(self) -> datetime | None:
        with self._lock:
            free = [one.next_attempt for key, one in self._waiting.items() if key not in self._claimed]
            return min(free, default=None)


def message(message_id: str, destination: str = "billing", due_time: datetime = NOON, **more: Any) -> DelayedMessage:
    more.setdefault("body", message_id.encode())
    return DelayedMessage(message_id=message_id, destination=destination, due_time=due_time, **more)


def settings(**changes: Any) -> DelayedDeliverySettings:
    """With room for four of the largest bodies in the first batch."""
    return DelayedDeliverySettings(**{"batch_bytes": 4 * DelayedDeliverySettings.max_body_bytes, **changes})


class Seconds:
    """A monotonic clock that a test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def waiting(store: InMemoryDelayedMessageStore, message_id: str) -> DelayedMessage:
    """The message of that id, which is in the store."""
    found = store.get(message_id)
    assert found is not None
    return found


def received(transport: Transport, queue: str, count: int) -> list[ReceivedMessage]:
    """Take `count` messages from `queue`."""
    found: list[ReceivedMessage] = []

    def take() -> bool:
        with transport.receive(queue, count - len(found), timeout=1) as some:
            found.extend(some)
        return len(found) >= count

    wait_until(take, f"{count} messages in {queue}")
    return found


def wait_until(
    condition: Callable[[], Result], what: str | Callable[[], object] = "", patience: float = 2 * PATIENCE
) -> Result:
    """Poll until `condition` holds; return its value, or fail after `patience` seconds.

    `what` is written into the failure; if it is callable, its value is.
    """
    deadline, pause = time.monotonic() + patience, 0.005
    while not (result := condition()):
        assert time.monotonic() < deadline, f"waited in vain for {(what() if callable(what) else what) or condition}"
        time.sleep(pause)
        pause = min(1.5 * pause, 0.05)
    return result


@contextmanager
def running(dispatcher: Dispatcher) -> Iterator[Dispatcher]:
    dispatcher.start()
    try:
        yield dispatcher
    finally:
        assert dispatcher.stop(PATIENCE)
