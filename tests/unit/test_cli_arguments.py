"""Durations and times as people write them; the options of all commands."""

import gc
import weakref
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest
import typer.main

from delaystore.cli._broker import BrokerOptions
from delaystore.cli._signals import look_for_garbage_seldom
from delaystore.cli.main import app
from delaystore.errors import ConfigurationError
from delaystore.text import parse_duration, parse_instant
from tests.integration.cli import CommandLine

SALES: Final = ("--endpoint", "sales", "--store", "memory://", "--transport", "memory://")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(capsys, {})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", timedelta(0)),
        ("90", timedelta(seconds=90)),
        ("1.5", timedelta(seconds=1.5)),
        ("90s", timedelta(seconds=90)),
        ("250ms", timedelta(milliseconds=250)),
        ("15m", timedelta(minutes=15)),
        ("2h30m", timedelta(hours=2, minutes=30)),
        ("1.5h", timedelta(minutes=90)),
        ("3d", timedelta(days=3)),
        ("1w 2d 3h 4m 5s 6ms", timedelta(weeks=1, days=2, hours=3, minutes=4, seconds=5, milliseconds=6)),
        (" 3 D ", timedelta(days=3)),
    ],
)
def test_a_friendly_duration_is_understood(text: str, expected: timedelta) -> None:
    assert parse_duration(text, "--delay") == expected


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("-5", "negative"),
        ("-3d", "negative"),
        ("", "no duration"),
        ("soon", "no duration"),
        ("3x", "no duration"),
        ("3d!", "no duration"),
        ("1e9", "no duration"),
        ("٣d", "no duration"),
        ("inf", "no duration"),
        ("9" * 400 + "d", "out of range"),
        ("99999999999d", "out of range"),
    ],
)
def test_a_duration_that_makes_no_sense_is_refused_by_name(text: str, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says) as refused:
        parse_duration(text, "--delay")
    assert "--delay" in str(refused.value)


@pytest.mark.parametrize("text", ["2027-01-31T09:00:00+01:00", "2027-01-31T08:00Z", "20270131T080000Z"])
def test_a_time_with_its_offset_is_understood(text: str) -> None:
    assert parse_instant(text, "--at") == datetime(2027, 1, 31, 8, tzinfo=UTC)


def test_a_time_without_an_offset_is_refused_with_a_suggestion() -> None:
    with pytest.raises(ConfigurationError, match=r"no time zone; add an offset, as in 2027-01-31T09:00:00Z"):
        parse_instant("2027-01-31T09:00", "--at")


@pytest.mark.parametrize("text", ["tomorrow", "", "2027-13-01T00:00Z", "1893456000"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="--at"):
        parse_instant(text, "--at")


def options(command: Any = None, name: str = "DELAYSTORE") -> Iterator[tuple[str, str, list[str]]]:
    """Each command's prefix, option, and variables."""
    command = command or typer.main.get_command(app)
    for each in command.params:
        if each.param_type_name == "option" and each.allow_from_autoenv:
            given = each.envvar or f"{name}_{each.name.upper()}"
            yield name, max(each.opts, key=len), [given] if isinstance(given, str) else list(given)
    for word, below in getattr(command, "commands", {}).items():
        yield from options(below, f"{name}_{word.replace('-', '_').upper()}")


def test_each_variable_is_named_after_its_option() -> None:
    for command, option, variables in options():
        for variable in variables:
            assert variable.endswith(option.removeprefix("--").replace("-", "_").upper()), (command, option)


def test_one_variable_names_the_error_queue_for_all_commands() -> None:
    taking = {command: variables for command, option, variables in options() if option == "--error-queue"}
    assert {"DELAYSTORE_DISPATCH", "DELAYSTORE_HEALTH", "DELAYSTORE_WEB", "DELAYSTORE_ERRORS_LIST"} <= set(taking)
    assert all(variables[-1] == "DELAYSTORE_ERROR_QUEUE" for variables in taking.values())


def test_each_command_is_told_in_one_line_of_the_help() -> None:
    every: Any = typer.main.get_command(app)
    for group in (every, every.commands["errors"], every.commands["operations"]):
        for name, command in group.commands.items():
            assert not command.get_short_help_str(60).endswith("..."), name


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"broker": "amqp://a/v", "transport": "amqp://b"}, "amqp://a/v"),
        ({"transport": "amqps://b/v?delays=nservicebus-v2&queue_type=classic"}, "amqps://b/v"),
        ({"transport": "AMQP://b?heartbeat=5&delays=x"}, "amqp://b?heartbeat=5"),
    ],
)
def test_the_broker_is_that_of_the_transport_unless_it_is_given(given: dict[str, str], expected: str) -> None:
    assert BrokerOptions(**given).require_broker() == expected


