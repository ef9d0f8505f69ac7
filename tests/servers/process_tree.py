"""A server's process with all its descendants, as one thing to signal, kill, pause and wait for."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from tests.servers import supervisor
from tests.servers.errors import ServerFailedError

_STANDING = (psutil.STATUS_STOPPED, psutil.STATUS_DEAD)


class ProcessTree:
    """Started at construction, under a supervisor that ends it should this process die.

    Raises ServerFailedError if the command cannot be run at all.
    """

    def __init__(
        self, command: Sequence[str], *, account: str | None, directory: Path, log: Path, environment: Mapping[str, str]
    ) -> None:
        self._supervisor = subprocess.Popen(
            [sys.executable, supervisor.__file__, str(os.getpid()), account or "-", directory, log, *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            cwd=directory,
            env=dict(environment),
            start_new_session=True,  # Ctrl-C at the terminal is for the tests, which then stop the server
        )
        assert self._supervisor.stdout is not None
        with self._supervisor.stdout as answer:
            line = answer.readline().strip()
        if not line:
            self._supervisor.wait()
            raise ServerFailedError(f"{command[0]} could not be run")
        self._server = int(line)

    @property
    def alive(self) -> bool:
        """Whether the server's main process has not exited yet."""
        return self._supervisor.poll() is None

    @property
    def paused(self) -> bool:
        """Whether some of it stands still."""
        return any(_status(process) == psutil.STATUS_STOPPED for process in self._processes())

    def pids(self) -> list[int]:
        """The process ids of the server and its descendants."""
        return [process.pid for process in supervisor.live_descendants(self._supervisor.pid)]

    def terminate(self, number: signal.Signals, timeout: float) -> bool:
        """Ask the main process to end, and wait. False: it is still there after `timeout` seconds."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._server, number)
        try:
            self._supervisor.wait(timeout)
        except subprocess.TimeoutExpired:
            return False
        return True

    def kill(self) -> None:
        """SIGKILL everything at once, and wait until it is gone."""
        supervisor.kill_descendants(self._supervisor.pid)
        self._supervisor.wait()

    def pause(self, timeout: float = 10) -> None:
        """SIGSTOP everything; returns when all of it stands still."""
        deadline = time.monotonic() + timeout
        while moving := [process for process in self._processes() if _status(process) not in _STANDING]:
            if time.monotonic() > deadline:
                raise ServerFailedError(f"processes that do not stop: {moving}")
            self._signal(moving, signal.SIGSTOP)
            time.sleep(0.01)

    def resume(self) -> None:
        """SIGCONT everything."""
        self._signal(self._processes(), signal.SIGCONT)

    def _processes(self) -> list[psutil.Process]:
        return supervisor.live_descendants(self._supervisor.pid)

    @staticmethod
    def _signal(processes: Sequence[psutil.Process], number: signal.Signals) -> None:
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)


def _status(process: psutil.Process) -> str:
    """Its status; dead, too, where it has ended meanwhile."""
    try:
        return process.status()
    except psutil.NoSuchProcess:
        return psutil.STATUS_DEAD
