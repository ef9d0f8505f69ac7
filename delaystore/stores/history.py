"""The contract of stores with a history: an entry for each message that has left the store."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from delaystore.errors import ConfigurationError, InvalidMessageError
from delaystore.message import (
    DelayedMessage,
    FailedAttempt,
    KeyRule,
    Position,
    check_destination,
    check_key,
    check_message_id,
    utc,
)
from delaystore.stores import documents
from delaystore.stores.abc import REJECT
from delaystore.stores.records import AuditEntry, Change, Ending

FORGOTTEN_AT_ONCE: Final = 5_000
"""The most entries that one step of `forget_history` deletes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryEntry:
    """How one message left the store.

    A message that was sent again under its message_id after it had left has an entry for each time.

    Attributes:
        message_id: Its id.
        destination: Its destination.
        due_time: When it was due, without marks.
        ended: When it left the store, by the store's clock. If it was delivered: when the broker had confirmed it.
        ending: In which way it left.
        attempts: How often a dispatcher tried to forward it since it was stored, or rescheduled last, the last attempt
            included.
        key: Its key; None: it had none.
        load: The id of the load that stored it; None: no load did, or that load is forgotten.
        by: Who cancelled or replaced it, as in the audit trail; None: a dispatcher ended it, or it is not known.
        body_hash: The SHA-256 of its body, as 64 hexadecimal digits; None: its row held no body.
        failures: Why attempts failed, the oldest first, as far as the store had kept it. The last attempt of a FAILED
            message is not among them: the copy in the error queue has its reason.

    """

    message_id: str
    destination: str
    due_time: datetime
    ended: datetime
    ending: Ending
    attempts: int
    key: str | None = None
    load: str | None = None
    by: str | None = None
    body_hash: str | None = None
    failures: Sequence[FailedAttempt] = ()

    @property
    def late(self) -> timedelta | None:
        """How long after its due time it was delivered, 0 at least; None: it was not delivered."""
        return max(timedelta(0), self.ended - self.due_time) if self.ending is Ending.DELIVERED else None

    def as_dict(self) -> dict[str, Any]:
        """The same for JSON, with the ending as `outcome`: times in ISO 8601 (UTC), `late` in seconds."""
        return {
            "message_id": self.message_id,
            "destination": self.destination,
            "due_time": documents.instant(self.due_time),
            "ended": documents.instant(self.ended),
            "outcome": self.ending.value,
            "attempts": self.attempts,
            "late": documents.field(self.late),
            "key": documents.plain(self.key),
            "load": self.load,
            "by": self.by,
            "body_hash": self.body_hash,
            "failures": [documents.failure(each) for each in self.failures],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryFilter:
    """Which entries of the history are wanted; an attribute that is None excludes none.

    Attributes:
        message_id: Entries of this message_id.
        key: Entries of messages with this key.
        destination: Entries of messages for this destination.
        since: Entries of messages that left at or after this aware datetime.
        until: Entries of messages that left before this aware datetime.
        ending: Entries of messages that left in this way.

    Raises:
        InvalidMessageError: A value cannot be one of a message, a datetime is naive, or `until` is not after `since`.

    """

    message_id: str | None = None
    key: str | None = None
    destination: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    ending: Ending | None = None

    def __post_init__(self) -> None:
        if self.message_id is not None:
            check_message_id(self.message_id)
        if self.key is not None:
            check_key(self.key)
        if self.destination is not None:
            check_destination(self.destination)
        if self.ending is not None:
            object.__setattr__(self, "ending", _ending(self.ending))
        for name in ("since", "until"):
            given = getattr(self, name)
            if given is not None:
                object.__setattr__(self, name, utc(given, name))
        if self.since is not None and self.until is not None and self.since >= self.until:
            times = f"from {self.since.isoformat()} to {self.until.isoformat()}"
            raise InvalidMessageError(f"no message left the store {times}; the second time must be later")

    def matches(self, entry: HistoryEntry) -> bool:
        """Whether `entry` is wanted."""
        wanted = ("message_id", "key", "destination", "ending")
        return (
            all(getattr(self, name) in (None, getattr(entry, name)) for name in wanted)
            and (self.since is None or entry.ended >= self.since)
            and (self.until is None or entry.ended < self.until)
        )


def _ending(given: str) -> Ending:
    try:
        return Ending(given)
    except ValueError:
        raise InvalidMessageError(f"ending must be one of {', '.join(Ending)}, not {given!r}") from None


@dataclass(frozen=True, slots=True)
class HistoryPage:
    """One page of the history.

    Attributes:
        entries: The entries, the newest first.
        next_key: Behind which the next page begins: the time and the message_id of an entry; None: it is the last page.

    """

    entries: Sequence[HistoryEntry]
    next_key: Position | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryStatus:
    """Whether a store has a history, and how large it is.

    Attributes:
        kept: For how long entries are kept; None: no history is kept.
        since: From when on it has an entry for each message that has left; None: no history is kept.
        entries: About how many entries there are; None: the database does not say.
        size: The bytes of the entries and their indexes; None: the database does not say.

    """

    kept: timedelta | None = None
    since: datetime | None = None
    entries: int | None = None
    size: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageLife:
    """All that a store knows of one message_id.

    Attributes:
        message_id: The id.
        sent: When the id was made, where it tells that, as the ids do that delaystore makes; None: it does not.
        message: The message that waits; None: none does.
        changes: The changes of the message in the audit trail, the newest first.
        entries: Its entries in the history, the newest first.

    """

    message_id: str
    sent: datetime | None = None
    message: DelayedMessage | None = None
    changes: Sequence[AuditEntry] = ()
    entries: Sequence[HistoryEntry] = ()

    @property
    def is_known(self) -> bool:
        """Whether the store knows anything of it."""
        return bool(self.message or self.changes or self.entries)

    def as_dict(self) -> dict[str, Any]:
        """The same for JSON, without the headers and the body of a message that waits."""
        message = self.message
        failures = [] if message is None else [documents.failure(each) for each in message.failures]
        return {
            "message_id": self.message_id,
            "sent": documents.instant(self.sent),
            "waiting": None if message is None else {**documents.summary(message), "failures": failures},
            "changes": documents.field(self.changes),
            "history": [each.as_dict() for each in self.entries],
        }


def without_history(option: str) -> ConfigurationError:
    """The error for an option that needs a history, where none is kept."""
    return ConfigurationError(
        f"nothing was stored, because {option} needs a history, and this endpoint keeps none, or the database user may "
        f"not read it; start its dispatcher with a history, such as history='30d', or leave {option} out"
    )


class DeduplicatingStore(ABC):
    """A store, or a transaction of one, that can refuse messages that were delivered, by its history."""

    @abstractmethod
    def store_new(
        self, messages: Iterable[DelayedMessage], rule: KeyRule = REJECT, *, change: Change | None = None
    ) -> Mapping[str, str]:
        """As `store_many`, unless a message of one of the ids was delivered, or handed over to a native delay.

        If a dispatcher delivers a message of one of the ids meanwhile, this waits for it, and notices. A transaction of
        the caller that reads older rows, as under REPEATABLE READ, may not notice deliveries since its first statement.

        Args:
            messages: The messages; their ids are kept in memory.
            rule: The rule for those with a key.
            change: The audit entry to note for each message whose place another takes; None: none.

        Returns:
            By the id of each message: the id of the message that waits, which is another one where that was kept.

        Raises:
            MessageDeliveredError: Messages of some of the ids were delivered; nothing is stored.
            ConfigurationError: No history is kept.

        """


class StoreWithHistory(DeduplicatingStore):
    """A store that can keep an entry for each message that leaves it, in the transaction that removes the message.

    If the process dies at any point, a message waits, or it has an entry: never both, and never neither. `keep_history`
    and `history` raise StoreSetupError where the tables are of an earlier release.
    """

    @abstractmethod
    def keep_history(self, kept: timedelta | None) -> None:
        """Begin to keep a history, change for how long entries are kept, or end it.

        Other processes notice it within some seconds. A call that changes nothing costs one read.

        Args:
            kept: For how long entries are kept; None: from now on no more are made, and the present ones are kept as
                long as they were to be kept.

        """

    @property
    def makes_entries(self) -> bool:
        """Whether messages that this process removes get entries; False: its user may not read that a history is kept.

        The default is for stores that have no such rights.
        """
        return True

    @abstractmethod
    def history_status(self) -> HistoryStatus:
        """The state of the history. It is quick, however many entries there are."""

    @abstractmethod
    def history(self, wanted: HistoryFilter, *, after: Position | None = None, limit: int = 100) -> HistoryPage:
        """A page of the history, the newest entries first.

        With a message_id or a key it is quick. Otherwise it looks at a limited number of entries, so that a page may be
        short, or empty, although more entries match.

        Args:
            wanted: The filter.
            after: The `next_key` of the page before; None: from the newest entry.
            limit: The largest number of entries.

        Returns:
            The page. Its `next_key` is None only at the end.

        """

    @abstractmethod
    def forget_history(self, at_most: int = FORGOTTEN_AT_ONCE) -> int:
        """Delete entries that were kept long enough.

        Args:
            at_most: How many are deleted, so that a step is short. PostgreSQL drops whole partitions besides.

        Returns:
            How many were deleted; 0: there are no more.

        """
