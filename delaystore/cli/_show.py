"""`delaystore show`: one waiting message."""

from typing import Annotated

import typer

from delaystore import documents
from delaystore.cli._options import Endpoint, Json, Key, Schema, StoreUrl, Table, id_or_key
from delaystore.cli._output import body_preview, print_document, say, tell, write, write_bytes
from delaystore.message import DelayedMessage
from delaystore.times import time_text


def show(
    message_id: Annotated[str | None, typer.Argument(metavar="ID", help="The message's id.")] = None,
    key: Key = None,
    body: Annotated[bool, typer.Option("--body", help="Write the body alone, as it is, to standard output.")] = False,
    store: StoreUrl = None,
    endpoint: Endpoint = None,
    schema: Schema = None,
    table: Table = None,
    as_json: Json = False,
) -> None:
    """Show one waiting message. Exit code 1: it does not wait here.

    Creates no table and no file.
    """
    id_or_key(message_id, key)
    from delaystore.cli._endpoint import EndpointOptions

    with EndpointOptions(store=store, endpoint=endpoint, schema=schema, table=table).open() as opened:
        message = opened.delivery.get(message_id, key=key)
    if message is None:
        named = repr(message_id) if key is None else f"with the key {key!r}"
        say(f"not found: no message {named} waits here")
        raise typer.Exit(1)
    if body:
        write_bytes(message.body)
    elif as_json:
        print_document(documents.waiting(message))
    else:
        for line in _lines(message):
            tell(line)
        write(f"\n{body_preview(message.body)}\n")


def _lines(message: DelayedMessage) -> list[str]:
    """A message's fields, aligned; each header, property and failure on a line of its own."""
    lines = []
    for name, value in documents.waiting(message).items():
        if name in ("headers", "properties"):
            kind = {"headers": "header", "properties": "property"}[name]
            lines += [f"{kind:<15}{key}: {item}" for key, item in value.items()]
        elif name == "next_attempt" and message.is_parked:
            lines.append(f"{name:<15}parked: at once when its destination is resumed")
        elif not name.startswith("body") and name not in ("failures", "last_failure", "parked"):
            lines.append(f"{name:<15}{'-' if value is None else value}")
    return lines + [f"{'failure':<15}{time_text(each.at)} {each.kind}: {each.reason}" for each in message.failures]
