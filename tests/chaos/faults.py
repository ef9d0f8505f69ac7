"""Faults: what can be done to a server or a process, and undone."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tests.chaos.processes import Processes


class Victim(Protocol):
    """A server of `tests.servers`, or a process of the workload."""

    def kill(self) -> object: ...

    def start(self) -> object: ...

    def pause(self) -> object: ...

    def resume(self) -> object: ...


@dataclass(frozen=True)
class Fault:
    """`kind` happens to `target` by `begin`, for between `shortest` and `longest` seconds, and is undone by `end`.

    `begin` and `end` may return details for the history, see `Part.faults`. `weight`: how often it comes, compared with
    others.
    """

    kind: str
    target: str
    begin: Callable[[], Any]
    end: Callable[[], Any]
    shortest: float = 0.0
    longest: float = 6.0
    weight: float = 1.0

    @property
    def group(self) -> str:
        """Its target without a number: only one of a group has a fault at a time."""
        return self.target.rstrip("-0123456789")

    @property
    def name(self) -> str:
        """What the table calls it."""
        return f"{self.kind} {self.group}"


def killing(target: str, victim: Victim, longest: float = 6.0, weight: float = 1.0) -> Fault:
    """SIGKILL, and a start."""
    return Fault("kill", target, victim.kill, victim.start, longest=longest, weight=weight)


def pausing(target: str, victim: Victim, longest: float = 12.0) -> Fault:
    """SIGSTOP and SIGCONT: connections stay open, nothing answers."""
    return Fault("pause", target, victim.pause, victim.resume, shortest=0.5, longest=longest)


def of_processes(processes: Processes) -> Sequence[Fault]:
    """Of the workload's own processes; senders, ingests and dispatchers are killed and paused, consumers killed."""
    faults = []
    for process in (*processes.named("dispatcher"), *processes.named("ingest"), *processes.named("sender")):
        faults += [killing(process.name, process, longest=3), pausing(process.name, process)]
    return [
        *faults,
        *(killing(process.name, process, longest=2, weight=0.1) for process in processes.named("consumer")),
    ]
