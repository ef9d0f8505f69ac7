"""The reference of the command line, written from the help of the commands."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from typing import Any, Final

from delaystore.cli._help import (
    command_name,
    commands_below,
    description,
    examples_of,
    exit_codes_of,
    is_common,
    option_name,
    record,
    section_of,
    summary,
    variables,
)
from delaystore.cli.main import command as root_command

_NAME: Final = "delaystore"
_MORE: Final = re.compile(r"  \[((?:default: |required|[\dx<>=]).*)\]$", re.DOTALL)
_INTRODUCTION: Final = """# Commands

For users of the command line. The page shows the help of every command (`delaystore COMMAND --help`), with all options.
[Operating](../how-to/deploy.md) shows the commands at work. [The guide](command-line.md) explains their common
behaviour.

Each option is an environment variable as well: see [all variables](variables.md). In place of any URL you can write
`@FILE`: delaystore reads the URL from that file.

## Common options

Most commands take these options. The tables of single commands leave them out.

| option | meaning |
|---|---|
"""


@dataclass(frozen=True)
class Option:
    """An option or argument of a command: its form, its meaning, its variables, and its default or limits.

    `name`: with its dashes. `section`: its heading in the help. `common`: whether most commands take it.
    """

    name: str
    written: str
    text: str
    variables: tuple[str, ...]
    values: str
    section: str
    common: bool


@dataclass(frozen=True)
class Command:
    """A command, with its whole name; `examples`: calls that work as they are; `exit_codes`: with their meanings."""

    name: str
    usage: str
    text: str
    options: tuple[Option, ...]
    examples: tuple[str, ...]
    exit_codes: tuple[tuple[int, str], ...]


def all_commands() -> list[Command]:
    """All commands, in the order in which `--help` lists them."""
    root = root_command()
    context = root.make_context(_NAME, ["demo"], resilient_parsing=True)
    return [_described(command, own) for own, command in commands_below(context)]


def page() -> str:
    """The reference, as a page."""
    commands = all_commands()
    common = {option.name: option for each in commands for option in each.options if option.common}
    return "\n".join(
        [_INTRODUCTION + "\n".join(map(_row, common.values())) + "\n", *(_section(command) for command in commands)]
    )


def _described(command: Any, context: Any) -> Command:
    name = command_name(context)
    return Command(
        name=context.command_path,
        usage=" ".join(command.get_usage(context).removeprefix("Usage: ").split()),
        text="\n\n".join(filter(None, [f"{summary(command)}.", description(command)])),
        options=tuple(_options(command, context)),
        examples=tuple(f"{_NAME} {example}" for example in examples_of(name)),
        exit_codes=tuple(exit_codes_of(name).items()),
    )


def _options(command: Any, context: Any) -> Iterator[Option]:
    for parameter in command.params:
        shown = record(parameter, context)
        if shown is not None:
            written, text = shown
            more, name = _MORE.search(text), option_name(parameter)
            yield Option(
                name,
                written,
                text if more is None else text[: more.start()],
                tuple(variables(parameter, context)),
                "" if more is None else more[1],
                section_of(command_name(context), parameter),
                is_common(command_name(context), name),
            )


def _section(command: Command) -> str:
    parts = [f"## {command.name}\n", f"```text\n{command.usage}\n```\n", f"{_prose(command.text)}\n"]
    if command.examples:
        parts.append("```bash\n" + "\n".join(command.examples) + "\n```\n")
    own = [option for option in command.options if not option.common]
    if own:
        parts += ["| option | meaning |", "|---|---|", *map(_row, own), ""]
    common = ", ".join(f"`{option.name}`" for option in command.options if option.common)
    if common:
        parts.append(f"[Common options](#common-options): {common}.\n")
    codes = [f"| {code} | {_prose(_cell(text))} |" for code, text in command.exit_codes]
    return "\n".join([*parts, "| exit code | meaning |", "|---|---|", *codes, ""])


def _row(option: Option) -> str:
    return f"| {_code(option.written)} | {_meaning(option)} |"


def _meaning(option: Option) -> str:
    values = f" *{_cell(option.values)}*" if option.values else ""
    return f"{_prose(_cell(option.text))}{values}"


def _prose(text: str) -> str:
    """Text in which angle brackets, asterisks and options are not read as Markdown."""
    return re.sub(r"(?<![`\w])(--[a-z][a-z-]*)(?!`)", r"`\1`", text.replace("<", "&lt;").replace("*", r"\*"))


def _code(text: str) -> str:
    """As code in a table, where Markdown has no way to write a bar."""
    return f"<code>{escape(text, quote=False).replace('|', '&#124;')}</code>"


def _cell(text: str) -> str:
    return text.replace("|", r"\|").replace("\n", " ")
