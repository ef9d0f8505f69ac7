"""`delaystore receive`."""

from contextlib import closing
from typing import Annotated

import typer

from delaystore import documents
from delaystore.cli._options import Json, Schema, TransportUrl
from delaystore.cli._output import body_preview, print_document, tell, write
from delaystore.times import parse_duration


def receive(
    queue: Annotated[str, typer.Argument(metavar="QUEUE", help="The queue.")],
    limit: Annotated[int, typer.Option(min=1, max=100_000, metavar="NUMBER", help="The most messages to take.")] = 1,
    timeout: Annotated[str, typer.Option(metavar="DURATION", help="How long to wait for the first.")] = "0",
    transport: TransportUrl = None,
    schema: Schema = None,
    as_json: Json = False,
) -> None:
    """Take messages from a queue and print them. Exit code 1: there were none.

    They leave the queue once they are printed. Creates no table and no file.
    """
    from delaystore.cli._endpoint import EndpointOptions

    seconds = parse_duration(timeout, "--timeout").total_seconds()
    opened = EndpointOptions(schema=schema, transport=transport).open_transport(existing=True)
    with closing(opened), opened.receive(queue, limit, seconds) as messages:
        if as_json:
            print_document({"messages": [documents.received(message) for message in messages]})
        else:
            for message in messages:
                for name, value in message.headers.items():
                    tell(f"header  {name}: {documents.plain(value)}")
                tell(message.message_id)
                write(f"{body_preview(message.body)}\n\n")
    if not messages:
        raise typer.Exit(1)
