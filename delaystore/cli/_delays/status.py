"""`delaystore delays status`."""

from dataclasses import asdict
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from delaystore.amounts import counted
from delaystore.cli._broker_options import BrokerUrl, ManagementUrl
from delaystore.cli._delays.options import DEFAULT_CASCADE, CascadeName, open_cascade
from delaystore.cli._options import Json
from delaystore.cli._output import print_document, print_table, printable, tell
from delaystore.times import parse_duration

if TYPE_CHECKING:
    from delaystore.cascades import CascadeStatus
    from delaystore.cascades.status import Level, UndeliverableQueue

_COUNTS = ("messages", "ready", "unacked", "dead-lettering")
_COLUMNS = ("level", "queue", "time", *_COUNTS, "state")


def status(
    sample: Annotated[
        int, typer.Option(min=0, metavar="N", help="How many undeliverable messages to read, to tell why.")
    ] = 100,
    watch: Annotated[
        str,
        typer.Option(
            metavar="DURATION", help="How long to watch whether expired messages leave their levels. 0: not at all."
        ),
    ] = "12s",
    broker: BrokerUrl = None,
    cascade: CascadeName = DEFAULT_CASCADE,
    management: ManagementUrl = None,
    as_json: Json = False,
) -> None:
    """Say how full the levels are, what is undeliverable and why, and what is stuck.

    Exit code 1: something is undeliverable or stuck, a destination is full or unavailable, or a level is missing.
    Dead-lettering messages (held, with --json) have expired, and the next queue has not confirmed them. Undeliverable
    messages go back after they were read, in a quorum queue to its end.
    """
    from delaystore.cascades import read_status

    seconds = parse_duration(watch, "--watch") / timedelta(seconds=1)
    with open_cascade(broker, cascade, management) as (client, topology):
        found = read_status(client, topology, sample=sample, watch=seconds)
    if as_json:
        print_document(_document(found))
    else:
        _print(found)
    if not found.good:
        raise typer.Exit(1)


def _document(found: "CascadeStatus") -> dict[str, Any]:
    return {"good": found.good, **asdict(found), "levels": [_level_document(level) for level in found.levels]}


def _level_document(level: "Level") -> dict[str, Any]:
    """Dead-lettering messages have an older name in JSON."""
    return {"held" if name == "dead_lettering" else name: value for name, value in asdict(level).items()}


def _print(found: "CascadeStatus") -> None:
    print_table(
        _COLUMNS,
        [_row(level) for level in found.levels],
        right=("level", "time", *_COUNTS),
        unbroken=("time",),
        cut=("queue",),
    )
    for level in found.levels:
        if level.stuck:
            expired = counted(level.dead_lettering or 0, "expired message")
            tell(f"stuck: level {level.number} has {expired}, which the next queue does not confirm: none leaves")
    for blocked in found.blocked:
        name = printable(repr(blocked.name))
        tell(f"blocked: {blocked.kind} {name} {blocked.why}; its messages stay in their level, or are lost")
    for queue in found.undeliverable:
        _print_undeliverable(queue)
    for sentence in found.unknown:
        tell(f"not known: {sentence}")
    tell(f"{found.broker}: {'good' if found.good else 'not good'}")


def _print_undeliverable(queue: "UndeliverableQueue") -> None:
    if not queue.messages:
        return
    read = f", of which {queue.sampled:,} were read" if 0 < queue.sampled < queue.messages else ""
    tell(f"undeliverable: {counted(queue.messages, 'message')} in queue {printable(repr(queue.name))}{read}")
    if queue.undelivered:
        rows = [(one.address or "", f"{one.messages:,}", one.reason) for one in queue.undelivered]
        print_table(("address", "messages", "reason"), rows, right=("messages",))


def _row(level: "Level") -> tuple[str, ...]:
    from delaystore.cascades.status import span_text

    counts = (level.messages, level.ready, level.unacknowledged, level.dead_lettering)
    shown = ("?" if count is None else f"{count:,}" for count in counts)
    state = "missing" if level.missing else "stuck" if level.stuck else ""
    return (str(level.number), level.queue, span_text(level.ttl), *shown, state)
