"""The options that several commands share. Each is an environment variable as well."""

from collections.abc import Callable
from typing import Annotated, Any, Final

import typer

from delaystore.errors import ConfigurationError
from delaystore.secret_files import text_or_file
from delaystore.settings import Audit, DelayedDeliverySettings

ENVIRONMENT_PREFIX: Final = "DELAYSTORE"
DEFAULT_ERROR_QUEUE: Final = DelayedDeliverySettings().error_queue
_ERROR_QUEUE: Final = f"{ENVIRONMENT_PREFIX}_ERROR_QUEUE"


def environment_option(name: str, text: str, *, metavar: str | None = None, group: str = "", **more: Any) -> Any:
    """An option with an environment variable named after it: DELAYSTORE_NAME, or DELAYSTORE_GROUP_NAME.

    `name`: with its dashes. `text`: its help. `metavar`: None for a flag. `more`: of typer's.
    """
    words = (ENVIRONMENT_PREFIX, group, name.removeprefix("--").replace("-", "_"))
    return typer.Option(name, envvar="_".join(filter(None, words)).upper(), metavar=metavar, help=text, **more)


def url_option(name: str, text: str, *, group: str = "") -> Any:
    """As `environment_option`, for a URL, which may hold a password: @FILE stands for the URL in that file."""
    return environment_option(name, text, metavar="URL", group=group, callback=_from_file(name))


def _from_file(option: str) -> Callable[[str | None], str | None]:
    def url(given: str | None) -> str | None:
        return None if given is None else text_or_file(given, option)

    return url


StoreUrl = Annotated[
    str | None,
    url_option(
        "--store",
        "Where messages wait: sqlite:///app.db, postgresql+psycopg://..., mysql+pymysql://...",
    ),
]
TransportUrl = Annotated[
    str | None,
    url_option(
        "--transport",
        "Where due messages go: amqp://..., amqps://..., or a database URL for SQL queues.",
    ),
]
Endpoint = Annotated[
    str | None,
    environment_option(
        "--endpoint", "The endpoint whose messages these are; its table is NAME_delayed.", metavar="NAME"
    ),
]
Schema = Annotated[
    str | None,
    environment_option("--schema", "The database schema of the tables. Default: the connection's own.", metavar="NAME"),
]
Table = Annotated[
    str | None,
    environment_option("--table", "The table of waiting messages, in place of ENDPOINT_delayed.", metavar="NAME"),
]
Json = Annotated[bool, environment_option("--json", "Report as one JSON document on standard output.")]


def create_option(command: str) -> Any:
    """--create of a command that stores messages."""
    text = "Make the endpoint's tables (and a SQLite file) where they are missing: for the first time."
    return environment_option("--create", text, group=command)


def all_option(command: str) -> Any:
    """--all of a command that changes messages."""
    return environment_option("--all", "All messages, where nothing else is given.", group=command)


def error_queue_option(text: str, command: str) -> Any:
    """--error-queue, with the default DEFAULT_ERROR_QUEUE. DELAYSTORE_ERROR_QUEUE names it for all commands."""
    own = f"{ENVIRONMENT_PREFIX}_{command}_ERROR_QUEUE".upper()
    return typer.Option("--error-queue", envvar=[own, _ERROR_QUEUE], metavar="NAME", help=text)


Wide = Annotated[bool, environment_option("--wide", "At a terminal: cut nothing, however wide the table gets.")]
Delay = Annotated[
    str | None, typer.Option("--delay", metavar="DURATION", help="From now: 90s, 15m, 2h30m, 3d, or seconds.")
]
AuditOption = Annotated[
    Audit,
    typer.Option(
        "--audit", help="Which changes of messages the store notes: those of operators, or also those of programs."
    ),
]
Retention = Annotated[
    str, typer.Option(metavar="DURATION", help="How long the store keeps its audit trail and ended operations.")
]
At = Annotated[
    str | None,
    typer.Option("--at", metavar="TIME", help="A time in ISO 8601 with its offset: 2027-01-31T09:00:00+01:00."),
]
Destination = Annotated[
    str | None, typer.Option("--destination", metavar="NAME", help="Only messages for this destination.")
]
MaxRate = Annotated[float | None, typer.Option("--max-rate", metavar="NUMBER", help="The most messages a second.")]
Patience = Annotated[
    str, typer.Option("--patience", metavar="DURATION", help="How long to wait for a target that takes nothing.")
]


def required(value: str | None, what: str, option: str, variable: str) -> str:
    """`value`; ConfigurationError saying how to give it, where it is not given."""
    if not value:
        raise ConfigurationError(f"no {what} is given; pass {option} or set {variable}")
    return value


Key = Annotated[
    str | None, typer.Option("--key", metavar="KEY", help="The message that has this key, in place of an ID.")
]


def id_or_key(message_id: str | None, key: str | None) -> dict[str, str]:
    """Whichever is given, by its name; raises ConfigurationError unless just one is."""
    if message_id is not None and key is None:
        return {"message_id": message_id}
    if key is not None and message_id is None:
        return {"key": key}
    raise ConfigurationError("which message? pass its ID or --key KEY, one of them")
