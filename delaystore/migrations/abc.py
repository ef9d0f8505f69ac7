"""The contract of migrations: sources and targets of messages, their checksum, and the clocks of both sides."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from hashlib import blake2b
from typing import Any, Final, Self

from delaystore.message import DelayedMessage
from delaystore.transports.abc import Outcome

Identity = tuple[str, str, datetime]
"""The fields of a checksum: message_id, destination, due_time."""
_MODULUS: Final = 2**128


@dataclass(frozen=True, slots=True)
class Checksum:
    """How many messages, and the sum of the digests of (message_id, destination, due_time). Checksums can be added."""

    count: int = 0
    total: int = 0

    def __add__(self, other: Self) -> "Checksum":
        return Checksum(self.count + other.count, (self.total + other.total) % _MODULUS)

    def __str__(self) -> str:
        return f"{self.count}:{self.total:032x}"


def checksum(messages: Iterable[Identity]) -> Checksum:
    """The checksum of (message_id, destination, due_time) each. The times are aware, and count in microseconds."""
    count = total = 0
    for message_id, destination, due_time in messages:
        text = f"{len(message_id)}:{message_id}{len(destination)}:{destination}{due_time.timestamp():.6f}"
        total += int.from_bytes(blake2b(text.encode(errors="surrogatepass"), digest_size=16).digest())
        count += 1
    return Checksum(count, total % _MODULUS)


DRY_RUN: Final = "noop"
"""The first word of a dry run's target."""


class RunStatus(StrEnum):
    """How far a run has come."""

    PREPARING = "preparing"
    """Batches are being hidden from the dispatchers, and moved."""
    RUNNING = "running"
    """All rows of the run are hidden; the remaining batches are being moved."""
    COMPLETED = "completed"
    """Every batch has moved."""
    ABORTED = "aborted"
    """Messages that had not moved have gone back."""

    @property
    def unfinished(self) -> bool:
        """Whether the run can be resumed."""
        return self in (RunStatus.PREPARING, RunStatus.RUNNING)


class BatchStatus(StrEnum):
    """How far a numbered batch has come."""

    PENDING = "pending"
    STAGED = "staged"
    """It is being sent: the target may have some of it. A resumed run sends the messages without a receipt of the
    target."""
    COMPLETED = "completed"
    """The target has confirmed all of it, except rejected messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunParameters:
    """The parameters of a run. A run can only be resumed with the same parameters.

    Attributes:
        endpoint: The endpoint whose messages move.
        target: The target's label.
        cutoff: Only messages due then or later move; None: all of them.
        batch_size: Rows in a batch.

    """

    endpoint: str
    target: str
    cutoff: datetime | None = None
    batch_size: int = 1000

    @property
    def dry_run(self) -> bool:
        """Whether nothing was sent, also if it has batches."""
        return self.target.partition(" ")[0] == DRY_RUN


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationRun:
    """A run as its source remembers it."""

    run_id: str
    parameters: RunParameters
    status: RunStatus
    started: datetime
    completed: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCounts:
    """Messages of a run. `prepared` = `pending` + `moved` + `rejected` + `returned`, at every moment.

    Attributes:
        prepared: Rows that the run hid from the dispatchers.
        pending: Of these, rows that have not moved yet.
        moved: Rows that the target has confirmed.
        rejected: Rows that could not move.
        returned: Rows that were given back.

    """

    prepared: int = 0
    pending: int = 0
    moved: int = 0
    rejected: int = 0
    returned: int = 0


@dataclass(frozen=True, slots=True)
class RejectedRows:
    """How many rows a run has rejected and still keeps: hidden from the dispatchers until an abort puts them back."""

    run: MigrationRun
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingCounts:
    """Waiting messages of one endpoint. All except `staying` is about messages that would move, due at the cut-off
    or later.

    Attributes:
        endpoint: The endpoint.
        count: How many messages would move.
        earliest: When the first of them is due; None: there are none.
        latest: When the last of them is due; None: there are none.
        destinations: How many of them are for each destination.
        staying: How many stay, because they are due before the cut-off, or the program of their table keeps them.

    """

    endpoint: str
    count: int
    earliest: datetime | None
    latest: datetime | None
    destinations: Mapping[str, int]
    staying: int = 0


@dataclass(frozen=True, slots=True)
class Rejected:
    """A row that cannot be moved, and why. `row_id`: its key in its table."""

    row_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class Recurring(Rejected):
    """A row that is not meant to move, such as a job that runs every night: the program of its table keeps it.

    `destination`: where it would have gone.
    """

    destination: str


@dataclass(frozen=True, slots=True)
class MigrationRow:
    """A row to move, decoded. `row_id`: its key in its table, from which `message.message_id` may differ."""

    row_id: str
    message: DelayedMessage


@dataclass(frozen=True, slots=True)
class MigrationBatch:
    """A numbered batch of `count` rows, which are fixed once it has a number."""

    number: int
    status: BatchStatus
    count: int


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a run cannot begin, or which messages it would leave behind.

    Attributes:
        subject: The destination, endpoint or server that has the problem.
        text: The fault, and the remedy.
        fatal: False: a warning.
        messages: How many messages would be rejected because of it. 0: it concerns the whole run.

    """

    subject: str
    text: str
    fatal: bool = True
    messages: int = 0


