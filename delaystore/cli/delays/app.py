"""`delaystore delays`."""

import typer

from delaystore.cli.delays.bind import bind
from delaystore.cli.delays.create import create
from delaystore.cli.delays.delete import delete
from delaystore.cli.delays.export import export
from delaystore.cli.delays.migrate import migrate
from delaystore.cli.delays.status import status
from delaystore.cli.delays.transfer import transfer
from delaystore.cli.delays.verify import verify

delays_app = typer.Typer(invoke_without_command=True, rich_markup_mode=None)
"""Errors are put into one line by the group that this one belongs to."""


@delays_app.callback()
def delays(context: typer.Context) -> None:
    """RabbitMQ's native delays: create a cascade of queues, check it, and move what waits in it.

    Options are environment variables as well: DELAYSTORE_BROKER, DELAYSTORE_CASCADE, DELAYSTORE_MANAGEMENT.
    """
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(2)


delays_app.command("create")(create)
delays_app.command("verify")(verify)
delays_app.command("delete")(delete)
delays_app.command("bind")(bind)
delays_app.command("export")(export)
delays_app.command("migrate")(migrate)
delays_app.command("transfer")(transfer)
delays_app.command("status")(status)
