"""How long nothing arrived although something was due."""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from tests.chaos.findings import Stall
from tests.chaos.story import Story
from tests.chaos.timeline import Faults, PrimaryClocks

NO_FAULT = "(no fault near)"

Wait = tuple[float, float]
"""Of one message: when it was due and acknowledged, and when its first copy arrived."""


def stalls(stories: Iterable[Story], faults: Faults, clocks: PrimaryClocks) -> dict[str, Stall]:
    """The longest stalls for each kind of fault; a stall counts for the fault that was in progress longest in it."""
    found: defaultdict[str, Stall] = defaultdict(Stall)
    for fault in faults.all:
        found[fault.name].faults += 1
    for waits in _waits(stories, clocks).values():
        for began, ended in _gaps(waits):
            near = [fault for fault in faults.all if fault.began <= ended and fault.ended >= began]
            over = max([began, *(fault.ended for fault in near)])
            blamed = max(near, key=lambda fault: min(fault.ended, ended) - max(fault.began, began), default=None)
            name = NO_FAULT if blamed is None else blamed.name
            found[name].merge(Stall(0, ended - began, max(0.0, ended - over)))
    return dict(found)


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
