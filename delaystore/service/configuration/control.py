"""The configuration of a control queue."""

from dataclasses import dataclass

from delaystore.service.configuration.fields import key
from delaystore.service.configuration.kinds import Flag, Text


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlConfiguration:
    """The control queue of an endpoint. `queue` None: `ENDPOINT.control`. `bodies`: whether answers have them."""

    enabled: bool = key(Flag(), False)
    queue: str | None = key(Text(), None)
    bodies: bool = key(Flag(), True)
