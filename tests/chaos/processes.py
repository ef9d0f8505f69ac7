"""The workload's processes: started, killed, paused, and started again when they die."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

from tests.chaos.history import Recorder
from tests.chaos.program import Options

ROOT = Path(__file__).parents[2]
LOOK = 0.1  # seconds between looks at whether a process has died
START_AGAIN = 1.0
PATIENCE = 60.0


class Process:
    """One process of the workload. `module`: what it runs.

    Started, stopped and started again by the thread of its `Processes`, for the kernel ends it with that thread.
    """

    def __init__(self, module: str, options: Options, recorder: Recorder) -> None:
        self.name = options.name
        self.log = Path(options.folder) / f"{self.name}.log"
        self._module = module
        self._options = options
        self._recorder = recorder
        self._wanted = False
        self._expected = False
        self._not_before = 0.0
        self._child: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def start(self) -> None:
        """Let it run, now and again whenever it dies."""
        with self._lock:
            self._wanted, self._not_before = True, 0.0

    def kill(self) -> None:
        """SIGKILL; it stays dead until `start`."""
        with self._lock:
            self._wanted, self._expected = False, not self.gone
            self._signal(signal.SIGKILL)

    def pause(self) -> None:
        """SIGSTOP."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        self._signal(signal.SIGCONT)

    def terminate(self) -> None:
        """SIGTERM; it stays away once it has ended."""
        with self._lock:
            self._wanted, self._expected = False, not self.gone
            self._signal(signal.SIGTERM)

    @property
    def gone(self) -> bool:
        """Whether nothing of it runs."""
        return self._child is None

    def tend(self) -> None:
        """Notice its death, and start it if that is wanted."""
        with self._lock:
            if self._child is not None and self._child.poll() is not None:
                self._note_death(self._child.returncode)
            if self._child is None and self._wanted and time.monotonic() >= self._not_before:
                self._launch()

    def _note_death(self, code: int) -> None:
        self._recorder.note("process_died", name=self.name, code=code, expected=self._expected)
        self._child, self._expected = None, False
        self._not_before = time.monotonic() + START_AGAIN

    def _launch(self) -> None:
        with self.log.open("ab") as log:
            self._child = subprocess.Popen(
                [sys.executable, "-m", self._module, self._options.json()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=ROOT,
                start_new_session=True,  # Ctrl-C at the terminal is for the run, which ends its processes
            )

    def _signal(self, number: signal.Signals) -> None:
        if self._child is not None:
            with suppress(ProcessLookupError):
                os.kill(self._child.pid, number)


class Processes:
    """All of them, by name. A context manager; at its end none is left."""

    def __init__(self, processes: Sequence[Process]) -> None:
        self._by_name: Mapping[str, Process] = {process.name: process for process in processes}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._tend, name="processes", daemon=True)

    def __getitem__(self, name: str) -> Process:
        return self._by_name[name]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._by_name.values():
            process.kill()
        self._ended.set()
        self._thread.join(PATIENCE)

    def named(self, prefix: str = "") -> list[Process]:
        """Those whose names begin so."""
        return [process for name, process in self._by_name.items() if name.startswith(prefix)]

    def start(self, prefix: str = "") -> None:
        """Start those whose names begin so."""
        for process in self.named(prefix):
            process.start()

    def terminate(self, prefix: str = "", patience: float = PATIENCE) -> None:
        """SIGTERM to those whose names begin so, and wait; then SIGKILL."""
        leaving = self.named(prefix)
        for process in leaving:
            process.resume()
            process.terminate()
        deadline = time.monotonic() + patience
        while any(not process.gone for process in leaving) and time.monotonic() < deadline:
            time.sleep(LOOK)
        for process in leaving:
            if not process.gone:
                process.kill()

    def _tend(self) -> None:
        while not self._ended.is_set() or any(not process.gone for process in self._by_name.values()):
            for process in self._by_name.values():
                process.tend()
            time.sleep(LOOK)
