"""The options that several commands share. Each is an environment variable as well."""

from typing import Annotated, Final

import typer

from delaystore.errors import ConfigurationError

ENVIRONMENT_PREFIX: Final = "DELAYSTORE"

StoreUrl = Annotated[
    str | None,
    typer.Option(
        "--store",
        envvar="DELAYSTORE_STORE",
        metavar="URL",
        show_default=False,
        help="Where messages wait: sqlite:///app.db, postgresql+psycopg://..., mysql+pymysql://...",
    ),
]
TransportUrl = Annotated[
    str | None,
    typer.Option(
        "--transport",
        envvar="DELAYSTORE_TRANSPORT",
        metavar="URL",
        show_default=False,
        help="Where due messages go: amqp://..., amqps://..., or a database URL for SQL queues.",
    ),
]
Endpoint = Annotated[
    str | None,
    typer.Option(
        "--endpoint",
        envvar="DELAYSTORE_ENDPOINT",
        metavar="NAME",
        show_default=False,
        help="The endpoint whose messages these are; its table is NAME_delayed.",
    ),
]
Schema = Annotated[
    str | None,
    typer.Option(
        "--schema",
        envvar="DELAYSTORE_SCHEMA",
        metavar="NAME",
        show_default=False,
        help="The database schema of the tables. Default: the connection's own.",
    ),
]
Table = Annotated[
    str | None,
    typer.Option(
        "--table",
        envvar="DELAYSTORE_TABLE",
        metavar="NAME",
        show_default=False,
        help="The table of waiting messages, in place of ENDPOINT_delayed.",
    ),
]
Json = Annotated[
    bool, typer.Option("--json", envvar="DELAYSTORE_JSON", help="Report as one JSON document on standard output.")
]
Delay = Annotated[
    str | None,
    typer.Option("--delay", metavar="DURATION", show_default=False, help="From now: 90s, 15m, 2h30m, 3d, or seconds."),
]
At = Annotated[
    str | None,
    typer.Option(
        "--at",
        metavar="TIME",
        show_default=False,
        help="A time in ISO 8601 with its offset: 2027-01-31T09:00:00+01:00.",
    ),
]
Destination = Annotated[
    str | None,
    typer.Option("--destination", metavar="NAME", show_default=False, help="Only messages for this destination."),
]


def required(value: str | None, what: str, option: str, variable: str) -> str:
    """`value`; ConfigurationError saying how to give it, where it is not given."""
    if not value:
        raise ConfigurationError(f"no {what} is given; pass {option} or set {variable}")
    return value
