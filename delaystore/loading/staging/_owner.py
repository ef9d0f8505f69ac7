"""The process that has a load's lease."""

import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

_PROC: Final = Path("/proc")
_STATE, _STARTED = 0, 19
"""Fields of /proc/PID/stat behind the program's name: the third and the twenty-second of all."""
_ENDED: Final = ("Z", "X")


@dataclass(frozen=True, slots=True)
class Owner:
    """The process with which a load ends: of a Spark job the driver, not one of its short-lived workers.

    `system` (the computer since its start, and its namespace of processes) and `started` (ticks since that start) tell
    whether the process has ended; None: only the end of the lease tells.
    """

    host: str
    pid: int
    system: str | None = None
    started: int | None = None

    @classmethod
    def of(cls, pid: int) -> Self:
        """A process of this computer."""
        return cls(socket.gethostname(), pid, _system(), _started(pid))

    def has_ended(self) -> bool:
        """Whether the process is known to be gone. False also where that cannot be seen, as on another computer."""
        if self.started is None or self.system is None or self.system != _system():
            return False
        return _started(self.pid) != self.started

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


def _system() -> str | None:
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink(_PROC / 'self/ns/pid')}"
    except OSError:
        return None


def _started(pid: int) -> int | None:
    """When a process began. None: no such process lives."""
    try:
        fields = (_PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].decode().split()
    except OSError:
        return None
    return None if fields[_STATE] in _ENDED else int(fields[_STARTED])
