"""`delaystore errors list` and `show`."""

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from delaystore import documents
from delaystore.amounts import counted
from delaystore.cli._errors import options
from delaystore.cli._errors.options import NOT_GIVEN, ErrorQueueName, filter_of, open_errors
from delaystore.cli._options import DEFAULT_ERROR_QUEUE, Json, Schema, TransportUrl, Wide
from delaystore.cli._output import (
    body_preview,
    is_terminal,
    print_document,
    print_rows,
    print_table,
    say,
    tell,
    write,
    write_bytes,
)

if TYPE_CHECKING:
    from delaystore.operations import ErrorGroups, ErrorPage

_GROUP = ("count", "destination", "kind", "reason", "first", "last", "example_id")
_MESSAGE = ("message_id", "destination", "kind", "failed_at", "size", "reason")
"""The columns that programs get."""


def list_errors(
    messages: Annotated[bool, typer.Option("--messages", help="Each message, in place of groups.")] = False,
    destination: options.Destination = None,
    kind: options.Kind = None,
    reason: options.Reason = None,
    since: options.Since = None,
    until: options.Until = None,
    limit: Annotated[
        int, typer.Option(min=1, max=100_000, metavar="NUMBER", help="Of --messages: so many at most.")
    ] = 100,
    skip: Annotated[int, typer.Option(min=0, metavar="NUMBER", help="Of --messages: without the first ones.")] = 0,
    examine: Annotated[
        int, typer.Option(min=1, max=1_000_000, metavar="NUMBER", help="Look at so many at most, the oldest ones.")
    ] = 10_000,
    error_queue: ErrorQueueName = DEFAULT_ERROR_QUEUE,
    transport: TransportUrl = None,
    schema: Schema = None,
    wide: Wide = False,
    as_json: Json = False,
) -> None:
    """List what is in the error queue, in groups.

    By destination, kind and reason. A terminal gets a table; a file or pipe gets a line of names, then a line for each
    group or message, separated by tabs. Looking changes nothing. It ends after 20 s, and says so, where there are too
    many.
    """
    from delaystore.cli._endpoint import EndpointOptions
    from delaystore.operations.error_documents import groups_document, page_document

    wanted = filter_of(destination, kind, reason, since, until)
    with open_errors(EndpointOptions(transport=transport, schema=schema), error_queue) as queue:
        if messages:
            page = queue.messages(wanted, limit=limit, skip=skip, examine=examine)
        else:
            groups = queue.groups(wanted, examine=examine)
    if as_json:
        print_document({"error_queue": error_queue, **(page_document(page) if messages else groups_document(groups))})
    elif messages:
        _print_messages(page, examine, wide=wide)
    else:
        _print_groups(groups, error_queue, examine, wide=wide)


def show(
    message_id: Annotated[str, typer.Argument(metavar="ID", help="The message's id.")],
    body: Annotated[bool, typer.Option("--body", help="Write the body alone, as it is, to standard output.")] = False,
    error_queue: ErrorQueueName = DEFAULT_ERROR_QUEUE,
    transport: TransportUrl = None,
    schema: Schema = None,
    as_json: Json = False,
) -> None:
    """Show one message of the error queue, as it would be sent.

    Exit code 1: it is not among the first 10,000. Looking changes nothing.
    """
    from delaystore.cli._endpoint import EndpointOptions
    from delaystore.operations.error_documents import failed_document

    with open_errors(EndpointOptions(transport=transport, schema=schema), error_queue) as queue:
        message = queue.get(message_id)
    if message is None:
        say(f"not found: no message {message_id!r} is in the error queue {error_queue!r}")
        raise typer.Exit(1)
    if body:
        write_bytes(message.body or b"")
        return
    document = failed_document(message)
    if as_json:
        print_document(document)
        return
    for name, value in document.items():
        if name in ("headers", "properties"):
            for key, item in value.items():
                tell(f"{'header' if name == 'headers' else 'property':<15}{key}: {item}")
        elif not name.startswith("body"):
            tell(f"{name:<15}{'-' if value is None else value}")
    write(f"\n{body_preview(message.body or b'')}\n")


def _print_groups(found: "ErrorGroups", error_queue: str, examine: int, *, wide: bool) -> None:
    if is_terminal():
        rows: list[Sequence[str]] = [
            (f"{group.count:,}", group.destination or "-", group.kind or "-", group.reason or "-", _time(group.last))
            for group in found.groups
        ]
        if rows:
            columns = ("messages", "destination", "kind", "reason", "last")
            print_table(columns, rows, right=("messages",), unbroken=("last",), wide=wide)
        tell(f"{counted(found.depth, 'message')} in the error queue {error_queue!r}")
    else:
        of_groups = (
            (
                str(group.count),
                group.destination or "",
                group.kind,
                group.reason,
                documents.instant(group.first) or "",
                documents.instant(group.last) or "",
                group.message_id,
            )
            for group in found.groups
        )
        print_rows([_GROUP, *of_groups])
    if not found.complete:
        say(_looked_at(found.examined, found.depth, examine))


def _print_messages(found: "ErrorPage", examine: int, *, wide: bool) -> None:
    if is_terminal():
        print_table(
            ("id", "destination", "kind", "failed", "reason"),
            [
                (one.message_id or "-", one.destination or "-", one.kind or "-", _time(one.failed_at), one.reason)
                for one in found.messages
            ],
            unbroken=("failed",),
            cut=("id",),
            wide=wide,
        )
    else:
        of_messages = (
            (
                one.message_id,
                one.destination or "",
                one.kind,
                documents.instant(one.failed_at) or "",
                str(one.size),
                one.reason,
            )
            for one in found.messages
        )
        print_rows([_MESSAGE, *of_messages])
    if found.next_skip is not None:
        say(f"more follow; the next page: --skip {found.next_skip}")
    elif found.examined < found.depth:
        say(_looked_at(found.examined, found.depth, examine))


def _looked_at(examined: int, depth: int, examine: int) -> str:
    """`examine`: at how many it was to look."""
    some = f"{examined:,} of {counted(depth, 'message')}"
    if examined >= examine:
        return f"looked at the first {some} only; --examine looks at more"
    if not examined:
        return NOT_GIVEN.format(some)
    return f"looked at the first {some} only: it took too long, or somebody else has the others"


def _time(at: datetime | None) -> str:
    return "-" if at is None else f"{at:%m-%d %H:%M:%S}Z"
