"""`delaystore cascade` migrate, transfer, status and export."""

import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from delaystore.cli._broker import DEFAULT_CASCADE, BrokerOptions, CascadeName, OfferedCascade
from delaystore.cli._options import (
    DryRunOption,
    JsonOption,
    MaxRate,
    TargetTimeoutOption,
    environment_option,
    required,
    url_option,
)
from delaystore.cli._output import print_document, print_line, print_note, print_table, printable, write
from delaystore.cli._signals import stop_requests
from delaystore.text import counted, duration_text, parse_duration
from delaystore.transports.rabbitmq.topology import CascadeTopology, topology_named
from delaystore.transports.rabbitmq.topology.cascades import DueFrom, Routing

if TYPE_CHECKING:
    from delaystore.cascades import CascadeStatus
    from delaystore.cascades.moving.broker_cascade import BrokerCascade
    from delaystore.cascades.moving.mover import MoveSettings
    from delaystore.cascades.moving.report import MoveReport
    from delaystore.cascades.status import Level, UndeliverableQueue


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveOptions:
    """How messages are moved, as given on the command line."""

    due_from: Annotated[
        DueFrom,
        typer.Option(
            "--due-from",
            help="Source of the remaining delay. headers: NServiceBus' TimeSent and DelayInSeconds, or a Celery "
            "task's eta; exact. routing-key: the routing key from the present level down; never early, late by the "
            "time spent in that level. either: the headers, or else the routing key.",
        ),
    ] = DueFrom.HEADERS
    routing: Annotated[
        Routing,
        typer.Option(
            "--routing", help="Binding of destinations at the target: the queue, or the exchange of that name."
        ),
    ] = Routing.DIRECT
    poison_queue: Annotated[
        str,
        typer.Option(
            "--poison-queue", metavar="NAME", help="Queue on the source's broker for messages that cannot be moved."
        ),
    ] = "delays.poison"
    max_rate: MaxRate = None
    target_timeout: TargetTimeoutOption = "60s"
    dry_run: DryRunOption = False

    def settings(self) -> "MoveSettings":
        """The same as settings. Raises ConfigurationError."""
        from delaystore.cascades.moving.mover import MoveSettings

        return MoveSettings(
            due_from=self.due_from,
            routing=self.routing,
            poison_queue=self.poison_queue,
            max_rate=self.max_rate,
            target_timeout=parse_duration(self.target_timeout, "--target-timeout").total_seconds(),
        )


_SHOWN = 20
"""How many destinations, and reasons, are listed."""


def migrate(
    from_cascade: Annotated[
        str,
        environment_option("--from", "Cascade to move messages from.", metavar="CASCADE", group="cascade_migrate"),
    ] = "nservicebus-v1",
    to_cascade: Annotated[
        str, environment_option("--to", "Cascade to move messages to.", metavar="CASCADE", group="cascade_migrate")
    ] = "nservicebus-v2",
    *,
    options: MoveOptions,
    on: BrokerOptions,
    as_json: JsonOption = False,
) -> None:
    """Move messages to another cascade of the broker.

    By default messages move from nservicebus-v1 to nservicebus-v2. A message leaves the old cascade once the broker has
    confirmed its copy in the new one. If you stop or kill the command, run it again: no message is lost. After a kill,
    about 1,500 messages may be copied twice. The old cascade delivers messages that fall due during the move, so keep
    its bindings until it is empty.
    """
    url = on.require_broker()
    with _cascade(url, from_cascade, on.management) as source, _cascade(url, to_cascade) as target:
        _run(source, target, options, as_json=as_json)


def transfer(
    to_broker: Annotated[
        str | None,
        url_option(
            "--to-broker",
            "Broker to move messages to: amqp[s]://user:password@host:port/vhost.",
            group="cascade_transfer",
        ),
    ] = None,
    cascade: CascadeName = DEFAULT_CASCADE,
    to_cascade: Annotated[
        str | None, typer.Option("--to-cascade", metavar="CASCADE", help="Cascade on that broker. Default: the same.")
    ] = None,
    *,
    options: MoveOptions,
    on: BrokerOptions,
    as_json: JsonOption = False,
) -> None:
    """Move a cascade's messages to another broker.

    The queues of the destinations must exist on the new broker; messages for other destinations stay. A message leaves
    the old broker once the new one has confirmed its copy. If you stop or kill the command, run it again: no message is
    lost. After a kill, about 1,500 messages may be copied twice. The old broker delivers messages that fall due during
    the move. --management is the API of the old broker.
    """
    url = on.require_broker()
    to_url = required(to_broker, "target broker", "--to-broker URL", "DELAYSTORE_CASCADE_TRANSFER_TO_BROKER")
    with _cascade(url, cascade, on.management) as source, _cascade(to_url, to_cascade or cascade) as target:
        _run(source, target, options, as_json=as_json)


