"""Rows that cannot be messages, counted by reason."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

MAX_EXAMPLES: Final = 3
"""Rows shown for each reason."""


@dataclass(frozen=True, slots=True)
class Reason:
    """Why rows were rejected: how many, and some of them as JSON, shortened."""

    count: int
    examples: tuple[str, ...] = ()

    def __add__(self, other: "Reason") -> "Reason":
        return Reason(self.count + other.count, (self.examples + other.examples)[:MAX_EXAMPLES])


@dataclass(frozen=True, slots=True)
class Rejections:
    """What was rejected, by the reason's text (such as "due_time is null"); travels from the tasks to the driver."""

    reasons: Mapping[str, Reason] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """How many rows."""
        return sum(reason.count for reason in self.reasons.values())

    def __add__(self, other: "Rejections") -> "Rejections":
        reasons = dict(self.reasons)
        for text, reason in other.reasons.items():
            reasons[text] = reasons.get(text, Reason(0)) + reason
        return Rejections(reasons)

    def __str__(self) -> str:
        """One line: "3 rows cannot be messages: 2 x due_time is null (such as {...}); 1 x ..."."""
        ordered = sorted(self.reasons.items(), key=lambda item: (-item[1].count, item[0]))
        texts = [f"{reason.count} x {text}{_such_as(reason.examples)}" for text, reason in ordered]
        rows = "1 row" if self.count == 1 else f"{self.count} rows"
        return f"{rows} cannot be messages: {'; '.join(texts)}"


def total(rejections: Iterable[Rejections]) -> Rejections:
    """Their sum."""
    return sum(rejections, Rejections())


def _such_as(examples: tuple[str, ...]) -> str:
    return f" (such as {examples[0]})" if examples else ""
