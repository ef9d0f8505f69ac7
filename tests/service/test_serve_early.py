"""Signals that reach `delaystore serve` before it runs anything."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.dispatching import wait_until
from tests.long import long
from tests.service.serving import PATIENCE, endpoint, serving, write


def takes(pid: int, number: signal.Signals) -> bool:
    """Whether the process has a handler for the signal."""
    status = Path(f"/proc/{pid}/status")
    caught = next(line for line in status.read_text().splitlines() if line.startswith("SigCgt:"))
    return bool(int(caught.split()[1], 16) >> (number - 1) & 1)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("moment", ["at once", "as it reads its configuration"])
def test_it_says_that_it_has_stopped(sqlite_url: str, tmp_path: Path, number: signal.Signals, moment: str) -> None:
    config = write(tmp_path / "delaystore.toml", endpoint("sales", sqlite_url, sqlite_url))
    with serving("--config", str(config)) as service:
        first = signal.SIGTERM if moment == "at once" else signal.SIGHUP
        wait_until(lambda: takes(service.process.pid, first), "a handler")
        assert service.stop(number) in (-number, 128 + number)
    assert service.lines == ["stopped"]


def test_a_reload_that_is_asked_for_too_early_is_done_later(sqlite_url: str, tmp_path: Path) -> None:
    config = write(tmp_path / "delaystore.toml", endpoint("sales", sqlite_url, sqlite_url))
    with serving("--config", str(config)) as service:
        wait_until(lambda: takes(service.process.pid, signal.SIGHUP), "a handler")
        service.process.send_signal(signal.SIGHUP)
        service.says("^reloaded: nothing has changed$")
        assert service.stop() == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes a namespace of processes")
@pytest.mark.parametrize(
    "command",
    [
        ["serve", "--web", "127.0.0.1:0"],
        long(["dispatch"]),
        long(["web", "--port", "0"]),
        long(["control", "--transport", "amqp://127.0.0.1:1"]),
        long(["ingress", "run", "orders", "--transport", "amqp://127.0.0.1:1"]),
    ],
)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_process_of_a_container_ends_too(sqlite_url: str, command: list[str], number: signal.Signals) -> None:
    environment = {"DELAYSTORE_STORE": sqlite_url, "DELAYSTORE_TRANSPORT": sqlite_url, "DELAYSTORE_ENDPOINT": "sales"}
    with subprocess.Popen(
        ["unshare", "--pid", "--fork", "--kill-child=KILL", sys.executable, "-m", "delaystore.cli", *command],
        env={**os.environ, **environment},
        stderr=subprocess.PIPE,
        text=True,
    ) as outside:
        try:
            wait_until(lambda: psutil.Process(outside.pid).children(), "the process")
            (first,) = psutil.Process(outside.pid).children()
            wait_until(lambda: takes(first.pid, signal.SIGTERM), "a handler")
            first.send_signal(number)
            _, said = outside.communicate(timeout=PATIENCE)
        finally:
            outside.kill()
    assert outside.returncode == 128 + number
    assert said in ("", "stopped\n")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes a namespace of processes")
def test_the_second_signal_ends_the_first_process_too() -> None:
    program = (
        "import os, signal, time\n"
        "from delaystore.cli._signals import stop_requests\n"
        "with stop_requests() as stop:\n"
        "    os.kill(1, signal.SIGTERM)\n"
        "    assert stop.made\n"
        "    os.kill(1, signal.SIGTERM)\n"
        "    time.sleep(60)\n"
    )
    done = subprocess.run(
        ["unshare", "--pid", "--fork", "--kill-child=KILL", sys.executable, "-c", program],
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 143
