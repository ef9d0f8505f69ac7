"""Dispatchers in processes of their own."""

import json
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Self

from tests.faults.patience import PATIENCE
from tests.preloaded.forked import ForkedModule

LARGEST_BODY = 1024  # bytes: batches start large where bodies must be small
ROOT = Path(__file__).parents[2]


class DispatcherProcess:
    """A dispatcher from the store at one URL to the transport at another.

    A context manager; at its end the process is gone, and its log holds no traceback.
    `linger`: seconds that each batch is under way at least. `lease`: see SqlDelayedMessageStore.
    """

    def __init__(self, store: str, transport: str, *, linger: float = 0, lease: float = 60, **settings: Any) -> None:
        self._options = {
            "store": store,
            "transport": transport,
            "linger": linger,
            "lease": lease,
            "settings": {"max_body_bytes": LARGEST_BODY, **settings},
        }
        self._unread = b""

    def __enter__(self) -> Self:
        self._log = TemporaryFile()
        self._process = ForkedModule(
            "tests.faults.dispatcher_process",
            [json.dumps(self._options)],
            stdout=subprocess.PIPE,
            stderr=self._log,
        )
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.kill()
        assert self._process.stdout is not None
        self._process.stdout.close()
        log = self.log
        self._log.close()
        if kind is None:
            assert "Traceback" not in log, log
        else:
            sys.stderr.write(log)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def log(self) -> str:
        """What it has logged, from INFO up."""
        self._log.seek(0)
        return self._log.read().decode()

    def await_ready(self) -> Self:
        """Wait until it runs."""
        self._await("ready")
        return self

    def await_batch(self) -> None:
        """Wait until it has another batch under way."""
        self._await("batch")

    def kill(self) -> None:
        """SIGKILL; nothing happens if it has ended."""
        self._process.kill()
        self._process.wait(PATIENCE)

    def terminate(self) -> int:
        """SIGTERM; its exit code."""
        self._process.terminate()
        return self._process.wait(PATIENCE)

    def _await(self, word: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while self._line(deadline) != word:
            pass

    def _line(self, deadline: float) -> str:
        assert self._process.stdout is not None
        while b"\n" not in self._unread:
            readable, _, _ = select.select([self._process.stdout], [], [], max(0, deadline - time.monotonic()))
            assert readable, f"the dispatcher's process said nothing\n{self.log}"
            piece = self._process.stdout.raw.read(4096)  # type: ignore[attr-defined] # a buffered reader has it
            assert piece, f"the dispatcher's process ended with exit code {self._process.wait()}\n{self.log}"
            self._unread += piece
        line, _, self._unread = self._unread.partition(b"\n")
        return line.decode()


@contextmanager
def dispatchers(count: int, store: str, transport: str, **options: Any) -> Iterator[list[DispatcherProcess]]:
    """So many of them, running."""
    with ExitStack() as stack:
        processes = [stack.enter_context(DispatcherProcess(store, transport, **options)) for _ in range(count)]
        yield [process.await_ready() for process in processes]
