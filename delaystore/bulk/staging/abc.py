"""Where a load waits until all of it is there, and how it becomes visible: all of it or nothing, once."""

import os
import socket
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import ClassVar, Final, Self

import pyarrow as pa

from delaystore.bulk.options import OnDuplicate, StoreOptions

# The process that has a load's lease.

_PROC: Final = Path("/proc")
_STATE, _STARTED = 0, 19
"""Fields of /proc/PID/stat behind the program's name: the third and the twenty-second of all."""
_ENDED: Final = ("Z", "X")


@dataclass(frozen=True, slots=True)
class LoadOwner:
    """The process with which a load ends: of a Spark job the driver, not one of its short-lived workers.

    `system` (the computer since its start, and its namespace of processes) and `started` (ticks since that start) tell
    whether the process has ended; None: only the end of the lease shows it.
    """

    host: str
    pid: int
    system: str | None = None
    started: int | None = None

    @classmethod
    def of(cls, pid: int) -> Self:
        """A process of this computer."""
        return cls(socket.gethostname(), pid, _system(), _started(pid))

    def has_ended(self) -> bool:
        """Whether the process is known to be gone. False also where that cannot be seen, as on another computer."""
        if self.started is None or self.system is None or self.system != _system():
            return False
        return _started(self.pid) != self.started

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


def _system() -> str | None:
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink(_PROC / 'self/ns/pid')}"
    except OSError:
        return None


def _started(pid: int) -> int | None:
    """When a process began. None: no such process lives."""
    try:
        fields = (_PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].decode().split()
    except OSError:
        return None
    return None if fields[_STATE] in _ENDED else int(fields[_STARTED])


# What is known of loads.


class LoadState(StrEnum):
    """How far a load is."""

    RUNNING = "running"
    ABANDONED = "abandoned"
    """Its lease has ended, or its process has; the next load, or a cleanup, removes its remains."""
    FINISHED = "finished"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadStatus:
    """A load as the registry has it.

    `batch`, `finished_at`, `stored`, `skipped`: of a stream, those of the last finished batch. `host` and `pid`: of
    the process that runs or ran it; `heartbeat`: its last sign of life. `cancelled_at`, `cancelled_by`: when the load
    was cancelled as a whole, and by whom; None: it was not. `rejected`: rows that were no messages; None: it is of an
    earlier release, or not finished.
    """

    load_id: str
    state: LoadState
    batch: int | None
    host: str
    pid: int
    began: datetime
    heartbeat: datetime
    finished_at: datetime | None
    stored: int | None
    skipped: int | None
    cancelled_at: datetime | None = None
    cancelled_by: str | None = None
    rejected: int | None = None


@dataclass(frozen=True, slots=True)
class Cleaned:
    """The result of a cleanup.

    `loads`: abandoned ones, now forgotten. `tables`: dropped. `in_use`: tables that a process still works on, which the
    next cleanup will find.
    """

    loads: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()
    in_use: tuple[str, ...] = ()


# Where a load waits until all of it is there, and how it becomes visible: all of it or nothing, once.


@dataclass(frozen=True, slots=True)
class LoadKey:
    """The identity of a load.

    `load_id`: a finished one is never loaded again. `batch`: of a stream, whose load_id is its query's id: a batch up
    to the last finished one is never loaded again; None: no stream.
    """

    load_id: str
    batch: int | None = None


@dataclass(frozen=True, slots=True)
class FinishedLoad:
    """A load that was promoted: when, how many messages it stored, and how many it skipped as duplicates."""

    key: LoadKey
    finished_at: datetime
    stored: int
    skipped: int

    @property
    def brought(self) -> int:
        """How many messages the load had, duplicates included."""
        return self.stored + self.skipped


@dataclass(frozen=True, slots=True)
class StagedAttempt:
    """The rows that one task attempt has staged; it travels to the driver in Spark's commit message.

    `skipped`: how many of `count` waited already; 0 where only the promotion finds that out. `rejected`: how many rows
    were no messages.
    """

    attempt: str
    count: int
    skipped: int = 0
    rejected: int = 0


@dataclass(frozen=True, slots=True)
class Lease:
    """The lease of a running load, by plain values, so that another process can renew it; see `renew_lease`."""

    store: StoreOptions
    token: str
    seconds: float


class AttemptSink(ABC):
    """Takes the rows of one task attempt."""

    @abstractmethod
    def write(self, batch: pa.RecordBatch) -> None:
        """Stage a batch of the schema STAGED. May buffer; staged rows count only after `finish`."""

    @abstractmethod
    def finish(self) -> StagedAttempt:
        """Stage the rest, durably for as long as the staging lives."""


class Staging(ABC):
    """The staging of one load (or one batch of a stream) into one endpoint. Picklable: it travels to the tasks.

    Raises StoreError and its kin for a store that fails, ConfigurationError for one that cannot stage.
    """

    guarantee: ClassVar[str] = "all or nothing, exactly once"
    """The guarantee of a load into this kind of store, in a line."""
    after_failure: ClassVar[str] = "nothing was loaded"
    """The state of a load that failed or was stopped before `promote`, in words that may end a sentence."""

    remembers: ClassVar[bool] = True
    """Whether the store keeps the result of a load."""

    @property
    def lease(self) -> Lease | None:
        """What another process renews the lease by. None: there is none to renew."""
        return None

    @abstractmethod
    def begin(self, key: LoadKey) -> FinishedLoad | None:
        """Register the load and take its lease, once, on the driver; remove the remains of abandoned loads.

        The lease of a process of this host that is provably dead (pid and start time) does not count, so that a killed
        driver's load can be run again at once.

        Returns:
            A load that was finished before, and nothing is begun; None: the load was begun.

        Raises:
            LoadInProgressError: Another process has the load, and its lease has not ended.

        """

    @abstractmethod
    def join(self, key: LoadKey) -> FinishedLoad | None:
        """For a batch of a stream, in place of `begin`; in each task, and once more on the driver before `promote`.

        Spark makes a new writer for each batch, and one more for its commit, and reports to neither which query it is:
        only tasks know the key (seen with Spark 4.3). So the first task makes the staging of the query, which lives
        from batch to batch; `promote` empties it, if a straggling attempt does not lock it.

        Returns:
            The last finished batch, if it is this one or a later one: nothing may be staged then. None: stage it.

        """

    @abstractmethod
    def attempt(self) -> AbstractContextManager[AttemptSink]:
        """In a task: a sink of its own for this attempt. Its block keeps the lease alive; an exception discards it."""

    @abstractmethod
    def promote(self, attempts: Sequence[StagedAttempt], on_duplicate: OnDuplicate) -> FinishedLoad:
        """Make the rows of these attempts visible, and the load finished, in one transaction, on the driver.

        It wakes the dispatchers. Called again for a load that is finished, it changes nothing.

        Args:
            attempts: The winning attempts; rows of others are not stored.
            on_duplicate: What to do with a message_id that waits already, or comes twice.

        Returns:
            How many messages the load has stored and skipped, and when.

        Raises:
            DuplicateMessageError: A message_id is there twice; nothing was stored.
            LoadLostError: Staged rows are missing (a database that crashes empties unlogged tables), or another
                process has taken the load over. Run the load again.

        """

    @abstractmethod
    def renew(self) -> None:
        """Show a sign of life: the lease begins again."""

    @abstractmethod
    def discard(self) -> None:
        """Remove the staging, finished or not; may be called twice. Never raises for a staging that is already gone."""
