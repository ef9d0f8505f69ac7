"""`delaystore loads`: list, show, cancel, pause and resume loads."""

from collections.abc import Iterator
from typing import Annotated, Final

import typer

from delaystore.cli._changing import ActorName, BulkChange, BulkYesOption, ByOption, ShiftZone, acting
from delaystore.cli._commands import add_commands, plain_group
from delaystore.cli._options import (
    At,
    DelayOption,
    DryRunOption,
    JsonOption,
    StoredEndpoint,
    WatchOptions,
    parse_new_due,
)
from delaystore.cli._output import print_document, print_line, print_note, print_table, write
from delaystore.cli._pausing import PauseUntil, pause_end, pause_length, print_paused, watched
from delaystore.filters import MessageFilter
from delaystore.stores import documents
from delaystore.stores.records import Load, LoadPhase, OperationKind
from delaystore.text import counted, time_text

_BAR: Final = 20
"""Characters of a progress bar."""
LoadId = Annotated[str, typer.Argument(metavar="LOAD_ID", help="Id of the load, or of the stream's query.")]


def list_loads(
    limit: Annotated[int, typer.Option(min=1, max=100_000, metavar="NUMBER", help="Maximum number of loads.")] = 20,
    *,
    where: StoredEndpoint,
    as_json: JsonOption = False,
) -> None:
    """List loads, newest first.

    Of a load with more than 100,000 waiting messages the list does not count all; `delaystore loads show` does.
    """
    with where.open() as opened:
        found = opened.delivery.operations.loads.list(limit)
    if as_json:
        print_document({"loads": documents.field(found)})
        return
    rows = [
        (each.load_id, time_text(each.began), _state(each), f"{each.stored:,}", _waiting(each), _bar(each))
        for each in found
    ]
    columns = ("id", "began", "state", "stored", "waiting", "done")
    print_table(columns, rows, right=("stored", "waiting"), unbroken=("began", "done"))


def show(load_id: LoadId, *, again: WatchOptions, where: StoredEndpoint, as_json: JsonOption = False) -> None:
    """Show a load and the numbers of its messages.

    The command counts the waiting messages of the load. --watch refreshes the screen until Ctrl-C.
    """
    seconds = again.seconds()
    with where.open() as opened:
        loads = opened.delivery.operations.loads
        found = loads.get(load_id)
        if again.watch:
            from delaystore.cli._signals import watch

            watch(
                lambda: list(_lines(loads.get(load_id))),
                lambda: documents.record(loads.get(load_id)),
                seconds,
                as_json=as_json,
            )
        elif as_json:
            print_document(documents.record(found))
        else:
            write("".join(f"{line}\n" for line in _lines(found)))


def cancel(
    load_id: LoadId,
    dry_run: DryRunOption = False,
    yes: BulkYesOption = False,
    actor: ActorName = None,
    *,
    where: StoredEndpoint,
    as_json: JsonOption = False,
) -> None:
    """Cancel all waiting messages of a load.

    The command does not cancel messages that were delivered, that went to the error queue, or that are being
    dispatched. A cancelled load id is not loaded again, unless you pass --again. To stop messages for a while, use
    `delaystore loads pause`. If the command is interrupted, `delaystore operations resume` continues it.
    """
    bulk = BulkChange(OperationKind.CANCEL, MessageFilter(load=load_id), dry_run=dry_run, yes=yes, as_json=as_json)
    with where.open() as opened:
        bulk.make(opened, acting(opened, actor))


def reschedule(
    load_id: LoadId,
    delay: DelayOption = None,
    at: At = None,
    by: ByOption = None,
    time_zone: ShiftZone = None,
    dry_run: DryRunOption = False,
    yes: BulkYesOption = False,
    actor: ActorName = None,
    *,
    where: StoredEndpoint,
    as_json: JsonOption = False,
) -> None:
    """Change the due times of a load.

    --by moves the due time of each waiting message. --delay and --at give all of them the same due time. If the command
    is interrupted, `delaystore operations resume` continues it, and moves no due time twice.
    """
    bulk = BulkChange(OperationKind.RESCHEDULE, MessageFilter(load=load_id), dry_run=dry_run, yes=yes, as_json=as_json)
    when = parse_new_due(delay, at, by, time_zone)
    with where.open() as opened:
        bulk.make(opened, acting(opened, actor), when)


