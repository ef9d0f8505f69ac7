"""Options that several commands have, how their values are read, and the endpoint they open."""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Final

import typer

from delaystore.calls import Call
from delaystore.cli._commands import Offered
from delaystore.errors import ConfigurationError, DelaystoreError, StoreSetupError
from delaystore.filters import MessageFilter
from delaystore.message import Position
from delaystore.settings import Audit, DelayedDeliverySettings, OnExpired
from delaystore.stores import DelayedMessageStore
from delaystore.stores.opening import store_at
from delaystore.stores.records import Way
from delaystore.text import JsonError, parse_duration, parse_instant, parse_json, parse_shift, text_or_file
from delaystore.transports import Transport
from delaystore.transports.opening import transport_at

if TYPE_CHECKING:
    from delaystore.delivery import DelayedDelivery
    from delaystore.stores.sql import SqlDelayedMessageStore

_MAX_PORT: Final = 65535


def parse_due(delay: str | None, at: str | None) -> tuple[timedelta | None, datetime | None]:
    """What --delay and --at say, None for the one that is not given; ConfigurationError unless just one of them is."""
    if delay is not None and at is not None:
        raise ConfigurationError("--delay and --at are both given; pass one of them")
    if delay is None and at is None:
        raise ConfigurationError("when is it due? pass --delay DURATION or --at TIME")
    return (
        None if delay is None else parse_duration(delay, "--delay"),
        None if at is None else parse_instant(at, "--at"),
    )


def parse_new_due(delay: str | None, at: str | None, by: str | None, time_zone: str | None) -> dict[str, Any]:
    """What --delay, --at, --by and --time-zone say, as arguments of a reschedule; ConfigurationError unless just one of
    the first three is given.
    """
    given = [each is not None for each in (delay, at, by)]
    if not any(given):
        raise ConfigurationError("when is it due? pass --delay DURATION, --at TIME or --by DURATION")
    if sum(given) > 1:
        raise ConfigurationError("pass only one of --delay, --at and --by; --actor NAME names the actor")
    if by is None:
        if time_zone is not None:
            raise ConfigurationError("--time-zone needs --by; leave it out")
        return dict(zip(("delay", "at"), parse_due(delay, at), strict=True))
    return {"by": parse_shift(by, "--by"), "time_zone": time_zone}


def parse_position(text: str | None, option: str) -> Position | None:
    """A page's cursor; ConfigurationError naming `option` for anything else."""
    try:
        if text is None:
            return None
        text.encode()  # half a character would be an error of the database
        return Position.parse(text)
    except ValueError:
        raise ConfigurationError(f"{option} {text!r} is no cursor; pass the one that the page before printed") from None


def parse_pair(text: str, option: str, form: str = "KEY=VALUE") -> tuple[str, str]:
    """`KEY=VALUE`; ConfigurationError naming `option` for anything else, and for half a character."""
    key, mark, value = text.partition("=")
    if not mark or not key:
        raise ConfigurationError(f"{option} {text!r} is not of the form {form}")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ConfigurationError(f"{option} {text!r} is no UTF-8 text") from None
    return key, value


def parse_headers(text: str, option: str) -> dict[str, Any]:
    """A JSON object; ConfigurationError naming `option` for anything else."""
    try:
        headers = parse_json(text)
    except JsonError as error:
        raise ConfigurationError(f"{option} {error}") from None
    if not isinstance(headers, dict):
        raise ConfigurationError(f'{option} must be an object, as in {{"attempt": 1}}')
    return headers


def parse_address(text: str, option: str) -> tuple[str, int]:
    """`HOST:PORT`, also `[::1]:9464`; ConfigurationError naming `option` for anything else."""
    host, colon, port = text.strip().rpartition(":")
    if not colon or not host.strip("[]") or not port.isascii() or not port.isdigit() or int(port) > _MAX_PORT:
        raise ConfigurationError(f"{option} {text!r} is no address; write HOST:PORT, as in 127.0.0.1:9464")
    return host.removeprefix("[").removesuffix("]"), int(port)


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


