"""What tests of migrations share: a source in memory, and a target that answers as told."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar
from uuid import uuid4

from delaystore.errors import MigrationLockedError
from delaystore.message import DelayedMessage
from delaystore.migrations.abc import (
    BatchStatus,
    Checksum,
    Identity,
    MigrationBatch,
    MigrationRow,
    MigrationRun,
    MigrationSource,
    MigrationTarget,
    Problem,
    Rejected,
    RunCounts,
    RunParameters,
    RunStatus,
    WaitingCounts,
    checksum,
)
from delaystore.transports.abc import DELIVERED, Outcome

P = ParamSpec("P")
R = TypeVar("R")


@dataclass
class Hidden:
    """A row in the run's table."""

    row_id: str
    message: DelayedMessage | None
    batch: int
    reason: str | None = None


def alone(method: Callable[Concatenate["MemorySource", P], R]) -> Callable[Concatenate["MemorySource", P], R]:
    """Fail where two threads are in the source at once, which no connection would survive."""

    @wraps(method)
    def guarded(self: "MemorySource", *args: P.args, **kwargs: P.kwargs) -> R:
        assert self.in_use.acquire(blocking=False), "used by two threads at once"
        try:
            self.calls.append(method.__name__)
            self.before(method.__name__)
            return method(self, *args, **kwargs)
        finally:
            self.in_use.release()

    return guarded


