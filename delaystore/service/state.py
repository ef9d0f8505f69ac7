"""How a service is: whether it lives, and whether it does what it is there for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceState:
    """`live`: a restart would mend nothing. `problems`: why parts do not do their part, by their names."""

    live: bool
    problems: Mapping[str, Sequence[str]]

    @property
    def ready(self) -> bool:
        """Whether every part does its part."""
        return not self.problems

    def as_dict(self, *, reasons: bool) -> dict[str, Any]:
        """For JSON. `reasons`: also why, which may name hosts."""
        document: dict[str, Any] = {"live": self.live, "ready": self.ready, "not_ready": sorted(self.problems)}
        return document | {"reasons": {name: list(why) for name, why in self.problems.items()}} if reasons else document

    def __str__(self) -> str:
        if self.ready:
            return "ready"
        return "not ready: " + "; ".join(f"{name}: {', '.join(why)}" for name, why in self.problems.items())
