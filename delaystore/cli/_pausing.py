"""`delaystore pause`, `resume`, `limit`, `destinations` and `changes`."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from delaystore.cli._changing import ActorName, acting
from delaystore.cli._options import JsonOption, StoredEndpoint, environment_option
from delaystore.cli._output import print_document, print_line, print_note, print_table
from delaystore.cli._signals import StoppedError, stop_requests
from delaystore.errors import ConfigurationError
from delaystore.filters import MessageFilter
from delaystore.stores import documents
from delaystore.stores.records import AuditEntry, Destination
from delaystore.text import counted, duration_text, limit_text, parse_duration, parse_instant, time_text

if TYPE_CHECKING:
    from delaystore.operations import CountListener, Operations

_LOOKED_FOR: Final = 2.0
"""Seconds for which a message of the destination is looked for, at most."""
_RATE: Final = re.compile(r"(\d+(?:\.\d+)?)(?:/([smh]))?", re.ASCII)
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600}
Name = Annotated[str, typer.Argument(metavar="DESTINATION", help="Destination, as messages have it.")]


PauseUntil = Annotated[
    str | None,
    typer.Option("--until", metavar="TIME", help="End of the pause, as 2027-01-31T09:00:00+01:00. Default: never."),
]


def pause_length(group: str) -> Any:
    """--for of a command that pauses."""
    text = "Length of the pause, in place of --until: 90s, 15m, 2h30m, 3d."
    return environment_option("--for", text, metavar="DURATION", group=group)


def pause(
    destination: Name,
    until: PauseUntil = None,
    for_: Annotated[str | None, pause_length("pause")] = None,
    actor: ActorName = None,
    *,
    where: StoredEndpoint,
    as_json: JsonOption = False,
) -> None:
    """Pause forwarding to a destination.

    Within a second all dispatchers stop forwarding to the destination. Its messages wait until you resume it: they are
    late, and not lost. A pause does not extend the latest delivery of messages. Other destinations continue as usual.
    This command and the dispatchers park due messages. If you interrupt the command, the destination is paused anyway.
    """
    end = pause_end(until, for_)
    with where.open() as opened:
        operations = acting(opened, actor)
        instant = end(opened.store.now)
        with watched("parking", "it is paused, and dispatchers park the rest") as show:
            parked = operations.pause(destination, until=instant, progress=show)
        nothing = _nothing_waits(operations, destination)
    if as_json:
        print_document({"destination": destination, "until": documents.instant(instant), "parked": parked})
    else:
        print_paused(destination, instant, parked)
    if nothing:
        _warn(destination)


def resume(
    destination: Name,
    actor: ActorName = None,
    *,
    where: StoredEndpoint,
    as_json: JsonOption = False,
) -> None:
    """Resume a paused destination.

    Dispatchers send its parked messages, too. If you interrupt the command, the dispatchers continue with the parked
    messages.
    """
    with where.open() as opened:
        operations = acting(opened, actor)
        found = next((each for each in operations.destinations() if each.name == destination), None)
        was_paused = found is not None and (found.paused or found.resuming)
        with watched("resuming", "it is resumed, and dispatchers show the rest of its parked messages") as show:
            shown = operations.resume(destination, progress=show)
    if as_json:
        print_document({"destination": destination, "was_paused": was_paused, "shown": shown})
    elif was_paused:
        print_line(f"resumed: {destination} ({counted(shown, 'parked message')})")
    else:
        print_note(f"not paused: {destination}")
    if not was_paused:
        raise typer.Exit(1)


def limit(
    destination: Name,
    max_rate: Annotated[
        str,
        typer.Option(
            "--max-rate", metavar="RATE", help="Maximum rate: 200/s, 30/m, 1000/h, 200 (a second); none: no limit."
        ),
    ],
    actor: ActorName = None,
    *,
    where: StoredEndpoint,
    as_json: JsonOption = False,
) -> None:
    """Limit the rate of a destination.

    The limit applies to all dispatchers together. Messages over the limit wait, and do not count as failed.
    """
    rate = parse_rate(max_rate, "--max-rate")
    with where.open() as opened:
        operations = acting(opened, actor)
        operations.limit_rate(destination, rate)
        nothing = rate is not None and _nothing_waits(operations, destination)
    if as_json:
        print_document({"destination": destination, "max_rate": rate})
    else:
        print_line(
            f"no limit any more: {destination}" if rate is None else f"limited to {limit_text(rate)}: {destination}"
        )
    if nothing:
        _warn(destination)


def parse_rate(text: str, option: str) -> float | None:
    """`200/s`, `30/m`, `1000/h`, or a number a second; `none` is None. ConfigurationError for anything else."""
    cleaned = text.strip().lower()
    if cleaned == "none":
        return None
    found = _RATE.fullmatch(cleaned)
    if found is None or "M" in text:
        raise ConfigurationError(f"{option} {text!r} is no rate; write 200/s, 30/m, 1000/h, or none")
    from delaystore.stores.shared import check_max_rate

    return check_max_rate(float(found[1]) / _SECONDS[found[2] or "s"], option)


def pause_end(until: str | None, for_: str | None) -> Callable[[Callable[[], datetime]], datetime | None]:
    """The end of a pause by its options, as a function of the store's clock. Raises ConfigurationError."""
    if until is not None and for_ is not None:
        raise ConfigurationError("--until and --for are both given; pass one of them")
    span = None if for_ is None else parse_duration(for_, "--for")
    instant = None if until is None else parse_instant(until, "--until")
    return lambda now: instant if span is None else _after(now(), span)


