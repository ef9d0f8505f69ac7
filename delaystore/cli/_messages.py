"""`delaystore list`, `show`, `count` and `receive`."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from delaystore.cli._history import last_ending
from delaystore.cli._options import (
    FilterOptions,
    JsonOption,
    KeyOption,
    StoredEndpoint,
    TransportUrl,
    Wide,
    environment_option,
    id_or_key,
    parse_position,
)
from delaystore.cli._output import (
    about,
    bar,
    body_preview,
    is_terminal,
    message_lines,
    print_document,
    print_line,
    print_note,
    print_table,
    write,
    write_bytes,
)
from delaystore.filters import MessageFilter
from delaystore.message import DelayedMessage, Position
from delaystore.stores import documents
from delaystore.stores.abc import Count, Page
from delaystore.stores.operable import EXAMINED
from delaystore.text import duration_text, parse_duration, time_text

if TYPE_CHECKING:
    from delaystore.cli._options import OpenedEndpoint

_REASON: Final = 60
"""Characters of a reason in a table that fits a terminal; `show` has all of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOptions(FilterOptions):
    """Which messages are listed; times are those of the next attempt."""

    due_after: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Only messages tried at this time or later, as 2027-01-31T09:00:00+01:00."),
    ] = None
    due_before: Annotated[str | None, typer.Option(metavar="TIME", help="Only messages tried before this time.")] = None

    @property
    def are_searched(self) -> bool:
        """Whether messages are read to find matching ones, which no index has."""
        return bool(self.id_prefix or self.load or self.header or self.failing or self.paused)


def list_messages(
    *,
    which: ListOptions,
    after: Annotated[
        str | None, typer.Option(metavar="CURSOR", help="Cursor of the next page, as the previous page printed it.")
    ] = None,
    limit: Annotated[
        int, typer.Option(min=1, max=100_000, metavar="NUMBER", help="Maximum number of messages on a page.")
    ] = 100,
    every: Annotated[bool, environment_option("--all", "Show all pages.", group="list")] = False,
    wide: Wide = False,
    where: StoredEndpoint,
    as_json: JsonOption = False,
) -> None:
    """List waiting messages.

    The next attempt determines the order. At a terminal the table fits the width; a file or a pipe gets whole lines.
    Programs should read --json. --id-prefix, --header, --failing and --paused read waiting messages until the page is
    full. With these four, --due-after and --due-before compare due times; without them, next attempts. --failing shows
    why the last attempt failed.
    """
    wanted = which.filter()
    start = parse_position(after, "--after")
    with where.open() as opened:
        look = _searched if which.are_searched else _listed
        pages = look(opened, wanted, start, limit, every)
        if as_json:
            messages, next_key = _collected(pages)
            next_text = None if next_key is None else str(next_key)
            print_document({"messages": [documents.summary(message) for message in messages], "next": next_text})
            return
        next_key = _print_pages(pages, opened.store.now(), failing=which.failing, wide=wide)
    if next_key is not None:
        print_note(f"more follow; the next page: --after {shlex.quote(str(next_key))}")


def _listed(
    opened: "OpenedEndpoint", wanted: MessageFilter, after: Position | None, limit: int, every: bool
) -> Iterator[Page]:
    """By an index of next attempts."""
    filters: dict[str, Any] = {"destination": wanted.destination, "since": wanted.since, "until": wanted.until}
    while True:
        page = opened.delivery.list(after=after, limit=limit, **filters)
        yield page
        after = page.next_key
        if after is None or not every:
            return


def _searched(
    opened: "OpenedEndpoint", wanted: MessageFilter, after: Position | None, limit: int, every: bool
) -> Iterator[Page]:
    """Pieces of a page, until it is full: a search reads this number of messages at a time."""
    from delaystore.cli._progress import ProgressBar

    missing, read, total = limit, 0, None
    with ProgressBar(transient=True) as bar:
        while True:
            page = opened.delivery.operations.search(wanted, after=after, limit=missing)
            yield page
            after = page.next_key
            if not every:
                missing -= len(page.messages)
            if after is None or missing <= 0:
                return
            if len(page.messages) < missing:  # it was EXAMINED that ended the search
                read, total = read + EXAMINED, total or opened.delivery.estimate_count().messages
                bar.show("searching", min(read, total), total)


