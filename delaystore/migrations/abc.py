"""What a migration moves from and to.

A source hides the rows that are to move from its dispatchers, in bounded chunks, in a table of the run beside its own.
So each row is either dispatched by the old side or migrated, and it is in one place at every moment. What the target
has confirmed is marked then; what is marked is never sent again, what is not goes back when the run is aborted.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from delaystore.message import DelayedMessage
from delaystore.migrations.checksum import Checksum
from delaystore.transports.abc import Outcome


class RunStatus(StrEnum):
    """How far a run is."""

    PREPARING = "preparing"
    """Rows are being hidden from the dispatchers; batches that are may be moved already."""
    RUNNING = "running"
    """All rows of the run are hidden, and the batches that are left are being moved."""
    COMPLETED = "completed"
    """No batch is left to move."""
    ABORTED = "aborted"
    """What had not moved has gone back."""


class BatchStatus(StrEnum):
    """How far a numbered batch is."""

    PENDING = "pending"
    STAGED = "staged"
    """It is being sent: the target may have any of it. A resumed run sends all of it again."""
    COMPLETED = "completed"
    """The target has confirmed all of it but what was rejected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunParameters:
    """What a run is about; a run is resumed with the same, or not at all.

    `target`: the target's own name of itself, without a password. `cutoff`: only what is due then or later moves;
    None: everything.
    """

    endpoint: str
    target: str
    cutoff: datetime | None = None
    batch_size: int = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run as its source remembers it."""

    run_id: str
    parameters: RunParameters
    status: RunStatus
    started: datetime
    completed: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCounts:
    """Messages of a run. `prepared` = `pending` + `moved` + `rejected` + `returned`, at every moment."""

    prepared: int = 0
    pending: int = 0
    moved: int = 0
    rejected: int = 0
    returned: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointPreview:
    """What waits for one endpoint, and is eligible: due at the cut-off or later."""

    endpoint: str
    count: int
    earliest: datetime | None
    latest: datetime | None
    destinations: Mapping[str, int]
    """How many for each destination."""
    staying: int = 0
    """How many stay, since they are due before the cut-off."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """A row that cannot be moved, and why. `row_id`: how its table knows it."""

    row_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class Row:
    """A row to move, decoded. `row_id`: how its table knows it; `message.message_id` may differ."""

    row_id: str
    message: DelayedMessage


@dataclass(frozen=True, slots=True)
class Batch:
    """A numbered batch."""

    number: int
    status: BatchStatus
    count: int


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a run cannot begin, or what it would leave behind. `subject`: a destination, an endpoint, a server."""

    subject: str
    text: str
    fatal: bool = True
    """False: a warning."""
    messages: int = 0
    """How many would be rejected for it, and the others move where that is allowed; 0: it is about the run."""


