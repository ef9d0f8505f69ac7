"""How a control queue is doing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from delaystore import documents
from delaystore.dispatcher.breakers import BreakerState


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlHealth:
    """How the reading of a control queue in this process is doing. Counts are since it was made."""

    queue: str
    running: bool
    """Whether `run` runs in this process."""
    connected: bool = False
    """Whether the queue is read at this moment: False also at the beginning."""
    obstacle: str | None = None
    """Why it is not read; None: it is, or reading has only begun."""
    store: str | None = None
    """Why the store does nothing of what is asked; None: it works, as far as is known."""
    replies: str | None = None
    """Why answers, or rejected requests, wait to be published; None: none do."""
    requests: int = 0
    """Requests that were done, or found to be in error."""
    answered: int = 0
    unanswered: int = 0
    """Done, but the queue that was to have the answer did not take it."""
    rejected: int = 0
    """In error, and put into the rejected queue, as nobody could be told."""
    breakers: Mapping[str, str] = field(default_factory=dict)
    """The state of each circuit breaker, `control` (reading) and `control_store`: disarmed, armed or triggered."""

    @property
    def healthy(self) -> bool:
        """Whether requests are done."""
        return not self.problems

    @property
    def problems(self) -> Sequence[str]:
        """Why it is not healthy, a sentence each; none: it is."""
        found = [] if self.running else [f"the control queue {self.queue!r} is not read by this process"]
        for what, why in (
            (f"the control queue {self.queue!r} is not read", self.obstacle),
            ("nothing that is asked is done", self.store),
            ("not all answers are given", self.replies),
        ):
            found += [] if why is None else [f"{what}: {why}"]
        triggered = [name for name, state in self.breakers.items() if state == BreakerState.TRIGGERED]
        return found + [f"the circuit breaker {name!r} has triggered" for name in triggered]

    def as_dict(self) -> dict[str, Any]:
        """The same for JSON, with `healthy` and `problems`."""
        own = {each.name: documents.field(getattr(self, each.name)) for each in fields(self)}
        return {"healthy": self.healthy, "problems": list(self.problems), **own}