class MemorySource(MigrationSource):
    """Rows of one endpoint, by their id; None: a row that cannot be decoded. `before` may raise at any call.

    What `moved` says is a fact only once a batch is completed; so is what was rejected.
    """

    def __init__(self, rows: Mapping[str, DelayedMessage | None], endpoint: str = "sales") -> None:
        self.rows = dict(rows)
        self.endpoint = endpoint
        self.hidden: list[Hidden] = []
        self.problems: list[Problem] = []
        self.offset = timedelta(0)
        self.calls: list[str] = []
        self.before: Callable[[str], object] = lambda name: None
        self.in_use = threading.Lock()
        self.run_now: MigrationRun | None = None
        self.prepared: Counter[int] = Counter()
        self.statuses: dict[int, BatchStatus] = {}
        self.returned = 0
        self.holders: list[str] = []
        self.most_staged = 0
        self.closed = False

    @property
    def label(self) -> str:
        return "memory"

    def endpoints(self) -> Sequence[str]:
        return [self.endpoint]

    @alone
    def check(self, endpoint: str) -> Sequence[Problem]:
        if endpoint != self.endpoint:
            return [Problem(endpoint, f"there is no table of {endpoint!r}")]
        return self.problems

    @alone
    def waiting(self, endpoint: str, cutoff: datetime | None) -> WaitingCounts:
        found = [message for message in self.rows.values() if message and (not cutoff or message.due_time >= cutoff)]
        return WaitingCounts(
            endpoint=endpoint,
            count=sum(self._eligible(message, cutoff) for message in self.rows.values()),
            earliest=min((message.due_time for message in found), default=None),
            latest=max((message.due_time for message in found), default=None),
            destinations=Counter(message.destination for message in found),
            staying=sum(not self._eligible(message, cutoff) for message in self.rows.values()),
        )

    @alone
    def late(self, endpoint: str, due_after: datetime) -> int:
        return sum(message is not None and message.due_time > due_after for message in self.rows.values())

    @alone
    def would_move(self, endpoint: str, cutoff: datetime | None) -> Iterator[Sequence[MigrationRow | Rejected]]:
        rows = [(key, message) for key, message in self.rows.items() if self._eligible(message, cutoff)]
        return iter(
            [[MigrationRow(key, one) if one else Rejected(key, "its headers cannot be read")] for key, one in rows],
        )

    @contextmanager
    def lock(self, endpoint: str, holder: str) -> Iterator[None]:
        if self.holders:
            raise MigrationLockedError(f"{endpoint!r} is being migrated by {self.holders[0]}")
        self.holders.append(holder)
        try:
            yield
        finally:
            self.holders.remove(holder)

    @alone
    def runs(self, endpoint: str) -> Sequence[MigrationRun]:
        return [] if self.run_now is None else [self.run_now]

    @alone
    def begin(self, parameters: RunParameters) -> MigrationRun:
        self._locked()
        self.hidden, self.statuses, self.returned, self.prepared = [], {}, 0, Counter()
        run_id = str(uuid4())
        self.run_now = MigrationRun(
            run_id=run_id, parameters=parameters, status=RunStatus.PREPARING, started=datetime.now(UTC)
        )
        return self.run_now

    def prepare(self, run: MigrationRun) -> Iterator[MigrationBatch]:
        self._locked()
        while True:
            eligible = [key for key, message in self.rows.items() if self._eligible(message, run.parameters.cutoff)]
            chosen = sorted(eligible, key=self._due)[: run.parameters.batch_size]
            if not chosen:
                return
            self.before("prepare")
            number = len(self.statuses) + 1
            self.statuses[number] = BatchStatus.PENDING
            self.hidden += [Hidden(key, self.rows.pop(key), number) for key in chosen]
            self.prepared[number] = len(chosen)
            yield MigrationBatch(number, BatchStatus.PENDING, len(chosen))

    @alone
    def set_status(self, run: MigrationRun, status: RunStatus) -> MigrationRun:
        ended = datetime.now(UTC) if status in (RunStatus.COMPLETED, RunStatus.ABORTED) else None
        assert self.run_now is not None
        self.run_now = replace(self.run_now, status=status, completed=ended)
        return self.run_now

    @alone
    def batches(self, run: MigrationRun, *statuses: BatchStatus) -> Sequence[MigrationBatch]:
        counts = Counter(row.batch for row in self.hidden)
        return [
            MigrationBatch(number, status, counts[number])
            for number, status in sorted(self.statuses.items())
            if not statuses or status in statuses
        ]

    @alone
    def stage(self, run: MigrationRun, batch: MigrationBatch) -> Sequence[MigrationRow | Rejected]:
        self._locked()
        assert self.statuses[batch.number] is not BatchStatus.COMPLETED
        self.statuses[batch.number] = BatchStatus.STAGED
        staged = list(self.statuses.values()).count(BatchStatus.STAGED)
        self.most_staged = max(self.most_staged, staged)
        return [
            Rejected(row.row_id, "its headers cannot be read")
            if row.message is None
            else MigrationRow(row.row_id, row.message)
            for row in self.hidden
            if row.batch == batch.number
        ]

    @alone
    def complete(self, run: MigrationRun, batch: MigrationBatch, rejected: Sequence[Rejected]) -> None:
        self._locked()
        assert self.statuses[batch.number] is BatchStatus.STAGED
        reasons = {one.row_id: one.reason for one in rejected}
        for row in self.hidden:
            if row.batch == batch.number:
                row.reason = reasons.get(row.row_id)
        self.statuses[batch.number] = BatchStatus.COMPLETED

    def give_back(self, run: MigrationRun, *, rejected: bool) -> Iterator[int]:
        self._locked()
        for number, status in self.statuses.items():
            self.before("give_back")
            done = status is BatchStatus.COMPLETED
            back = [r for r in self.hidden if r.batch == number and (not done or (rejected and r.reason is not None))]
            self.rows |= {row.row_id: row.message for row in back}
            self.hidden = [row for row in self.hidden if row not in back]
            self.returned += len(back)
            if back:
                yield len(back)

    @alone
    def counts(self, run: MigrationRun) -> RunCounts:
        done = [row for row in self.hidden if self.statuses[row.batch] is BatchStatus.COMPLETED]
        rejected = sum(row.reason is not None for row in done)
        return RunCounts(
            prepared=len(self.hidden) + self.returned,
            pending=len(self.hidden) - len(done),
            moved=len(done) - rejected,
            rejected=rejected,
            returned=self.returned,
        )

    @alone
    def in_flight(self, run: MigrationRun) -> int:
        return sum(self.prepared[number] for number, status in self.statuses.items() if status is BatchStatus.STAGED)

    @alone
    def rejections(self, run: MigrationRun, limit: int | None) -> Sequence[Rejected]:
        return [Rejected(row.row_id, row.reason) for row in self.hidden if row.reason is not None][:limit]

    @alone
    def moved_checksum(self, run: MigrationRun) -> Checksum:
        return checksum((one.message_id, one.destination, one.due_time) for one in self._moved())

    def moved(self, run: MigrationRun) -> Iterator[Sequence[Identity]]:
        moved = [(one.message_id, one.destination, one.due_time) for one in self._moved()]
        for start in range(0, len(moved), 3):
            yield moved[start : start + 3]

    @alone
    def clean_up(self, run: MigrationRun) -> None:
        self._locked()
        self.hidden, self.statuses, self.run_now, self.returned = [], {}, None, 0

    @alone
    def now(self) -> datetime:
        return datetime.now(UTC) + self.offset

    def close(self) -> None:
        self.closed = True

    def snapshot(self) -> tuple[Any, ...]:
        """Everything that could be changed."""
        return dict(self.rows), list(self.hidden), dict(self.statuses), self.run_now, self.returned

    def _locked(self) -> None:
        assert self.holders, "changed without the lock"

    def _eligible(self, message: DelayedMessage | None, cutoff: datetime | None) -> bool:
        return cutoff is None or message is None or message.due_time >= cutoff

    def _due(self, row_id: str) -> datetime:
        message = self.rows[row_id]
        return datetime.max.replace(tzinfo=UTC) if message is None else message.due_time

    def _moved(self) -> list[DelayedMessage]:
        return [
            row.message
            for row in self.hidden
            if row.message and row.reason is None and self.statuses[row.batch] is BatchStatus.COMPLETED
        ]


class ScriptedTarget(MigrationTarget):
    """Takes everything, but for what `answer` says."""

    def __init__(self, maximum: timedelta | None = None) -> None:
        self._maximum = maximum
        self.answer: Callable[[DelayedMessage], Outcome] = lambda message: DELIVERED
        self.problems: list[Problem] = []
        self.sends: list[list[str]] = []
        self.before_send: Callable[[], object] = lambda: None
        self.set_up_for: Mapping[str, int] | None = None
        self.name = "scripted"
        self._lock = threading.Lock()

    @property
    def label(self) -> str:
        return self.name

    @property
    def maximum(self) -> timedelta | None:
        return self._maximum

    @property
    def arrived(self) -> list[str]:
        """The ids sent, in that order."""
        return [message_id for send in self.sends for message_id in send]

    def check(self, destinations: Mapping[str, int]) -> Sequence[Problem]:
        return self.problems

    def set_up(self, destinations: Mapping[str, int]) -> None:
        self.set_up_for = destinations

    def send(self, messages: Sequence[DelayedMessage], now: datetime) -> Sequence[Outcome]:
        self.before_send()
        with self._lock:
            self.sends.append([message.message_id for message in messages])
            return [self.answer(message) for message in messages]

    def close(self) -> None:
        """Nothing is held."""