JsonOption = Annotated[bool, environment_option("--json", "Print one JSON document on standard output.")]


DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Show the changes without making them.")]


def create_option(command: str) -> Any:
    """--create of a command that stores messages."""
    text = "Create missing tables (and a SQLite file)."
    return environment_option("--create", text, group=command)


def all_option(command: str) -> Any:
    """--all of a command that changes messages."""
    return environment_option("--all", "All messages; required without an ID or a filter.", group=command)


def error_queue_option(text: str, command: str) -> Any:
    """--error-queue, with the default DEFAULT_ERROR_QUEUE. DELAYSTORE_ERROR_QUEUE names it for all commands."""
    own = f"{ENVIRONMENT_PREFIX}_{command}_ERROR_QUEUE".upper()
    return typer.Option("--error-queue", envvar=[own, _ERROR_QUEUE], metavar="NAME", help=text)


YesOption = Annotated[bool, typer.Option("--yes", help="Skip the confirmation prompt.")]
FailFast = Annotated[
    bool, typer.Option("--fail-fast", help="End if the store or the broker is unavailable at the start.")
]
MetricsOption = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT", help="Serve metrics to Prometheus at this address, as 127.0.0.1:9464."),
]
MetricsDestinations = Annotated[
    int,
    typer.Option(
        min=0, metavar="NUMBER", help="Maximum number of destinations with separate metric series; others share one."
    ),
]
Wide = Annotated[bool, environment_option("--wide", "At a terminal: break no line of the table.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Log more on standard error.")]
DelayOption = Annotated[
    str | None, typer.Option("--delay", metavar="DURATION", help="Delay from now: 90s, 15m, 2h30m, 3d, or seconds.")
]
OnExpiredOption = Annotated[
    OnExpired,
    typer.Option("--on-expired", help="Result for messages whose latest delivery has passed."),
]
AddedHeadersOption = Annotated[
    str | None,
    typer.Option(
        "--added-headers", metavar="NAMES", help="Headers for consumers: due-time, attempt, sent-at, load; or all."
    ),
]
AuditOption = Annotated[
    Audit,
    typer.Option("--audit", help="Changes to record in the audit trail: by operators only, or also by programs."),
]
Retention = Annotated[
    str, typer.Option(metavar="DURATION", help="Time for which the store keeps its audit trail and ended operations.")
]
HistoryOption = Annotated[
    str | None,
    typer.Option(
        "--history",
        metavar="DURATION",
        help="Time for which the store keeps an entry of each message that has left it; 0: make no more.",
    ),
]
At = Annotated[
    str | None,
    typer.Option("--at", metavar="TIME", help="Due time with offset: 2027-01-31T09:00:00+01:00."),
]
HeaderOption = Annotated[
    list[str] | None,
    typer.Option("--header", metavar="KEY=VALUE", help="Header with a text value; repeatable."),
]
HeadersJson = Annotated[
    str | None, typer.Option("--headers-json", metavar="JSON", help="Headers of other types, as a JSON object.")
]
BodyFile = Annotated[
    str | None, typer.Option("--body-file", metavar="FILE", help="Read the body from FILE; - is standard input.")
]
JsonBody = Annotated[
    str | None, typer.Option("--json-body", metavar="JSON", help="Body as JSON text; sets content_type.")
]


def property_option(group: str) -> Any:
    """--property of a command that makes messages."""
    text = "AMQP property, as content_type=...; repeatable."
    return environment_option("--property", text, metavar="KEY=VALUE", group=group)


DestinationOption = Annotated[
    str | None, typer.Option("--destination", metavar="NAME", help="Only messages for this destination.")
]
MaxRate = Annotated[
    float | None, typer.Option("--max-rate", metavar="NUMBER", help="Maximum number of messages a second.")
]
TargetTimeoutOption = Annotated[
    str, typer.Option("--target-timeout", metavar="DURATION", help="Maximum time to wait for an unavailable target.")
]


def required(value: str | None, what: str, option: str, variable: str) -> str:
    """`value`; ConfigurationError saying how to give it, where it is not given."""
    if not value:
        raise ConfigurationError(f"no {what} is given; pass {option} or set {variable}")
    return value


