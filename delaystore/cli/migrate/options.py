"""The options that the commands of `delaystore migrate` share. Each is an environment variable as well."""

from typing import Annotated

import typer

From = Annotated[
    str | None,
    typer.Option(
        "--from",
        envvar="DELAYSTORE_MIGRATE_FROM",
        metavar="URL",
        show_default=False,
        help="Where messages wait: a store's URL, nservicebus-sql+URL, msmq-sql+URL, nhibernate+URL, file:///PATH.",
    ),
]
To = Annotated[
    str | None,
    typer.Option(
        "--to",
        envvar="DELAYSTORE_MIGRATE_TO",
        metavar="URL",
        show_default=False,
        help="Where they shall wait: amqp://...?delays=nservicebus-v2, amqp://... for what is due, a store's URL, or "
        "noop: (noop:URL), a rehearsal.",
    ),
]
EndpointName = Annotated[
    str | None,
    typer.Option(
        "--endpoint",
        envvar="DELAYSTORE_MIGRATE_ENDPOINT",
        metavar="NAME",
        show_default=False,
        help="The endpoint whose messages these are.",
    ),
]
AllEndpoints = Annotated[
    bool,
    typer.Option(
        "--all-endpoints", envvar="DELAYSTORE_MIGRATE_ALL_ENDPOINTS", help="Every endpoint that the source has."
    ),
]
CutoffTime = Annotated[
    str | None,
    typer.Option(
        "--cutoff-time",
        envvar="DELAYSTORE_MIGRATE_CUTOFF_TIME",
        metavar="TIME",
        show_default=False,
        help="Only what is due then or later moves, in ISO 8601 with its offset; what is due sooner stays.",
    ),
]
AllowRejects = Annotated[
    bool,
    typer.Option(
        "--allow-rejects",
        envvar="DELAYSTORE_MIGRATE_ALLOW_REJECTS",
        help="Go on although some messages cannot move; they are set aside, and abort gives them back.",
    ),
]