def pause(
    load_id: LoadId,
    until: PauseUntil = None,
    for_: Annotated[str | None, pause_length("loads_pause")] = None,
    actor: ActorName = None,
    *,
    where: StoredEndpoint,
    as_json: JsonOption = False,
) -> None:
    """Pause forwarding the messages of a load.

    Within a second all dispatchers stop forwarding them. The messages wait until you resume the load: they are late,
    and not lost. A pause does not extend the latest delivery of messages. Other messages for the same destinations
    continue as usual.
    """
    end = pause_end(until, for_)
    with where.open() as opened:
        operations = acting(opened, actor)
        instant = end(opened.store.now)
        with watched("parking", "it is paused, and dispatchers park the rest") as progress:
            parked = operations.loads.pause(load_id, until=instant, progress=progress)
    if as_json:
        print_document({"load_id": load_id, "until": documents.instant(instant), "parked": parked})
    else:
        print_paused(load_id, instant, parked)


def resume(load_id: LoadId, actor: ActorName = None, *, where: StoredEndpoint, as_json: JsonOption = False) -> None:
    """Resume a paused load.

    Dispatchers send its parked messages, too. Messages for a destination that is paused itself stay parked.
    """
    with where.open() as opened:
        operations = acting(opened, actor)
        was_paused = load_id in operations.loads.paused()
        with watched("resuming", "it is resumed, and dispatchers show the rest of its parked messages") as progress:
            shown = operations.loads.resume(load_id, progress=progress)
    if as_json:
        print_document({"load_id": load_id, "was_paused": was_paused, "shown": shown})
    elif was_paused or shown:  # of an earlier call that was interrupted
        print_line(f"resumed: {load_id} ({counted(shown, 'parked message')})")
    else:
        print_note(f"not paused: {load_id}")
    if not was_paused and not shown:
        raise typer.Exit(1)


def _lines(load: Load) -> Iterator[str]:
    fields = {
        "load": load.load_id,
        "state": _state(load),
        "began": time_text(load.began),
        "stored": f"{load.stored:,}",
        "waiting": f"{_waiting(load)}{f', {load.failing:,} of them failed before' if load.failing else ''}",
        "delivered": "unknown" if load.delivered is None else f"{load.delivered:,}",
        "cancelled": f"{load.cancelled:,}" if load.cancelled else "",
        "replaced": f"{load.replaced:,}" if load.replaced else "",
        "failed": f"{load.failed:,} (moved to the error queue)" if load.failed else "",
        "expired": f"{load.expired:,} (after their latest delivery)" if load.expired else "",
        "rejected": f"{load.rejected:,} rows" if load.rejected else "",
        "done": _bar(load),
        "first due": "" if load.first_due is None else time_text(load.first_due),
        "last due": "" if load.last_due is None else time_text(load.last_due),
    }
    return (f"{name:<11}{value}" for name, value in fields.items() if value)


def _state(load: Load) -> str:
    state = f"{load.state}, a stream" if load.is_stream else load.state.value
    if load.state is LoadPhase.CANCELLED and load.cancelled_at is not None:
        state = f"cancelled by {load.cancelled_by}, {time_text(load.cancelled_at)}"
    until = "" if load.paused_until is None else f" until {time_text(load.paused_until)}"
    return f"{state}, paused{until}" if load.paused else state


def _waiting(load: Load) -> str:
    return f"{load.waiting:,}" if load.exact else f"over {load.waiting:,}" if load.waiting else "unknown"


def _bar(load: Load) -> str:
    """How much of the load does not wait any more."""
    if not load.exact or not load.stored:
        return ""
    done = (load.stored - load.waiting) / load.stored
    filled = int(done * _BAR)
    return f"{'█' * filled}{'░' * (_BAR - filled)} {int(done * 100)} %"


loads_app = plain_group(
    """Watch, cancel, pause or reschedule loads.

    A load is what one run of `delaystore load`, `delaystore send --file` or a Spark job has stored, or all batches of a
    stream. Other commands select its messages by `--load`.
    """
)
add_commands(
    loads_app,
    {
        "list": list_loads,
        "show": show,
        "cancel": cancel,
        "pause": pause,
        "resume": resume,
        "reschedule": reschedule,
    },
)
