"""The contract of stores that keep recurring schedules, and the records that they keep.

A schedule makes ordinary messages, its occurrences. A store keeps the rows of schedules and locks them; it knows
nothing of cron and of time zones. `delaystore.schedules` decides which occurrences a row makes.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Final, Protocol, Self

from delaystore.errors import ConfigurationError
from delaystore.message import DelayedMessage
from delaystore.stores.operable import OperableDelayedMessageStore
from delaystore.stores.records import AuditEntry

OCCURRENCES: Final = "schedule/"
"""The beginning of the ids of occurrences."""
_TIME: Final = "%Y-%m-%dT%H:%M:%SZ"
_TIME_LENGTH: Final = 20


def occurrence_id(name: str, nominal: datetime) -> str:
    """The message_id of the occurrence of a schedule at a nominal time: `schedule/NAME/UTC-TIME`."""
    return f"{OCCURRENCES}{name}/{nominal.astimezone(UTC).strftime(_TIME)}"


def nominal_time(message_id: str, name: str) -> datetime | None:
    """The nominal time of an occurrence of the schedule; None: the id is not of one."""
    prefix = f"{OCCURRENCES}{name}/"
    if not message_id.startswith(prefix) or len(message_id) != len(prefix) + _TIME_LENGTH:
        return None
    try:
        return datetime.strptime(message_id[len(prefix) :], _TIME).replace(tzinfo=UTC)
    except ValueError:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleProgress:
    """The occurrences that a schedule has made, and the numbers of others.

    Attributes:
        last: The nominal time of the last occurrence that was due when the row was written; None: none was.
        ahead: The nominal times of occurrences that were made and not due yet then, in their order.
        made: Occurrences that were made, without backfilled and triggered ones.
        missed: Occurrences that were not made because no dispatcher ran at their time.
        overlapped: Occurrences that were not made because an earlier one was still waiting.
        skipped: Occurrences that a user has skipped.
        remaining: How many occurrences are still to be made; None: there is no limit.
        skips: Nominal times of future occurrences that are not to be made, in their order.

    """

    last: datetime | None = None
    ahead: Sequence[datetime] = ()
    made: int = 0
    missed: int = 0
    overlapped: int = 0
    skipped: int = 0
    remaining: int | None = None
    skips: Sequence[datetime] = ()

    def text(self) -> str:
        """As a row holds it: JSON."""
        numbers = ("made", "missed", "overlapped", "skipped", "remaining")
        return json.dumps(
            {
                "last": None if self.last is None else int(self.last.timestamp()),
                "ahead": [int(each.timestamp()) for each in self.ahead],
                "skips": [int(each.timestamp()) for each in self.skips],
                **{name: getattr(self, name) for name in numbers},
            }
        )

    @classmethod
    def of(cls, text: str) -> Self:
        """The inverse of `text`. Raises KeyError, TypeError, ValueError or OverflowError for another text."""
        found = json.loads(text)
        numbers = [found[name] for name in ("made", "missed", "overlapped", "skipped")]
        if not all(isinstance(each, int) for each in (*numbers, found["remaining"] or 0)):
            raise TypeError("a number of occurrences is no whole number")
        return cls(
            last=None if found["last"] is None else datetime.fromtimestamp(found["last"], UTC),
            ahead=tuple(datetime.fromtimestamp(each, UTC) for each in found["ahead"]),
            made=found["made"],
            missed=found["missed"],
            overlapped=found["overlapped"],
            skipped=found["skipped"],
            remaining=found["remaining"],
            skips=tuple(datetime.fromtimestamp(each, UTC) for each in found["skips"]),
        )

    def at(self, now: datetime) -> Self:
        """The same at a later time, at which more of the occurrences were due."""
        due = [each for each in self.ahead if each <= now]
        if not due:
            return self
        return replace(self, last=due[-1], ahead=self.ahead[len(due) :])


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSchedule:
    """The row of a schedule.

    Attributes:
        name: Its name.
        destination: Where its occurrences go.
        body: Their body.
        headers: Their headers.
        properties: Their properties.
        definition: The rest of the definition, as JSON has it: the rule, and how it is applied.
        zone: The time zone of the rule.
        zone_rules: A fingerprint of the zone's rules by which `next_due` was computed.
        paused: Whether it makes no occurrences.
        next_due: The nominal time of the next occurrence to be made; None: there is none any more.
        look_at: When a dispatcher is to look at it; None: never, as it is paused or has ended.
        progress: Its occurrences so far.
        version: How often its definition was written, from 1.
        changed: When it was changed last, by a user.
        changed_by: By whom.

    """

    name: str
    destination: str
    body: bytes
    headers: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    properties: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    definition: Mapping[str, Any]
    zone: str
    zone_rules: str
    paused: bool = False
    next_due: datetime | None
    look_at: datetime | None
    progress: ScheduleProgress
    version: int = 1
    changed: datetime
    changed_by: str

    def with_progress(self, **changes: Any) -> Self:
        """The same row with other values of its progress."""
        return replace(self, progress=replace(self.progress, **changes))


class ScheduleMessages(Protocol):
    """The methods of a store's transaction that schedules use, besides their rows."""

    def now(self) -> datetime:
        """The store's clock."""
        ...

    def store_many(self, messages: Iterable[DelayedMessage]) -> int:
        """Keep all of `messages`, or none."""
        ...

    def note_changes(self, entries: Sequence[AuditEntry]) -> None:
        """Keep audit entries."""
        ...