def _collected(pages: Iterator[Page]) -> tuple[list[DelayedMessage], Position | None]:
    messages: list[DelayedMessage] = []
    next_key = None
    for page in pages:
        messages += page.messages
        next_key = page.next_key
    return messages, next_key


def _print_pages(pages: Iterator[Page], now: datetime, *, failing: bool, wide: bool) -> Position | None:
    """Print one table. For files and pipes each page is printed as it comes, so that only one is in memory.

    `now`: on the store's clock. Returns the key of the next page.
    """
    whole = wide or not is_terminal()
    if is_terminal():
        messages, next_key = _collected(pages)
        pages = iter([Page(messages, next_key)])
    headed, next_key = True, None
    for page in pages:
        columns: Sequence[str] = ("id", "destination", "due", "failures", "bytes")
        if failing:
            columns = ("id", "destination", "overdue", "failures", "again", "last failure")
            rows = [_failing_row(message, now, whole=whole) for message in page.messages]
        elif not is_terminal() or any(message.key for message in page.messages):
            columns = (*columns, "key")
            rows = [(*_row(message), message.key or "") for message in page.messages]
        else:
            rows = [_row(message) for message in page.messages]
        print_table(
            columns, rows, right=("overdue", "failures", "bytes"), unbroken=("due", "again"), wide=wide, headed=headed
        )
        headed, next_key = False, page.next_key
    return next_key


def _row(message: DelayedMessage) -> tuple[str, ...]:
    due = f"{time_text(message.due_time)} (parked)" if message.is_parked else time_text(message.next_attempt)
    return message.message_id, message.destination, due, f"{message.failure_count:,}", f"{len(message.body):,}"


def _failing_row(message: DelayedMessage, now: datetime, *, whole: bool) -> tuple[str, ...]:
    overdue = duration_text(now - message.due_time) if message.due_time < now else ""
    shown_again = "when resumed" if message.is_parked else f"in {duration_text(message.next_attempt - now)}"
    count, failure = f"{message.failure_count:,}", _last_failure(message, now, whole=whole)
    return message.message_id, message.destination, overdue, count, shown_again, failure


def _last_failure(message: DelayedMessage, now: datetime, *, whole: bool) -> str:
    if not message.failures:
        return "not kept"
    last = message.failures[-1]
    reason = last.reason if whole or len(last.reason) <= _REASON else f"{last.reason[: _REASON - 1]}…"
    return f"{last.kind} {duration_text(now - last.at)} ago: {reason}"


def show(
    message_id: Annotated[str | None, typer.Argument(metavar="ID", help="Id of the message.")] = None,
    key: KeyOption = None,
    body: Annotated[bool, typer.Option("--body", help="Write only the body to standard output, unchanged.")] = False,
    *,
    where: StoredEndpoint,
    as_json: JsonOption = False,
) -> None:
    """Show one waiting message."""
    wanted = id_or_key(message_id, key)
    with where.open() as opened:
        message = opened.delivery.get(message_id, key=key)
        ending = last_ending(opened, wanted) if message is None else ""
    if message is None:
        named = repr(message_id) if key is None else f"with the key {key!r}"
        print_note(f"not found: no message {named} waits here{ending}")
        raise typer.Exit(1)
    if body:
        write_bytes(message.body)
    elif as_json:
        print_document(documents.waiting(message))
    else:
        for line in _lines(message):
            print_line(line)
        write(f"\n{body_preview(message.body)}\n")


def _lines(message: DelayedMessage) -> list[str]:
    """A message's fields, aligned; each header, property and failure on a line of its own."""
    document = documents.waiting(message)
    if message.is_parked:
        document["next_attempt"] = "parked: at once when its destination is resumed"
    lines = list(message_lines(document, "failures", "last_failure", "parked"))
    return lines + [f"{'failure':<15}{time_text(each.at)} {each.kind}: {each.reason}" for each in message.failures]


