"""Batches on their way from the source to the target: read, sent, confirmed, counted."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from delaystore.clock import ExtrapolatedClock, RateLimit
from delaystore.errors import MigrationError, StoreUnavailableError
from delaystore.message import DelayedMessage
from delaystore.migrations.abc import (
    BatchStatus,
    MigrationBatch,
    MigrationRow,
    MigrationRun,
    MigrationSource,
    MigrationTarget,
    Recurring,
    Rejected,
    RunStatus,
)
from delaystore.transports.abc import Outcome, OutcomeKind

_FIRST_PAUSE: Final = 0.25
_LONGEST_PAUSE: Final = 5.0
"""Seconds between two attempts at a target that does not answer."""


class GivenUpError(MigrationError):
    """The run was asked to stop while the target did not answer; the next run sends messages in flight again."""


@dataclass(frozen=True, slots=True)
class BatchSender:
    """Sends a run's batches to one target; may be shared by threads.

    `target_timeout`: for how many seconds the target may be unavailable. `stopping`: whether to stop.
    """

    target: MigrationTarget
    run: MigrationRun
    now: Callable[[], datetime]
    rate: RateLimit
    target_timeout: float
    stopping: Callable[[], bool]

    def received(self, batch: MigrationBatch) -> Set[int] | None:
        """The positions of the batch's rows that are at the target, or were; None: it cannot tell.

        Raises as `send` does.
        """
        answered, pause = time.monotonic(), _FIRST_PAUSE
        while True:
            try:
                return self.target.received(self.run, batch)
            except StoreUnavailableError as error:
                self._wait(pause, answered, str(error))
            pause = min(_LONGEST_PAUSE, pause * 2)

    def send(self, batch: MigrationBatch, messages: Mapping[int, DelayedMessage]) -> tuple[dict[int, Outcome], int]:
        """An outcome for each of the batch's messages, none of an outage; and how many sends were repeated because no
        answer came. Messages and outcomes are by their positions in the batch.

        Raises MigrationError after `target_timeout`, GivenUpError if asked to stop before that.
        """
        outcomes: dict[int, Outcome] = {}
        waiting = list(messages)
        repeated = 0
        pause = _FIRST_PAUSE
        answered = time.monotonic()
        while waiting:
            part = waiting[: self.rate.wait(len(waiting))]
            answers = self.target.send_part(
                self.run, batch, {position: messages[position] for position in part}, self.now()
            )
            settled = {
                position: answer for position, answer in zip(part, answers, strict=True) if not answer.kind.passes
            }
            outcomes |= settled
            waiting = [position for position in waiting if position not in settled]
            if len(settled) == len(part):
                answered, pause = time.monotonic(), _FIRST_PAUSE
                continue
            if settled:
                answered = time.monotonic()
            repeated += len(part) - len(settled)
            unconfirmed = next(answer for answer in answers if answer.kind.passes)
            self._wait(pause, answered, unconfirmed.reason)
            pause = min(_LONGEST_PAUSE, pause * 2)
        return outcomes, repeated

    def _wait(self, pause: float, answered: float, reason: str) -> None:
        end = time.monotonic() + pause
        while time.monotonic() < end:
            if self.stopping():
                raise GivenUpError(f"stopped while {self.target.label} did not answer: {reason}")
            if time.monotonic() - answered > self.target_timeout:
                raise MigrationError(
                    f"{self.target.label} has accepted no message for {self.target_timeout:g} s ({reason}); nothing is "
                    "lost: run it again to go on, once the target answers"
                )
            time.sleep(0.05)


class Supply:
    """The batches that a run has left; then, while it is PREPARING, new ones, each hidden when it is asked for.

    So rows are hidden shortly before they move, and neither their dispatcher nor the target waits for the whole table.
    `at_source`: locked while the source is used. May be shared by threads.
    """

    def __init__(self, source: MigrationSource, run: MigrationRun, at_source: threading.Lock) -> None:
        self._source = source
        self._at_source = at_source
        self._turn = threading.Lock()
        self.left: Sequence[MigrationBatch] = source.batches(run, BatchStatus.PENDING, BatchStatus.STAGED)
        """The batches that are hidden already. The target may have some of the STAGED ones."""
        self._batches: Iterator[MigrationBatch] = self._all(run)
        self.run = run

    def next(self) -> MigrationBatch | None:
        """The next batch; None: none is left, and all rows are hidden. Raises StoreError."""
        with self._turn:
            return next(self._batches, None)

    def _all(self, run: MigrationRun) -> Iterator[MigrationBatch]:
        yield from self.left
        if run.status is not RunStatus.PREPARING:
            return
        preparing = self._source.prepare(run)
        while True:
            with self._at_source:
                batch = next(preparing, None)
                if batch is None:
                    self.run = self._source.set_status(run, RunStatus.RUNNING)
                    return
            yield batch


REJECTIONS_SHOWN: Final = 20


class MigrationCounts:
    """Counts for one run; may be shared by threads.

    Args:
        settled: Called after each batch with how many messages are settled.
        rejected: How many the run has rejected already.
        max_rejects: How many it may reject; None: any number.

    """

    def __init__(self, settled: Callable[[int], object], *, rejected: int = 0, max_rejects: int | None = None) -> None:
        self._tell_settled = settled
        self._max_rejects = max_rejects
        self._lock = threading.Lock()
        self.settled = 0
        """How many messages have moved or are rejected."""
        self.sent = 0
        """How many messages were sent, repeats included."""
        self.repeated = 0
        """How many sends were repeated because no answer came."""
        self.again = 0
        """How many messages were being sent when the run stopped, and were sent again, as the target cannot tell."""
        self.rejected = rejected
        self.left = 0
        """How many rows stay in their table, because they are no messages."""
        self._left_seen = 0
        self.rejections: list[Rejected] = []
        """The first rows that were rejected."""

    def count(
        self, batch: MigrationBatch, sent: int, repeated: int, rejected: Sequence[Rejected], *, again: int = 0
    ) -> None:
        """Count a batch that is done. Raises MigrationError where too much is rejected."""
        with self._lock:
            self.settled += batch.count
            self.sent += sent + repeated
            self.repeated += repeated
            self.again += again
            self.rejected += len(rejected)
            self.rejections += rejected[: max(0, REJECTIONS_SHOWN - len(self.rejections))]
            self._tell_settled(self.settled)
            self._check(rejected)

    def leave(self, left: Sequence[Rejected]) -> None:
        """Count the rows that stay in their table: all that the source has met. Raises MigrationError, as `count`."""
        with self._lock:
            rows = [row for row in left[self._left_seen :] if not isinstance(row, Recurring)]
            self._left_seen = max(self._left_seen, len(left))
            self.left += len(rows)
            self._check(rows)

    def _check(self, rejected: Sequence[Rejected]) -> None:
        many = self.rejected + self.left
        if rejected and self._max_rejects is not None and many > self._max_rejects:
            last = rejected[-1]
            raise MigrationError(
                f"stopped: {many:,} rejected, and at most {self._max_rejects:,} may be; the last, "
                f"{last.row_id}: {last.reason}; run it again with --allow-rejected or a larger --max-rejected to go "
                "on, or abort it"
            )


BATCHES_IN_FLIGHT: Final = 3
"""One is hidden and read, one is sent, one is completed. Of these the target may have some when a run is killed."""
_SIGNALS_HEEDED: Final = 0.1
"""Seconds to wait for a thread before Python can handle a signal."""


class Mover:
    """Moves the batches of one run.

    `stopping`: whether to stop; then batches in flight are finished, and no other is begun.
    `completing`: False for a dry run.
    """

    def __init__(
        self,
        source: MigrationSource,
        run: MigrationRun,
        sender: BatchSender,
        clock: ExtrapolatedClock,
        tally: MigrationCounts,
        *,
        stopping: Callable[[], bool],
        completing: bool,
    ) -> None:
        self._source = source
        self._run = run
        self._sender = sender
        self._clock = clock
        self._tally = tally
        self._stopping = stopping
        self._completing = completing
        self._at_source = threading.Lock()
        """Locked while the source is used, which only one thread may do at a time."""
        self.supply = Supply(source, run, self._at_source)
        self._failing = threading.Lock()
        self._failure: BaseException | None = None

    def move(self, at_once: int = BATCHES_IN_FLIGHT) -> None:
        """Move all batches, unless asked to stop. Raises the first error, once all have ended."""
        threads = [
            # daemons: a second interrupt ends the process at once, and the next run goes on
            threading.Thread(target=self._work, name=f"delaystore-migration-{number}", daemon=True)
            for number in range(at_once)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(_SIGNALS_HEEDED)
        if isinstance(self._failure, StoreUnavailableError):
            raise StoreUnavailableError(
                f"stopped: {self._failure}; nothing is lost: run it again to go on, once the source answers"
            ) from self._failure
        if self._failure is not None and not isinstance(self._failure, GivenUpError):
            raise self._failure

    def _work(self) -> None:
        try:
            while not self._ending():
                batch = self.supply.next()
                with self._at_source:
                    left = self._source.left(self._run)
                self._tally.leave(left)
                if batch is None:
                    return
                self._move(batch)
        except BaseException as error:
            with self._failing:
                self._failure = self._failure or error

    def _ending(self) -> bool:
        with self._failing:
            return self._failure is not None or self._stopping()

    def _move(self, batch: MigrationBatch) -> None:
        with self._at_source:
            self._clock.now()  # asked here, where the source may be used; the sender goes by the answer
            staged = self._source.stage(self._run, batch)
        received = self._sender.received(batch) if batch.status is BatchStatus.STAGED else frozenset()
        left = {position: row for position, row in enumerate(staged) if position not in (received or ())}
        messages = {position: row.message for position, row in left.items() if isinstance(row, MigrationRow)}
        outcomes, repeated = self._sender.send(batch, messages)
        rejected = [row for row in left.values() if isinstance(row, Rejected)]
        rejected += (
            Rejected(left[position].row_id, outcome.reason)
            for position, outcome in outcomes.items()
            if outcome.kind is not OutcomeKind.DELIVERED
        )
        if self._completing:
            with self._at_source:
                self._source.complete(self._run, batch, rejected)
        again = batch.count if received is None else 0
        sent = sum(outcome.kind is OutcomeKind.DELIVERED for outcome in outcomes.values())
        self._tally.count(batch, sent, repeated, rejected, again=again)
