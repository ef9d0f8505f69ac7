"""Former names of commands, options, environment variables and keys of TOML files are refused with the present name."""

import os
from collections.abc import Iterator
from typing import Any

import pytest
from typer.main import get_command

from delaystore.bulk.options import write_options
from delaystore.cli.main import app
from delaystore.errors import ConfigurationError
from delaystore.renames import COMMANDS, KEYS, LOAD_OPTIONS, OPTIONS, VARIABLES, renamed_variable
from delaystore.server.configuration.tables import ConfigurationReader, FromFile, InnerTable, keys_of, tables_of
from delaystore.server.configuration.tree import ServiceConfiguration
from tests.integration.cli import CommandLine

OF_OPTIONS = [(command, option.old, option.new) for option in OPTIONS for command in option.commands]


def commands(command: Any = None, name: str = "") -> Iterator[tuple[str, Any]]:
    """Every command that runs, by its whole name."""
    command = command or get_command(app)
    below = getattr(command, "commands", {})
    if not below:
        yield name, command
    for word, each in below.items():
        yield from commands(each, f"{name} {word}".strip())


KNOWN = dict(commands())


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(capsys, {})


@pytest.mark.parametrize(("old", "new"), COMMANDS.items())
def test_a_former_command_is_refused_with_the_new_one(run: CommandLine, old: str, new: str) -> None:
    assert run.refused(*old.split()) == f"error: {old!r} is now {new!r}"
    assert run.refused(*old.split(), "--json") == f"error: {old!r} is now {new!r}"


@pytest.mark.parametrize("new", COMMANDS.values())
def test_each_new_command_is_there(new: str) -> None:
    assert new in KNOWN or any(name.startswith(f"{new} ") for name in KNOWN)


@pytest.mark.parametrize(("command", "old", "new"), OF_OPTIONS)
def test_a_former_option_is_refused_with_the_new_one(run: CommandLine, command: str, old: str, new: str) -> None:
    assert run.refused(*command.split(), old) == f"error: {old} is now {new}"
    assert run.refused(*command.split(), f"{old}=x") == f"error: {old} is now {new}"


@pytest.mark.parametrize(("command", "old", "new"), OF_OPTIONS)
def test_each_new_option_is_there(command: str, old: str, new: str) -> None:
    present = {name for parameter in KNOWN[command].params for name in parameter.opts}
    assert old not in present
    assert new in present or not new.startswith("--")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        *VARIABLES.items(),
        ("DELAYSTORE_INGEST_DESTINATION", "DELAYSTORE_INGRESS_RUN_DESTINATION"),
        ("DELAYSTORE_INGEST_FORMS", "DELAYSTORE_INGRESS_RUN_DELAY_HEADERS"),
        ("DELAYSTORE_INGEST_ERROR_QUEUE", "DELAYSTORE_INGRESS_RUN_ERROR_QUEUE"),
        ("DELAYSTORE_INGEST_CREATE_AS", "DELAYSTORE_INGRESS_CREATE_NEW_EXCHANGE"),
        ("DELAYSTORE_INGEST_CREATE_REPLACE", "DELAYSTORE_INGRESS_CREATE_REPLACE"),
        ("DELAYSTORE_INGEST_RETRY_REASON", "DELAYSTORE_INGRESS_REPLAY_REASON"),
        ("DELAYSTORE_DELAYS_BIND_ROUTING", "DELAYSTORE_CASCADE_BIND_ROUTING"),
        ("DELAYSTORE_SERVE_INGEST", "DELAYSTORE_SERVE_INGRESS"),
        ("DELAYSTORE_CANCEL_RESUME", "the command 'operations resume'"),
        ("DELAYSTORE_DISPATCH_RETRIES", "DELAYSTORE_DISPATCH_NUMBER_OF_RETRIES"),
        ("DELAYSTORE_DELAYS_STATUS_WATCH", "DELAYSTORE_CASCADE_STATUS_OBSERVE"),
        ("DELAYSTORE_COUNT_BY", "DELAYSTORE_COUNT_PER"),
        ("DELAYSTORE_ERRORS_LIST_SINCE", "DELAYSTORE_ERRORS_LIST_FAILED_AFTER"),
    ],
)
def test_a_former_variable_is_refused_with_the_new_one(
    run: CommandLine, monkeypatch: pytest.MonkeyPatch, old: str, new: str
) -> None:
    monkeypatch.setenv(old, "x")
    assert run.refused("endpoints") == f"error: {old} is now {new}"
    assert run("endpoints", "--help").code == 0


def variables() -> Iterator[str]:
    """The variables that options of the commands name."""
    for name, command in KNOWN.items():
        for parameter in command.params:
            named = parameter.envvar or ()
            yield from [named] if isinstance(named, str) else named
            if parameter.param_type_name == "option":
                yield f"DELAYSTORE_{name}_{parameter.name}".replace(" ", "_").upper()


def test_no_variable_that_is_read_has_a_former_name() -> None:
    assert {name: renamed_variable(name) for name in variables() if renamed_variable(name)} == {}


def test_each_new_variable_is_read() -> None:
    of_options = {
        f"DELAYSTORE_{command}_{new.removeprefix('--')}".replace(" ", "_").replace("-", "_").upper()
        for command, _, new in OF_OPTIONS
        if new.startswith("--")
    }
    assert not ({*VARIABLES.values()} | of_options) - set(variables())


@pytest.mark.parametrize(("old", "new"), LOAD_OPTIONS.items())
def test_a_former_option_of_a_load_is_refused_with_the_new_one(old: str, new: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^the option {old} is now {new}$"):
        write_options({"store": "sqlite:///app.db", "endpoint": "sales", old: "a"})


def tables(struct: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield path, struct
    for name, inner in tables_of(struct).items():
        assert isinstance(inner, InnerTable)
        yield from tables(inner.struct, (*path, name, "x") if inner.several else (*path, name))


@pytest.mark.parametrize(("old", "new"), KEYS.items())
def test_a_former_key_is_refused_with_the_new_one(old: str, new: str) -> None:
    found = [(path, struct) for path, struct in tables(ServiceConfiguration) if new in keys_of(struct)]
    assert found
    for path, struct in found:
        reader = ConfigurationReader(ServiceConfiguration, FromFile("a.toml", os.environ))
        with pytest.raises(ConfigurationError, match=rf"^a\.toml: \[{'.'.join(path)}\] {old} is now {new}$"):
            reader.read(struct, {old: "x"}, path)


def test_a_former_key_in_another_table_is_refused_with_the_new_one_and_its_table() -> None:
    reader = ConfigurationReader(ServiceConfiguration, FromFile("a.toml", os.environ))
    with pytest.raises(
        ConfigurationError, match=r"retries is now number_of_retries, in \[endpoint\.NAME\.dispatcher\]$"
    ):
        reader.read(ServiceConfiguration, {"endpoint": {"sales": {"retries": 3}}})