class CountBucket(StrEnum):
    """The groups of `count --per`."""

    MINUTE = "minute"
    HOUR = "hour"
    DAY = "day"

    @property
    def length(self) -> timedelta:
        """The bucket's length."""
        return timedelta(**{f"{self.value}s": 1})


def count(
    per: Annotated[
        CountBucket | None, typer.Option(help="Count the messages of each minute, hour or day, by due time.")
    ] = None,
    *,
    which: FilterOptions,
    exact: Annotated[
        bool, environment_option("--exact", "Count all messages, even if it takes long.", group="count")
    ] = False,
    where: StoredEndpoint,
    as_json: JsonOption = False,
) -> None:
    """Count waiting messages.

    More than 100,000 messages are estimated, unless you pass --exact, --per or a filter.
    """
    wanted = which.filter()
    with where.open() as opened:
        buckets = None if per is None else _counted_per(opened, wanted, per.length)
        if buckets is not None:
            total = Count(sum(buckets.values()), exact=True)
        elif exact or wanted:
            total = Count(_counted(opened, wanted), exact=True)
        else:
            total = opened.delivery.estimate_count()
    if as_json:
        document: dict[str, Any] = {"count": total.messages, "exact": total.exact}
        if buckets is not None:
            document["buckets"] = [{"start": documents.instant(start), "count": n} for start, n in buckets.items()]
        print_document(document)
    elif buckets is None:
        print_line(str(total.messages) if total.exact else about(total, "--exact counts"))
    else:
        highest = max(buckets.values(), default=1)
        rows = [(f"{start:%Y-%m-%d %H:%M}Z", str(n), bar([n], highest)) for start, n in buckets.items()]
        print_table((f"due ({per})", "messages", ""), rows, right=("messages",), unbroken=(f"due ({per})", "messages"))


def _is_of_destination(wanted: MessageFilter) -> bool:
    """Whether it names a destination at most, for which stores count at once."""
    return wanted == MessageFilter(destination=wanted.destination)


def _counted(opened: "OpenedEndpoint", wanted: MessageFilter) -> int:
    if _is_of_destination(wanted):
        return opened.delivery.count(destination=wanted.destination)
    from delaystore.cli._progress import ProgressBar

    with ProgressBar(transient=True) as bar:
        found = opened.delivery.operations.preview(
            wanted, sample=0, progress=lambda number: bar.show("counting", number, None)
        )
    return found.count


def _counted_per(opened: "OpenedEndpoint", wanted: MessageFilter, bucket: timedelta) -> Mapping[datetime, int]:
    """The number of messages by the beginning of the bucket in which they are due."""
    if _is_of_destination(wanted):
        return opened.delivery.count_by_due_time(bucket, destination=wanted.destination)
    from delaystore.cli._progress import ProgressBar

    with ProgressBar(transient=True) as bar:
        return opened.delivery.operations.count_by_due_time(
            wanted, bucket, progress=lambda number: bar.show("counting", number, None)
        )


def receive(
    queue: Annotated[str, typer.Argument(metavar="QUEUE", help="Queue to read.")],
    limit: Annotated[int, typer.Option(min=1, max=100_000, metavar="NUMBER", help="Maximum number of messages.")] = 1,
    timeout: Annotated[str, typer.Option(metavar="DURATION", help="Maximum time to wait for the first message.")] = "0",
    *,
    where: TransportUrl,
    as_json: JsonOption = False,
) -> None:
    """Take messages from a queue and print them.

    Each message leaves the queue once it is printed.
    """
    seconds = parse_duration(timeout, "--timeout").total_seconds()
    transport = where.open_transport(existing=True)
    with closing(transport), transport.receive(queue, limit, seconds) as messages:
        if as_json:
            print_document({"messages": [documents.received(message) for message in messages]})
        else:
            for message in messages:
                for name, value in message.headers.items():
                    print_line(f"header  {name}: {documents.plain(value)}")
                print_line(message.message_id)
                write(f"{body_preview(message.body)}\n\n")
    if not messages:
        raise typer.Exit(1)
