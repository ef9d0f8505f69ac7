"""Running the command line in tests."""

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest

from delaystore.cli.main import main

PATIENCE = 60.0


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """What a strict parser reads."""
        return json.loads(self.out, parse_constant=_refuse)


class CommandLine:
    """The command line in this process, for one store."""

    def __init__(self, capsys: pytest.CaptureFixture[str], environment: dict[str, str]) -> None:
        self._capsys = capsys
        self.environment = environment

    def __call__(self, *arguments: str) -> Result:
        self._capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        captured = self._capsys.readouterr()
        code = ended.value.code
        return Result(code if isinstance(code, int) else 0, captured.out, captured.err)

    def refused(self, *arguments: str) -> str:
        """The one line that a mistake is answered with."""
        result = self(*arguments)
        assert result.code == 2, result
        assert result.out == ""
        (line,) = result.err.splitlines()
        assert line.startswith("error: ")
        return line


def command_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]
) -> CommandLine:
    """The command line in this process, which has these environment variables for the test."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    return CommandLine(capsys, environment)


def _refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")


def started(arguments: Sequence[str], environment: dict[str, str], **options: Any) -> subprocess.Popen[str]:
    """The command line as a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "delaystore.cli", *arguments],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=_heed_interrupts,
        **options,
    )


def asked(
    arguments: Sequence[str],
    environment: dict[str, str],
    question: str,
    answer: bytes | None,
    *,
    module: str = "delaystore.cli",
) -> tuple[int, str]:
    """Run the command line at a terminal, and answer its question; None: by Ctrl-C. Returns exit code and output."""
    ours, its = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        env={**os.environ, **environment},
        stdin=its,
        stdout=subprocess.DEVNULL,
        stderr=its,
        preexec_fn=_heed_interrupts,
    )
    os.close(its)
    shown = ""
    while question not in shown:
        shown += os.read(ours, 10_000).decode()
    try:
        if answer is None:
            interrupt(process)
        else:
            os.write(ours, answer)
        code = process.wait(PATIENCE)
    finally:
        process.kill()
    with suppress(OSError):  # the end of a terminal that no process has open
        while more := os.read(ours, 10_000):
            shown += more.decode()
    os.close(ours)
    return code, shown


def interrupt(process: subprocess.Popen[bytes]) -> None:
    """SIGINT, again until the process ends: Python misses one that comes just before it begins to read a line."""
    for _ in range(10):
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(PATIENCE / 10)
            return


def first_line_of(process: subprocess.Popen[str]) -> str:
    """The next line that a process says."""
    assert process.stderr is not None
    return process.stderr.readline()


def _heed_interrupts() -> None:
    """A shell's background job ignores SIGINT, and so would its children: the tests may run as one."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
