"""The options of all commands, and their environment variables."""

from collections.abc import Iterator
from typing import Any

import typer.main

from delaystore.cli.main import app


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
