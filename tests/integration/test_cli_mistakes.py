"""Mistakes on the command line: one line, exit code 2, nothing stored."""

from pathlib import Path

import pytest

from tests.integration.cli import CommandLine
from tests.servers import PostgreSQLDatabases
from tests.servers.scripted_broker import ScriptedBroker

LOOKING = [["list"], ["show", "a"], ["count"], ["health"], ["status"], ["cancel", "a"]]
LOOKING += [["reschedule", "a", "--delay", "1"]]


@pytest.fixture
def environment(prepared_sqlite_url: str) -> dict[str, str]:
    """A store, and no transport."""
    return {"DELAYSTORE_STORE": prepared_sqlite_url, "DELAYSTORE_ENDPOINT": "sales"}


@pytest.mark.long_runs(after=16)
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["billing", "--delay", "-5"], "negative"),
        (["billing", "--delay", "soon"], "no duration"),
        (["billing", "--delay", "9999999d"], "out of range"),
        (["billing", "--delay", "1", "--at", "2027-01-01T00:00Z"], "both given"),
        (["billing"], "when is it due?"),
        (["billing", "--at", "2027-01-01T00:00"], "no time zone"),
        (["billing", "--at", "tomorrow"], "is not a time in a form"),
        (["", "--delay", "1"], "destination is empty"),
        (["q" * 256, "--delay", "1"], "at most 255"),
        (["q\n", "--delay", "1"], "control character '\\n'"),
        (["/queues/q%0D", "--delay", "1", "--transport", "amqp://127.0.0.1:1"], "control character '\\r'"),
        (["billing", "--delay", "1", "--message-id", ""], "message_id is empty"),
        (["billing", "--delay", "1", "--on-key", "keep"], "--on-key and --max-wait need --key; give the message"),
        (["billing", "--delay", "1", "--max-wait", "5"], "--on-key and --max-wait need --key; give the message"),
        (["billing", "--delay", "1", "--key", "k", "--max-wait", "5"], "--max-wait needs --on-key debounce"),
        (
            ["billing", "--delay", "1", "--key", "k", "--on-key", "debounce", "--max-wait", "0s"],
            "--max-wait '0s' must be more than 0",
        ),
        (["billing", "--delay", "1", "--header", "plain"], "KEY=VALUE"),
        (["billing", "--delay", "1", "--headers-json", "{"], "no JSON"),
        (["billing", "--delay", "1", "--headers-json", "[]"], "an object"),
        (["billing", "--delay", "1", "--headers-json", ""], "no JSON"),
        (["billing", "--delay", "1", "--headers-json", '{"n": NaN}'], "NaN is no number"),
        (["billing", "--delay", "1", "--headers-json", '{"deep": [{"n": -Infinity}]}'], "-Infinity is no number"),
        (["billing", "--delay", "1", "--headers-json", '{"deep": [1e999]}'], "beyond what a number can hold"),
        (["billing", "--delay", "1", "--headers-json", '{"half": "\\ud800"}'], "half a character"),
        (["billing", "--delay", "1", "--headers-json", "[" * 100_000], "nested too deeply"),
        (["billing", "--delay", "1", "--header", "key=\udcff"], "no UTF-8"),
        (["billing", "--delay", "1", "--property", "colour=red"], "unknown property"),
        (["billing", "--delay", "1", "--property", "priority=high"], "whole number"),
        (["billing", "--delay", "1", "--body-file", "/no/such/file"], "cannot be read"),
        (["billing", "--delay", "1", "--body-file", ""], "--body-file is empty"),
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
        ("sqlite:///file::memory:?cache=shared&uri=true", "needs a file"),
        ("sqlite:///file:app?mode=memory&uri=true", "needs a file"),
        ("sqlite:////no/such/directory/x.db", "does not exist; create it first"),
        ("postgresql+psycopg://app:s3cret@127.0.0.1:1/app", "refused"),
        ("postgresql+psycopg://app:s3cret@host:port/app", "port"),
        ("mysql://app:s3cret@127.0.0.1:1/app", "connect"),
        ("mysql://app:s3cret@127.0.0.1:1/app?nonsense=1", "that its options exist"),
        ("sqlite:///x.db?nonsense=1", "no option 'nonsense'"),
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


