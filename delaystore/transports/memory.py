"""A transport in this process's memory: for tests and demos."""

import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Condition, Lock
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

from delaystore.errors import ConfigurationError, TransportSetupError, UnsupportedMessageError
from delaystore.message import DelayedMessage
from delaystore.stores.abc import DelayedMessageStore
from delaystore.transports.abc import DELIVERED, Outcome, OutcomeKind, ReceivedMessage, Transport

_QUEUES: Final = "/queues/"


class _Queue:
    """Messages that wait, and how many a `receive` block has in hand."""

    def __init__(self) -> None:
        self.messages: deque[ReceivedMessage] = deque()
        self.taken = 0

    def __len__(self) -> int:
        return len(self.messages) + self.taken


class InMemoryTransport(Transport):
    """Queues in this process's memory: they are lost with it.

    `auto_declare`: create a queue when something is sent to it; False: a queue that was not declared is unroutable.
    `max_length`: a queue with so many messages refuses more; None: it never does.

    What a `receive` block has taken still counts towards `max_length` until the block ends.
    """

    def __init__(self, *, auto_declare: bool = False, max_length: int | None = None) -> None:
        if max_length is not None and (type(max_length) is not int or max_length < 1):
            raise ConfigurationError(f"max_length must be a whole number from 1, or None, not {max_length!r}")
        self._auto_declare = auto_declare
        self._max_length = max_length
        self._changed = Condition()
        self._queues: dict[str, _Queue] = {}

    def send(
        self,
        messages: Sequence[DelayedMessage],
        transaction: DelayedMessageStore | None,  # noqa: ARG002 - it shares none
        timeout: float,  # noqa: ARG002 - nothing here takes time
    ) -> Sequence[Outcome]:
        """Put each into its queue, visible at once."""
        with self._changed:
            outcomes = [self._put(message) for message in messages]
            self._changed.notify_all()
        return outcomes

    def declare(self, queue: str) -> None:
        """Create the queue if it does not exist."""
        name = _queue_of(queue)
        if name is None:
            raise TransportSetupError(f"{queue!r} is no queue; use a queue name or /queues/NAME")
        with self._changed:
            self._queues.setdefault(name, _Queue())

    @contextmanager
    def receive(self, queue: str, limit: int = 1, timeout: float = 0) -> Iterator[Sequence[ReceivedMessage]]:
        """The oldest messages; TransportSetupError for a queue that does not exist."""
        source = self._existing(queue)
        taken = self._take(source, limit, time.monotonic() + timeout)
        try:
            yield taken
        except BaseException:
            self._settle(source, len(taken), returned=taken)
            raise
        self._settle(source, len(taken), returned=[])

    def check(self, message: DelayedMessage) -> None:
        """Refuse an exchange's address: there are only queues here."""
        if _queue_of(message.destination) is None:
            raise UnsupportedMessageError(
                f"the destination {message.destination!r} is no queue; the in-memory transport takes a queue name"
                " or /queues/NAME"
            )

    def _put(self, message: DelayedMessage) -> Outcome:
        name = _queue_of(message.destination)
        if name is not None and self._auto_declare:
            self._queues.setdefault(name, _Queue())
        if name is None or name not in self._queues:
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

    def _existing(self, queue: str) -> _Queue:
        name = _queue_of(queue)
        with self._changed:
            if name is None or name not in self._queues:
                raise TransportSetupError(f"there is no queue {queue!r}; declare it first")
            return self._queues[name]

    def _take(self, source: _Queue, limit: int, deadline: float) -> list[ReceivedMessage]:
        with self._changed:
            while not source.messages and (remaining := deadline - time.monotonic()) > 0:
                self._changed.wait(remaining)
            taken = [source.messages.popleft() for _ in range(min(limit, len(source.messages)))]
            source.taken += len(taken)
        return taken

    def _settle(self, source: _Queue, count: int, returned: Sequence[ReceivedMessage]) -> None:
        with self._changed:
            source.messages.extendleft(reversed(returned))
            source.taken -= count
            self._changed.notify_all()


def _queue_of(destination: str) -> str | None:
    """The queue that a name or `/queues/NAME` (percent-encoded) means; None for any other address."""
    if not destination.startswith("/"):
        return destination
    if not destination.startswith(_QUEUES):
        return None
    try:
        return unquote(destination.removeprefix(_QUEUES), errors="strict")
    except UnicodeDecodeError:
        return None


_named: Final[dict[str, InMemoryTransport]] = {}
_lock: Final = Lock()


def open_memory_transport(url: str) -> InMemoryTransport:
    """`memory://` opens a transport of its own; `memory://NAME` the one this process has by that name.

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
