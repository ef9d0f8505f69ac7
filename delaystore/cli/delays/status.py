"""`delaystore delays status`."""

from dataclasses import asdict
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from delaystore.cli.delays.opening import administered
from delaystore.cli.delays.options import DEFAULT_CASCADE, BrokerUrl, CascadeName, ManagementUrl
from delaystore.cli.durations import parse_duration
from delaystore.cli.options import Json
from delaystore.cli.output import counted, print_document, print_table, printable, tell

if TYPE_CHECKING:
    from delaystore.transports.rabbitmq.administration.levels import Level
    from delaystore.transports.rabbitmq.administration.status import CascadeStatus, UndeliverableQueue

_NUMBERS = ("messages", "ready", "unacknowledged", "held")
_COLUMNS = ("level", "queue", "time", *_NUMBERS, "state")


def status(
    sample: Annotated[
        int, typer.Option(min=0, metavar="N", help="How many undeliverable messages to look at, to tell why.")
    ] = 100,
    watch: Annotated[
        str,
        typer.Option(metavar="DURATION", help="How long to see whether expired messages leave their levels; 0: not."),
    ] = "12s",
    broker: BrokerUrl = None,
    cascade: CascadeName = DEFAULT_CASCADE,
    management: ManagementUrl = None,
    as_json: Json = False,
) -> None:
    """Say how full the levels are, what is undeliverable and why, and what is stuck.

    Exit code 1: something is undeliverable or stuck, a destination is full or unavailable, or a level is missing.
    "held" are messages whose time is over, and which the next queue has not confirmed. A look at undeliverable
    messages puts them back, in a quorum queue at its end.
    """
    from delaystore.transports.rabbitmq.administration.status import read_status
    from delaystore.transports.rabbitmq.topology import topology_named

    seconds = parse_duration(watch, "--watch") / timedelta(seconds=1)
    topology = topology_named(cascade)
    with administered(broker, management) as opened:
        found = read_status(opened, topology, sample=sample, watch=seconds)
    if as_json:
        print_document(_document(found))
    else:
        _print(found)
    if not found.good:
        raise typer.Exit(1)


def _document(found: "CascadeStatus") -> dict[str, Any]:
    return {"good": found.good, **asdict(found)}


def _print(found: "CascadeStatus") -> None:
    print_table(
        _COLUMNS,
        [_row(level) for level in found.levels],
        right=("level", "time", *_NUMBERS),
        unbroken=("queue", "time"),
    )
    for level in found.levels:
        if level.stuck:
            tell(
                f"stuck: level {level.number} holds {counted(level.held or 0, 'expired message')} that the next queue "
                "does not confirm, and none leaves"
            )
    for blocked in found.blocked:
        name = printable(repr(blocked.name))
        tell(f"blocked: {blocked.kind} {name} {blocked.why}; what is meant for it is held in its level, or lost")
    for queue in found.undeliverable:
        _print_undeliverable(queue)
    for sentence in found.unknown:
        tell(f"not known: {sentence}")
    tell(f"{found.broker}: {'good' if found.good else 'not good'}")


def _print_undeliverable(queue: "UndeliverableQueue") -> None:
    if not queue.messages:
        return
    looked = f", of which {queue.sampled:,} were looked at" if 0 < queue.sampled < queue.messages else ""
    tell(f"undeliverable: {counted(queue.messages, 'message')} in queue {printable(repr(queue.name))}{looked}")
    if queue.undelivered:
        rows = [(one.address or "", f"{one.messages:,}", one.reason) for one in queue.undelivered]
        print_table(("address", "messages", "reason"), rows, right=("messages",))


def _row(level: "Level") -> tuple[str, ...]:
    from delaystore.transports.rabbitmq.spans import span_text

    numbers = (level.messages, level.ready, level.unacknowledged, level.held)
    shown = ("?" if number is None else f"{number:,}" for number in numbers)
    state = "missing" if level.missing else "stuck" if level.stuck else ""
    return (str(level.number), level.queue, span_text(level.ttl), *shown, state)