class MigrationSource(ABC):
    """Where messages wait now. Errors of the database are StoreErrors. Not for several threads at once."""

    @property
    @abstractmethod
    def label(self) -> str:
        """The source for people, without a password."""

    @abstractmethod
    def endpoints(self) -> Sequence[str]:
        """The endpoints that have a table here."""

    @abstractmethod
    def check(self, endpoint: str) -> Sequence[Problem]:
        """What hinders a run: a missing table or column, a missing right. Changes nothing."""

    @abstractmethod
    def preview(self, endpoint: str, cutoff: datetime | None) -> EndpointPreview:
        """What waits. Changes nothing."""

    @abstractmethod
    def late(self, endpoint: str, due_after: datetime) -> int:
        """How many are due after that, more than a target may take. Changes nothing."""

    @abstractmethod
    def lock(self, endpoint: str, holder: str) -> AbstractContextManager[None]:
        """Hold the endpoint for one process until the block ends, or the process.

        `holder`: who this is, for others to read. Raises MigrationLockedError naming who holds it.
        """

    @abstractmethod
    def run(self, endpoint: str) -> Run | None:
        """The latest run; None: there was none, or it was cleaned up."""

    @abstractmethod
    def begin(self, parameters: RunParameters) -> Run:
        """A new run, PREPARING. Creates the run's tables where they are missing."""

    @abstractmethod
    def prepare(self, run: Run) -> Iterator[Batch]:
        """Hide eligible rows, a batch in each transaction, until none is left; yields each. Goes on where it was."""

    @abstractmethod
    def set_status(self, run: Run, status: RunStatus) -> Run:
        """The run as it is now. COMPLETED and ABORTED note the time."""

    @abstractmethod
    def batches(self, run: Run, *statuses: BatchStatus) -> Sequence[Batch]:
        """The run's batches of these statuses (none given: all), by number."""

    @abstractmethod
    def stage(self, run: Run, batch: Batch) -> Sequence[Row | Rejected]:
        """Mark the batch STAGED, and return its rows in the order of their due time; undecodable ones Rejected."""

    @abstractmethod
    def complete(self, run: Run, batch: Batch, rejected: Sequence[Rejected]) -> None:
        """Mark the batch COMPLETED, and those rows as rejected, which stay in the run's table. One transaction."""

    @abstractmethod
    def give_back(self, run: Run, *, rejected: bool) -> Iterator[int]:
        """Put rows back where they were, bit for bit, in bounded transactions; yields how many each put back.

        Those of batches that are PENDING or STAGED; with `rejected` also those that were rejected.
        """

    @abstractmethod
    def counts(self, run: Run) -> RunCounts:
        """What became of its rows."""

    @abstractmethod
    def rejections(self, run: Run, limit: int) -> Sequence[Rejected]:
        """Rejected rows with their reasons, at most `limit`."""

    @abstractmethod
    def moved_checksum(self, run: Run) -> Checksum:
        """Over (message_id, destination, due_time) of what was moved."""

    @abstractmethod
    def moved_ids(self, run: Run) -> Iterator[Sequence[str]]:
        """The message_ids of what was moved, in pages."""

    @abstractmethod
    def clean_up(self, run: Run) -> None:
        """Drop the run's tables. The caller has verified."""

    @abstractmethod
    def now(self) -> datetime:
        """The source's clock, aware, UTC."""

    @abstractmethod
    def close(self) -> None:
        """Give back connections; may be called twice."""


class MigrationTarget(ABC):
    """Where messages shall wait."""

    @property
    @abstractmethod
    def label(self) -> str:
        """The target for people and for `RunParameters`, without a password."""

    @property
    def maximum(self) -> timedelta | None:
        """The longest delay it takes; None: any."""
        return None

    @property
    def rehearsal(self) -> bool:
        """Whether it takes nothing for good: no batch is completed, and everything goes back."""
        return False

    @abstractmethod
    def check(self, destinations: Mapping[str, int]) -> Sequence[Problem]:
        """What hinders: not reachable, infrastructure missing, a destination that does not exist. Changes nothing."""

    def set_up(self, destinations: Mapping[str, int]) -> None:  # noqa: B027 - a target may need nothing
        """Create and bind what is needed, just before rows are moved. Raises TransportSetupError, StoreError."""

    @abstractmethod
    def send(self, messages: Sequence[DelayedMessage], now: datetime) -> Sequence[Outcome]:
        """Take `messages` for good: one outcome for each.

        DELIVERED: it is there, durably (and where the target can tell, it is there once however often it was sent).
        UNROUTABLE, REFUSED, UNSUITED: the row is rejected. UNSETTLED: an outage; the batch is to be sent again.
        """

    def checksum(self, ids: Iterator[Sequence[str]]) -> Checksum | None:  # noqa: ARG002 - for overriders
        """Over what it holds of these messages; None: it cannot be read."""
        return None

    @abstractmethod
    def close(self) -> None:
        """Give back connections; may be called twice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a run did."""

    run: Run | None
    counts: RunCounts
    seconds: float = 0.0
    """Of this process's work on it."""
    sent: int = 0
    """Messages sent by this process, those sent again after a stop included."""
    resumed: bool = False
    rejections: Sequence[Rejected] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)
    """What a target has to tell: a rehearsal's findings."""
