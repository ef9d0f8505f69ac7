"""The options that several commands of `delaystore delays` share. Each is an environment variable as well."""

from typing import Annotated

import typer

BrokerUrl = Annotated[
    str | None,
    typer.Option(
        "--broker",
        envvar="DELAYSTORE_BROKER",
        metavar="URL",
        show_default=False,
        help="The RabbitMQ broker: amqp[s]://user:password@host:port/vhost.",
    ),
]
CascadeName = Annotated[
    str,
    typer.Option(
        "--cascade",
        envvar="DELAYSTORE_CASCADE",
        metavar="NAME",
        help="nservicebus-v2, nservicebus-v1, celery[:QUEUE_TYPE[:PREFIX]], skipping[:PREFIX[:LEVELS[:ms]]] or "
        "custom:PREFIX[:LEVELS[:ms]].",
    ),
]
"""Give it the default `DEFAULT_CASCADE`."""
DEFAULT_CASCADE = "nservicebus-v2"
ManagementUrl = Annotated[
    str | None,
    typer.Option(
        "--management",
        envvar="DELAYSTORE_MANAGEMENT",
        metavar="URL",
        show_default=False,
        help="The management API: http[s]://[user:password@]host:15672; the login defaults to the broker's. "
        "Without it, what only the API knows is reported as unknown.",
    ),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", envvar="DELAYSTORE_DRY_RUN", help="Change nothing; say what would be done.")
]
