"""What others wrote (ids, destinations, headers, rows of files) cannot act on a terminal, a log or a shell."""

import json
import logging
import shlex
import subprocess
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from delaystore.message import DelayedMessage
from delaystore.settings import TransactionMode
from delaystore.stores import open_store
from tests.integration.cli import CommandLine, started

HOSTILE = "x'; touch pwned; echo '\x1b]0;title\x07\x1b[2J\r\n2026-01-01 CRITICAL forged\u202e\u2028"
"""Ends a quoted word, clears the terminal, begins another line, turns the writing round."""
DUE = datetime(2027, 1, 1, tzinfo=UTC)


@pytest.fixture
def run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, sqlite_url: str, tmp_path: Path
) -> CommandLine:
    """The command line, and a store of two messages with hostile text wherever a message may have text."""
    monkeypatch.chdir(tmp_path)
    for name, value in {"DELAYSTORE_STORE": sqlite_url, "DELAYSTORE_ENDPOINT": "sales"}.items():
        monkeypatch.setenv(name, value)
    with closing(open_store(sqlite_url)) as store:
        store.initialize("sales", TransactionMode.NONE)
        store.setup_infrastructure()
        for number in range(2):
            store.store(hostile_message(f"{number}{HOSTILE}"))
    return CommandLine(capsys, {"DELAYSTORE_STORE": sqlite_url, "DELAYSTORE_ENDPOINT": "sales"})


def hostile_message(message_id: str) -> DelayedMessage:
    return DelayedMessage(
        message_id=message_id,
        destination="billing",
        due_time=DUE,
        body=b"a body has lines, \nand \x1b[2J",
        headers={HOSTILE: HOSTILE, "list": [HOSTILE], "table": {HOSTILE: HOSTILE}},
        properties={"content_type": HOSTILE},
    )


def is_harmless(text: str) -> bool:
    """Whether each line is printable, and none is forged."""
    lines = text.split("\n")
    return all(line.replace("\t", "").isprintable() for line in lines) and not any(
        line.startswith("2026-01-01 CRITICAL") for line in lines
    )


@pytest.mark.long_runs(after=12)
@pytest.mark.parametrize("json_too", [[], ["--json"]])
@pytest.mark.parametrize(
    "command",
    [
        ["list", "--limit", "1"],
        ["show", f"0{HOSTILE}"],
        ["count", "--per", "day"],
        ["cancel", f"0{HOSTILE}"],
        ["cancel", HOSTILE],
        ["reschedule", f"0{HOSTILE}", "--delay", "1d"],
        ["show", HOSTILE],
        ["send", "billing", "text", "--delay", "1d", "--message-id", f"2{HOSTILE}"],
        ["send", "billing", "text", "--delay", "1d", "--message-id", f"1{HOSTILE}"],
        ["list", "--after", HOSTILE],
        ["list", "--store", f"sqlite:////nowhere/{HOSTILE}"],
        ["list", "--endpoint", HOSTILE],
        [HOSTILE],
        ["migrate", "preview", "--from", "sqlite:///delaystore.db", "--to", "noop:", "--endpoint", "sales"],
        ["cascade", "export", "--format", "mermaid", "--cascade", f"custom:{HOSTILE}"],
        ["cascade", "export", "--format", "terraform", "--cascade", f"custom:{HOSTILE}", "--vhost", HOSTILE],
        ["cascade", "export", "--format", "definitions", "--cascade", f"custom:{HOSTILE}", "--vhost", HOSTILE],
        ["cascade", "verify", "--broker", "amqp://127.0.0.1:1/%1b%0a", "--cascade", f"custom:{HOSTILE}"],
    ],
    ids=lambda command: " ".join(command[:2])[:40].encode("unicode_escape").decode(),
)
def test_no_command_shows_it_as_it_is(run: CommandLine, command: list[str], json_too: list[str]) -> None:
    result = run(*command, *json_too)
    assert is_harmless(result.out)
    assert is_harmless(result.err)
    assert result.out or result.err
    if json_too and result.out:
        assert json.loads(result.out)


def test_what_a_file_holds_is_rejected_in_one_line(run: CommandLine, tmp_path: Path) -> None:
    row = {"message_id": HOSTILE, "destination": "", "due_time": "2027-01-01T00:00:00Z", "body": ""}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n")
    source = f"file://{tmp_path}/rows.jsonl"
    result = run(
        "migrate", "run", "--from", source, "--to", "noop:", "--endpoint", "sales", "--allow-rejected", "--yes"
    )
    assert is_harmless(result.out + result.err), result


def test_the_command_for_the_next_page_is_safe_in_a_shell(run: CommandLine, tmp_path: Path) -> None:
    remark = run("list", "--limit", "1").err
    arguments = shlex.split(remark.partition("the next page: ")[2])
    assert arguments[0] == "--after"
    assert len(arguments) == 2
    subprocess.run(["sh", "-c", f"echo {remark.partition('the next page: ')[2]}"], check=True, cwd=tmp_path)
    assert not (tmp_path / "pwned").exists()


def test_the_dispatcher_logs_it_in_one_line(run: CommandLine) -> None:
    """A row whose headers cannot be read is moved to the error queue, with a warning."""
    due = datetime.now(UTC) - timedelta(days=1)
    with closing(open_store(run.environment["DELAYSTORE_STORE"])) as store:
        store.initialize("sales", TransactionMode.NONE)
        for number, destination in enumerate(["missing", "/exchanges/no/queue"]):
            late = hostile_message(f"late{number}{HOSTILE}")
            store.store(DelayedMessage(message_id=late.message_id, destination=destination, due_time=due, body=b""))
    process = started(["dispatch", "--once", "--verbose", "--transport", "sqlite:///queues.db"], run.environment)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert "late0x" in err
    assert is_harmless(out + err), err


def test_the_library_logs_ids_as_text(run: CommandLine, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever formatter a program has."""
    late = datetime.now(UTC) - timedelta(days=1)
    with closing(open_store(run.environment["DELAYSTORE_STORE"])) as store:
        store.initialize("sales", TransactionMode.NONE)
        store.store(DelayedMessage(message_id=f"late{HOSTILE}", destination="missing", due_time=late, body=b""))
    caplog.set_level(logging.DEBUG, "delaystore")
    assert run("dispatch", "--once", "--transport", "sqlite:///queues.db").code == 0
    told = [record.getMessage() for record in caplog.records if record.name.startswith("delaystore")]
    assert [one for one in told if "latex" in one]
    assert all(one.isprintable() for one in told)
