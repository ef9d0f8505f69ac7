"""What the private servers have in common: a directory, a process tree, a life."""

import atexit
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

from tests.servers.errors import ServerFailedError
from tests.servers.process_tree import ProcessTree

START_SECONDS = 60.0
STOP_SECONDS = 60.0


class Server(ABC):
    """A server of our own: loopback only, free ports, a temporary directory, data that outlives kill() and start().

    A context manager: `with PostgreSQL() as server`. `place`: where the directory is made; None: where others are.
    Construction finds the programs and starts nothing.
    Raises ServerMissingError at construction, ServerFailedError from start() and stop().
    """

    _account: ClassVar[str]
    """The OS user to run as when we are root."""
    _stop_signal: ClassVar[signal.Signals] = signal.SIGTERM

    def __init__(self, place: Path | None = None) -> None:
        self._place = place
        self._owner = os.getpid()
        self._tree: ProcessTree | None = None
        self._directory: Path | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {'running' if self.running else 'not running'}>"

    @property
    def running(self) -> bool:
        """Whether the server's process exists; True as well while it is paused."""
        return self._tree is not None and self._tree.alive

    @property
    def paused(self) -> bool:
        """Whether pause() has stopped it and resume() has not been called since."""
        return self.running and self._tree is not None and self._tree.paused

    @property
    def was_started(self) -> bool:
        """Whether it has a directory: it was started at least once, and not closed since."""
        return self._directory is not None

    @property
    def pids(self) -> list[int]:
        """The process ids of the server and its descendants; empty if it does not run."""
        return self._tree.pids() if self._tree else []

    @property
    def directory(self) -> Path:
        """The server's own temporary directory; made at the first start."""
        if self._directory is None:
            raise ServerFailedError(f"{type(self).__name__} has not been started")
        return self._directory

    def start(self) -> None:
        """Start the server and wait until it answers. Nothing happens if it runs."""
        if self.running:
            return
        if self._directory is None:
            self._make_directory()
            self._prepare()
        self._tree = ProcessTree(
            self._command(),
            account=self._run_as(),
            directory=self.directory,
            log=self._log,
            environment=self._environment(),
        )
        self._await_ready(time.monotonic() + START_SECONDS)

    def stop(self) -> None:
        """Shut the server down cleanly. Nothing happens if it does not run."""
        if self._tree is None or not self._tree.alive:
            return
        self._tree.resume()
        if not self._tree.terminate(self._stop_signal, STOP_SECONDS):
            self._tree.kill()
            raise ServerFailedError(f"{type(self).__name__} did not stop within {STOP_SECONDS} s\n{self._log_tail()}")

    def kill(self) -> None:
        """SIGKILL the server and all its children at once, as a power cut would."""
        if self._tree is not None:
            self._tree.kill()

    def pause(self) -> None:
        """SIGSTOP the server and all its children: connections stay open, nothing answers."""
        if self._tree is not None:
            self._tree.pause()

    def resume(self) -> None:
        """Undo pause()."""
        if self._tree is not None:
            self._tree.resume()

    def restore(self) -> None:
        """Undo pause(), kill() and stop()."""
        self.resume()
        self.start()

    def close(self) -> None:
        """End the server and remove its directory. May be called twice; nothing happens in a forked child."""
        if self._directory is None or os.getpid() != self._owner:
            return
        atexit.unregister(self.close)
        try:
            self._end()
        finally:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None

    def _end(self) -> None:
        """End the server for good, the quickest way: nothing of its data is wanted any more."""
        self.kill()

    @abstractmethod
    def _prepare(self) -> None:
        """Make what the server needs in its directory before it first starts."""

    @abstractmethod
    def _command(self) -> Sequence[str]:
        """The command line that runs the server in the foreground."""

    @abstractmethod
    def _answers(self) -> bool:
        """Whether the server serves; errors of the network mean no."""

    def _environment(self) -> dict[str, str]:
        """The server's environment: nothing of ours but PATH, so that no setting of the machine's user reaches it."""
        return {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(self.directory), "LC_ALL": "C.UTF-8"}

    def _run_as(self) -> str | None:
        """The account to run as; None: as we are."""
        return self._account if os.geteuid() == 0 else None

    def _run(self, command: Sequence[str], timeout: float = 120) -> str:
        """Run a tool as the server's account; its output. Raises ServerFailedError if it fails."""
        account = self._run_as()
        identity: dict[str, Any] = {"user": account, "group": account, "extra_groups": []} if account else {}
        result: subprocess.CompletedProcess[str] = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=self.directory,
            env=self._environment(),
            timeout=timeout,
            check=False,
            **identity,
        )
        if result.returncode != 0:
            raise ServerFailedError(f"{command[0]} failed with exit code {result.returncode}:\n{result.stdout}")
        return result.stdout

    def _write(self, name: str, text: str, mode: int = 0o600) -> Path:
        """Write a file of the server's own into its directory."""
        path = self.directory / name
        path.write_text(text)
        path.chmod(mode)
        if account := self._run_as():
            shutil.chown(path, account, account)
        return path

    def _make_directory(self) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="delaystore-", dir=self._place))
        if account := self._run_as():
            shutil.chown(self._directory, account, account)
        atexit.register(self.close)

    def _await_ready(self, deadline: float) -> None:
        while not self._answers():
            if not self.running or time.monotonic() > deadline:
                what = f"did not answer within {START_SECONDS} s" if self.running else "exited at its start"
                self.kill()
                raise ServerFailedError(f"{type(self).__name__} {what}\n{self._log_tail()}")
            time.sleep(0.05)

    @property
    def _log(self) -> Path:
        return self.directory / "server.log"

    def _log_tail(self, lines: int = 40) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-lines:]) if self._log.exists() else ""


def listens(port: int) -> bool:
    """Whether something accepts connections on a port of the loopback interface."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