@pytest.mark.parametrize("option", ["--fail-fast", "--once"])
@pytest.mark.parametrize("server", ["store", "transport"])
def test_a_server_that_cannot_be_reached_is_named(run: CommandLine, sqlite_url: str, server: str, option: str) -> None:
    scheme = {"store": "postgresql+psycopg", "transport": "amqp"}[server]
    urls = {"store": sqlite_url, "transport": sqlite_url, server: f"{scheme}://app:s3cret@127.0.0.1:1/app"}
    line = run.refused("dispatch", option, "--store", urls["store"], "--transport", urls["transport"])
    assert "127.0.0.1" in line
    assert "s3cret" not in line


def test_an_error_queue_that_does_not_answer_is_no_reason_to_wait(
    run: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("delaystore.transports.rabbitmq.blocking.ANSWER", 0.2)
    with ScriptedBroker() as broker:
        result = run("dispatch", "--once", "--transport", broker.url)
    assert result.code == 0
    assert "warning: the error queue 'error' could not be declared: " in result.err


def test_a_missing_endpoint_is_named(run: CommandLine) -> None:
    assert "pass --endpoint NAME or set DELAYSTORE_ENDPOINT" in run.refused("list", "--endpoint", "")


def test_a_mode_the_pair_cannot_honour_is_refused(run: CommandLine, tmp_path: Path) -> None:
    elsewhere = f"sqlite:///{tmp_path / 'elsewhere.db'}"
    line = run.refused("dispatch", "--transport", elsewhere, "--exactly-once")
    assert "exactly once" in line


@pytest.mark.parametrize("key", ["yesterday", "2027-01-01T00:00~a", "2027-01-01T00:00Z~\udcff"])
def test_a_page_key_that_is_none_is_refused(run: CommandLine, key: str) -> None:
    assert "is no cursor" in run.refused("list", "--after", key)


def test_a_schema_needs_a_sql_store(run: CommandLine) -> None:
    assert "SQL store" in run.refused("demo", "--store", "memory://", "--schema", "x")


@pytest.mark.long_runs(after=10)
@pytest.mark.parametrize("command", [["setup"], ["send", "billing", "--delay", "1"], ["dispatch"], *LOOKING])
@pytest.mark.parametrize("url", ["memory://", "Memory://name"])
def test_a_store_that_ends_with_the_command_is_refused(run: CommandLine, command: list[str], url: str) -> None:
    line = run.refused(*command, "--store", url)
    assert "a store in memory ends with this command, and each message in it would be lost" in line


@pytest.mark.parametrize(
    "command", [["setup"], ["send", "billing", "--delay", "1"], ["dispatch"], ["dispatch", "--once"], ["receive", "q"]]
)
def test_a_transport_that_ends_with_the_command_is_refused(run: CommandLine, command: list[str]) -> None:
    line = run.refused(*command, "--transport", "memory://name")
    assert "a transport in memory ends with this command, and each message in it would be lost" in line
    assert run("count").out == "0\n"


@pytest.mark.long_runs(after=10)
@pytest.mark.parametrize("command", LOOKING)
@pytest.mark.parametrize("url", ["sqlite:///{}", "sqlite+pysqlite:///{}", "sqlite:///file:{}?uri=true"])
def test_looking_creates_no_file(run: CommandLine, command: list[str], url: str, tmp_path: Path) -> None:
    missing = tmp_path / "mistyped.db"
    line = run.refused(*command, "--store", url.format(missing))
    assert f"there is no SQLite file '{missing}'" in line
    assert not missing.exists()


def test_receiving_creates_no_file(run: CommandLine, tmp_path: Path) -> None:
    missing = tmp_path / "mistyped.db"
    assert "there is no SQLite file" in run.refused("receive", "billing", "--transport", f"sqlite:///{missing}")
    assert not missing.exists()


@pytest.mark.parametrize("command", [["setup"], ["send", "b", "--delay", "1", "--create"], ["dispatch", "--once"]])
def test_what_writes_creates_the_file(run: CommandLine, command: list[str], tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'fresh.db'}"
    assert run(*command, "--store", url, "--transport", url).code == 0
    assert run("list", "--store", url).code == 0


@pytest.mark.parametrize("url", ["sqlite:///{}", "sqlite:///file:{}?uri=true"])
def test_a_file_that_is_there_is_looked_at(run: CommandLine, sqlite_url: str, url: str) -> None:
    assert run("count", "--store", url.format(sqlite_url.removeprefix("sqlite:///"))).out == "0\n"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("q" * 256, "has 256 bytes; at most 255 are allowed"),
        ("ü" * 128, "has 256 bytes; at most 255 are allowed"),
        ("", "--error-queue is empty"),
        ("/exchanges/x/y", "--error-queue cannot be used"),
    ],
)
def test_an_error_queue_that_cannot_be_is_refused_at_the_start(
    run: CommandLine, sqlite_url: str, name: str, says: str
) -> None:
    assert says in run.refused("dispatch", "--once", "--transport", sqlite_url, "--error-queue", name)


