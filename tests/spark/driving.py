"""Spark drivers in processes of their own, for tests that kill them."""

import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import Any, Self

import psutil

from tests.faults.patience import PATIENCE

ROOT = Path(__file__).parents[2]


class Driver:
    """A driver that does a job (see `tests.spark.driver`); a context manager, at whose end none of it is left.

    `jobs`: several, in this order, or all `at_once`; otherwise the keywords are the one job.
    """

    def __init__(
        self,
        *,
        master: str = "local[2]",
        conf: dict[str, str] | None = None,
        jobs: list[dict[str, Any]] | None = None,
        at_once: bool = False,
        environment: dict[str, str] | None = None,
        **job: Any,
    ) -> None:
        self._options = {"master": master, "conf": conf or {}, "jobs": jobs or [job], "at_once": at_once}
        self._environment = {
            **os.environ,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": str(ROOT),
            **(environment or {}),
        }
        self._unread = b""

    def __enter__(self) -> Self:
        self._log = TemporaryFile()
        self._folder = TemporaryDirectory(prefix="delaystore-driver-", ignore_cleanup_errors=True)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.driver", json.dumps(self._options)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._log,
            cwd=ROOT,
            env={**self._environment, "TMPDIR": self._folder.name},  # it leaves something when it is killed
            start_new_session=True,
        )
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.kill()
        assert self._process.stdout is not None
        self._process.stdout.close()
        if kind is not None:
            self._log.seek(0)
            sys.stderr.write(self._log.read().decode(errors="replace"))
        self._log.close()
        self._folder.cleanup()

    @property
    def tree(self) -> list[psutil.Process]:
        """The driver's process and all below it."""
        try:
            process = psutil.Process(self._process.pid)
            return [process, *process.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def wait_for(self, word: str) -> None:
        """Until it says that next; fails when it says anything else."""
        said = self.said()
        assert said == word, said

    def said(self) -> str:
        """The next line that it says."""
        return self._line(time.monotonic() + PATIENCE)

    def kill(self) -> None:
        """SIGKILL to Python and the JVM at once, and wait until whatever ran below them has gone, too."""
        tree = self.tree
        for process in tree:
            try:
                if process.pid == self._process.pid or "java" in process.name():
                    process.send_signal(signal.SIGKILL)
            except psutil.NoSuchProcess:
                pass
        self._process.wait(PATIENCE)
        _, alive = psutil.wait_procs(tree, PATIENCE)
        assert not alive, alive

    def _line(self, deadline: float) -> str:
        assert self._process.stdout is not None
        while b"\n" not in self._unread:
            readable, _, _ = select.select([self._process.stdout], [], [], max(0, deadline - time.monotonic()))
            assert readable, "the driver said nothing"
            piece = self._process.stdout.raw.read(4096)  # type: ignore[attr-defined] # a buffered reader has it
            assert piece, f"the driver ended with exit code {self._process.wait()}"
            self._unread += piece
        line, _, self._unread = self._unread.partition(b"\n")
        return line.decode()
