"""`delaystore migrate`."""

import typer

from delaystore.cli._migrate.abort import abort
from delaystore.cli._migrate.cleanup import cleanup
from delaystore.cli._migrate.preview import preview
from delaystore.cli._migrate.run import run
from delaystore.cli._migrate.status import status
from delaystore.cli._migrate.verify import verify

migrate_app = typer.Typer(invoke_without_command=True, rich_markup_mode=None)
"""The group to which this one belongs reports errors."""


@migrate_app.callback()
def migrate(context: typer.Context) -> None:
    """Move waiting messages out of a store, live.

    Into RabbitMQ's native delays, or into another store: preview, run, verify, clean up. A run that stops goes on when
    it is run again; abort gives back what has not moved.
    """
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(2)


for command in (preview, run, status, abort, verify, cleanup):
    migrate_app.command()(command)
