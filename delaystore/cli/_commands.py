"""How a function becomes a command: its options and its help."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from functools import wraps
from inspect import Parameter, signature
from typing import Annotated, Any, get_args, get_origin

import typer

from delaystore.cli._help import HelpedCommand, HelpedGroup


class Offered:
    """In the annotation of an options object: the names of the fields that a command offers, in its help's order."""

    def __init__(self, *names: str) -> None:
        self.names = names


def add_commands(app: typer.Typer, commands: Mapping[str, Callable[..., None]]) -> None:
    """Add each function to `app` under its name."""
    for name, function in commands.items():
        app.command(name, cls=HelpedCommand)(with_flat_options(function))


def plain_group(about: str) -> typer.Typer:
    """A group of commands that needs a subcommand. `about`: its help. The group to which it belongs reports errors."""
    app = typer.Typer(cls=HelpedGroup, invoke_without_command=True, rich_markup_mode=None)

    @app.callback(help=about)
    def print_help(context: typer.Context) -> None:
        if context.invoked_subcommand is None:
            typer.echo(context.get_help())
            raise typer.Exit(2)

    return app


def with_flat_options(command: Callable[..., None]) -> Callable[..., None]:
    """`command` as Typer can read it: in place of each options object, a dataclass, come the fields of it.

    Typer has no options that several commands share. So a command takes an options object, as in
    `where: EndpointOptions`, whose fields are annotated as options. Its annotation may hold `Offered(...)`.
    """
    groups: dict[str, tuple[type[Any], Sequence[str]]] = {}
    parameters: list[Parameter] = []
    for parameter in signature(command).parameters.values():
        options, names = _options_object(parameter.annotation)
        if options is None:
            parameters.append(parameter.replace(kind=Parameter.KEYWORD_ONLY))
        else:
            groups[parameter.name] = options, names
            parameters += _parameters(options, names)

    @wraps(command)
    def flat(**given: Any) -> None:
        for name, (options, names) in groups.items():
            given[name] = options(**{each: given.pop(each) for each in names})
        command(**given)

    flat.__signature__ = signature(command).replace(parameters=parameters)  # type: ignore[attr-defined]
    flat.__annotations__ = {each.name: each.annotation for each in parameters}
    return flat


def _options_object(annotation: Any) -> tuple[type[Any] | None, Sequence[str]]:
    """The class of an options object, and the fields that are offered; None: it is an option of its own."""
    kind, *marks = get_args(annotation) if get_origin(annotation) is Annotated else (annotation,)
    if not (isinstance(kind, type) and is_dataclass(kind)):
        return None, ()
    names = next((mark.names for mark in marks if isinstance(mark, Offered)), None)
    return kind, [each.name for each in fields(kind)] if names is None else names


def _parameters(options: type[Any], names: Sequence[str]) -> list[Parameter]:
    known = {each.name: each for each in fields(options)}
    return [
        Parameter(
            name,
            Parameter.KEYWORD_ONLY,
            default=Parameter.empty if known[name].default is MISSING else known[name].default,
            annotation=known[name].type,
        )
        for name in names
    ]
