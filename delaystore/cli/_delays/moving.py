"""`delaystore delays migrate` and `delaystore delays transfer`: what waits in one cascade moves into another."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from delaystore.amounts import counted
from delaystore.cli._broker_options import BrokerUrl, DryRun, ManagementUrl
from delaystore.cli._delays.options import DEFAULT_CASCADE, CascadeName
from delaystore.cli._options import Json, MaxRate, Patience, environment_option, required, url_option
from delaystore.cli._output import print_document, print_table, say
from delaystore.cli._signals import stop_requests
from delaystore.times import parse_duration
from delaystore.transports.rabbitmq.topology import topology_named
from delaystore.transports.rabbitmq.topology.cascades import DueBy, Routing

if TYPE_CHECKING:
    from delaystore.cascades.moving.broker_cascade import BrokerCascade
    from delaystore.cascades.moving.mover import MoveSettings
    from delaystore.cascades.moving.report import MoveReport

# the options that both commands have; the defaults are theirs
DueByOption = Annotated[
    DueBy,
    typer.Option(
        "--due-by",
        help="What tells the remaining delay. headers: NServiceBus' TimeSent and DelayInSeconds, or a Celery task's "
        "eta; exact. key: the routing key from the present level down; never early, late by the time spent in that "
        "level. either: the headers, or else the key.",
    ),
]
RoutingOption = Annotated[
    Routing,
    typer.Option(
        "--routing", help="How destinations are bound on the target: the queue, or the exchange of that name."
    ),
]
PoisonQueue = Annotated[
    str,
    typer.Option(
        "--poison-queue", metavar="NAME", help="Where messages go that cannot be moved, on the source's broker."
    ),
]
_POISON_QUEUE = "delays.poison"
_PATIENCE = "60s"
_SHOWN = 20
"""How many destinations, and reasons, are listed."""


def migrate(
    from_cascade: Annotated[
        str, environment_option("--from", "Where messages wait.", metavar="CASCADE", group="delays_migrate")
    ] = "nservicebus-v1",
    to_cascade: Annotated[
        str, environment_option("--to", "Where they shall wait.", metavar="CASCADE", group="delays_migrate")
    ] = "nservicebus-v2",
    due_by: DueByOption = DueBy.HEADERS,
    routing: RoutingOption = Routing.DIRECT,
    poison_queue: PoisonQueue = _POISON_QUEUE,
    max_rate: MaxRate = None,
    patience: Patience = _PATIENCE,
    broker: BrokerUrl = None,
    management: ManagementUrl = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Move what waits in a cascade into another on the same broker: NServiceBus' v1 into v2, by default.

    A message leaves the old cascade once the new one has confirmed its copy: interrupted or killed at any point, run
    it again, and nothing is lost; a kill may leave some 1,500 messages copied twice. Messages that fall due meanwhile
    are delivered by the old cascade, so its bindings must stay until it is empty. Exit code 1: what was read and what
    became of it do not add up.
    """
    url = required(broker, "broker", "--broker URL", "DELAYSTORE_BROKER")
    settings = _settings(due_by, routing, poison_queue, max_rate, patience)
    with _cascade(url, from_cascade, management) as source, _cascade(url, to_cascade) as target:
        _run(source, target, settings, dry_run=dry_run, as_json=as_json)


def transfer(
    to_broker: Annotated[
        str | None,
        url_option("--to-broker", "The broker to move to: amqp[s]://user:password@host:port/vhost."),
    ] = None,
    cascade: CascadeName = DEFAULT_CASCADE,
    to_cascade: Annotated[
        str | None, typer.Option("--to-cascade", metavar="CASCADE", help="The cascade there. Default: the same.")
    ] = None,
    due_by: DueByOption = DueBy.HEADERS,
    routing: RoutingOption = Routing.DIRECT,
    poison_queue: PoisonQueue = _POISON_QUEUE,
    max_rate: MaxRate = None,
    patience: Patience = _PATIENCE,
    broker: BrokerUrl = None,
    management: ManagementUrl = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Move what waits in a cascade to another broker. Its queues must be there: messages for others are not moved.

    A message leaves the old broker once the new one has confirmed its copy: interrupted or killed at any point, run
    it again, and nothing is lost; a kill may leave some 1,500 messages copied twice. Messages that fall due meanwhile
    are delivered on the old broker. --management is that of the old broker. Exit code 1: what was read and what became
    of it do not add up.
    """
    url = required(broker, "broker", "--broker URL", "DELAYSTORE_BROKER")
    to_url = required(to_broker, "target broker", "--to-broker URL", "DELAYSTORE_TO_BROKER")
    settings = _settings(due_by, routing, poison_queue, max_rate, patience)
    with _cascade(url, cascade, management) as source, _cascade(to_url, to_cascade or cascade) as target:
        _run(source, target, settings, dry_run=dry_run, as_json=as_json)


def _settings(
    due_by: DueBy, routing: Routing, poison_queue: str, max_rate: float | None, patience: str
) -> "MoveSettings":
    from delaystore.cascades.moving.mover import MoveSettings

    return MoveSettings(
        due_by=due_by,
        routing=routing,
        poison_queue=poison_queue,
        max_rate=max_rate,
        patience=parse_duration(patience, "--patience").total_seconds(),
    )


def _cascade(url: str, name: str, management: str | None = None) -> "BrokerCascade":
    from delaystore.cascades.moving.broker_cascade import BrokerCascade

    return BrokerCascade(url, topology_named(name), name, management or None)


def _run(
    source: "BrokerCascade", target: "BrokerCascade", settings: "MoveSettings", *, dry_run: bool, as_json: bool
) -> None:
    """Move, or do a dry run, and report.

    Exits with 1 if the numbers do not add up, with 128 and the signal's number if stopped.
    """
    from delaystore.cascades.moving.mover import move, move_dry
    from delaystore.cli._progress_bar import ProgressBar

    with stop_requests() as stop:
        with ProgressBar() as bar:
            report = (move_dry if dry_run else move)(source, target, settings, bar.show, lambda: stop.made)
        findings = report.findings(datetime.now(UTC))
        if as_json:
            print_document(report.as_dict())
        else:
            print_table(("messages", "count"), _rows(report), right=("count",))
        for remark in _remarks(report, settings.poison_queue):
            say(remark)
    for finding in findings:
        say(f"does not add up: {finding}")
    if report.interrupted:
        say("stopped; what was in flight is finished, run it again for the rest")
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
            "more than a minute; --due-by key goes by the key"
        )
    if report.dry_run and report.read < report.source_before:
        remarks.append(f"read only the first messages of each level: {report.read:,} of {report.source_before:,}")
    remarks += [f"left: {counted(count, 'message')}: {reason}" for reason, count in report.left.most_common(_SHOWN)]
    return remarks
