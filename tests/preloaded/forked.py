"""A process that is a fork of `serving.py`, with the ways of subprocess.Popen: its modules are imported already."""

import json
import os
import select
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.preloaded.starting import ROOT, commands_folder


class ForkedModule(subprocess.Popen[bytes]):
    """`python -m MODULE ARGUMENTS`, in the repository's folder; `streams`: as of Popen, stdin is empty.

    It ends with this process. Its pid is its own: it may be killed and paused. wait() and poll() hear of its end from
    the process that it is a fork of.
    """

    def __init__(
        self, module: str, arguments: Sequence[str], environment: dict[str, str] | None = None, **streams: Any
    ) -> None:
        self._request = {
            "module": module,
            "arguments": list(arguments),
            "folder": str(ROOT),
            "environment": {**os.environ, **(environment or {})},
            "ignores_interrupts": False,
        }
        super().__init__([module, *arguments], stdin=subprocess.DEVNULL, **streams)

    def _execute_child(self, *given: Any) -> None:
        """In place of a fork of this process and an exec."""
        stdin, _, _, stdout, _, stderr = given[10:16]
        self._connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._connection.connect(str(Path(commands_folder(), "socket")))
        socket.send_fds(self._connection, [json.dumps(self._request).encode()], [stdin, stdout, stderr])
        self.pid = int(self._connection.recv(64))
        self._child_created = True
        self._close_pipe_fds(*given[10:16])  # type: ignore[attr-defined] # what Popen itself calls here

    def _internal_poll(self, *_: Any, **__: Any) -> int | None:
        if self.returncode is None:
            pid, status = self._try_wait(os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def _try_wait(self, flags: int) -> tuple[int, int]:
        """As os.waitpid(), which knows children only."""
        if flags & os.WNOHANG and not select.select([self._connection], [], [], 0)[0]:
            return 0, 0
        status = int(self._connection.recv(64))
        self._connection.close()
        return self.pid, status
