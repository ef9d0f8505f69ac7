"""`delaystore list`, `show` and `count`: what waits."""

import shlex
from collections.abc import Iterator
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from delaystore import documents
from delaystore.cli._arguments import parse_instant, parse_position
from delaystore.cli._options import (
    Destination,
    Endpoint,
    Json,
    Key,
    Schema,
    StoreUrl,
    Table,
    Wide,
    environment_option,
    id_or_key,
)
from delaystore.cli._output import (
    about,
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
from delaystore.message import DelayedMessage, Position
from delaystore.stores.abc import Count, Page

if TYPE_CHECKING:
    from delaystore.delivery import DelayedDelivery

_LINE: Final = ("message_id", "due_time", "destination", "next_attempt", "failure_count", "size", "key")
"""The columns that programs get, named as in --json."""


class Bucket(StrEnum):
    """What `count --by` counts by."""

    MINUTE = "minute"
    HOUR = "hour"
    DAY = "day"

    @property
    def length(self) -> timedelta:
        """The bucket's length."""
        return timedelta(**{f"{self.value}s": 1})


def list_messages(
    destination: Destination = None,
    since: Annotated[str | None, typer.Option(metavar="TIME", help="Only what is due at this time or later.")] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="Only what is due before this time.")] = None,
    after: Annotated[str | None, typer.Option(metavar="KEY", help="The page after this key.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="Messages a page.")] = 100,
    every: Annotated[bool, environment_option("--all", "All pages.", group="list")] = False,
    wide: Wide = False,
    store: StoreUrl = None,
    endpoint: Endpoint = None,
    schema: Schema = None,
    table: Table = None,
    as_json: Json = False,
) -> None:
    """List what waits, the next to be tried first.

    A terminal gets a table; a file or pipe gets a line of names, then a line for each message, separated by tabs.
    Creates no table and no file.
    """
    from delaystore.cli._endpoint import EndpointOptions

    filters: dict[str, Any] = {
        "destination": destination,
        "since": None if since is None else parse_instant(since, "--since"),
        "until": None if until is None else parse_instant(until, "--until"),
        "limit": limit,
    }
    with EndpointOptions(store=store, endpoint=endpoint, schema=schema, table=table).open() as opened:
        pages = _pages(opened.delivery, filters, parse_position(after, "--after"), every)
        if as_json:
            messages, next_key = _collected(pages)
            next_text = None if next_key is None else str(next_key)
            print_document({"messages": [documents.summary(message) for message in messages], "next": next_text})
            return
        next_key = _print_as_table(pages, wide=wide) if is_terminal() else _print_as_lines(pages)
    if next_key is not None:
        say(f"more follow; the next page: --after {shlex.quote(str(next_key))}")


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
        for line in _lines(documents.waiting(message)):
            tell(line)
        write(f"\n{body_preview(message.body)}\n")


def count(
    by: Annotated[Bucket | None, typer.Option(help="Count by when they are due.")] = None,
    destination: Destination = None,
    exact: Annotated[bool, environment_option("--exact", "Count, however long it takes.", group="count")] = False,
    store: StoreUrl = None,
    endpoint: Endpoint = None,
    schema: Schema = None,
    table: Table = None,
    as_json: Json = False,
) -> None:
    """Count the waiting messages. Over 100,000 are estimated, unless --exact, --by or --destination is given.

    Creates no table and no file.
    """
    from delaystore.cli._endpoint import EndpointOptions

    with EndpointOptions(store=store, endpoint=endpoint, schema=schema, table=table).open() as opened:
        buckets = None if by is None else opened.delivery.count_by_due_time(by.length, destination=destination)
        if buckets is not None:
            total = Count(sum(buckets.values()), exact=True)
        elif exact or destination is not None:
            total = Count(opened.delivery.count(destination=destination), exact=True)
        else:
            total = opened.delivery.estimate_count()
    if as_json:
        document: dict[str, Any] = {"count": total.messages, "exact": total.exact}
        if buckets is not None:
            document["buckets"] = [{"start": documents.instant(start), "count": n} for start, n in buckets.items()]
        print_document(document)
    elif buckets is None:
        tell(str(total.messages) if total.exact else about(total, "--exact counts"))
    else:
        highest = max(buckets.values(), default=1)
        rows = [(f"{start:%Y-%m-%d %H:%M}Z", str(n), "█" * max(1, 40 * n // highest)) for start, n in buckets.items()]
        print_table((f"due ({by})", "messages", ""), rows, right=("messages",), unbroken=(f"due ({by})", "messages"))


def _pages(delivery: "DelayedDelivery", filters: dict[str, Any], after: Position | None, every: bool) -> Iterator[Page]:
    while True:
        page = delivery.list(after=after, **filters)
        yield page
        after = page.next_key
        if after is None or not every:
            return


def _collected(pages: Iterator[Page]) -> tuple[list[DelayedMessage], Position | None]:
    messages: list[DelayedMessage] = []
    next_key = None
    for page in pages:
        messages += page.messages
        next_key = page.next_key
    return messages, next_key


def _print_as_table(pages: Iterator[Page], *, wide: bool) -> Position | None:
    messages, next_key = _collected(pages)
    keys = any(message.key is not None for message in messages)
    print_table(
        ("id", "destination", "due", "failures", "bytes", *["key"] * keys),
        [(*_row(message), *[message.key or ""] * keys) for message in messages],
        right=("failures", "bytes"),
        unbroken=("due",),
        cut=("id", "key"),
        wide=wide,
    )
    return next_key


def _print_as_lines(pages: Iterator[Page]) -> Position | None:
    """Print each page as it comes, so that only one is in memory."""
    header, next_key = [_LINE], None
    for page in pages:
        fields = map(documents.summary, page.messages)
        rows = (["" if one[name] is None else str(one[name]) for name in _LINE] for one in fields)
        print_rows([*header, *rows])
        header, next_key = [], page.next_key
    return next_key


def _row(message: DelayedMessage) -> tuple[str, ...]:
    due = f"{message.next_attempt:%Y-%m-%d %H:%M:%S.%f}"[:-3] + "Z"
    return message.message_id, message.destination, due, str(message.failure_count), f"{len(message.body):,}"


def _lines(document: dict[str, Any]) -> list[str]:
    """A message's fields, aligned; each header and property on a line of its own."""
    lines = []
    for name, value in document.items():
        if name in ("headers", "properties"):
            kind = {"headers": "header", "properties": "property"}[name]
            lines += [f"{kind:<15}{key}: {item}" for key, item in value.items()]
        elif not name.startswith("body"):
            lines.append(f"{name:<15}{'-' if value is None else value}")
    return lines