class MigrationSource(ABC):
    """Where messages wait now. Used by one thread at a time.

    Raises:
        StoreError: By all methods, when a database fails.

    """

    leaves_rejected: bool = False
    """Whether rows that cannot move stay in their table, where another program may still run them.

    False: they are hidden until an abort puts them back.
    """

    @property
    @abstractmethod
    def label(self) -> str:
        """The source for people, without a password."""

    @abstractmethod
    def endpoints(self) -> Sequence[str]:
        """The endpoints that have a table here."""

    @abstractmethod
    def check(self, endpoint: str) -> Sequence[Problem]:
        """Find what blocks a run, such as a missing table, column or right. Changes nothing.

        Args:
            endpoint: The endpoint.

        Returns:
            The problems.

        """

    @abstractmethod
    def waiting(self, endpoint: str, cutoff: datetime | None) -> WaitingCounts:
        """Count the waiting messages, and those of them that a run would move. Changes nothing.

        Args:
            endpoint: The endpoint.
            cutoff: The run's cut-off, an aware datetime; None: it has none.

        Returns:
            The counts.

        """

    @abstractmethod
    def late(self, endpoint: str, due_after: datetime) -> int:
        """Count the messages that are due late. Changes nothing.

        Args:
            endpoint: The endpoint.
            due_after: An aware datetime; messages count that are due later.

        Returns:
            The number of messages.

        """

    @abstractmethod
    def would_move(self, endpoint: str, cutoff: datetime | None) -> Iterator[Sequence[MigrationRow | Rejected]]:
        """Yield pages of the messages that a run would move; Rejected: cannot be decoded. Changes nothing.

        Args:
            endpoint: The endpoint.
            cutoff: The run's cut-off, an aware datetime; None: it has none.

        Returns:
            The pages.

        """

    @abstractmethod
    def lock(self, endpoint: str, holder: str) -> AbstractContextManager[None]:
        """Lock the endpoint for this process, until the block or the process ends.

        Args:
            endpoint: The endpoint.
            holder: Who this is, for other processes to report.

        Returns:
            A context manager that holds the lock.

        Raises:
            MigrationLockedError: Another process has the lock; the text names it.

        """

    @abstractmethod
    def runs(self, endpoint: str) -> Sequence[MigrationRun]:
        """List the runs that were not cleaned up.

        Args:
            endpoint: The endpoint.

        Returns:
            The runs, the latest last.

        """

    def run(self, endpoint: str) -> MigrationRun | None:
        """Look up the latest run.

        Args:
            endpoint: The endpoint.

        Returns:
            The run; None: there was none, or it was cleaned up.

        """
        return next(reversed(self.runs(endpoint)), None)

    @abstractmethod
    def begin(self, parameters: RunParameters) -> MigrationRun:
        """Begin a run. Creates the run's tables where they are missing.

        Args:
            parameters: The endpoint, the target and the limits of the run.

        Returns:
            The run, whose status is PREPARING.

        """

    @abstractmethod
    def prepare(self, run: MigrationRun) -> Iterator[MigrationBatch]:
        """Hide the rows that are to move, a batch in each transaction. Goes on where it stopped.

        Args:
            run: The run.

        Returns:
            The batches, one after the other.

        """

    def left(self, run: MigrationRun) -> Sequence[Rejected]:  # noqa: ARG002 - for overriders
        """The rows that `prepare` did not hide in this process, because they cannot move.

        Args:
            run: The run.

        Returns:
            The rows, in the order in which it met them.

        """
        return ()

    @abstractmethod
    def set_status(self, run: MigrationRun, status: RunStatus) -> MigrationRun:
        """Set the status of a run. COMPLETED and ABORTED also set its time of completion.

        Args:
            run: The run.
            status: The new status.

        Returns:
            The run with that status.

        """

    @abstractmethod
    def batches(self, run: MigrationRun, *statuses: BatchStatus) -> Sequence[MigrationBatch]:
        """List batches of a run.

        Args:
            run: The run.
            *statuses: Only batches of these statuses; none given: all.

        Returns:
            The batches, ordered by number.

        """

    @abstractmethod
    def stage(self, run: MigrationRun, batch: MigrationBatch) -> Sequence[MigrationRow | Rejected]:
        """Mark a batch STAGED.

        Args:
            run: The run.
            batch: One of its batches, not COMPLETED.

        Returns:
            The rows of the batch in the order of their due times; Rejected: cannot be decoded. The same rows in the
            same order each time: receipts name them by their positions.

        """

    @abstractmethod
    def complete(self, run: MigrationRun, batch: MigrationBatch, rejected: Sequence[Rejected]) -> None:
        """Mark a batch COMPLETED and some of its rows rejected, in one transaction. The rows stay in the run's table.

        With `leaves_rejected`, the rejected rows go back at once, and `prepare` hides them no more in this process.

        Args:
            run: The run.
            batch: One of its batches, STAGED.
            rejected: The rows that could not move.

        """

    @abstractmethod
    def give_back(self, run: MigrationRun, *, rejected: bool) -> Iterator[int]:
        """Put the rows of PENDING and STAGED batches back where they were, bit for bit, in bounded transactions.

        Args:
            run: The run.
            rejected: Whether to put the rejected rows back, too.

        Yields:
            How many rows each transaction has put back.

        """

    @abstractmethod
    def counts(self, run: MigrationRun) -> RunCounts:
        """Count the run's rows by their state.

        Args:
            run: The run.

        Returns:
            The counts.

        """

    @abstractmethod
    def in_flight(self, run: MigrationRun) -> int:
        """Count the rows that the STAGED batches hid, whether these have gone back or not.

        Args:
            run: The run.

        Returns:
            The number of rows that the target may have.

        """

    @abstractmethod
    def rejections(self, run: MigrationRun, limit: int | None) -> Sequence[Rejected]:
        """List the rejected rows.

        Args:
            run: The run.
            limit: Maximum number of rows; None: all.

        Returns:
            The rows.

        """

    @abstractmethod
    def moved_checksum(self, run: MigrationRun) -> Checksum:
        """Compute the checksum of (message_id, destination, due_time) of the moved messages.

        Args:
            run: The run.

        Returns:
            The checksum.

        """

    @abstractmethod
    def moved(self, run: MigrationRun) -> Iterator[Sequence[Identity]]:
        """Yield pages of (message_id, destination, due_time) of the moved messages.

        Args:
            run: The run.

        Returns:
            The pages.

        """

    @abstractmethod
    def clean_up(self, run: MigrationRun) -> None:
        """Drop the run's tables. The caller has verified the run.

        Args:
            run: The run.

        """

    @abstractmethod
    def now(self) -> datetime:
        """The present instant on the source's clock, aware, in UTC."""

    @abstractmethod
    def close(self) -> None:
        """Close connections. May be called twice."""


