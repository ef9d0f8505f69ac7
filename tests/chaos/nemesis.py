"""Faults, one after the other, as a seed says."""

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tests.chaos.faults import Fault
from tests.chaos.history import Recorder

QUIET: Mapping[tuple[float, float], float] = {(0.0, 1.5): 45, (2.0, 8.0): 40, (20.0, 30.0): 15}
"""Seconds between the end of a fault and the beginning of the next, and how often they are that many.

A fault soon after another finds a backlog under way. What happens long after one has no excuse.
"""
TWO_AT_ONCE = 0.25
"""How often a second fault begins with the first."""


@dataclass(frozen=True)
class Stroke:
    """After `quiet` seconds: faults, each with how long it lasts."""

    quiet: float
    faults: Sequence[tuple[Fault, float]]


def schedule(faults: Sequence[Fault], seed: int) -> Iterator[Stroke]:
    """Without end; the same for the same faults and seed. A kind of fault is not likelier for having many targets."""
    chance = random.Random(seed)
    kinds = {fault.name: fault.weight for fault in faults}
    while True:
        chosen: list[Fault] = []
        for _ in range(2 if chance.random() < TWO_AT_ONCE else 1):
            (kind,) = chance.choices([*kinds], [*kinds.values()])
            chosen.append(chance.choice([fault for fault in faults if fault.name == kind]))
        if len({fault.group for fault in chosen}) == 1:
            chosen = chosen[:1]
        (quiet,) = chance.choices([*QUIET], [*QUIET.values()])
        yield Stroke(
            chance.uniform(*quiet), [(fault, chance.uniform(fault.shortest, fault.longest)) for fault in chosen]
        )


class Nemesis:
    """Does to the workload and its servers what a seed says. `say`: is told of each fault."""

    def __init__(
        self, faults: Sequence[Fault], seed: int, recorder: Recorder, say: Callable[[str], None] = lambda text: None
    ) -> None:
        self._strokes = schedule(faults, seed)
        self._recorder = recorder
        self._say = say
        self._since = time.monotonic()
        self._number = 0

    def run(self, until: float) -> None:
        """Until `until`, by time.monotonic(); every fault is undone by then, or soon after."""
        for stroke in self._strokes:
            time.sleep(min(stroke.quiet, max(0, until - time.monotonic())))
            if time.monotonic() >= until:
                return
            self.strike(stroke.faults)

    def strike(self, faults: Sequence[tuple[Fault, float]]) -> None:
        """Begin all of them at once, and end each in its time."""
        begun: list[tuple[float, Fault, int]] = []
        try:
            for fault, seconds in faults:
                self._say(f"{time.monotonic() - self._since:7.1f} s  {fault.kind} {fault.target} for {seconds:.1f} s")
                begun.append((time.monotonic() + seconds, fault, self._begin(fault)))
            begun.sort(key=lambda one: one[0])
            while begun:
                time.sleep(max(0, begun[0][0] - time.monotonic()))
                _, fault, number = begun.pop(0)
                self._end(fault, number)
        finally:
            for _, fault, number in begun:
                self._end(fault, number)

    def _begin(self, fault: Fault) -> int:
        self._number += 1
        began = self._recorder.note("fault_began", number=self._number, fault=fault.name, target=fault.target)
        self._note_clock(fault.begin(), began.time)
        return self._number

    def _end(self, fault: Fault, number: int) -> None:
        ending = time.monotonic()
        try:
            self._note_clock(fault.end(), ending)
        finally:
            self._recorder.note("fault_ended", number=number, fault=fault.name, target=fault.target)

    def _note_clock(self, details: object, since: float) -> None:
        """Note a new primary, or a new clock of the old one, from what a fault's function returned; it took over at
        some time from `since` on.
        """
        if isinstance(details, dict):
            self._recorder.note("primary", since=since, **details)
