"""The reference of environment variables, written from the options of the commands."""

import re
from collections import defaultdict
from typing import Final

from website.commands import Command, all_commands

_INTRODUCTION: Final = """# Environment variables

Every option of the command line is a variable too. An option on the command line goes first.

## For all commands

These name where messages wait and where they go. Set them once, and leave them out of each call.

| variable | option | what it does |
|---|---|---|
"""
_OTHERS: Final = """
A URL holds a password. Write `@FILE` in its place, and the URL is read from that file, as Docker and Kubernetes mount
secrets: `DELAYSTORE_STORE=@/run/secrets/store`.

## Of the web page

These have no option, since whoever lists processes would see them. [The web page](../how-to/web-page.md) explains them.

| variable | what it does |
|---|---|
| `DELAYSTORE_WEB_USERS` | who may log in, with password and role |
| `DELAYSTORE_WEB_TOKENS` | which programs may use the JSON API, with their role |
| `DELAYSTORE_WEB_SECRET` | what forms and sessions are signed with; the same for all processes |

## Of single commands

The name is `DELAYSTORE_`, the command, and the option.

| variable | command and option |
|---|---|
"""
_FEW: Final = 3


def page() -> str:
    """The reference, as a page."""
    uses = _uses(all_commands())
    shared = {variable: found for variable, found in uses.items() if len(found) >= _FEW}
    single = {variable: found for variable, found in uses.items() if len(found) < _FEW}
    first = [f"| `{name}` | `{found[0][1]}` | {found[0][2]} |" for name, found in sorted(shared.items())]
    rest = [
        f"| `{name}` | {', '.join(f'`{command} {option}`' for command, option, _ in found)} |"
        for name, found in sorted(single.items())
    ]
    return _INTRODUCTION + "\n".join(first) + "\n" + _OTHERS + "\n".join(rest) + "\n"


def _uses(commands: list[Command]) -> dict[str, list[tuple[str, str, str]]]:
    """Each variable with the commands, the options and the texts that it belongs to."""
    uses = defaultdict(list)
    for command in commands:
        for option in command.options:
            (name, *_) = re.findall(r"--[a-z-]+", option.written) or [option.written]
            for variable in option.variables:
                uses[variable].append((command.name.removeprefix("delaystore "), name, _cell(option.text)))
    return uses


def _cell(text: str) -> str:
    return text.replace("|", r"\|").replace("<", "&lt;").replace("\n", " ")