class MigrationTarget(ABC):
    """Where messages are moved to."""

    @property
    @abstractmethod
    def label(self) -> str:
        """The target for people and for `RunParameters`, without a password."""

    @property
    def maximum(self) -> timedelta | None:
        """The longest delay it takes. None: any."""
        return None

    @property
    def dry_run(self) -> bool:
        """Whether it keeps nothing. If so, no batch is completed, and all rows go back."""
        return False

    @abstractmethod
    def check(self, destinations: Mapping[str, int]) -> Sequence[Problem]:
        """Find what blocks a run: no answer, missing infrastructure, a missing destination. Changes nothing.

        Args:
            destinations: How many messages would go to each destination.

        Returns:
            The problems.

        """

    def refusals(self, messages: Sequence[DelayedMessage]) -> Sequence[str | None]:
        """Find out why messages would be refused for their content, without sending them. Changes nothing.

        Args:
            messages: The messages. Their destinations and delays are not checked.

        Returns:
            The reason for each message; None: none is known.

        Raises:
            StoreError, TransportError: The target fails.

        """
        return [None] * len(messages)

    def set_up(self, destinations: Mapping[str, int]) -> None:  # noqa: B027 - a target may need nothing
        """Create and bind the parts that the target needs, before rows are moved.

        Args:
            destinations: How many messages go to each destination.

        Raises:
            TransportSetupError, StoreError: The target cannot be set up.

        """

    def begin(self, run: MigrationRun) -> None:  # noqa: B027 - most keep no receipts
        """Be ready to keep receipts of the run's batches, if the target can. Called before a run sends or goes on.

        Args:
            run: The run.

        Raises:
            StoreError: The target fails.

        """

    def received(self, run: MigrationRun, batch: MigrationBatch) -> Set[int] | None:  # noqa: ARG002 - for overriders
        """Find out which rows of a batch were stored here, even if they have left since.

        Args:
            run: The run.
            batch: One of its batches.

        Returns:
            The rows' positions in the batch; None: the target keeps no receipts.

        Raises:
            StoreError: The target fails.

        """
        return None

    def send_part(
        self,
        run: MigrationRun,  # noqa: ARG002 - for overriders
        batch: MigrationBatch,  # noqa: ARG002 - for overriders
        part: Mapping[int, DelayedMessage],
        now: datetime,
    ) -> Sequence[Outcome]:
        """Send rows of a batch, as `send` does.

        A target that keeps receipts writes one in the transaction that stores the messages, and stores no message
        with a receipt again: DELIVERED.

        Args:
            run: The run.
            batch: The batch.
            part: Messages by their positions in the batch.
            now: The time by the source's clock.

        Returns:
            The outcome of each message of `part`, in its order.

        """
        return self.send(list(part.values()), now)

    def end(self, run: MigrationRun) -> None:  # noqa: B027 - most keep no receipts
        """Delete the run's receipts; no batch is in flight. May be called twice.

        Args:
            run: The run.

        Raises:
            StoreError: The target fails.

        """

    @abstractmethod
    def send(self, messages: Sequence[DelayedMessage], now: datetime) -> Sequence[Outcome]:
        """Send messages to the target.

        Args:
            messages: The messages.
            now: The time by the source's clock.

        Returns:
            The outcome of each. DELIVERED: it is there, durably (once, however often it was sent, where the target can
            know that). UNROUTABLE, REFUSED, NOT_DELAYABLE: the row is to be rejected. UNCONFIRMED, UNAVAILABLE: an
            outage; the message is to be sent again.

        """

    def checksum(self, moved: Iterator[Sequence[Identity]]) -> Checksum | None:  # noqa: ARG002 - for overriders
        """Compute the checksum of those of `moved` that wait at the target. None: the target cannot be read.

        Marks make no difference, see `delaystore.message.marked`: senders know of the message at the target.

        Args:
            moved: Pages of moved messages, as the source has them.

        Returns:
            The checksum; None: the target cannot be read.

        """
        return None

    @abstractmethod
    def close(self) -> None:
        """Close connections. May be called twice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The result of a run or an abort.

    Attributes:
        run: The run; None: nothing was done.
        counts: Its rows by their state.
        seconds: How long this process worked on the run.
        sent: How many messages the target has accepted from this process, repeats included.
        resumed: Whether the run had been begun before.
        rejections: The first rejected rows.
        left: Rows that cannot move, and stay in their table, as far as this process has met them.
        earlier: Rows that earlier runs of the endpoint have rejected, and still keep.
        extra: What else there is to report, by JSON key; see `runner.run` and `runner.abort`.

    """

    run: MigrationRun | None
    counts: RunCounts
    seconds: float = 0.0
    sent: int = 0
    resumed: bool = False
    rejections: Sequence[Rejected] = ()
    left: Sequence[Rejected] = ()
    earlier: Sequence[RejectedRows] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def remaining(self) -> int:
        """How many rows that should have moved could not, and stay in their table."""
        return sum(not isinstance(row, Recurring) for row in self.left)

    @property
    def rejected_left(self) -> int:
        """How many rejected rows remain, of this run and of earlier ones."""
        return self.counts.rejected + sum(one.count for one in self.earlier)


