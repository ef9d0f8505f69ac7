"""The demo's report."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoReport:
    """The demo in numbers. `lateness` is sorted: arrival less due time, on the store's clock."""

    sent: int
    delivered: int
    duplicated: int
    lateness: Sequence[timedelta]
    exactly_once: bool
    interrupted: bool

    @property
    def lost(self) -> int:
        """How many were sent and did not arrive. 0 where the demo was interrupted: they may still come."""
        return 0 if self.interrupted else self.sent - self.delivered

    @property
    def early(self) -> int:
        """How many arrived before they were due."""
        return sum(late < timedelta(0) for late in self.lateness)

    @property
    def good(self) -> bool:
        """Whether nothing was lost, duplicated or early."""
        return not (self.lost or self.duplicated or self.early)

    def percentile(self, share: float) -> float | None:
        """The lateness in milliseconds that `share` of the messages did not exceed (nearest rank); None without any."""
        if not self.lateness:
            return None
        rank = max(1, math.ceil(share * len(self.lateness)))
        return round(self.lateness[rank - 1] / timedelta(milliseconds=1), 3)

    def as_dict(self) -> dict[str, Any]:
        """As JSON has it; the keys are stable."""
        return {
            "sent": self.sent,
            "delivered": self.delivered,
            "lost": self.lost,
            "duplicated": self.duplicated,
            "early": self.early,
            "lateness_ms": {"p50": self.percentile(0.5), "p99": self.percentile(0.99), "max": self.percentile(1)},
            "exactly_once": self.exactly_once,
            "interrupted": self.interrupted,
        }

    def rows(self) -> list[tuple[str, str]]:
        """As a table has it: (name, number)."""
        counts = [(name, f"{getattr(self, name):,}") for name in ("sent", "delivered", "lost", "duplicated", "early")]
        shares = {"lateness p50": 0.5, "lateness p99": 0.99, "lateness max": 1.0}
        return counts + [(name, _milliseconds(self.percentile(share))) for name, share in shares.items()]


def _milliseconds(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f} ms"