def test_an_error_queue_may_be_an_address(run: CommandLine, sqlite_url: str) -> None:
    assert run("dispatch", "--once", "--transport", sqlite_url, "--error-queue", "/queues/" + "%C3%BC" * 100).code == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ["dispatch", "--poll-interval", "0"],
        ["dispatch", "--poll-interval", "99999999999d"],
        ["send", "billing", "--delay", "9999999d"],
        ["reschedule", "a", "--delay", "9999999d"],
        ["health", "--max-overdue", "-1"],
    ],
)
def test_a_wrong_duration_is_told_as_people_write_durations(
    run: CommandLine, sqlite_url: str, arguments: list[str]
) -> None:
    line = run.refused(*arguments, *(["--transport", sqlite_url] if arguments[0] == "dispatch" else []))
    assert "timedelta" not in line


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["dispatch", "--batch-size", "100001"], "--batch-size must be at most 100,000, not 100001"),
        (["dispatch", "--number-of-retries", "9999999"], "--number-of-retries must be at most 1,000,000, not 9999999"),
        (["dispatch", "--handover-horizon", "4000d"], "--handover-horizon must be at most 3650 days"),
        (
            ["dispatch", "--handover-horizon", "5m"],
            "--handover-horizon is longer than --transport delays natively (0:00:00); lower it",
        ),
        (["send", "q", "x", "--delay", "1", "--native"], "--native needs a --transport that delays natively, as amqp:"),
    ],
)
def test_a_mistake_names_the_option_as_it_is_typed(
    run: CommandLine, sqlite_url: str, arguments: list[str], says: str
) -> None:
    assert says in run.refused(*arguments, "--transport", sqlite_url)


def test_a_missing_table_asks_for_setup(run: CommandLine) -> None:
    assert "delaystore setup" in run.refused("list", "--table", 'x"; drop table y; --')


def test_a_missing_queue_asks_for_setup(run: CommandLine, sqlite_url: str) -> None:
    assert "setup --queue nowhere" in run.refused("receive", "nowhere", "--transport", sqlite_url)


def test_an_unknown_message_is_exit_code_1(run: CommandLine) -> None:
    result = run("show", "nope")
    assert (result.code, result.out) == (1, "")
    assert result.err.startswith("not found: ")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nope"], "'nope'"),
        (["--nope"], "--nope"),
        (["list", "--nope"], "--nope"),
        (["show"], "ID or --key"),
        (["list", "--limit", "0"], "--limit"),
        (["demo", "--seconds", "nan"], "--seconds"),
    ],
)
def test_a_wrong_call_is_one_line_too(run: CommandLine, arguments: list[str], says: str) -> None:
    assert says in run.refused(*arguments)


def test_without_a_command_the_help_is_shown(run: CommandLine) -> None:
    result = run()
    assert result.code == 2
    assert any(line.strip().startswith("reschedule ") for line in (result.out + result.err).splitlines())


@pytest.mark.parametrize("queue", ["bil\nling", "/queues/bil%0Aling"])
def test_a_queue_with_a_line_break_is_not_looked_for(run: CommandLine, queue: str) -> None:
    nowhere = ("--transport", "amqp://127.0.0.1:1")
    assert "control character '\\n'" in run.refused("receive", queue, *nowhere)
    assert "control character" in run.refused("dispatch", "--once", "--error-queue", queue, *nowhere)


def test_nothing_is_bound_where_a_name_has_a_line_break(run: CommandLine) -> None:
    line = run.refused("cascade", "bind", "good", "bil\nling", "\r", "--broker", "amqp://127.0.0.1:1")
    assert "'bil\\nling', '\\r'" in line
