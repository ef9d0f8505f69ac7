"""When faults were, and what the clock of the database said."""

from collections.abc import Sequence
from dataclasses import dataclass

from tests.chaos.history import Event

SLACK = 10.0
"""Seconds before and after a fault in which what was under way may still show it."""
GRACE = 0.002
"""Seconds by which an arrival may precede its due time: clocks are read to the microsecond, and rounded."""
HARMLESS = ("sender", "consumer")
"""Targets whose faults interrupt no dispatcher, and so excuse no copy."""


@dataclass(frozen=True, slots=True)
class FaultTime:
    """A fault, and when it was; one that never ended lasts for ever."""

    number: int
    name: str
    target: str
    began: float
    ended: float


class Faults:
    """The faults of a run."""

    def __init__(self, events: Sequence[Event]) -> None:
        ended = {event["number"]: event.time for event in events if event.kind == "fault_ended"}
        self.all = [
            FaultTime(
                event["number"], event["fault"], event["target"], event.time, ended.get(event["number"], float("inf"))
            )
            for event in events
            if event.kind == "fault_began"
        ]
        self._interrupting = [fault for fault in self.all if not fault.target.startswith(HARMLESS)]

    def near(self, since: float, until: float) -> FaultTime | None:
        """The last fault that can interrupt a dispatcher and touches this stretch, or comes within SLACK of it."""
        for fault in reversed(self._interrupting):
            if fault.began <= until + SLACK and fault.ended >= since - SLACK:
                return fault
        return None


class PrimaryClocks:
    """The clock of whatever database was the primary: this machine's, and an offset that a promotion changes."""

    def __init__(self, events: Sequence[Event]) -> None:
        changes = [event for event in events if event.kind == "primary"]
        self.promotions = [event.time for event in changes if event["promotion"]]
        offsets = [0.0, *(event["offset"] or 0.0 for event in changes)]
        begins = [0.0, *(event["since"] or event.time for event in changes)]
        self._reigns = list(zip(begins, offsets, [*changes, None], strict=True))
        """Of each primary: when it may have begun, its clock's offset, the event that its successor is there."""

    def reached(self, due: float, by: Event) -> bool:
        """Whether some primary's clock showed `due`, a POSIX time, while it was the primary, not after `by`."""
        for began, offset, ended in self._reigns:
            last = by if ended is None or by.time < ended.time else ended
            if began <= by.time and last.wall + offset + GRACE >= due:
                return True
        return False
