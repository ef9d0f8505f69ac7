"""What systemd is told: that the service is ready, reloads, ends, and lives."""

import os
import time
from collections.abc import Mapping
from typing import Any, Final

from delaystore.extras import needed_for

_LONGEST: Final = 500
"""Characters of a status."""


class Notifier:
    """Tells the service manager that started this process; where none did, nobody.

    Raises MissingDependencyError where one did, and the library is missing.
    """

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        self._systemd: Any = None
        self._told = ""
        if environment.get("NOTIFY_SOCKET"):
            with needed_for("a service of Type=notify"):
                from sdnotify import SystemdNotifier
            self._systemd = SystemdNotifier()
        self.watchdog: Final = _watchdog(environment)

    def ready(self) -> None:
        """It runs, or runs again after a reload."""
        self._tell("READY=1")

    def reloading(self) -> None:
        """It reads its configuration again; `ready` ends that."""
        self._tell(f"RELOADING=1\nMONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")

    def stopping(self) -> None:
        """It ends."""
        self._tell("STOPPING=1")

    def alive(self) -> None:
        """It lives: to be told more often than the watchdog asks."""
        if self.watchdog is not None:
            self._tell("WATCHDOG=1")

    def status(self, text: str) -> None:
        """A line for `systemctl status`; told where it has changed."""
        line = " ".join(text.split())[:_LONGEST]
        if line != self._told:
            self._told = line
            self._tell(f"STATUS={line}")

    def close(self) -> None:
        """Tell nothing more."""
        if self._systemd is not None and self._systemd.socket is not None:
            self._systemd.socket.close()
        self._systemd = None

    def _tell(self, state: str) -> None:
        if self._systemd is not None:
            self._systemd.notify(state.encode().decode("latin-1"))  # the library encodes so; systemd reads UTF-8


def _watchdog(environment: Mapping[str, str]) -> float | None:
    """The seconds within which systemd wants to hear of this process; None: it does not."""
    time_given, process = environment.get("WATCHDOG_USEC", ""), environment.get("WATCHDOG_PID", "")
    mine = not process or process == str(os.getpid())
    return int(time_given) / 1e6 if mine and time_given.isdigit() and int(time_given) else None
