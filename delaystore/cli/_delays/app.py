"""`delaystore delays`."""

import typer

from delaystore.cli._delays.bind import bind
from delaystore.cli._delays.create import create
from delaystore.cli._delays.delete import delete
from delaystore.cli._delays.export import export
from delaystore.cli._delays.moving import migrate, transfer
from delaystore.cli._delays.status import status
from delaystore.cli._delays.verify import verify

delays_app = typer.Typer(invoke_without_command=True, rich_markup_mode=None)
"""The group that this one belongs to reports errors, in one line each."""


@delays_app.callback()
def delays(context: typer.Context) -> None:
    """Create, verify and empty cascades, RabbitMQ's native delays.

    Options are environment variables as well: DELAYSTORE_BROKER, DELAYSTORE_CASCADE, DELAYSTORE_MANAGEMENT.
    """
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(2)


for command in (create, verify, delete, bind, export, migrate, transfer, status):
    delays_app.command()(command)