class ScheduleRows(ABC):
    """The rows of schedules, in a transaction. A locked row stays locked until the transaction ends.

    All methods raise StoreSetupError where the tables are of an earlier release.

    Attributes:
        transaction: The transaction.

    """

    transaction: ScheduleMessages

    @abstractmethod
    def lock(self, names: Collection[str]) -> Mapping[str, StoredSchedule]:
        """Lock the rows of these names, as they are now; waits for others that have locked one.

        Returns:
            The rows by name, of names that there are.

        """

    @abstractmethod
    def take_due(self, at: datetime, limit: int) -> Sequence[StoredSchedule]:
        """Lock rows whose `look_at` is at or before `at`; leaves out rows that others have locked.

        Args:
            at: An aware datetime.
            limit: The largest number of rows.

        Returns:
            The rows, the first `look_at` first.

        """

    @abstractmethod
    def list(self, prefix: str = "", *, after: str | None = None, limit: int = 100) -> Sequence[StoredSchedule]:
        """List rows whose names begin with `prefix`, by name; locks none.

        Args:
            prefix: The beginning of their names.
            after: Only names behind this one; None: from the first.
            limit: The largest number of rows.

        """

    @abstractmethod
    def next_look(self) -> datetime | None:
        """The first `look_at` of all rows; None: no row has one."""

    @abstractmethod
    def zones(self) -> Collection[tuple[str, str]]:
        """The pairs of `zone` and `zone_rules` that rows have."""

    @abstractmethod
    def of_zone(self, zone: str, zone_rules: str, limit: int) -> Sequence[StoredSchedule]:
        """Lock rows that have this zone with this fingerprint; leaves out rows that others have locked."""

    @abstractmethod
    def add(self, rows: Sequence[StoredSchedule]) -> bool:
        """Add rows.

        Returns:
            False: another transaction has added one of the names meanwhile, and nothing is added.

        """

    @abstractmethod
    def write(self, rows: Sequence[StoredSchedule]) -> None:
        """Write all columns of rows that this transaction has locked."""

    @abstractmethod
    def advance(self, rows: Sequence[StoredSchedule]) -> None:
        """Write `next_due`, `look_at`, `zone_rules` and `progress` of rows that this transaction has locked."""

    @abstractmethod
    def delete(self, names: Collection[str]) -> None:
        """Delete rows that this transaction has locked."""

    @abstractmethod
    def names(self, prefix: str) -> Sequence[str]:
        """The names of all rows that begin with `prefix`, in order."""

    @property
    def reads_older(self) -> bool:
        """Whether `occurrences` and `messages` may miss the newest messages, as under MariaDB's REPEATABLE READ.

        The default is for stores without such transactions.
        """
        return False

    @abstractmethod
    def occurrences(self, prefix: str) -> Sequence[str]:
        """The ids of waiting messages, claimed or not, that begin with `schedule/` and `prefix`, in order."""

    @abstractmethod
    def messages(self, message_ids: Sequence[str]) -> Mapping[str, DelayedMessage]:
        """Those of the messages that wait, claimed or not, by their ids."""

    @abstractmethod
    def remove_occurrences(self, message_ids: Sequence[str], by: str | None) -> Collection[str]:
        """Delete waiting messages that no dispatcher has claimed; where a history is kept, each gets an entry.

        Args:
            message_ids: Their ids.
            by: Who changed the schedule, for the history.

        Returns:
            The ids of the deleted messages.

        """

    @abstractmethod
    def waiting_of(self, message_ids: Sequence[str]) -> Collection[str]:
        """Those of the ids whose messages wait, claimed or not."""


class SchedulingTransaction(ABC):
    """A transaction of a store with schedules, as its `transaction()` yields it and its `enlist` returns it."""

    @property
    @abstractmethod
    def schedule_rows(self) -> ScheduleRows:
        """The rows of schedules in this transaction."""


class StoreWithSchedules(OperableDelayedMessageStore):
    """A store with schedules: its transactions are SchedulingTransactions."""

    @property
    @abstractmethod
    def has_schedules(self) -> bool:
        """Whether the tables have schedules; False: they are of an earlier release, or this user may not use them."""


def schedule_rows(transaction: object) -> ScheduleRows:
    """The rows of schedules in a transaction; raises ConfigurationError where its store keeps none."""
    if not isinstance(transaction, SchedulingTransaction):
        raise no_schedules(transaction)
    return transaction.schedule_rows


def no_schedules(store: object) -> ConfigurationError:
    """The error for a store that keeps no schedules."""
    return ConfigurationError(
        f"{type(store).__name__} keeps no schedules; use a StoreWithSchedules, such as SqlDelayedMessageStore"
    )
