"""The reference of the command line, written from what the commands say of themselves."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from typing import Any, Final

from typer.main import get_command

from delaystore.cli.main import app

_NAME: Final = "delaystore"
_MORE: Final = re.compile(r"  \[(?:env var: ([A-Z_, ]+?))?(?:; )?((?:default: |required|[\dx<>=]).*)?\]$", re.DOTALL)
_INTRODUCTION: Final = """# The command line

What `delaystore COMMAND --help` says, for every command. [Operating](../how-to/deploy.md) shows them at work, and
[the guide](command-line.md) says what all of them have in common.

Each option is an environment variable as well: [all variables](variables.md).
"""


@dataclass(frozen=True)
class Option:
    """An option or argument of a command: as it is written, what it does, its variables, and its default or limits."""

    written: str
    text: str
    variables: tuple[str, ...]
    values: str


@dataclass(frozen=True)
class Command:
    """A command, with its whole name; `examples`: calls that work as they are."""

    name: str
    usage: str
    text: str
    options: tuple[Option, ...]
    examples: tuple[str, ...]


def all_commands() -> list[Command]:
    """All commands, in the order in which `--help` lists them."""
    root = get_command(app)
    return list(_commands(root, root.make_context(_NAME, ["demo"], resilient_parsing=True)))


def page() -> str:
    """The reference, as a page."""
    return "\n".join([_INTRODUCTION, *(_section(command) for command in all_commands())])


def _commands(group: Any, context: Any) -> Iterator[Command]:
    for name, command in group.commands.items():
        own = type(context)(command, parent=context, info_name=name)
        if hasattr(command, "commands"):
            yield from _commands(command, own)
        elif not command.hidden:
            yield _described(command, own)


def _described(command: Any, context: Any) -> Command:
    options = [_option(*record) for record in (each.get_help_record(context) for each in command.params) if record]
    examples = [line.strip() for line in (command.epilog or "").splitlines() if line.startswith(f"  {_NAME} ")]
    usage = " ".join(command.get_usage(context).removeprefix("Usage: ").split())
    return Command(context.command_path, usage, command.help, tuple(options), tuple(examples))


def _option(written: str, text: str) -> Option:
    more = _MORE.search(text)
    if more is None:
        return Option(written, text, (), "")
    return Option(written, text[: more.start()], tuple((more[1] or "").replace(" ", "").split(",")), more[2] or "")


def _section(command: Command) -> str:
    parts = [f"## {command.name}\n", f"```text\n{command.usage}\n```\n", f"{_prose(command.text)}\n"]
    if command.examples:
        parts.append("```bash\n" + "\n".join(command.examples) + "\n```\n")
    rows = [f"| {_code(option.written)} | {_meaning(option)} |" for option in command.options]
    return "\n".join([*parts, "| option | what it does |", "|---|---|", *rows, ""])


def _meaning(option: Option) -> str:
    values = f" *{_cell(option.values)}*" if option.values else ""
    return f"{_prose(_cell(option.text))}{values}"


def _prose(text: str) -> str:
    """What is written with angle brackets or asterisks, or as options, must not be read as Markdown."""
    return re.sub(r"(?<![`\w])(--[a-z][a-z-]*)(?!`)", r"`\1`", text.replace("<", "&lt;").replace("*", r"\*"))


def _code(text: str) -> str:
    """As code in a table, where Markdown has no way to write a bar."""
    return f"<code>{escape(text, quote=False).replace('|', '&#124;')}</code>"


def _cell(text: str) -> str:
    return text.replace("|", r"\|").replace("\n", " ")
