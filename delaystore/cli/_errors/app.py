"""`delaystore errors`."""

import typer

from delaystore.cli._errors.changing import discard, replay
from delaystore.cli._errors.listing import list_errors, show
from delaystore.cli._examples import epilog

errors_app = typer.Typer(invoke_without_command=True, rich_markup_mode=None)
"""The group that this one belongs to reports errors, in one line each."""


@errors_app.callback()
def errors(context: typer.Context) -> None:
    """See what is in the error queue; replay or discard it.

    Messages of NServiceBus' endpoints in the same queue are shown, too, and replayed to where they failed.
    """
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(2)


for name, command in (("list", list_errors), ("show", show), ("replay", replay), ("discard", discard)):
    errors_app.command(name, epilog=epilog(f"errors {name}"))(command)
