"""`delaystore delays migrate`."""

from typing import Annotated

import typer

from delaystore.cli.delays.move_options import (
    DEFAULT_POISON_QUEUE,
    DUE_BY_HELP,
    MaxRate,
    Patience,
    PoisonQueue,
    RoutingOption,
)
from delaystore.cli.delays.options import BrokerUrl, DryRun, ManagementUrl
from delaystore.cli.durations import parse_duration
from delaystore.cli.opening import required
from delaystore.cli.options import Json
from delaystore.transports.rabbitmq.moving.due_by import DueBy
from delaystore.transports.rabbitmq.topology.cascade import Routing


def migrate(
    from_cascade: Annotated[str, typer.Option("--from", metavar="CASCADE", help="Where messages wait.")] = (
        "nservicebus-v1"
    ),
    to_cascade: Annotated[str, typer.Option("--to", metavar="CASCADE", help="Where they shall wait.")] = (
        "nservicebus-v2"
    ),
    due_by: Annotated[DueBy, typer.Option("--due-by", help=DUE_BY_HELP)] = DueBy.HEADERS,
    routing: RoutingOption = Routing.DIRECT,
    poison_queue: PoisonQueue = DEFAULT_POISON_QUEUE,
    max_rate: MaxRate = None,
    patience: Patience = "60s",
    broker: BrokerUrl = None,
    management: ManagementUrl = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Move what waits in a cascade into another on the same broker: NServiceBus' v1 into v2, by default.

    A message leaves the old cascade once the new one has confirmed its copy: interrupted or killed at any point, run
    it again, and nothing is lost; a kill may leave up to 1,500 messages copied twice. What falls due meanwhile the old
    cascade delivers, so its bindings must stay until it is empty. Exit code 1: what was read and what became of it do
    not add up.
    """
    from delaystore.cli.delays.moving import run
    from delaystore.transports.rabbitmq.moving.mover import MoveSettings
    from delaystore.transports.rabbitmq.moving.places import Place
    from delaystore.transports.rabbitmq.topology import topology_named

    url = required(broker, "broker", "--broker URL", "DELAYSTORE_BROKER")
    settings = MoveSettings(
        due_by=due_by,
        routing=routing,
        poison_queue=poison_queue,
        max_rate=max_rate,
        patience=parse_duration(patience, "--patience").total_seconds(),
    )
    source, target = topology_named(from_cascade), topology_named(to_cascade)
    with (
        Place(url, source, from_cascade, management or None) as source_place,
        Place(url, target, to_cascade) as target_place,
    ):
        run(source_place, target_place, settings, dry_run=dry_run, as_json=as_json)
