"""Mistakes on the command line: one line, exit code 2, nothing stored."""

from pathlib import Path

import pytest

from tests.integration.cli import CommandLine
from tests.servers import PostgreSQLDatabases


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, sqlite_url: str) -> CommandLine:
    """The command line with a store, and no transport."""
    environment = {"DELAYSTORE_STORE": sqlite_url, "DELAYSTORE_ENDPOINT": "sales"}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    command = CommandLine(capsys, environment)
    assert command("setup").code == 0
    return command


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["billing", "--delay", "-5"], "negative"),
        (["billing", "--delay", "soon"], "no duration"),
        (["billing", "--delay", "9999999d"], "out of range"),
        (["billing", "--delay", "1", "--at", "2027-01-01T00:00Z"], "both given"),
        (["billing"], "when is it due?"),
        (["billing", "--at", "2027-01-01T00:00"], "no time zone"),
        (["billing", "--at", "tomorrow"], "ISO 8601"),
        (["", "--delay", "1"], "destination is empty"),
        (["q" * 256, "--delay", "1"], "at most 255"),
        (["billing", "--delay", "1", "--message-id", ""], "message_id is empty"),
        (["billing", "--delay", "1", "--header", "plain"], "KEY=VALUE"),
        (["billing", "--delay", "1", "--headers-json", "{"], "no JSON"),
        (["billing", "--delay", "1", "--headers-json", "[]"], "an object"),
        (["billing", "--delay", "1", "--property", "colour=red"], "unknown property"),
        (["billing", "--delay", "1", "--property", "priority=high"], "whole number"),
        (["billing", "--delay", "1", "--body-file", "/no/such/file"], "cannot be read"),
        (["billing", "text", "--delay", "1", "--body-file", "-"], "given twice"),
        (["/exchanges/x/y", "--delay", "1", "--transport", "sqlite:///other.db"], "no queue"),
    ],
)
def test_a_message_that_makes_no_sense_is_not_stored(run: CommandLine, arguments: list[str], says: str) -> None:
    assert says in run.refused("send", *arguments)
    assert run("count").out == "0\n"


def test_an_id_that_waits_already_is_refused(run: CommandLine) -> None:
    assert run("send", "billing", "first", "--delay", "1h", "--message-id", "a").code == 0
    assert "already waiting" in run.refused("send", "billing", "second", "--delay", "1h", "--message-id", "a")
    assert run("show", "a", "--json").document["body"] == "first"


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("nonsense://x", "URL scheme 'nonsense'"),
        ("nonsense", "not a store URL"),
        ("", "pass --store URL or set DELAYSTORE_STORE"),
        ("sqlite://", "needs a file"),
        ("sqlite:////no/such/directory/x.db", "does not exist; create it first"),
        ("postgresql+psycopg://app:s3cret@127.0.0.1:1/app", "refused"),
        ("postgresql+psycopg://app:s3cret@host:port/app", "port"),
        ("mysql://app:s3cret@127.0.0.1:1/app", "connect"),
    ],
)
def test_a_store_that_cannot_be_had_is_named(run: CommandLine, url: str, says: str) -> None:
    line = run.refused("list", "--store", url)
    assert says in line
    assert "s3cret" not in line


def test_a_wrong_password_is_said_without_the_password(
    run: CommandLine, postgresql: PostgreSQLDatabases, postgresql_url: str
) -> None:
    url = postgresql.create_role("cli_guest", "s3cret", postgresql_url).replace("s3cret", "wr0ng")
    line = run.refused("list", "--store", url)
    assert "password" in line
    assert "wr0ng" not in line


def test_a_transport_that_cannot_be_had_is_named(run: CommandLine) -> None:
    assert "pass --transport URL or set DELAYSTORE_TRANSPORT" in run.refused("dispatch")
    assert "pass --transport URL or set DELAYSTORE_TRANSPORT" in run.refused("receive", "billing")
    assert "DELAYSTORE_TRANSPORT" in run.refused("setup", "--queue", "billing")
    line = run.refused("dispatch", "--transport", "amqp://app:s3cret@127.0.0.1:1/")
    assert "127.0.0.1:1" in line
    assert "s3cret" not in line


def test_a_missing_endpoint_is_named(run: CommandLine) -> None:
    assert "pass --endpoint NAME or set DELAYSTORE_ENDPOINT" in run.refused("list", "--endpoint", "")


def test_a_mode_the_pair_cannot_honour_is_refused(run: CommandLine, tmp_path: Path) -> None:
    elsewhere = f"sqlite:///{tmp_path / 'elsewhere.db'}"
    line = run.refused("dispatch", "--transport", elsewhere, "--mode", "transaction_scope")
    assert "exactly once" in line


def test_a_page_key_that_is_none_is_refused(run: CommandLine) -> None:
    assert "page key" in run.refused("list", "--after", "yesterday")


def test_a_table_and_schema_need_a_sql_store(run: CommandLine) -> None:
    assert "SQL store" in run.refused("list", "--store", "memory://", "--table", "x")


def test_a_missing_table_asks_for_setup(run: CommandLine) -> None:
    assert "delaystore setup" in run.refused("list", "--table", 'x"; drop table y; --')


def test_a_missing_queue_asks_for_setup(run: CommandLine, sqlite_url: str) -> None:
    assert "setup --queue nowhere" in run.refused("receive", "nowhere", "--transport", sqlite_url)


def test_an_unknown_message_is_exit_code_1(run: CommandLine) -> None:
    result = run("show", "nope")
    assert (result.code, result.out) == (1, "")
    assert result.err.startswith("not found: ")


@pytest.mark.parametrize("arguments", [["nope"], ["list", "--nope"], ["show"], ["list", "--limit", "0"], []])
def test_a_wrong_call_is_exit_code_2_without_a_traceback(run: CommandLine, arguments: list[str]) -> None:
    result = run(*arguments)
    assert result.code == 2
    assert "Traceback" not in result.err + result.out