@pytest.mark.parametrize("transport", [None, "", "sqlite:///app.db"])
def test_without_a_broker_it_says_how_to_give_one(transport: str | None) -> None:
    with pytest.raises(ConfigurationError, match="no broker is given; pass --broker URL or set DELAYSTORE_BROKER"):
        BrokerOptions(transport=transport).require_broker()


USUAL = (700, 10, 10)
"""Python's own; commands that other tests ran in this process may have left another."""


class Cycle:
    """Refers to itself, so that only a look frees it."""

    def __init__(self) -> None:
        self.itself = self


def test_what_many_messages_take_is_looked_at_less_often_and_cycles_still_go() -> None:
    before = gc.get_threshold()
    try:
        gc.set_threshold(*USUAL)
        gc.collect()
        look_for_garbage_seldom()
        assert gc.get_threshold()[0] > 10 * USUAL[0]
        assert gc.get_threshold()[1:] == USUAL[1:]
        assert gc.get_freeze_count() > 0
        gone = weakref.ref(Cycle())
        assert all(not each for each in [[] for _ in range(3 * gc.get_threshold()[0])])
        assert gone() is None
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["list", "--bogus"], "there is no option --bogus; see `delaystore list --help`"),
        (["limit", "x", "--max-rat", "5"], "there is no option --max-rat (did you mean --max-rate?); see "),
        (["lst"], "there is no command 'lst' (did you mean 'list'?); see `delaystore --help`"),
        (["errors", "bogus"], "there is no command 'bogus'; see `delaystore errors --help`"),
        (["list", "x", "y"], "too many arguments: x y; see `delaystore list --help`"),
        (["list", "--limit"], "--limit needs a value; see `delaystore"),
        (["list", "--limit", "x"], "invalid value for --limit: write a whole number; see `delaystore list --help`"),
        (["list", "--limit", "0"], "invalid value for --limit: the least value is 1; see "),
        (["list", "--limit", "100001"], "invalid value for --limit: the greatest value is 100000; see "),
        (["count", "--per", "week"], "invalid value for --per: 'week' is not one of 'minute', 'hour', 'day'; see "),
        (["pause"], "missing argument DESTINATION; see `delaystore pause --help`"),
        (["limit", "billing"], "missing option --max-rate; see `delaystore limit --help`"),
        (["cascade", "export"], "missing option --format (terraform, definitions, mermaid); see "),
        (["dispatch", *SALES, "--poll-interval", "x"], "--poll-interval 'x' is no duration; write "),
    ],
)
def test_a_wrong_call_is_refused_in_one_line_with_the_command_that_helps(
    run: CommandLine, arguments: list[str], error: str
) -> None:
    assert run.refused(*arguments).startswith(f"error: {error}")


def test_a_wrong_value_of_a_variable_names_the_variable(run: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELAYSTORE_LIST_LIMIT", "many")
    assert run.refused("list").startswith("error: DELAYSTORE_LIST_LIMIT: invalid value for --limit: write a whole ")
    monkeypatch.setenv("DELAYSTORE_JSON", "maybe")
    assert run.refused("count").startswith("error: DELAYSTORE_JSON: invalid value for --json: write true or false")