def print_paused(name: str, until: datetime | None, parked: int) -> None:
    """Report that a destination or a load is paused."""
    when = "" if until is None else f" until {time_text(until)}"
    print_line(f"paused{when}: {name} ({counted(parked, 'due message')} parked)")
    print_note("note: a pause does not extend the latest delivery of messages")


def _after(now: datetime, span: timedelta) -> datetime:
    """When a pause of `span` ends; ConfigurationError where that is at once, or beyond all dates."""
    if not span:
        raise ConfigurationError("--for is 0; write how long, as in 2h")
    try:
        return now + span
    except OverflowError:
        raise ConfigurationError(
            f"--for {duration_text(span)} is out of range; leave it out, and resume by hand"
        ) from None


@contextmanager
def watched(step: str, left: str) -> Iterator["CountListener"]:
    """What shows progress. After a signal it ends the block: names the rest, `left`, and raises typer.Exit."""
    from delaystore.cli._progress import ProgressBar

    with ProgressBar(transient=True) as bar, stop_requests() as stop:

        def show(done: int) -> None:
            bar.show(step, done, None)
            if stop.made:
                raise StoppedError

        try:
            yield show
        except StoppedError:
            bar.end()
            print_note(f"interrupted: {left}")
            raise typer.Exit(stop.exit_code) from None


def _nothing_waits(operations: "Operations", destination: str) -> bool:
    """Whether it is known that no message waits for it; looks for one a moment only."""
    found = operations.preview(MessageFilter(destination=destination), sample=1, at_most=1, seconds=_LOOKED_FOR)
    return found.complete and not found.count


def _warn(destination: str) -> None:
    print_note(f"warning: no message waits for {destination!r} at present; is that its name?")


def destinations(
    backlog: Annotated[
        bool,
        typer.Option(
            "--backlog", help="Also count the waiting messages of each destination; reads all waiting messages."
        ),
    ] = False,
    *,
    where: StoredEndpoint,
    as_json: JsonOption = False,
) -> None:
    """List paused and limited destinations.

    With --backlog, list all destinations of waiting messages.
    """
    with where.open() as opened:
        operations = opened.delivery.operations
        changed = {each.name: each for each in operations.destinations()}
        waiting = operations.backlog() if backlog else {}
    names = [*waiting, *(name for name in changed if name not in waiting)]
    if as_json:
        found = [_document(name, changed.get(name), waiting.get(name, 0) if backlog else None) for name in names]
        print_document({"destinations": found})
    elif not names:
        print_line("no message waits" if backlog else "no destination is paused or limited")
    else:
        numbers = ["waiting"] if backlog else []
        rows = [(name, *(f"{waiting.get(name, 0):,}" for _ in numbers), *_cells(changed.get(name))) for name in names]
        print_table(
            ("destination", *numbers, "state", "limit", "by"), rows, right=(*numbers, "limit"), unbroken=numbers
        )


def changes(
    limit: Annotated[int, typer.Option(min=1, max=100_000, metavar="NUMBER", help="Maximum number of entries.")] = 100,
    after: Annotated[
        str | None, typer.Option(metavar="CURSOR", help="Cursor of the next page, as the previous page printed it.")
    ] = None,
    *,
    where: StoredEndpoint,
    as_json: JsonOption = False,
) -> None:
    """List the audit trail, newest changes first.

    A last line on standard error shows whose changes the store records and how long it keeps them, as running
    dispatchers report it.
    """
    before = _cursor(after)
    with where.open() as opened:
        found, cursor = _page(opened.delivery.operations, limit, before)
        kept = opened.delivery.operations.audit_kept()
    shown = documents.instant(cursor)
    if as_json:
        print_document({"changes": documents.field(found), "next": shown, **documents.record(kept)})
        return
    rows = [(time_text(each.at), each.by, each.way or "", each.action, f"{each.count:,}", each.about) for each in found]
    columns = ("when", "who", "way", "what", "messages", "of")
    print_table(columns, rows, right=("messages",), unbroken=("when", "way", "what", "messages"))
    if shown is not None:
        print_note(f"more follow; the next page: --after {shown}")
    print_note(str(kept))


def _cursor(text: str | None) -> datetime | None:
    """The time of the last entry of the page before; ConfigurationError for anything else."""
    try:
        return None if text is None else parse_instant(text, "--after")
    except ConfigurationError:
        raise ConfigurationError(f"--after {text!r} is no cursor; pass the one that the page before printed") from None


def _page(
    operations: "Operations", limit: int, before: datetime | None
) -> tuple[Sequence[AuditEntry], datetime | None]:
    """A page of older entries, and the cursor of the next one. Entries of the same time are on one page."""
    number = limit
    while True:
        found = operations.changes(number + 1, before)
        if len(found) <= number:
            return found, None
        page = [each for each in found if each.at > found[-1].at]
        if page:
            return page, page[-1].at
        number *= 2


def _document(name: str, found: Destination | None, waiting: int | None) -> dict[str, Any]:
    """`waiting` None: not counted."""
    known = {"name": name} if found is None else documents.record(found)
    return known if waiting is None else {**known, "waiting": waiting}


def _cells(found: Destination | None) -> tuple[str, str, str]:
    if found is None:
        return "", "", ""
    state = "resuming" if found.resuming else "paused" if found.paused else ""
    if found.paused_until is not None and found.paused:
        state = f"paused until {time_text(found.paused_until)}"
    return state, "" if found.max_rate is None else limit_text(found.max_rate), found.by
