"""`delaystore ingest`, without a command after it."""

import typer


def run(context: typer.Context) -> None:
    """Delays for any program: take delayed messages from RabbitMQ itself.

    create, verify, status and delete are about the exchanges and queues that this takes.
    """
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(2)