_TOLERATED: Final = timedelta(minutes=1)
"""A smaller difference between two clocks is not mentioned."""
_ZONE_STEP: Final = timedelta(minutes=30)
"""Nearly all time zones differ by multiples of it."""


def clock_problems(whose: str, theirs: datetime, ours: datetime) -> Sequence[Problem]:
    """The fault of a clock: fatal where it differs from this computer's as if by a time zone.

    `whose`: names the clock, for people. `theirs`, `ours`: the times of the two clocks now, aware.
    """
    difference = theirs - ours
    size = abs(difference)
    if size <= _TOLERATED:
        return []
    way = "ahead of" if difference > timedelta(0) else "behind"
    from_step = min(size % _ZONE_STEP, _ZONE_STEP - size % _ZONE_STEP)
    if size >= _ZONE_STEP - _TOLERATED and from_step <= _TOLERATED:
        hours = round(size / _ZONE_STEP) / 2
        return [
            Problem(
                whose,
                f"is {hours:g} h {way} this computer's, as if one were in another time zone: every message would be "
                "early or late by that; put the clock or its time zone right",
            )
        ]
    return [
        Problem(
            whose,
            f"is {timedelta(seconds=round(size.total_seconds()))} {way} this computer's; due times go by the source's",
            fatal=False,
        )
    ]
