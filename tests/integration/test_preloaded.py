"""A command by a fork of a process that has imported the command line is as one by a process of its own."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.preloaded.starting import commands_folder

pytestmark = pytest.mark.long  # the tests' own tool, by which each page's commands run


@pytest.fixture
def environment(sqlite_url: str) -> dict[str, str]:
    path = os.pathsep.join([commands_folder(), os.environ["PATH"]])
    return {**os.environ, "PATH": path, "DELAYSTORE_STORE": sqlite_url, "DELAYSTORE_ENDPOINT": "sales"}


def begun(command: str, environment: dict[str, str], folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        ["bash", "-c", command],
        env=environment,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@contextmanager
def dispatching(environment: dict[str, str], folder: Path) -> Iterator[subprocess.Popen[str]]:
    command = "delaystore setup >&2 && exec delaystore dispatch --transport $DELAYSTORE_STORE"
    with begun(command, environment, folder) as process:
        assert process.stderr is not None
        while not process.stderr.readline().startswith("dispatching"):
            assert process.poll() is None
        yield process


def test_it_has_the_streams_the_folder_and_the_exit_code(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("message_id,delay,body\na,3600,x\n")
    with begun("delaystore send q --file a.csv --create && delaystore count", environment, tmp_path) as process:
        out, _ = process.communicate(timeout=60)
    assert (process.returncode, out.splitlines()[-1]) == (0, "1")
    with begun("delaystore cancle", environment, tmp_path) as process:
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err.count("\n")) == (2, "", 1), err


def test_it_is_told_of_signals(environment: dict[str, str], tmp_path: Path) -> None:
    with dispatching(environment, tmp_path) as process:
        process.terminate()
        _, err = process.communicate(timeout=60)
    assert (process.returncode, err.startswith("stopped: 0 delivered")) == (0, True), err


def test_it_is_killed_with_who_asked(environment: dict[str, str], tmp_path: Path) -> None:
    """The fork holds the pipes too: they end when it does."""
    with dispatching(environment, tmp_path) as process:
        process.kill()
        _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (-signal.SIGKILL, "")


def test_modules_of_one_s_own_have_a_process_of_their_own(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('begun')")
    with begun("delaystore --version", {**environment, "PYTHONPATH": str(tmp_path)}, tmp_path) as process:
        out, _ = process.communicate(timeout=60)
    assert out.startswith("begun\ndelaystore ")
