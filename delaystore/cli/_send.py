"""`delaystore send`."""

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from delaystore.cli._arguments import parse_due, parse_duration, parse_headers, parse_instant, parse_pair
from delaystore.cli._options import At, Delay, Endpoint, Json, Schema, StoreUrl, Table, TransportUrl, environment_option
from delaystore.cli._output import print_document, tell
from delaystore.errors import ConfigurationError
from delaystore.keys import OnKey
from delaystore.message import PROPERTY_TYPES
from delaystore.settings import DelayedDeliverySettings


def send(
    destination: Annotated[
        str, typer.Argument(metavar="DESTINATION", help="A queue, or /queues/NAME, or /exchanges/NAME/KEY.")
    ],
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
    on_key: Annotated[
        OnKey | None, typer.Option(help="Where one with the key waits: what becomes of the new one. Default: reject.")
    ] = None,
    max_wait: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="With --on-key debounce: due no later than this after the first."),
    ] = None,
    body_file: Annotated[str | None, typer.Option(metavar="FILE", help="Read the body from FILE; - is stdin.")] = None,
    native: Annotated[
        bool,
        typer.Option("--native", help="Into RabbitMQ's native delay where it fits; needs ?delays=NAME in --transport."),
    ] = False,
    store: StoreUrl = None,
    endpoint: Endpoint = None,
    schema: Schema = None,
    table: Table = None,
    transport: TransportUrl = None,
    as_json: Json = False,
) -> None:
    """Store a message for later, and print its id; with --on-key keep, that of the one that waits.

    Say when with --delay or --at. With --transport, what that transport cannot carry is refused now. Sets up the
    store's tables (and a SQLite file) where they are missing.
    """
    after, instant = parse_due(delay, at)
    headers = {
        **parse_headers("{}" if headers_json is None else headers_json, "--headers-json"),
        **dict(parse_pair(text, "--header") for text in header or ()),
    }
    properties = dict(_property(text) for text in property_ or ())
    content = _body(body, body_file)
    longest = None if max_wait is None else parse_duration(max_wait, "--max-wait")
    from delaystore.cli._endpoint import EndpointOptions

    options = EndpointOptions(store=store, endpoint=endpoint, schema=schema, table=table, transport=transport)
    with options.open(DelayedDeliverySettings(), native=native) as opened:
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


def _body(text: str | None, file: str | None) -> bytes:
    if file is None:
        return (text or "").encode(errors="surrogateescape")  # bytes that are no UTF-8 arrive as they were typed
    if text is not None:
        raise ConfigurationError("the body is given twice; pass BODY or --body-file")
    try:
        return sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
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
