"""What became of failed messages that were sent again, or discarded."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

_MOST_REASONS: Final = 100
"""Different reasons that are counted."""


@dataclass(slots=True, kw_only=True)
class ErrorReport:
    """What a replay, or a discard, has done; of a dry run: what it would do.

    `depth`: messages in the error queue at the beginning. `examined`: those that were looked at. `done`: those that
    were sent again and removed, or discarded. `destinations`: how many of them went where. `left`: why others that
    match stay, and how many for each reason. `perhaps_twice`: those that may be at their destination and are still in
    the error queue. `interrupted`: somebody asked to stop. `problem`: why it ended early; None: it did not.
    """

    depth: int = 0
    examined: int = 0
    done: int = 0
    destinations: Counter[str] = field(default_factory=Counter)
    left: Counter[str] = field(default_factory=Counter)
    perhaps_twice: int = 0
    dry_run: bool = False
    interrupted: bool = False
    problem: str | None = None

    @property
    def good(self) -> bool:
        """Whether all that matches was done."""
        return not self.left and not self.interrupted and self.problem is None

    def as_dict(self) -> dict[str, Any]:
        """The same for JSON."""
        return {
            "dry_run": self.dry_run,
            "depth": self.depth,
            "examined": self.examined,
            "done": self.done,
            "destinations": dict(self.destinations),
            "left": dict(self.left),
            "perhaps_twice": self.perhaps_twice,
            "interrupted": self.interrupted,
            "problem": self.problem,
        }

    def leave(self, reason: str) -> None:
        """Count a message that stays."""
        known = reason in self.left or len(self.left) < _MOST_REASONS
        self.left[reason if known else "other reasons"] += 1
