"""Messages on their way from the ingress queue into the store, and messages that are retried."""

import time
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from delaystore.ingress.reading.incoming import IncomingMessage, SagaCleared
from delaystore.ingress.settings import IngressSettings
from delaystore.message import DelayedMessage
from delaystore.transports.abc import PendingConfirm
from delaystore.transports.rabbitmq.raw import RawProperties


class IngestResult(StrEnum):
    """The result of a message, which can then be acknowledged."""

    STORED = "stored"
    DUPLICATE = "duplicate"
    """It is in the store already."""
    DISCARDED = "discarded"
    """Another message with its id is kept."""
    REPEATED = "repeated"
    """A message with its id was delivered already."""
    PASSTHROUGH = "passthrough"
    """It was forwarded at once."""
    REJECTED = "rejected"
    """A copy is in the rejected queue."""
    APPLIED = "applied"
    """It said that others are to be cancelled, and they are."""


@dataclass(slots=True)
class IngestEntry:
    """A message on its way. `at`: when it came, by time.monotonic.

    `meaning`: its content, once it is read. `objection`: why it cannot be stored; None: it can. `result`: None: it is
    still open. `failure`: the error with which the answering store fails on it, since `failing_since` (by
    time.monotonic);
    None: it does not. `is_claimed`: the failure is that a dispatcher has the message of its id, or that an earlier
    message of its id is retried first; it is tried until that one is settled. `given_up`: it has no room any more to be
    tried again. `copy_late`: whether its copy, which the rejected queue has not confirmed in time, arrives after all;
    None: none is on its way.
    """

    incoming: IncomingMessage
    at: float
    meaning: DelayedMessage | SagaCleared | None = None
    objection: str | None = None
    result: IngestResult | None = None
    failure: str | None = None
    failing_since: float = 0.0
    is_claimed: bool = False
    given_up: bool = False
    copy_late: PendingConfirm | None = None

    @property
    def message(self) -> DelayedMessage:
        """The message to store."""
        assert isinstance(self.meaning, DelayedMessage)
        return self.meaning

    @property
    def message_id(self) -> str | None:
        """The id of the message to store; None: the entry is not read yet, or is no message."""
        return self.meaning.message_id if isinstance(self.meaning, DelayedMessage) else None

    @property
    def size(self) -> int:
        """Bytes of its body and of its properties."""
        return len(self.incoming.body) + len(self.incoming.properties.encoded)

    def emptied(self) -> "IngestEntry":
        """The same without a body and without properties: the message is in its queue."""
        return IngestEntry(self.incoming._replace(body=b"", properties=RawProperties.of({})), self.at)


def size_of(entries: Iterable[IngestEntry]) -> int:
    """Bytes of bodies and properties."""
    return sum([entry.size for entry in entries])  # a list: one of these is computed for each batch


_TRY_EVERY: Final = 5.0
"""Seconds between two attempts."""
_LONGEST: Final = 1200.0
"""Seconds after which a message goes back to its queue, and comes again. Where one stays unacknowledged for longer
than consumer_timeout, by default half an hour, RabbitMQ closes the channel (or cancels the consumer), and delivers the
messages that are being stored a second time."""


