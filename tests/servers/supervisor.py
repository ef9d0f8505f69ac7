"""Runs one server as a child, and ends it with all its descendants when the process that wanted it is gone.

Run as a script, by path: `supervisor.py PARENT_PID ACCOUNT DIRECTORY LOG COMMAND...`. ACCOUNT is an OS user, or `-`
for the present one. It prints the server's process id, and exits when the server has exited. If PARENT_PID dies, even
by SIGKILL, it kills the server and removes DIRECTORY.
"""

import contextlib
import ctypes
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import psutil

PR_SET_CHILD_SUBREAPER = 36  # <linux/prctl.h>
OPEN_FILES = 65536
PARENT_CHECK = 0.5  # seconds between looks at whether the parent still lives


def live_descendants(pid: int) -> list[psutil.Process]:
    """All processes below `pid` that still run, parents before children."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return [process for process in psutil.Process(pid).children(recursive=True) if _is_live(process)]
    return []


def kill_descendants(pid: int, timeout: float = 20) -> None:
    """SIGKILL everything below `pid`, and what it forks meanwhile, until nothing is left."""
    deadline = time.monotonic() + timeout
    while remaining := live_descendants(pid):
        if time.monotonic() > deadline:
            raise TimeoutError(f"processes that do not die: {remaining}")
        for process in remaining:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        time.sleep(0.01)


def _is_live(process: psutil.Process) -> bool:
    try:
        return process.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.NoSuchProcess:
        return False


def _adopt_orphans() -> None:
    """Make daemons that the server starts (Erlang's epmd) our children, so that none escapes. Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _raise_open_files_limit() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, OPEN_FILES)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _exited_children() -> Iterator[int]:
    with contextlib.suppress(ChildProcessError):
        while (pid := os.waitpid(-1, os.WNOHANG)[0]) != 0:
            yield pid


def _wait(server: int, parent: int) -> None:
    """Return when the server has exited or the parent is gone."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    while os.getppid() == parent:
        if server in _exited_children():
            return
        signal.sigtimedwait({signal.SIGCHLD}, PARENT_CHECK)


def _launch(account: str, log: str, command: list[str]) -> int:
    identity: dict[str, Any] = {} if account == "-" else {"user": account, "group": account, "extra_groups": []}
    with open(log, "ab") as output:
        server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, **identity)
    server.returncode = 0  # _wait reaps it, together with the orphans
    return server.pid


def main(arguments: list[str]) -> None:
    """Run the server until it exits or its parent does."""
    parent, account, directory, log, *command = arguments
    _adopt_orphans()
    _raise_open_files_limit()
    server = _launch(account, log, command)
    print(server, flush=True)  # noqa: T201 - this line is what the parent waits for
    _wait(server, int(parent))
    kill_descendants(os.getpid())
    for _ in _exited_children():
        pass  # reaped, so that no zombie is left to init
    if os.getppid() != int(parent):
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1:])
