"""The report of a move, and whether its numbers add up."""

import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from delaystore.cascades.moving._forwarding import BatchResult, Result, ResultKind

_ALMOST_OVER: Final = 2
"""Seconds before the end of its delay in which a copy may have left the target's levels already."""


@dataclass(slots=True)
class MoveReport:
    """A run in numbers. Read = moved + poisoned + left + returned.

    `poisoned`, `left`: by reason. `left`: stayed in the source, since neither target nor poison queue took them.
    `returned`: read and given back, because the run was stopped. `redelivered`: read by an earlier run; if that was
    killed, copies of some may be in the target. `repeated`: publishes repeated because no answer came.
    `disagreeing`: due more than a minute earlier by their headers than by their key.
    Counts of the level queues are of ready messages; `source_total` is all that the management API counts; None: there
    is no API.
    """

    source: str
    target: str
    dry_run: bool = False
    interrupted: bool = False
    source_before: int = 0
    source_after: int = 0
    source_total: int | None = None
    target_before: int = 0
    target_after: int = 0
    read: int = 0
    moved: int = 0
    returned: int = 0
    redelivered: int = 0
    repeated: int = 0
    disagreeing: int = 0
    seconds: float = 0.0
    poisoned: Counter[str] = field(default_factory=Counter)
    left: Counter[str] = field(default_factory=Counter)
    destinations: Counter[str] = field(default_factory=Counter)
    _due_redelivered: int = 0
    _leaving: Counter[int] = field(default_factory=Counter)
    """Copies by the second (of the Unix clock) in which their delay is over."""

    def add(self, batch: BatchResult) -> None:
        """Count a batch."""
        self.repeated += batch.repeated
        for message, result in zip(batch.messages, batch.results, strict=True):
            self.read += 1
            self.redelivered += message.redelivered
            self._due_redelivered += message.redelivered and _is_due(result)
            if result is None:
                self.returned += 1
            else:
                self._count(result)

    @property
    def settled(self) -> int:
        """How many messages have left the source."""
        return self.moved + self.poisoned.total()

    @property
    def perhaps_twice(self) -> int:
        """How many messages may have a second copy: an earlier run that was killed copied them, or no answer came.

        A dry run, or another consumer, may have read them as well. Copies that are not due yet would be in the target.
        """
        return self.repeated + self._due_redelivered + min(self.redelivered - self._due_redelivered, self.target_before)

    @property
    def delivered_meanwhile(self) -> int:
        """How many the source itself delivered meanwhile, because they were due; as far as the counts tell."""
        return max(0, self.source_before - self.read - self.source_after)

    def still_waiting(self, now: datetime) -> int:
        """How many copies must still be in the target's levels."""
        since = now.timestamp() + _ALMOST_OVER
        return sum(count for second, count in self._leaving.items() if second > since)

    def findings(self, now: datetime) -> list[str]:
        """Numbers that do not add up, a sentence each; empty: all do."""
        found = []
        accounted = self.settled + self.left.total() + self.returned
        if self.read != accounted:
            found.append(f"{self.read} were read, but {accounted} accounted for")
        if self.left:
            found.append(f"{self.left.total()} stayed in the source: neither the target nor the poison queue took them")
        if self.dry_run or self.interrupted:
            return found
        remaining = self.source_after if self.source_total is None else max(self.source_total, self.source_after)
        if remaining > self.left.total() + self.returned:
            found.append(f"{remaining} are still in the source, or being dead-lettered there; run it again")
        waiting = self.still_waiting(now)
        if self.target_after < waiting:
            found.append(f"the target holds {self.target_after}, but {waiting} of the copies are not due yet")
        return found

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        findings = self.findings(datetime.now(UTC))
        return {
            "source": {
                "cascade": self.source,
                "before": self.source_before,
                "after": self.source_after,
                "held": self.source_total,
            },
            "target": {"cascade": self.target, "before": self.target_before, "after": self.target_after},
            "dry_run": self.dry_run,
            "interrupted": self.interrupted,
            "read": self.read,
            "moved": self.moved,
            "poisoned": self.poisoned.total(),
            "poison_reasons": dict(self.poisoned.most_common()),
            "left": self.left.total(),
            "left_reasons": dict(self.left.most_common()),
            "returned": self.returned,
            "redelivered": self.redelivered,
            "repeated": self.repeated,
            "disagreeing": self.disagreeing,
            "delivered_meanwhile": self.delivered_meanwhile,
            "destinations": dict(self.destinations.most_common()),
            "seconds": round(self.seconds, 3),
            "findings": findings,
            "adds_up": not findings,
        }

    def _count(self, result: Result) -> None:
        if result.kind is ResultKind.MOVED:
            self.moved += 1
            self.destinations[result.destination] += 1
            self.disagreeing += result.disagreeing
            if result.until is not None:
                self._leaving[int(result.until.timestamp())] += 1
        elif result.kind is ResultKind.POISONED:
            self.poisoned[result.reason] += 1
        else:
            self.left[result.reason] += 1


def _is_due(result: Result | None) -> bool:
    """Whether an earlier copy may have left the target already."""
    return result is not None and result.until is not None and result.until.timestamp() < time.time() + _ALMOST_OVER