KeyOption = Annotated[
    str | None, typer.Option("--key", metavar="KEY", help="Name the message by its key, in place of ID.")
]


def id_or_key(message_id: str | None, key: str | None) -> dict[str, str]:
    """The given one, by its name; raises ConfigurationError unless just one is given."""
    if message_id is not None and key is None:
        return {"message_id": message_id}
    if key is not None and message_id is None:
        return {"key": key}
    raise ConfigurationError("which message? pass its ID or --key KEY, one of them")


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterOptions:
    """Which waiting messages a command is about, as given on the command line."""

    destination: DestinationOption = None
    due_after: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Only messages due at this time or later, as 2027-01-31T09:00:00+01:00."),
    ] = None
    due_before: Annotated[str | None, typer.Option(metavar="TIME", help="Only messages due before this time.")] = None
    id_prefix: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Only messages whose id begins with this text.")
    ] = None
    load: Annotated[str | None, typer.Option(metavar="LOAD_ID", help="Only messages that this load has stored.")] = None
    header: Annotated[
        list[str] | None,
        typer.Option(
            "--header", metavar="KEY=VALUE", help="Only messages with this header, compared as text; repeatable."
        ),
    ] = None
    failing: Annotated[bool, typer.Option("--failing", help="Only messages with a failed attempt.")] = False
    paused: Annotated[bool, typer.Option("--paused", help="Only parked messages, whose destination is paused.")] = False

    def filter(self) -> MessageFilter:
        """The filter of the options; empty where none is given. Raises ConfigurationError, InvalidMessageError."""
        headers = [parse_pair(text, "--header") for text in self.header or ()]
        if len(dict(headers)) < len(headers):
            raise ConfigurationError("one header is named twice; name each header once")
        return MessageFilter(
            destination=self.destination,
            since=None if self.due_after is None else parse_instant(self.due_after, "--due-after"),
            until=None if self.due_before is None else parse_instant(self.due_before, "--due-before"),
            id_prefix=self.id_prefix,
            load=self.load,
            headers=dict(headers),
            failing=self.failing or None,
            paused=self.paused or None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchOptions:
    """Whether and how often a command repeats its output."""

    watch: Annotated[bool, typer.Option("--watch", help="Refresh the output until Ctrl-C.")] = False
    interval: Annotated[str, typer.Option(metavar="DURATION", help="Time between two refreshes, with --watch.")] = "2s"

    def seconds(self) -> float:
        """Seconds from one time to the next; ConfigurationError where that is 0."""
        seconds = parse_duration(self.interval, "--interval").total_seconds()
        if not seconds:
            raise ConfigurationError("--interval must be above 0; write 2s, for example")
        return seconds


def standard_input() -> BinaryIO:
    """Its bytes; ConfigurationError where it is closed."""
    if sys.stdin is None:
        raise ConfigurationError("standard input is closed; name a file in place of -")
    return sys.stdin.buffer


class UnknownEndpointError(ConfigurationError):
    """The endpoint is not in the database, or the database is a SQLite file that does not exist."""


def require_file(url: str, *, may_create: bool = False) -> None:
    """UnknownEndpointError where `url` names a SQLite file that does not exist, and which opening would create.

    `may_create`: the command has an option for that, which the error names.
    """
    path = missing_file(url)
    if path is not None:
        remedy = "check the path; for a new one add --create, or run" if may_create else "check the path, or run"
        raise UnknownEndpointError(f"there is no SQLite file {str(path)!r}; {remedy} `delaystore setup`")


def missing_file(url: str) -> Path | None:
    """The SQLite file that `url` names and that does not exist; None: no such file is missing."""
    if url.partition(":")[0].partition("+")[0].lower() != "sqlite":
        return None
    from sqlalchemy import make_url

    from delaystore.stores.sql.urls import sqlite_file

    path = sqlite_file(make_url(url))
    return None if path is None or path.exists() else path


_SHOWN: Final = 5
"""Endpoints that are named where none is similar."""
_SECONDS: Final = 30.0
"""How long the store may take to list its tables."""
_CREATE: Final = "for a new one add --create, or run `delaystore setup` first"


def require_tables(store: DelayedMessageStore, endpoint: str) -> None:
    """UnknownEndpointError where a SQL store has no tables, which names similar endpoints and says how to make it.

    Raises StoreError.
    """
    from delaystore.stores.sql import SqlDelayedMessageStore
    from delaystore.stores.sql.schema import version_of

    if not isinstance(store, SqlDelayedMessageStore):
        return
    with Call("looking for the endpoint's tables", _SECONDS):
        if version_of(store.engine, store.table) is None:
            raise _unknown(store, endpoint, _CREATE)


def explained(error: DelaystoreError, store: DelayedMessageStore, endpoint: str) -> DelaystoreError:
    """`error`, of a store whose tables are missing; a better one where all are, or where the tables are of an old
    release.
    """
    from delaystore.stores.sql import SqlDelayedMessageStore, setup
    from delaystore.stores.sql.schema import version_of

    if not isinstance(store, SqlDelayedMessageStore):
        return error
    try:
        with Call("looking for the endpoint's tables", _SECONDS):
            version = version_of(store.engine, store.table)
            if version is None:
                return _unknown(store, endpoint, "check its name, --store and --schema, or run `delaystore setup`")
            if version >= setup.OPERABLE:
                return error
            return StoreSetupError(
                f"the tables of {endpoint!r} are of an earlier release, without audit trail and operations; "
                "run `delaystore setup`"
            )
    except DelaystoreError:
        return error


def _unknown(store: "SqlDelayedMessageStore", endpoint: str, remedy: str) -> UnknownEndpointError:
    from delaystore.stores.sql.schema import endpoint_tables
    from delaystore.stores.sql.urls import default_table_name

    table = store.table
    found = endpoint_tables(store.engine, table.schema)
    if table.name == default_table_name(endpoint):
        what, wanted, known = f"endpoint {endpoint!r}", endpoint, [each.endpoint for each in found if each.endpoint]
    else:
        what, wanted, known = f"table {table.name!r}", table.name, [each.table for each in found]
    where = "this database" if table.schema is None else f"the schema {table.schema!r}"
    return UnknownEndpointError(f"there is no {what} in {where} ({_similar(wanted, known)}); {remedy}")


def _similar(wanted: str, known: list[str]) -> str:
    similar = get_close_matches(wanted, known, n=3)
    if similar:
        return f"did you mean {' or '.join(map(repr, similar))}?"
    if not known:
        return "it has none"
    more = f", and {len(known) - _SHOWN} more" if len(known) > _SHOWN else ""
    return f"it has {', '.join(map(repr, known[:_SHOWN]))}{more}"


READING = DelayedDeliverySettings(automatic_setup=False)
"""For commands that only read: no tables are created for a mistyped endpoint."""


def reading(error_queue: str) -> DelayedDeliverySettings:
    """As READING, for commands that look at an error queue; ConfigurationError for a name that cannot be."""
    try:
        return replace(READING, error_queue=error_queue)
    except ConfigurationError as error:
        raise ConfigurationError(f"--error-queue {str(error).removeprefix('error_queue ')}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointOptions:
    """Whose messages a command is about, as given on the command line; None: not given.

    `memory`: True where a store or transport in memory will do, which ends with the command.
    """

    store: Annotated[
        str | None,
        url_option(
            "--store", "Store of waiting messages: sqlite:///app.db, postgresql+psycopg://..., mysql+pymysql://..."
        ),
    ] = None
    endpoint: Annotated[
        str | None,
        environment_option("--endpoint", "Name of your program; its table is NAME_delayed.", metavar="NAME"),
    ] = None
    schema: Annotated[
        str | None,
        environment_option(
            "--schema", "Database schema of the tables. Default: the connection's schema.", metavar="NAME"
        ),
    ] = None
    table: Annotated[
        str | None,
        environment_option("--table", "Table of waiting messages, in place of ENDPOINT_delayed.", metavar="NAME"),
    ] = None
    transport: Annotated[
        str | None,
        url_option(
            "--transport", "Transport of due messages: amqp://..., amqps://..., or a database URL for SQL queues."
        ),
    ] = None
    memory: bool = False

    def require_store(self) -> str:
        """The store's URL; ConfigurationError where none is given."""
        return required(self.store, "store", "--store URL", "DELAYSTORE_STORE")

    def require_endpoint(self) -> str:
        """The endpoint's name; ConfigurationError where none is given."""
        return required(self.endpoint, "endpoint", "--endpoint NAME", "DELAYSTORE_ENDPOINT")

    def require_transport(self) -> str:
        """The transport's URL; ConfigurationError where none is given."""
        return required(self.transport, "transport", "--transport URL", "DELAYSTORE_TRANSPORT")

    def open_store(self) -> DelayedMessageStore:
        """The store. ConfigurationError where none is given, it is in memory, or it takes no schema or table."""
        url = self.require_store()
        self._check_lasting(url, "store", "a database, as in sqlite:///app.db")
        return store_at(url, self.schema, self.table)

    def open_transport(self, *, existing: bool = False) -> Transport:
        """The transport; SQL queues are in the schema. ConfigurationError where none is given, or it is in memory.

        `existing`: ConfigurationError, too, for a SQLite file that does not exist.
        """
        url = self.require_transport()
        self._check_lasting(url, "transport", "amqp://... or a database")
        transport = transport_at(url, self.schema)
        if existing:
            require_file(url)
        return transport

    @contextmanager
    def open(
        self, settings: DelayedDeliverySettings = READING, *, native: bool = False, existing: bool = False
    ) -> Iterator["OpenedEndpoint"]:
        """Store, transport and delivery for the block, not started. ConfigurationError without a store or an endpoint.

        `existing`: UnknownEndpointError where the endpoint has no tables yet, or no SQLite file. So it is, too, if
        `settings` set up nothing.
        """
        from delaystore.delivery import DelayedDelivery

        endpoint = self.require_endpoint()
        with ExitStack() as stack:
            store = stack.enter_context(closing(self.open_store()))
            if existing or not settings.automatic_setup:
                require_file(self.store or "", may_create=existing)
            transport = None if self.transport is None else stack.enter_context(closing(self._opened(settings)))
            if native and (transport is None or transport.longest_native_delay is None):
                raise ConfigurationError(
                    "--native needs a --transport that delays natively, as amqp://HOST?delays=nservicebus-v2"
                )
            delivery = DelayedDelivery(endpoint, store, transport, settings, native=native, way=Way.CLI)
            stack.callback(delivery.stop)
            if existing:
                require_tables(store, endpoint)
            try:
                yield OpenedEndpoint(endpoint, settings.error_queue, store, transport, delivery)
            except StoreSetupError as error:
                if settings.automatic_setup and not existing:  # it is no typo: the tables cannot be made
                    raise
                raise explained(error, store, endpoint) from None

    def _opened(self, settings: DelayedDeliverySettings) -> Transport:
        return self.open_transport(existing=not settings.automatic_setup)

    def _check_lasting(self, url: str, what: str, instead: str) -> None:
        if not self.memory and url.partition(":")[0].partition("+")[0].lower() == "memory":
            raise ConfigurationError(
                f"a {what} in memory ends with this command, and each message in it would be lost; use {instead}"
            )


TransportUrl = Annotated[EndpointOptions, Offered("transport", "schema")]
StoredEndpoint = Annotated[EndpointOptions, Offered("store", "endpoint", "schema", "table")]
"""The options of a command that needs no transport."""
DispatchedEndpoint = Annotated[EndpointOptions, Offered("store", "endpoint", "schema", "table", "transport")]


@dataclass(frozen=True, slots=True)
class OpenedEndpoint:
    """The store, transport and delivery of the options, opened. `transport`: None where none is given."""

    endpoint: str
    error_queue: str
    store: DelayedMessageStore
    transport: Transport | None
    delivery: "DelayedDelivery"
