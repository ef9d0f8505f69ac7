"""The reference of environment variables, written from the options of the commands."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Final

from website.commands import Command, Option, all_commands

_INTRODUCTION: Final = """# Environment variables

For users who set options once, and for services. Every option of the command line can be an environment variable. An
option on the command line takes precedence over its variable. `delaystore help environment` prints a summary.

## All commands

Set these variables once, and leave the options out of each call.

| variable | option | meaning |
|---|---|---|
"""
_FILES: Final = """
A URL contains a password. If you write `@FILE` in its place, delaystore reads the URL from that file, as Docker and
Kubernetes mount secrets: `DELAYSTORE_STORE=@/run/secrets/store`.

## Single commands

The name is `DELAYSTORE_<COMMAND>_<OPTION>`, in capitals, with `_` in place of spaces and dashes:

| command and option | variable |
|---|---|
| `send --delay` | `DELAYSTORE_SEND_DELAY` |
| `list --id-prefix` | `DELAYSTORE_LIST_ID_PREFIX` |
| `errors replay --to` | `DELAYSTORE_ERRORS_REPLAY_TO` |

A flag is set by `1`, `true`, `yes` or `on`. A repeatable option takes several values, separated by spaces.

## Groups of commands

These variables belong to several commands of a group.

| variable | option | commands |
|---|---|---|
"""
_WEB: Final = """
## The web page

These variables have no option, because every user of the machine can list the options of a process.
[The web page](../how-to/web-page.md) explains them.

| variable | meaning |
|---|---|
| `DELAYSTORE_WEB_USERS` | users, with passwords and roles |
| `DELAYSTORE_WEB_TOKENS` | tokens of programs, with roles |
| `DELAYSTORE_WEB_SECRET` | secret that signs forms and sessions; equal in all processes |
"""


def page() -> str:
    """The reference, as a page."""
    shared, grouped = defaultdict(list), defaultdict(list)
    for command, option, variable in _uses(all_commands()):
        if variable == _variable(option.name):
            shared[variable].append(option)
        elif variable != _variable(f"{command} {option.name}"):
            grouped[variable].append((command, option))
    first = [f"| `{name}` | `{found[0].name}` | {_usual_text(found)} |" for name, found in sorted(shared.items())]
    second = [
        f"| `{name}` | `{found[0][1].name}` | {', '.join(f'`{command}`' for command, _ in found)} |"
        for name, found in sorted(grouped.items())
    ]
    return _INTRODUCTION + "\n".join(first) + "\n" + _FILES + "\n".join(second) + "\n" + _WEB


def _uses(commands: list[Command]) -> Iterator[tuple[str, Option, str]]:
    """Each variable with a command and an option to which it belongs."""
    for command in commands:
        for option in command.options:
            for variable in option.variables:
                yield command.name.removeprefix("delaystore "), option, variable


def _variable(words: str) -> str:
    return "_".join(["DELAYSTORE", *words.replace("--", "").replace("-", " ").upper().split()])


def _usual_text(options: list[Option]) -> str:
    (text, _), *_ = Counter(option.text for option in options).most_common(1)
    return text.replace("|", r"\|").replace("<", "&lt;").replace("\n", " ")
