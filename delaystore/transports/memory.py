"""A transport in this process's memory: for tests and demos."""

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import count
from threading import Condition, Lock
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from typing_extensions import override

from delaystore.errors import ConfigurationError, TransportSetupError, UnsupportedMessageError
from delaystore.message import DelayedMessage
from delaystore.stores.abc import DelayedMessageStore
from delaystore.text import named_queue, queue_of
from delaystore.transports.abc import (
    DELIVERED,
    OpenQueue,
    Outcome,
    OutcomeKind,
    ReceivedMessage,
    TakenMessage,
    Transport,
)


class _MemoryQueue:
    """Messages in a queue, and how many `receive` blocks have taken."""

    def __init__(self) -> None:
        self.messages: deque[ReceivedMessage] = deque()
        self.taken = 0

    def __len__(self) -> int:
        return len(self.messages) + self.taken


class InMemoryTransport(Transport):
    """Queues in this process's memory: they are lost with it.

    Args:
        auto_declare: Create a queue when something is sent to it; False: a queue that was not declared is unroutable.
        max_length: A queue with this number of messages refuses more; None: it never does. Messages that a `receive`
            block has taken count until the block ends.

    Raises:
        ConfigurationError: `max_length` is not a whole number from 1.

    Example:
        ```python
        store, transport = InMemoryDelayedMessageStore(), InMemoryTransport(auto_declare=True)
        with DelayedDelivery("sales", store, transport) as delivery:
            delivery.send("billing", b"{}", delay=1)
        ```

    """

    def __init__(self, *, auto_declare: bool = False, max_length: int | None = None) -> None:
        if max_length is not None and (type(max_length) is not int or max_length < 1):
            raise ConfigurationError(f"max_length must be a whole number from 1, or None, not {max_length!r}")
        self._auto_declare = auto_declare
        self._max_length = max_length
        self._changed = Condition()
        self._queues: dict[str, _MemoryQueue] = {}

    @override
    def send(
        self,
        messages: Sequence[DelayedMessage],
        transaction: DelayedMessageStore | None,
        timeout: float,
    ) -> Sequence[Outcome]:
        with self._changed:
            outcomes = [self._put(message) for message in messages]
            self._changed.notify_all()
        return outcomes

    @override
    def declare(self, queue: str) -> None:
        name = named_queue(queue)
        with self._changed:
            self._queues.setdefault(name, _MemoryQueue())

    @override
    @contextmanager
    def receive(self, queue: str, limit: int = 1, timeout: float = 0) -> Iterator[Sequence[ReceivedMessage]]:
        """The oldest messages; raises TransportSetupError for a queue that does not exist."""
        source = self._existing(queue)
        taken = self._take(source, limit, time.monotonic() + timeout)
        try:
            yield taken
        except BaseException:
            self._settle(source, len(taken), returned=taken)
            raise
        self._settle(source, len(taken), returned=[])

    @override
    @contextmanager
    def open_queue(self, queue: str) -> Iterator[OpenQueue]:
        """Take messages of `queue`; raises TransportSetupError for one that does not exist."""
        source = self._existing(queue)
        opened = _OpenMemoryQueue(partial(self._take, source, deadline=0), partial(self._settle, source, returned=[]))
        try:
            yield opened
        finally:
            self._settle(source, len(opened.taken), returned=list(opened.taken.values()))

    @override
    def depth(self, queue: str) -> int | None:
        with self._changed:
            found = self._queues.get(named_queue(queue))
            return None if found is None else len(found.messages)

    @override
    def reaches(self, destination: str) -> bool | None:
        try:
            name = queue_of(destination)
        except UnsupportedMessageError:
            return False
        with self._changed:
            return self._auto_declare or name in self._queues

    @override
    def check(self, message: DelayedMessage) -> None:
        """Refuse an exchange's address: there are only queues here."""
        queue_of(message.destination)

    def _put(self, message: DelayedMessage) -> Outcome:
        try:
            name = queue_of(message.destination)
        except UnsupportedMessageError as error:
            return Outcome(OutcomeKind.UNROUTABLE, str(error))
        if self._auto_declare:
            self._queues.setdefault(name, _MemoryQueue())
        if name not in self._queues:
            return Outcome(OutcomeKind.UNROUTABLE, f"there is no queue {message.destination!r}; declare it first")
        queue = self._queues[name]
        if self._max_length is not None and len(queue) >= self._max_length:
            return Outcome(OutcomeKind.REFUSED, f"the queue {name!r} is full with {self._max_length} messages")
        queue.messages.append(
            ReceivedMessage(
                message_id=message.message_id,
                body=message.body,
                headers=message.headers,
                properties=message.properties,
            )
        )
        return DELIVERED

    def _existing(self, queue: str) -> _MemoryQueue:
        name = named_queue(queue)
        with self._changed:
            if name not in self._queues:
                raise TransportSetupError(f"there is no queue {queue!r}; declare it first")
            return self._queues[name]

    def _take(self, source: _MemoryQueue, limit: int, deadline: float) -> list[ReceivedMessage]:
        with self._changed:
            while not source.messages and (remaining := deadline - time.monotonic()) > 0:
                self._changed.wait(remaining)
            taken = [source.messages.popleft() for _ in range(min(limit, len(source.messages)))]
            source.taken += len(taken)
        return taken

    def _settle(self, source: _MemoryQueue, count: int, returned: Sequence[ReceivedMessage]) -> None:
        with self._changed:
            source.messages.extendleft(reversed(returned))
            source.taken -= count
            self._changed.notify_all()


class _OpenMemoryQueue(OpenQueue):
    """`taken`: messages that were taken and are not removed, by tag, in their order."""

    def __init__(self, take: Callable[[int], Sequence[ReceivedMessage]], forget: Callable[[int], None]) -> None:
        self.taken: dict[int, ReceivedMessage] = {}
        self._take = take
        self._forget = forget
        self._tags = count()

    @override
    def take(self, limit: int) -> Sequence[TakenMessage]:
        taken = [TakenMessage(message=message, tag=next(self._tags)) for message in self._take(limit)]
        self.taken.update({one.tag: one.message for one in taken})
        return taken

    @override
    def remove(self, taken: Sequence[TakenMessage]) -> None:
        for one in taken:
            del self.taken[one.tag]
        self._forget(len(taken))


_named: Final[dict[str, InMemoryTransport]] = {}
_lock: Final = Lock()


def open_memory_transport(url: str) -> InMemoryTransport:
    """`memory://` opens a transport of its own; `memory://NAME` this process's transport of that name.

    `?auto_declare=true` creates queues when something is sent to them; for a name, the first URL decides.
    Raises ConfigurationError for anything else in the URL.
    """
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    auto_declare = options.pop("auto_declare", "false")
    if parts.path.strip("/") or parts.fragment or options or auto_declare not in ("true", "false"):
        raise ConfigurationError(
            "an in-memory transport's URL has a name and auto_declare alone; use memory://NAME?auto_declare=true"
        )
    transport = InMemoryTransport(auto_declare=auto_declare == "true")
    if not parts.netloc:
        return transport
    with _lock:
        return _named.setdefault(parts.netloc, transport)
