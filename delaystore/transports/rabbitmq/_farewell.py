"""What a sender wants to know that stops waiting."""

from dataclasses import dataclass

from delaystore.transports.rabbitmq._in_flight import InFlightBatch


@dataclass(slots=True)
class Farewell:
    """A sender waits for a batch no longer, and wants to know how the broker is."""

    batch: InFlightBatch
    seen: bool = False
    """Whether the owner thread knows."""
    moving: bool = False
    """Whether bytes were still leaving."""
    obstacle: str | None = None
    """Why nothing can be sent; None: the broker lives."""
