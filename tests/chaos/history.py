"""The history of a run: events that several processes write, as JSON lines.

Each process has a file of its own, so that a line cut off by a SIGKILL spoils no other's. What `Recorder.note` has
returned from outlives the process: the kernel has it.
"""

import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

SUFFIX = ".jsonl"
LAST = "all_read"
"""The kind of the event that is noted once all that waits, and all orders, were read at the end of a run."""
STAMP = len("2027-01-01 12:00:00,000")


@dataclass(frozen=True, slots=True)
class Event:
    """`time`: by CLOCK_MONOTONIC, which all processes of a machine share; `wall`: by time.time()."""

    time: float
    wall: float
    process: str
    kind: str
    details: Mapping[str, Any] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        return self.details.get(name)

    def __str__(self) -> str:
        details = ", ".join(f"{name}={value}" for name, value in self.details.items())
        return f"{self.time:.3f} {self.process}: {self.kind} {details}"

    def line(self) -> str:
        """One line of JSON, without its end."""
        own = {"time": self.time, "wall": self.wall, "process": self.process, "kind": self.kind}
        return json.dumps({**own, **self.details}, default=str)

    @classmethod
    def parse(cls, line: str) -> Self:
        """The inverse of `line`; raises ValueError for anything else."""
        details = json.loads(line)
        try:
            time, wall, process, kind = (details.pop(name) for name in ("time", "wall", "process", "kind"))
        except (AttributeError, KeyError, TypeError):
            raise ValueError(f"not an event: {line!r}") from None
        return cls(time, wall, process, kind, details)


class Recorder:
    """Writes the events of one process; its threads may share it."""

    def __init__(self, folder: Path, process: str) -> None:
        self._process = process
        self._file = os.open(folder / f"{process}-{os.getpid()}{SUFFIX}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(self, kind: str, **details: Any) -> Event:
        """Write an event; it is safe from a SIGKILL of this process once this returns."""
        event = Event(time.monotonic(), time.time(), self._process, kind, details)
        os.write(self._file, (event.line() + "\n").encode())
        return event

    def close(self) -> None:
        """Nothing more is written."""
        os.close(self._file)


def merged(folder: Path) -> list[Event]:
    """The events of all processes, in the order of time."""
    return in_order(event for path in folder.glob("*" + SUFFIX) for event in read(path))


def merged_logs(folder: Path) -> str:
    """What all processes have logged, in the order of time; each line names its process."""
    lines = []
    for path in folder.glob("*.log"):
        stamp = ""
        for number, line in enumerate(path.read_text(errors="replace").splitlines()):
            if line[:4].isdigit():
                stamp = line[:STAMP]  # the lines of a traceback have none, and belong to the line before
            lines.append((stamp, path.stem, number, line))
    return "".join(f"{name}: {line}\n" for _, name, _, line in sorted(lines))


def in_order(events: Iterable[Event]) -> list[Event]:
    """By time."""
    return sorted(events, key=lambda event: event.time)


def read(path: Path) -> Iterator[Event]:
    """The events in a file; but for a line that its writer could not finish."""
    for line in path.read_text().splitlines():
        with suppress(ValueError):
            yield Event.parse(line)


def write(events: Sequence[Event], path: Path) -> None:
    """As JSON lines."""
    path.write_text("".join(event.line() + "\n" for event in events))
