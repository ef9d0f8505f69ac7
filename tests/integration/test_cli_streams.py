"""The command line as a process: where its output goes, and what becomes of what cannot go there."""

import os
import pty
import subprocess
import sys
from datetime import UTC, datetime

import pytest

from delaystore.delivery import DelayedDelivery
from delaystore.message import DelayedMessage
from delaystore.stores import SqlDelayedMessageStore
from delaystore.transports import SqlQueueTransport
from tests.integration.cli import PATIENCE

NO_SPACE = "error: the output cannot be written: No space left on device\n"


@pytest.fixture
def environment(sqlite_url: str) -> dict[str, str]:
    """Names a store in which 5000 messages wait, a transport and an endpoint."""
    store = SqlDelayedMessageStore(sqlite_url)
    DelayedDelivery("sales", store).send_many(waiting(5000))
    store.close()
    return {"DELAYSTORE_STORE": sqlite_url, "DELAYSTORE_TRANSPORT": sqlite_url, "DELAYSTORE_ENDPOINT": "sales"}


def waiting(messages: int) -> list[DelayedMessage]:
    later = datetime(2100, 1, 1, tzinfo=UTC)
    return [
        DelayedMessage(message_id=f"m{number:05}", destination="billing", due_time=later, body=b"hello")
        for number in range(messages)
    ]


def shell(script: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """`script` in bash, where delaystore is the command line."""
    return subprocess.run(
        ["/bin/bash", "-c", f'delaystore() {{ "{sys.executable}" -m delaystore.cli "$@"; }}\n{script}'],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


@pytest.mark.long_runs(after=2)
@pytest.mark.parametrize(
    "command",
    ["list", "list --json", "show m00000", "show m00000 --body", "count --per day", "setup", "cancel m00000"],
)
def test_a_full_disk_is_one_line_and_exit_code_2(environment: dict[str, str], command: str) -> None:
    result = shell(f"delaystore {command} > /dev/full", environment)
    assert (result.returncode, result.stderr) == (2, NO_SPACE)


def test_a_full_disk_is_told_by_the_help_and_the_version_too() -> None:
    for command in ("--help", "list --help", "--version"):
        result = shell(f"delaystore {command} > /dev/full", {})
        assert (result.returncode, result.stderr) == (2, "error: No space left on device\n")


@pytest.mark.long
def test_a_closed_standard_output_is_one_line_and_exit_code_2(environment: dict[str, str]) -> None:
    for command in ("list", "show m00000 --body", "count --per day"):
        result = shell(f"delaystore {command} >&-", environment)
        assert (result.returncode, len(result.stderr.splitlines())) == (2, 1)
        assert result.stderr.startswith("error: the output cannot be written: ")


@pytest.mark.long
def test_a_closed_standard_input_is_one_line_and_exit_code_2(environment: dict[str, str]) -> None:
    for options in ("--file - --format csv", "billing --delay 60 --body-file -"):
        result = shell(f"delaystore send {options} <&-", environment)
        assert (result.returncode, result.stderr) == (2, "error: standard input is closed; name a file in place of -\n")


@pytest.mark.long
def test_what_is_received_stays_in_the_queue_unless_it_could_be_printed(
    environment: dict[str, str], sqlite_url: str
) -> None:
    queues = SqlQueueTransport(sqlite_url)
    queues.declare("billing")
    queues.send(waiting(1), None, PATIENCE)
    for arguments in ("", "--json"):
        result = shell(f"delaystore receive billing {arguments} > /dev/full", environment)
        assert (result.returncode, result.stderr) == (2, NO_SPACE)
    with queues.receive("billing", timeout=PATIENCE) as received:
        assert len(received) == 1
    queues.close()


@pytest.mark.long
def test_remarks_that_cannot_be_written_change_no_exit_code(environment: dict[str, str]) -> None:
    result = shell("delaystore list --limit 1 2> /dev/full", environment)
    assert (result.returncode, len(result.stdout.splitlines())) == (0, 2)
    assert shell("delaystore show nope 2> /dev/full", environment).returncode == 1
    assert shell("delaystore list --nope 2> /dev/full", environment).returncode == 2


@pytest.mark.long
def test_a_closed_pipe_ends_the_command_quietly_as_it_ends_other_tools(environment: dict[str, str]) -> None:
    for command in ("list --all", "list --all --json", "--help", "demo --messages 1 --seconds 0"):
        # what reads has ended before the first line is written
        result = shell(f"{{ sleep 0.3; delaystore {command}; echo ${{?}} >&2; }} | true", environment)
        assert [line for line in result.stderr.splitlines() if "1 message over" not in line] == ["141"]


def test_of_a_long_list_the_first_line_can_be_had_alone(environment: dict[str, str]) -> None:
    result = shell("delaystore list --all | head -1", environment)
    assert result.stdout.startswith("id ")
    assert result.stderr == ""


def test_what_the_encoding_lacks_comes_as_an_escape(environment: dict[str, str]) -> None:
    result = shell("delaystore count --per day", {**environment, "PYTHONIOENCODING": "latin-1"})
    assert (result.returncode, result.stderr) == (0, "")
    assert r"\u2588" in result.stdout


def test_people_at_a_terminal_get_a_table(environment: dict[str, str]) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "delaystore.cli", "list", "--limit", "1"],
        env={**os.environ, **environment, "COLUMNS": "100", "TERM": "dumb"},
        stdout=theirs,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert process.wait(PATIENCE) == 0
        shown = os.read(ours, 100_000).decode()
    finally:
        process.kill()
        os.close(theirs)
        os.close(ours)
    assert "failures" in shown
    assert "m00000" in shown


def test_a_mistake_is_one_line_although_the_library_logs_it(environment: dict[str, str]) -> None:
    nowhere = "postgresql+psycopg://app:s3cret@127.0.0.1:1/app"
    result = shell(f"delaystore send billing --delay 1 --store {nowhere}", environment)
    assert result.returncode == 2
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: the database cannot be used now")


@pytest.mark.long
def test_a_dispatcher_logs_on_standard_error(environment: dict[str, str]) -> None:
    script = "delaystore send nowhere --delay 0 --message-id lost > /dev/null; delaystore dispatch --once"
    result = shell(script, environment)
    assert result.returncode == 0
    *logged, last = result.stderr.splitlines()
    assert any("WARNING" in line and "lost" in line for line in logged), result
    assert last == "done: 0 delivered, 0 failed attempts, 1 moved to the error queue"