def _cascade(url: str, name: str, management: str | None = None) -> "BrokerCascade":
    from delaystore.cascades.moving.broker_cascade import BrokerCascade

    return BrokerCascade(url, topology_named(name), name, management or None)


def _run(source: "BrokerCascade", target: "BrokerCascade", options: MoveOptions, *, as_json: bool) -> None:
    """Move, or do a dry run, and report.

    Exits with 1 if the numbers do not add up, with 128 and the signal's number if stopped.
    """
    from delaystore.cascades.moving.mover import move, move_dry
    from delaystore.cli._progress import ProgressBar

    settings, carry_out = options.settings(), move_dry if options.dry_run else move
    with stop_requests() as stop:
        with ProgressBar() as bar:
            report = carry_out(source, target, settings, bar.show, lambda: stop.made)
        findings = report.findings(datetime.now(UTC))
        if as_json:
            print_document(report.as_dict())
        else:
            print_table(("messages", "count"), _rows(report), right=("count",))
        for remark in _remarks(report, settings.poison_queue):
            print_note(remark)
    for finding in findings:
        print_note(f"does not add up: {finding}")
    if report.interrupted:
        print_note("stopped; messages in flight are finished; run it again for the remaining messages")
        raise typer.Exit(stop.exit_code)
    if findings:
        raise typer.Exit(1)


def _rows(report: "MoveReport") -> list[tuple[str, str]]:
    counts = {
        "waited in the source": report.source_before,
        "read": report.read,
        "would be moved" if report.dry_run else "moved": report.moved,
        "would go to the poison queue" if report.dry_run else "to the poison queue": report.poisoned.total(),
    }
    optional = {
        "left in the source": report.left.total(),
        "given back": report.returned,
        "delivered by the source meanwhile": 0 if report.dry_run or report.interrupted else report.delivered_meanwhile,
        "read once before, perhaps copied twice": 0 if report.dry_run else report.perhaps_twice,
    }
    shown = counts | {name: count for name, count in optional.items() if count}
    rows = [(name, f"{count:,}") for name, count in shown.items()]
    rows += [(f"  for {destination}", f"{count:,}") for destination, count in report.destinations.most_common(_SHOWN)]
    more = len(report.destinations) - _SHOWN
    return [*rows, (f"  and for {counted(more, 'more destination')}", "")] if more > 0 else rows


def _remarks(report: "MoveReport", poison_queue: str) -> list[str]:
    remarks = [
        f"poison: {counted(count, 'message')}: {reason}" for reason, count in report.poisoned.most_common(_SHOWN)
    ]
    if report.poisoned and not report.dry_run:
        remarks.append(f"the poison queue is {poison_queue!r}; each message's header delaystore.poison-reason says why")
    if report.disagreeing:
        remarks.append(
            f"{counted(report.disagreeing, 'message')} are due earlier by their headers than by their routing key, by "
            "more than a minute; --due-from routing-key goes by the key"
        )
    if report.dry_run and report.read < report.source_before:
        remarks.append(f"read only the first messages of each level: {report.read:,} of {report.source_before:,}")
    remarks += [f"left: {counted(count, 'message')}: {reason}" for reason, count in report.left.most_common(_SHOWN)]
    return remarks


_COUNTS = ("messages", "ready", "unacked", "dead-lettering")
_COLUMNS = ("level", "queue", "time", *_COUNTS, "state")


