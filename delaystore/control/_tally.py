"""What a control queue has done."""

from dataclasses import dataclass


@dataclass(slots=True)
class Tally:
    """Counted by the thread that runs."""

    requests: int = 0
    """Done, or found to be in error."""
    answered: int = 0
    unanswered: int = 0
    """Done, but the queue that was to have the answer did not take it."""
    rejected: int = 0
    """In error, and put into the rejected queue, as nobody could be told."""
