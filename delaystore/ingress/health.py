"""How an ingress is doing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from typing import Any, Final

from delaystore import documents
from delaystore.dispatcher.breakers import BreakerState

FATES: Final = ("stored", "repeated", "dropped", "direct", "rejected", "obeyed")
"""What becomes of messages: those of the counts below that grow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IngressHealth:
    """How an ingress is doing at one moment; the counts begin with the process."""

    queue: str
    """The ingress queue."""
    running: bool
    connected: bool
    """Whether it is consuming."""
    obstacle: str | None = None
    """Why it is not consuming; None: it is, or has only begun."""
    stored: int = 0
    repeated: int = 0
    """Were in the store already, as after a crash."""
    dropped: int = 0
    """Another message with their id was kept."""
    direct: int = 0
    """Were forwarded at once."""
    rejected: int = 0
    obeyed: int = 0
    """Said that others were to be cancelled."""
    kept_back: int = 0
    """Messages that stay in the ingress queue, as the store fails on them or the rejected queue does not take them."""
    why_kept_back: str | None = None
    """Why they are; None: none are."""
    breakers: Mapping[str, str] = field(default_factory=dict)
    """`intake`: storing what has arrived; `consume`: the ingress queue."""
    slow_store_call: timedelta | None = None
    last_success: datetime | None = None
    """When a message was last acknowledged."""

    @property
    def healthy(self) -> bool:
        """Whether it takes messages in as it should."""
        return not self.problems

    @property
    def problems(self) -> Sequence[str]:
        """Why it is not healthy, a sentence each; none: it is."""
        found = [] if self.running else [f"the ingress of {self.queue!r} does not run"]
        if self.obstacle is not None:
            found.append(f"the ingress of {self.queue!r} takes nothing in: {self.obstacle}")
        found += [
            f"the circuit breaker {name!r} has triggered"
            for name, state in self.breakers.items()
            if state == BreakerState.TRIGGERED
        ]
        if self.why_kept_back is not None:
            found.append(f"{self.kept_back} messages are kept back: {self.why_kept_back}")
        return found

    def as_dict(self) -> dict[str, Any]:
        """The same for JSON, with `healthy` and `problems`: durations in seconds, times in ISO 8601."""
        own = {each.name: documents.field(getattr(self, each.name)) for each in fields(self)}
        return {"healthy": self.healthy, "problems": list(self.problems), **own}
