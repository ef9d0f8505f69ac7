"""How a control queue stands, as the thread that runs it knows."""

from dataclasses import dataclass


@dataclass(slots=True)
class Standing:
    """What was done, and what is in the way. Written by one thread, read by any."""

    requests: int = 0
    answered: int = 0
    unanswered: int = 0
    rejected: int = 0
    store: str | None = None
    """Why the store does nothing; None: it works."""
    replies: str | None = None
    """Why answers wait to be published; None: none do."""
