"""What cancels timeouts instead of asking for one."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SagaCleared:
    """An NServiceBus saga has ended: what waits for it is to be cancelled.

    `id_prefix`: how the message ids of what waits for it begin; see MessageFilter.
    """

    id_prefix: str