def status(
    sample: Annotated[
        int, typer.Option(min=0, metavar="N", help="Number of undeliverable messages to read, to find the reasons.")
    ] = 100,
    observe: Annotated[
        str,
        typer.Option(
            metavar="DURATION", help="Time to observe whether expired messages leave their levels; 0: not at all."
        ),
    ] = "12s",
    *,
    on: OfferedCascade,
    as_json: JsonOption = False,
) -> None:
    """Show levels and undeliverable messages.

    The table shows the number of messages in each level of the cascade. Undeliverable and stuck messages are shown with
    the reasons. Dead-lettering messages ("held" in JSON) have expired, but the next queue has not confirmed them.
    Undeliverable messages go back to their queue after reading; in a quorum queue, to its end.
    """
    from delaystore.cascades import read_status

    seconds = parse_duration(observe, "--observe") / timedelta(seconds=1)
    with on.open_cascade() as (client, topology):
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
    )
    for level in found.levels:
        if level.stuck:
            expired = counted(level.dead_lettering or 0, "expired message")
            print_line(f"stuck: level {level.number} has {expired}, which the next queue does not confirm: none leaves")
    for blocked in found.blocked:
        name = printable(repr(blocked.name))
        print_line(f"blocked: {blocked.kind} {name} {blocked.why}; its messages stay in their level, or are lost")
    for queue in found.undeliverable:
        _print_undeliverable(queue)
    for sentence in found.unknown:
        print_line(f"not known: {sentence}")
    print_line(f"{found.broker}: {'good' if found.good else 'not good'}")


def _print_undeliverable(queue: "UndeliverableQueue") -> None:
    if not queue.messages:
        return
    read = f", of which {queue.sampled:,} were read" if 0 < queue.sampled < queue.messages else ""
    print_line(f"undeliverable: {counted(queue.messages, 'message')} in queue {printable(repr(queue.name))}{read}")
    if queue.undelivered:
        rows = [(one.address or "", f"{one.messages:,}", one.reason) for one in queue.undelivered]
        print_table(("address", "messages", "reason"), rows, right=("messages",))


def _row(level: "Level") -> tuple[str, ...]:
    counts = (level.messages, level.ready, level.unacknowledged, level.dead_lettering)
    shown = ("?" if count is None else f"{count:,}" for count in counts)
    state = "missing" if level.missing else "stuck" if level.stuck else ""
    return (str(level.number), level.queue, duration_text(timedelta(milliseconds=level.ttl)), *shown, state)


class CascadeFormat(StrEnum):
    """The formats of `cascade export`."""

    TERRAFORM = "terraform"
    DEFINITIONS = "definitions"
    MERMAID = "mermaid"


def export(
    form: Annotated[
        CascadeFormat,
        environment_option(
            "--format",
            "Terraform JSON for the provider cyrilgdn/rabbitmq, a file for rabbitmqctl import_definitions, "
            "or a Mermaid diagram.",
            group="cascade_export",
        ),
    ],
    cascade: CascadeName = DEFAULT_CASCADE,
    vhost: Annotated[
        str, typer.Option(metavar="NAME", help="Virtual host, which must exist; unused in a diagram.")
    ] = "/",
    full: Annotated[bool, typer.Option("--full", help="Draw all levels in the diagram.")] = False,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File to write. Default: standard output.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Write a cascade as code or as a diagram.

    No broker is asked. The output has no bindings of destinations; `delaystore cascade bind` creates these. With --json
    the document has the text in `content`, or the name of the output file in `file`.
    """
    text = _text(form, topology_named(cascade), vhost, full)
    if output is not None:
        output.write_text(text, encoding="utf-8")
        print_note(f"wrote {output}")
    if as_json:
        content, file = (text, None) if output is None else (None, str(output))
        print_document({"format": form.value, "cascade": cascade, "content": content, "file": file})
    elif output is None:
        write(text)


def _text(form: CascadeFormat, topology: CascadeTopology, vhost: str, full: bool) -> str:
    from delaystore.cascades.delivery_limits import limit_policy
    from delaystore.cascades.exports import definitions, mermaid, terraform
    from delaystore.cascades.policies import complete_layout, needs_policy, policy_for, undeliverable_name

    if form is CascadeFormat.MERMAID:
        by_policy = undeliverable_name(topology) if needs_policy(topology) else None
        return mermaid(topology, full=full, undeliverable=by_policy)
    policies = [policy for policy in (policy_for(topology), limit_policy(topology)) if policy is not None]
    make = terraform if form is CascadeFormat.TERRAFORM else definitions
    document = make(complete_layout(topology), vhost, policies)
    return json.dumps(document, indent=2) + "\n"