class UnacknowledgedEntries:
    """Unacknowledged messages of the ingress queue that are retried every few seconds.

    There are three kinds:

    1. Failing: the store answers, but cannot store the message.
    2. Rejected: the message cannot be accepted, and the rejected queue does not take it.
    3. Claimed: a dispatcher has claimed the message of the same id, and has not settled it.

    A message that arrives later with the id of a failing or claimed one stays behind it, so that messages of one id are
    stored in the order in which they came.

    Together they may have half of the prefetch and half of the memory, so that other messages still arrive. Beyond that
    failing messages are given up, the oldest first, and are then rejected, too. Rejected messages then keep only their
    delivery tags in memory; they still fill the prefetch, and go back to their queue once the rejected queue takes
    messages again. Claimed messages stay in memory until the dispatcher settles the message of their id.
    """

    def __init__(self, settings: IngressSettings) -> None:
        self._settings = settings
        self._entries: list[IngestEntry] = []
        self._let_go: list[IngestEntry] = []
        """Entries that are in their queue only: bodies and properties are empty here."""
        self._tried_at = 0.0
        self._hurries = False
        """Whether some were given up since the last attempt."""
        self._trouble: str | None = None

    def __len__(self) -> int:
        return len(self._entries) + len(self._let_go)

    @property
    def ids(self) -> Collection[str]:
        """Ids of messages that are to be stored before others that arrive with these ids."""
        return {entry.message_id for entry in self._entries if entry.message_id is not None and entry.objection is None}

    @property
    def held_bytes(self) -> int:
        """Bytes of memory that they take from others; a single one may have more, which does not count."""
        return min(size_of(self._entries), self._most_bytes)

    @property
    def trouble(self) -> str | None:
        """Why entries are unacknowledged; None: none are."""
        if not len(self):
            return None
        return (
            f"{self._trouble}; they are all that may be prefetched: nothing else comes in"
            if self._fill
            else self._trouble
        )

    def add(self, entries: Sequence[IngestEntry], trouble: str) -> None:
        """Note the messages that were tried just now and stay unacknowledged, and why."""
        if not self._entries:  # otherwise those that keep coming would put it off for ever
            self._tried_at = time.monotonic()
        self._entries += entries
        self._trouble = trouble
        self._give_up_most()
        self._let_most_go()

    def to_try(self) -> list[IngestEntry]:
        """Return the entries that are to be tried again now, all or none, and forget them."""
        if not self._entries:
            return []
        if not self._hurries and time.monotonic() - self._tried_at < _TRY_EVERY:
            return []
        self._hurries = False
        entries, self._entries = self._entries, []
        last = [entry for entry in entries if _go_together(entry, entries[0])]
        return [entry for entry in entries if not _go_together(entry, entries[0])] + last  # others come first each time

    def to_give_back(self) -> list[int]:
        """Return the tags of entries that were dropped from memory, and forget them; RabbitMQ redelivers them."""
        let_go, self._let_go = self._let_go, []
        return [entry.incoming.tag for entry in let_go]

    def overdue(self) -> list[int]:
        """Return the tags of entries that were unacknowledged for too long, and forget them.

        Entries behind them go back with them: otherwise RabbitMQ would redeliver the earlier ones after the later ones.
        """
        if not len(self):
            return []
        before = time.monotonic() - _LONGEST
        old = [entry for entry in (*self._entries, *self._let_go) if entry.at < before]
        if not old:
            return []
        ids = {entry.message_id for entry in old} - {None}
        overdue = [*old, *(entry for entry in self._entries if entry.at >= before and entry.message_id in ids)]
        self._entries = [entry for entry in self._entries if entry.at >= before and entry.message_id not in ids]
        self._let_go = [entry for entry in self._let_go if entry.at >= before]
        return [entry.incoming.tag for entry in overdue]

    @property
    def _most_bytes(self) -> int:
        return self._settings.memory_bytes // 2

    @property
    def _fill(self) -> bool:
        """Whether they are as many of one queue as the broker gives."""
        if len(self) < self._settings.prefetch:
            return False
        of_queues = Counter(entry.incoming.queue for entry in (*self._entries, *self._let_go))
        return max(of_queues.values()) >= self._settings.prefetch

    def _give_up_most(self) -> None:
        count, size = len(self), size_of(self._entries)
        failing = [
            entry for entry in self._entries if entry.objection is None and not entry.given_up and not entry.is_claimed
        ]
        for entry in sorted(failing, key=lambda entry: entry.failing_since):
            if count <= self._settings.prefetch // 2 and size <= self._most_bytes:
                return
            entry.given_up = self._hurries = True
            count, size = count - 1, size - entry.size

    def _let_most_go(self) -> None:
        size = size_of(self._entries)
        kept: list[IngestEntry] = []
        for entry in self._entries:
            if size > self._most_bytes and entry.objection is not None and (kept or entry is not self._entries[-1]):
                size -= entry.size
                self._let_go.append(entry.emptied())
            else:
                kept.append(entry)
        self._entries = kept


def _go_together(entry: IngestEntry, other: IngestEntry) -> bool:
    """Whether these are one, or have the same id."""
    return entry is other or (entry.message_id is not None and entry.message_id == other.message_id)
