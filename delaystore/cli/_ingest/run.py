"""`delaystore ingest`, without a command after it."""

import typer


def run(context: typer.Context) -> None:
    """Take delayed messages from RabbitMQ, of any program.

    create, verify, status and delete are about the exchanges and queues that this takes.
    """
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(2)
