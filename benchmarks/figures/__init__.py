"""The figures that docs/benchmarks.md draws, each from a file of benchmarks/measured: how each is measured."""

from collections.abc import Callable, Mapping
from typing import Final

from benchmarks.arena import Arena
from benchmarks.figures import dispatch, lateness, memory, stalls, throughput
from benchmarks.figures.series import Series

FIGURES: Final[Mapping[str, Callable[[Arena, bool], Series]]] = {
    "dispatch": dispatch.measure,
    "lateness": lateness.measure,
    "throughput": throughput.measure,
    "memory": memory.measure,
    "stalls": stalls.measure,
}
"""By name. Each gets the servers and whether little data will do."""
