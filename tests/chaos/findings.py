"""What a checker finds: sets of messages, violations, stalls."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.chaos.history import Event


@dataclass(frozen=True)
class Violation:
    """Something that must not happen: `kind`, the message (or process) `key`, what was seen, its events."""

    kind: str
    key: str
    what: str
    events: Sequence[Event] = ()


@dataclass
class Stall:
    """Of one kind of fault, in seconds."""

    faults: int = 0
    longest: float = 0.0
    """The longest time without a delivery at some destination, while something was due there."""
    after_end: float = 0.0
    """The most of such a time that was left when the fault, and all others, had ended."""

    def merge(self, other: "Stall") -> None:
        """Add another's."""
        self.faults += other.faults
        self.longest = max(self.longest, other.longest)
        self.after_end = max(self.after_end, other.after_end)


SETS = {
    "attempted": "messages that somebody tried to send",
    "acknowledged": "whose send returned, or whose repeat found it stored",
    "delivered": "that arrived, once or more often",
    "cancelled": "whose cancel was answered `done`",
    "rescheduled": "reschedules that were answered `done`",
    "in error queue": "that had no destination, and are there",
    "recovered": "not acknowledged, delivered",
    "perhaps cancelled": "acknowledged, not delivered, and a cancel had no answer",
    "repeated": "extra copies: a send failed, was repeated, and both were stored",
    "stored again": "extra copies: something died after an ingress had stored them, and before they were acknowledged",
    "duplicated near a fault": "extra copies that at least once allows",
    "in doubt at a cancel": "forwarded before a fault, cancelled or rescheduled after it",
    "lost in a tail": "acknowledged, cancelled or rescheduled seconds before an asynchronous standby was promoted",
}
"""What may be, and is counted."""

VIOLATIONS = {
    "lost": "acknowledged, and neither delivered nor cancelled nor waiting",
    "unexpected": "delivered, and never attempted, or to a queue that is not its destination",
    "duplicated": "extra copies without a reason",
    "stored again": "by an ingress, though it had an id and still waited, or without a fault",
    "revived": "extra copies of what had long been delivered, after a promotion",
    "early": "delivered before its due time by the primary's clock, or before the time it was rescheduled to",
    "cancelled, delivered": "delivered although a cancel was answered `done`",
    "given up": "in the error queue, though nothing was wrong with it",
    "waiting": "still in the store when all else had settled",
    "half": "an order without its message, or a message without its order",
    "refused": "an id that was never used was called a duplicate",
    "crashed": "a process of the workload ended by itself, or logged a traceback",
}
"""What must not be."""


@dataclass
class Findings:
    """Of one run, or of several merged."""

    counts: Counter[str] = field(default_factory=Counter)
    violations: list[Violation] = field(default_factory=list)
    stalls: defaultdict[str, Stall] = field(default_factory=lambda: defaultdict(Stall))

    @property
    def good(self) -> bool:
        """Whether there is no violation."""
        return not self.violations

    def violate(self, kind: str, key: str, what: str, events: Sequence[Event] = ()) -> None:
        """Add a violation."""
        assert kind in VIOLATIONS, kind
        self.violations.append(Violation(kind, key, what, events))

    def keys(self, kind: str) -> list[str]:
        """The messages with violations of this kind."""
        return [violation.key for violation in self.violations if violation.kind == kind]

    def merge(self, other: "Findings") -> None:
        """Add another run's."""
        self.counts += other.counts
        self.violations += other.violations
        for name, stall in other.stalls.items():
            self.stalls[name].merge(stall)
