"""How long nothing arrived although something was due."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from tests.chaos.findings import Stall
from tests.chaos.story import Story
from tests.chaos.timeline import Faults, FaultTime, PrimaryClocks

NO_FAULT = "(no fault near)"

Wait = tuple[float, float]
"""Of one message: when it was due and acknowledged, and when its first copy arrived."""


def stalls(stories: Iterable[Story], faults: Faults, clocks: PrimaryClocks) -> dict[str, Stall]:
    """The longest stalls for each kind of fault; a stall counts for those in progress when it began."""
    found: defaultdict[str, Stall] = defaultdict(Stall)
    for fault in faults.all:
        found[fault.name].faults += 1
    for waits in _waits(stories, clocks).values():
        for began, ended in _gaps(waits):
            blamed = _in_progress(faults.all, began, ended)
            over = max([began, *(fault.ended for fault in blamed)])
            for name in {fault.name for fault in blamed} or {NO_FAULT}:
                found[name].merge(Stall(0, ended - began, max(0.0, ended - over)))
    return dict(found)


def _in_progress(faults: Sequence[FaultTime], began: float, ended: float) -> Sequence[FaultTime]:
    """Those in progress when a stall began; if none was, the first that began within it."""
    at_once = [fault for fault in faults if fault.began <= began <= fault.ended]
    return at_once or [fault for fault in faults if began <= fault.began <= ended][:1]


def _waits(stories: Iterable[Story], clocks: PrimaryClocks) -> Mapping[str, list[Wait]]:
    waits: defaultdict[str, list[Wait]] = defaultdict(list)
    for story in stories:
        if story.deliveries and story.attempts:
            first = story.deliveries[0]
            due = max((span.due for span in story.due_by(first, clocks)), default=first.wall)
            told = story.acknowledged
            ready = max(first.time - (first.wall - due), 0.0 if told is None else told.time)
            waits[first["queue"]].append((min(ready, first.time), first.time))
    return waits


def _gaps(waits: list[Wait]) -> Iterable[tuple[float, float]]:
    """The stretches between two arrivals in which something was due."""
    waits.sort(key=lambda wait: wait[1])
    earliest = [float("inf")] * (len(waits) + 1)
    for n in range(len(waits) - 1, -1, -1):
        earliest[n] = min(waits[n][0], earliest[n + 1])
    before = 0.0
    for n, (_, arrived) in enumerate(waits):
        began = max(before, earliest[n])
        if arrived > began:
            yield began, arrived
        before = arrived
