"""Signals that reach `delaystore serve` before it runs anything."""

import signal
import subprocess
from pathlib import Path

import pytest

from tests.service.serving import endpoint, serving, wait_for, write


def takes(process: subprocess.Popen[str], number: signal.Signals) -> bool:
    """Whether the process has a handler for the signal."""
    status = Path(f"/proc/{process.pid}/status")
    caught = next(line for line in status.read_text().splitlines() if line.startswith("SigCgt:"))
    return bool(int(caught.split()[1], 16) >> (number - 1) & 1)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("moment", ["at once", "as it reads its configuration"])
def test_it_says_that_it_has_stopped(sqlite_url: str, tmp_path: Path, number: signal.Signals, moment: str) -> None:
    config = write(tmp_path / "delaystore.toml", endpoint("sales", sqlite_url, sqlite_url))
    with serving("--config", str(config)) as service:
        first = signal.SIGTERM if moment == "at once" else signal.SIGHUP
        wait_for(lambda: takes(service.process, first), "a handler")
        assert service.stop(number) in (-number, 128 + number)
    assert service.lines == ["stopped"]


def test_a_reload_that_is_asked_for_too_early_is_done_later(sqlite_url: str, tmp_path: Path) -> None:
    config = write(tmp_path / "delaystore.toml", endpoint("sales", sqlite_url, sqlite_url))
    with serving("--config", str(config)) as service:
        wait_for(lambda: takes(service.process, signal.SIGHUP), "a handler")
        service.process.send_signal(signal.SIGHUP)
        service.says("^reloaded: nothing has changed$")
        assert service.stop() == 0
