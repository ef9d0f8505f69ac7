"""**What a service runs**: parts, each in a thread of its own."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Protocol


class Part(Protocol):
    """One thing that a service does. It is run once; to run it again, another is made."""

    def run(self) -> None:
        """Do it, until `stop`; raises what cannot be helped here. To return without having been stopped is to die."""
        ...

    def stop(self) -> None:
        """Have `run` finish what is in flight, and return. Does not wait; may be called often, at any time."""
        ...

    def problems(self) -> Sequence[str]:
        """Why it does not do its part, a clause each; none: it does. May ask servers, for 2 s; raises nothing."""
        ...


class Rank(IntEnum):
    """In which order parts end: each once those before have ended."""

    INTAKE = 0
    """What takes messages in."""
    FORWARDING = 1
    """What sends them on."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A part that an endpoint is to have. `configuration`: a part whose own has changed is made anew.

    `make`: may raise what `run` may.
    """

    name: str
    rank: Rank
    configuration: object
    make: Callable[[], Part] = field(compare=False)
