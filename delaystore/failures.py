"""Why forwarding a message has failed: kept with it in the store, a line of JSON for each failed attempt."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Self

LONGEST_REASON: Final = 500
"""Characters kept of a reason."""
KEPT: Final = 8_000
"""Characters kept of all lines of one message together; the oldest go first."""


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """One attempt to forward a message that failed.

    `at`: on the store's clock, UTC. `kind`: one word, as in the error queue: Refused, Unready, Unsettled, Unroutable,
    Unreadable. `reason`: for people, on one line.
    """

    at: datetime
    kind: str
    reason: str

    def line(self) -> str:
        """As one line of JSON, in ASCII, with its line break."""
        reason = " ".join(self.reason.split())[:LONGEST_REASON].rstrip()
        return json.dumps([self.at.astimezone(UTC).isoformat(), self.kind, reason], separators=(",", ":")) + "\n"

    @classmethod
    def from_line(cls, line: str) -> Self:
        """The inverse of `line`; raises ValueError for anything else."""
        try:
            at, kind, reason = values = json.loads(line)
            instant = datetime.fromisoformat(at)
            if isinstance(values, list) and instant.tzinfo is not None and type(kind) is type(reason) is str:
                return cls(instant.astimezone(UTC), kind, reason)
        except (TypeError, ValueError, OverflowError, RecursionError):
            pass
        raise ValueError(f"not a failed attempt: {line[:80]!r}")


def with_attempt(failures: Sequence[FailedAttempt], attempt: FailedAttempt) -> Sequence[FailedAttempt]:
    """`failures` and one more `attempt`, as a store keeps them: cut, and without the oldest that find no room."""
    text = "".join(each.line() for each in (*failures, attempt))
    return failures_in(text[-KEPT:])


def failures_in(text: str | None) -> Sequence[FailedAttempt]:
    """The failed attempts in the lines of `text`, the oldest first; what cannot be read, as a cut line, is left out."""
    found: list[FailedAttempt] = []
    for line in (text or "").splitlines():
        try:
            found.append(FailedAttempt.from_line(line))
        except ValueError:
            continue
    return tuple(found)
