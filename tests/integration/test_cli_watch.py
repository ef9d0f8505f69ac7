"""`delaystore status --watch`: one screen that is redrawn, on a terminal of its own."""

import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from delaystore.delivery import DelayedDelivery
from delaystore.stores import SqlDelayedMessageStore
from tests.integration.cli import PATIENCE, CommandLine, started
from tests.servers import PostgreSQL

ENTER, LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"


class Terminal:
    """A command at a terminal of its own, and what it has written so far."""

    def __init__(self, arguments: list[str], environment: dict[str, str]) -> None:
        self.ours, theirs = pty.openpty()
        os.set_blocking(self.ours, False)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "delaystore.cli", *arguments],
            env={**os.environ, "TERM": "xterm", "COLUMNS": "80", "LINES": "24", **environment},
            stdin=theirs,
            stdout=theirs,
            stderr=subprocess.PIPE,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )
        os.close(theirs)
        self.shown = ""

    def read(self) -> str:
        """Everything that was written since the last call."""
        try:
            text = os.read(self.ours, 1_000_000).decode()
        except OSError:  # nothing yet, or the process has ended
            text = ""
        self.shown += text
        return text

    def wait_for(self, text: str, *, since: int = 0) -> int:
        """Wait until `text` was written behind that many characters; how many there are now."""
        deadline = time.monotonic() + PATIENCE
        while text not in self.shown[since:]:
            assert time.monotonic() < deadline, self.shown[-3000:]
            self.read()
            time.sleep(0.05)
        return len(self.shown)

    def end(self, number: signal.Signals) -> tuple[int, str]:
        """Send a signal; the exit code, and what standard error has."""
        self.process.send_signal(number)
        deadline = time.monotonic() + PATIENCE
        while self.process.poll() is None:
            assert time.monotonic() < deadline
            self.read()
            time.sleep(0.05)
        self.read()
        assert self.process.stderr is not None
        return self.process.returncode, self.process.stderr.read().decode()


@contextmanager
def terminal(arguments: list[str], environment: dict[str, str]) -> Iterator[Terminal]:
    opened = Terminal(arguments, environment)
    try:
        yield opened
    finally:
        opened.process.kill()
        opened.process.wait()
        if opened.process.stderr is not None:
            opened.process.stderr.close()
        os.close(opened.ours)


def environment_of(url: str) -> dict[str, str]:
    return {"DELAYSTORE_STORE": url, "DELAYSTORE_ENDPOINT": "sales", "DELAYSTORE_STATUS_INTERVAL": "0.2"}


@pytest.mark.long_runs("2")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_screen_is_redrawn_and_remains_when_it_ends(sqlite_url: str, number: signal.Signals) -> None:
    store = SqlDelayedMessageStore(sqlite_url)
    delivery = DelayedDelivery("sales", store)
    delivery.send("billing", b"", delay=3600)
    with terminal(["status", "--watch"], environment_of(sqlite_url)) as screen:
        seen = screen.wait_for("waiting      1")
        delivery.send("billing", b"", delay=3600)
        screen.wait_for("waiting      2", since=seen)
        assert screen.end(number) == (0, "")
        before, entered, during = screen.shown.partition(ENTER)
        redrawn, left, remains = during.partition(LEAVE)
    store.close()
    assert (before, bool(entered), bool(left)) == ("", True, True)
    assert redrawn.count("\x1b[H") >= 2
    assert "\x1b[2J" not in redrawn  # the screen is never empty in between
    assert "waiting      2" in remains
    assert "\x1b[H" not in remains


def test_a_store_may_go_away_and_come_back(private_postgresql: PostgreSQL) -> None:
    url = private_postgresql.create_database()
    store = SqlDelayedMessageStore(url)
    DelayedDelivery("sales", store).send("billing", b"", delay=3600)
    store.close()
    with terminal(["status", "--watch", "--timeout", "2s"], environment_of(url)) as screen:
        seen = screen.wait_for("healthy")
        private_postgresql.stop()
        try:
            seen = screen.wait_for("unhealthy: the database cannot be used now", since=seen)
        finally:
            private_postgresql.start()
        seen = screen.wait_for("waiting      1", since=seen)
        assert screen.end(signal.SIGINT) == (0, "")
    private_postgresql.drop_database(url)


@pytest.mark.long
def test_a_small_terminal_gets_what_fits(sqlite_url: str) -> None:
    store = SqlDelayedMessageStore(sqlite_url)
    DelayedDelivery("sales", store).send("billing", b"", delay=3600)
    store.close()
    with terminal(["status", "--watch"], {**environment_of(sqlite_url), "LINES": "3"}) as screen:
        screen.wait_for("more lines")
        assert screen.end(signal.SIGINT) == (0, "")
    drawn = screen.shown.partition(LEAVE)[0].split("\x1b[H")[1]
    assert drawn.count("\r\n") == 2


def test_a_dumb_terminal_gets_no_commands(sqlite_url: str) -> None:
    store = SqlDelayedMessageStore(sqlite_url)
    DelayedDelivery("sales", store).send("billing", b"", delay=3600)
    store.close()
    with terminal(["status", "--watch"], {**environment_of(sqlite_url), "TERM": "dumb", "NO_COLOR": "1"}) as screen:
        screen.wait_for("error queue", since=screen.wait_for("error queue"))
        assert screen.end(signal.SIGINT) == (0, "")
    assert "\x1b[?" not in screen.shown


def test_a_pipe_gets_a_document_a_line(sqlite_url: str) -> None:
    store = SqlDelayedMessageStore(sqlite_url)
    DelayedDelivery("sales", store).send("billing", b"", delay=3600)
    store.close()
    process = started(["status", "--watch", "--json"], environment_of(sqlite_url))
    try:
        assert process.stdout is not None
        documents = [json.loads(process.stdout.readline()) for _ in range(2)]
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    assert [document["waiting"] for document in documents] == [1, 1]
    assert (process.returncode, err) == (0, "")


def test_a_reader_that_has_gone_ends_it(sqlite_url: str) -> None:
    store = SqlDelayedMessageStore(sqlite_url)
    DelayedDelivery("sales", store).send("billing", b"", delay=3600)
    store.close()
    process = started(["status", "--watch", "--json"], environment_of(sqlite_url))
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(PATIENCE) == 141
        assert process.stderr.read() == ""
        process.stderr.close()
    finally:
        process.kill()


def test_mistakes_are_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, sqlite_url: str, tmp_path: Path
) -> None:
    monkeypatch.setenv("DELAYSTORE_STORE", sqlite_url)
    run = CommandLine(capsys, {})
    assert run("setup", "--endpoint", "sales").code == 0
    assert "add --json" in run.refused("status", "--watch", "--endpoint", "sales")
    assert "--interval must be above 0" in run.refused("status", "--watch", "--endpoint", "sales", "--interval", "0")
    assert "no duration" in run.refused("status", "--watch", "--endpoint", "sales", "--interval", "often")
    assert "pass --endpoint" in run.refused("status", "--watch")
    assert "did you mean 'sales'" in run.refused("status", "--watch", "--json", "--endpoint", "salez")
    assert "no SQLite file" in run.refused(
        "status", "--watch", "--endpoint", "x", "--store", f"sqlite:///{tmp_path}/no.db"
    )
    assert run("status").out.split()[:4] == ["endpoint", "waiting", "dispatchers", "tables"]
