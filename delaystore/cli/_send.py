"""`delaystore send`."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from delaystore.cli._arguments import parse_due, parse_headers, parse_pair
from delaystore.cli._input import standard_input
from delaystore.cli._load import options as of_load
from delaystore.cli._load.options import given_options, key_options, option_of, options_as_typed
from delaystore.cli._options import (
    At,
    Delay,
    Endpoint,
    Json,
    Schema,
    StoreUrl,
    Table,
    TransportUrl,
    create_option,
    environment_option,
    required,
)
from delaystore.cli._output import print_document, say, tell
from delaystore.errors import ConfigurationError, StoreError, TransportError
from delaystore.keys import OnKey
from delaystore.loading.options import AmbiguousTime, OnDuplicate, UnknownColumns
from delaystore.message import PROPERTY_TYPES
from delaystore.settings import DelayedDeliverySettings
from delaystore.times import parse_duration, parse_instant
from delaystore.transports import Transport

_TYPED: Final = {"destination": "DESTINATION"}
_LOOKING: Final = 3.0
"""Seconds that it may take to find out whether there is a queue."""


@options_as_typed(_TYPED)
def send(
    destination: Annotated[
        str | None,
        typer.Argument(
            metavar="DESTINATION",
            help="A queue, or /queues/NAME, or /exchanges/NAME/KEY; of a file: for rows without.",
        ),
    ] = None,
    body: Annotated[str | None, typer.Argument(metavar="BODY", help="The body, as UTF-8 text. Default: empty.")] = None,
    delay: Delay = None,
    at: At = None,
    header: Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help="A text header; repeatable.")] = None,
    headers_json: Annotated[
        str | None, typer.Option(metavar="JSON", help="Headers of other types, as a JSON object.")
    ] = None,
    property_: Annotated[
        list[str] | None,
        environment_option(
            "--property", "An AMQP property, such as content_type; repeatable.", metavar="KEY=VALUE", group="send"
        ),
    ] = None,
    message_id: Annotated[str | None, typer.Option(metavar="ID", help="Default: a fresh one.")] = None,
    key: Annotated[
        str | None, typer.Option(metavar="KEY", help="At most one message with this key waits; see --on-key.")
    ] = None,
    on_key: of_load.OnKeys = None,
    max_wait: of_load.MaxWait = None,
    body_file: Annotated[str | None, typer.Option(metavar="FILE", help="Read the body from FILE; - is stdin.")] = None,
    native: Annotated[
        bool,
        typer.Option("--native", help="Into RabbitMQ's native delay where it fits; needs ?delays=NAME in --transport."),
    ] = False,
    file: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Send the rows of a CSV, JSON lines or Parquet file; - is stdin."),
    ] = None,
    mapping: Annotated[list[str] | None, of_load.map_option("send")] = None,
    kind: Annotated[str | None, of_load.format_option("send")] = None,
    load_id: of_load.LoadId = None,
    key_columns: of_load.KeyColumns = None,
    key_column: of_load.KeyColumn = None,
    on_duplicate: of_load.Duplicates = OnDuplicate.ERROR,
    unknown_columns: of_load.Unknown = UnknownColumns.ERROR,
    time_zone: of_load.TimeZone = None,
    ambiguous_time: of_load.Ambiguous = AmbiguousTime.REJECT,
    rejects: of_load.Rejects = None,
    dry_run: of_load.DryRun = False,
    create: Annotated[bool, create_option("send")] = False,
    store: StoreUrl = None,
    endpoint: Endpoint = None,
    schema: Schema = None,
    table: Table = None,
    transport: TransportUrl = None,
    as_json: Json = False,
) -> None:
    """Store a message for later, and print its id.

    With --on-key keep, the id is that of the one that waits. Say when with --delay or --at. With --transport, what that
    transport cannot carry is refused now, and a warning tells of a queue that is not there. An endpoint without tables
    is an error, unless --create is given: for the first time, as `delaystore setup` is.

    With --file, the rows of a file are messages, by the rules and with the options of `delaystore load`, but without
    Spark: up to some 100,000 of them, all or none.
    """
    rules = {
        "loadId": load_id,
        "keyColumns": key_columns,
        "keyColumn": key_column,
        "onDuplicate": None if on_duplicate is OnDuplicate.ERROR else on_duplicate.value,
        "unknownColumns": None if unknown_columns is UnknownColumns.ERROR else unknown_columns.value,
        "timeZone": time_zone,
        "ambiguousTime": None if ambiguous_time is AmbiguousTime.REJECT else ambiguous_time.value,
        "rejects": rejects,
    }
    from delaystore.cli._endpoint import EndpointOptions

    where = EndpointOptions(store=store, endpoint=endpoint, schema=schema, table=table, transport=transport)
    if file is not None:
        one = {
            "BODY": body, "--body-file": body_file, "--delay": delay, "--at": at, "--header": header,
            "--headers-json": headers_json, "--property": property_, "--message-id": message_id, "--key": key,
            "--native": native,
        }  # fmt: skip
        if not file:
            raise ConfigurationError("--file is empty; name a file, or - for standard input")
        _refuse(one, "is of one message, and --file sends many, whose columns say that; leave it out")
        given = {
            **rules,
            **key_options(on_key, max_wait),
            "store": required(store, "store", "--store URL", "DELAYSTORE_STORE"),
            "endpoint": required(endpoint, "endpoint", "--endpoint NAME", "DELAYSTORE_ENDPOINT"),
            "schema": schema,
            "table": table,
            "destination": destination,
            "transport": transport,
        }
        from delaystore.cli._send_file import send_file

        options = given_options(given, _TYPED)
        send_file(
            file, options, where, mapping=mapping or (), kind=kind, create=create, dry_run=dry_run, as_json=as_json
        )
        return
    of_file = {option_of(name): value for name, value in rules.items()}
    _refuse({**of_file, "--map": mapping, "--format": kind, "--dry-run": dry_run}, "goes with --file only")
    if destination is None:
        raise ConfigurationError("no destination is given; pass DESTINATION, or a file of messages with --file")
    after, instant = parse_due(delay, at)
    headers = {
        **parse_headers("{}" if headers_json is None else headers_json, "--headers-json"),
        **dict(parse_pair(text, "--header") for text in header or ()),
    }
    properties = dict(_property(text) for text in property_ or ())
    content = _body(body, body_file)
    longest = _longest(key, on_key, max_wait)
    with where.open(DelayedDeliverySettings(), native=native, existing=not create) as opened:
        sent = opened.delivery.send(
            destination,
            content,
            delay=after,
            at=instant,
            headers=headers,
            properties=properties,
            message_id=message_id,
            key=key,
            on_key=on_key,
            max_wait=longest,
        )
        if as_json:
            print_document({"message_id": sent})
        else:
            tell(sent)
        if opened.transport is not None and not _may_reach(opened.transport, transport or "", destination):
            say(
                f"warning: nothing takes messages for {destination!r} at present; if that is so when this one is due, "
                "it goes to the error queue"
            )


def _may_reach(transport: Transport, url: str, destination: str) -> bool:
    """False: the transport knows that nothing takes messages for `destination`; an outage says nothing of it."""
    from delaystore.calls import Question
    from delaystore.cli._files import missing_file

    if missing_file(url) is not None:
        return False
    asked = Question("looking for the queue", lambda: transport.reaches(destination), _LOOKING)
    try:
        return asked.answer() is not False
    except (TransportError, StoreError):
        return True


def _refuse(given: Mapping[str, object], why: str) -> None:
    """ConfigurationError naming the first option that was given, and why it cannot be."""
    for name, value in given.items():
        if value not in (None, False, []):
            raise ConfigurationError(f"{name} {why}")


def _longest(key: str | None, on_key: OnKey | None, max_wait: str | None) -> timedelta | None:
    """What --max-wait says; ConfigurationError where it, or --on-key, makes no sense."""
    if key is None and (on_key is not None or max_wait is not None):
        raise ConfigurationError("--on-key and --max-wait go with --key; give the message a key, or leave them out")
    if max_wait is None:
        return None
    if on_key is not OnKey.DEBOUNCE:
        raise ConfigurationError("--max-wait goes with --on-key debounce; leave it out")
    longest = parse_duration(max_wait, "--max-wait")
    if not longest:
        raise ConfigurationError(f"--max-wait {max_wait!r} must be more than 0")
    return longest


def _body(text: str | None, file: str | None) -> bytes:
    if file is None:
        return (text or "").encode(errors="surrogateescape")  # bytes that are no UTF-8 arrive as they were typed
    if text is not None:
        raise ConfigurationError("the body is given twice; pass BODY or --body-file")
    if not file:
        raise ConfigurationError("--body-file is empty; name a file, or - for standard input")
    try:
        return standard_input().read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise ConfigurationError(f"--body-file {file!r} cannot be read: {error.strerror}") from None


def _property(text: str) -> tuple[str, Any]:
    name, value = parse_pair(text, "--property")
    expected = PROPERTY_TYPES.get(name)
    if expected is datetime:
        return name, parse_instant(value, f"--property {name}").astimezone(UTC)
    if expected is not int:
        return name, value
    try:
        return name, int(value)
    except ValueError:
        raise ConfigurationError(f"--property {name} must be a whole number, not {value!r}") from None
