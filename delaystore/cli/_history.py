"""`delaystore history`: the life of one message, and a search of messages that have left the store."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from operator import itemgetter
from typing import TYPE_CHECKING, Annotated, Final

import typer

from delaystore.cli._options import DestinationOption, JsonOption, StoredEndpoint, Wide, parse_position
from delaystore.cli._output import is_terminal, print_document, print_note, print_table
from delaystore.errors import ConfigurationError, DelaystoreError, StoreSetupError
from delaystore.message import FailedAttempt, Position, unmarked
from delaystore.stores import documents
from delaystore.stores.history import HistoryEntry, HistoryFilter, HistoryStatus, MessageLife
from delaystore.stores.records import Ending
from delaystore.text import counted, duration_text, parse_instant, time_text

if TYPE_CHECKING:
    from delaystore.cli._options import OpenedEndpoint
    from delaystore.operations import Operations

_HOW: Final = {
    Ending.DELIVERED: "delivered to {0}",
    Ending.HANDED_OVER: "handed over to the transport's native delay, for {0}",
    Ending.REPLACED: "replaced by another message",
    Ending.FAILED: "moved to the error queue",
}
"""How a message for a destination has left the store, behind "it was", where the outcome alone does not say it."""


def history(
    message_id: Annotated[str | None, typer.Argument(metavar="ID", help="Id of the message.")] = None,
    key: Annotated[str | None, typer.Option(metavar="KEY", help="Only messages with this key.")] = None,
    destination: DestinationOption = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Only messages that left at this time or later, as 2027-01-31T09:00Z."),
    ] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="Only messages that left before this time.")] = None,
    outcome: Annotated[
        Ending | None,
        typer.Option(metavar="OUTCOME", help=f"Only messages that left in this way: {', '.join(Ending)}."),
    ] = None,
    after: Annotated[
        str | None, typer.Option(metavar="CURSOR", help="Cursor of the next page, as the previous page printed it.")
    ] = None,
    limit: Annotated[
        int, typer.Option(min=1, max=100_000, metavar="NUMBER", help="Maximum number of entries on a page.")
    ] = 100,
    wide: Wide = False,
    *,
    where: StoredEndpoint,
    as_json: JsonOption = False,
) -> None:
    """Show how messages left the store.

    With an ID, show all that the store knows of that message: when it was changed, tried and delivered. Otherwise list
    delivered, cancelled, failed and expired messages, newest first. The store makes entries if you run dispatchers with
    --history.
    """
    wanted = HistoryFilter(
        key=key,
        destination=destination,
        since=None if since is None else parse_instant(since, "--since"),
        until=None if until is None else parse_instant(until, "--until"),
        ending=outcome,
    )
    start = parse_position(after, "--after")
    if message_id is not None and (wanted != HistoryFilter() or start is not None):
        raise ConfigurationError("an ID is given with --key, a filter or --after; pass the ID alone")
    with where.open() as opened:
        operations = opened.delivery.operations
        status = operations.history_status()
        if message_id is not None:
            life = operations.life(message_id)
            reach = () if life.message or life.entries else _reach(operations, status)
            _show(life, reach, wide=wide, as_json=as_json)
            return
        waiting = None if key is None else opened.delivery.get(key=key)
        entries, next_key = _found(operations, wanted, start, limit)
        is_whole = wanted == HistoryFilter(key=key) and key is not None and start is None
        is_unknown = is_whole and waiting is None and not entries
        reach = () if as_json and not is_unknown else _reach(operations, status)
    if is_unknown:
        raise _unknown(f"a message with the key {key!r}", reach)
    next_text = None if next_key is None else str(next_key)
    if as_json:
        of_key = {} if key is None else {"waiting": waiting and documents.summary(waiting)}
        known = {"kept": documents.field(status.kept), "since": documents.instant(status.since)}
        print_document({**of_key, "history": [each.as_dict() for each in entries], "next": next_text, **known})
        return
    columns: Sequence[str] = ("left", "outcome", "late", "attempts", "id", "destination", "key")
    if is_terminal() and not any(each.key for each in entries):
        columns = columns[:-1]
    rows = [_row(each)[: len(columns)] for each in entries]
    print_table(columns, rows, right=("late", "attempts"), unbroken=("left", "outcome"), wide=wide)
    if waiting is not None:
        print_note(f"message {waiting.message_id} with this key waits; `delaystore show` shows it")
    if next_text is not None:
        print_note(f"more follow; the next page: --after {shlex.quote(next_text)}")
    _print_notes(reach)


def last_ending(opened: "OpenedEndpoint", named: Mapping[str, str]) -> str:
    """How the last message of that id or key has left the store, to append to a line; empty where it is not known."""
    with suppress(DelaystoreError):  # the line is right without it
        for entry in opened.delivery.operations.history_of(**named, limit=1):
            who = "it" if "message_id" in named else f"message {entry.message_id}"
            how = _HOW.get(entry.ending, entry.ending.value).format(entry.destination)
            by = "" if entry.by is None else f" by {entry.by}"
            dashes = "-- " if entry.message_id.startswith("-") else ""
            see = f"`delaystore history {dashes}{shlex.quote(entry.message_id)}`"
            return f"; {who} was {how}{by} at {time_text(entry.ended)}, see {see}"
    return ""


def _found(
    operations: "Operations", wanted: HistoryFilter, after: Position | None, limit: int
) -> tuple[Sequence[HistoryEntry], Position | None]:
    """Up to `limit` entries, and the cursor of the next page; a page of the store may be short."""
    from delaystore.cli._progress import ProgressBar

    found: list[HistoryEntry] = []
    with ProgressBar(transient=True) as bar:
        while True:
            page = operations.history(wanted, after=after, limit=limit - len(found))
            found += page.entries
            after = page.next_key
            if after is None or len(found) >= limit:
                return found, after
            bar.show("searching", len(found), None)


def _show(life: MessageLife, reach: Sequence[str], *, wide: bool, as_json: bool) -> None:
    if not life.is_known:
        raise _unknown(f"message {life.message_id!r}", reach)
    if as_json:
        print_document(life.as_dict())
        return
    rows = [(time_text(at), *cells) for at, *cells in sorted(_events(life), key=itemgetter(0))]
    if (message := life.message) is not None:
        due, again = time_text(unmarked(message)), time_text(message.next_attempt)
        until = ("when resumed", "its destination is paused") if message.is_parked else (again, f"due {due}")
        rows.append((until[0], "waits", "", f"for {message.destination}; {until[1]}"))
    print_table(("when", "what", "by", "details"), rows, unbroken=("when", "what"), wide=wide)
    _print_notes(reach)


def _events(life: MessageLife) -> Iterator[tuple[datetime, str, str, str]]:
    """When, what, by whom, and details, of all that has happened; at the same time, the cause first."""
    if life.sent is not None:
        yield life.sent, "sent", "", ""
    for change in reversed(life.changes):
        how = [change.about.removeprefix(f"message {life.message_id} "), *([f"({change.way})"] if change.way else [])]
        yield change.at, change.action, change.by, " ".join(how)
    for entry in reversed(life.entries):
        yield from _failed(entry.failures)
        yield entry.ended, entry.ending.value, entry.by or "", "; ".join(_details(entry))
    if life.message is not None:
        yield from _failed(life.message.failures)


def _failed(failures: Sequence[FailedAttempt]) -> Iterator[tuple[datetime, str, str, str]]:
    return ((each.at, "failed attempt", "", f"{each.kind}: {each.reason}") for each in failures)


def _details(entry: HistoryEntry) -> Iterator[str]:
    yield f"destination {entry.destination}"
    yield f"due {time_text(entry.due_time)}"
    if entry.late is not None:
        yield f"{duration_text(entry.late)} late"
    yield counted(entry.attempts, "attempt")
    for name in ("key", "load"):
        if (value := getattr(entry, name)) is not None:
            yield f"{name} {value}"


def _row(entry: HistoryEntry) -> tuple[str, ...]:
    left, late = time_text(entry.ended), "" if entry.late is None else duration_text(entry.late)
    attempts, key = f"{entry.attempts:,}", entry.key or ""
    return left, entry.ending.value, late, attempts, entry.message_id, entry.destination, key


def _unknown(what: str, reach: Sequence[str]) -> typer.Exit:
    first, *gaps = reach
    _print_notes([f"not found: nothing is known of {what}; {first}", *gaps])
    return typer.Exit(1)


def _print_notes(notes: Sequence[str]) -> None:
    for each in notes:
        print_note(each)


def _reach(operations: "Operations", status: HistoryStatus) -> Sequence[str]:
    """How far the history reaches back, and why it may have gaps."""
    if status.kept is not None:
        kept = f"the history reaches back to {time_text(status.since)}, and is kept for {duration_text(status.kept)}"
        return [kept, *operations.history_gaps(status)]
    entries: Sequence[HistoryEntry] = ()
    with suppress(StoreSetupError):  # of tables of an earlier release
        entries = operations.history(HistoryFilter(), limit=1).entries
    return [f"no history is kept{' any more' * bool(entries)}; `delaystore dispatch --history 30d` begins one"]
