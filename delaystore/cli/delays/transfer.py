"""`delaystore delays transfer`."""

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
from delaystore.cli.delays.options import DEFAULT_CASCADE, BrokerUrl, CascadeName, DryRun, ManagementUrl
from delaystore.cli.durations import parse_duration
from delaystore.cli.opening import required
from delaystore.cli.options import Json
from delaystore.transports.rabbitmq.moving.due_by import DueBy
from delaystore.transports.rabbitmq.topology.cascade import Routing


def transfer(
    to_broker: Annotated[
        str | None,
        typer.Option(
            "--to-broker",
            envvar="DELAYSTORE_TO_BROKER",
            metavar="URL",
            show_default=False,
            help="The broker to move to: amqp[s]://user:password@host:port/vhost.",
        ),
    ] = None,
    cascade: CascadeName = DEFAULT_CASCADE,
    to_cascade: Annotated[
        str | None,
        typer.Option(
            "--to-cascade", metavar="CASCADE", show_default=False, help="The cascade there. Default: the same."
        ),
    ] = None,
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
    """Move what waits in a cascade to another broker. Its queues must be there: messages for others are not moved.

    A message leaves the old broker once the new one has confirmed its copy: interrupted or killed at any point, run
    it again, and nothing is lost; a kill may leave up to 1,500 messages copied twice. What falls due meanwhile is
    delivered on the old broker. --management is that of the old broker. Exit code 1: what was read and what became of
    it do not add up.
    """
    from delaystore.cli.delays.moving import run
    from delaystore.transports.rabbitmq.moving.mover import MoveSettings
    from delaystore.transports.rabbitmq.moving.places import Place
    from delaystore.transports.rabbitmq.topology import topology_named

    url = required(broker, "broker", "--broker URL", "DELAYSTORE_BROKER")
    to_url = required(to_broker, "target broker", "--to-broker URL", "DELAYSTORE_TO_BROKER")
    settings = MoveSettings(
        due_by=due_by,
        routing=routing,
        poison_queue=poison_queue,
        max_rate=max_rate,
        patience=parse_duration(patience, "--patience").total_seconds(),
    )
    to_name = to_cascade or cascade
    source, target = topology_named(cascade), topology_named(to_name)
    with (
        Place(url, source, cascade, management or None) as source_place,
        Place(to_url, target, to_name) as target_place,
    ):
        run(source_place, target_place, settings, dry_run=dry_run, as_json=as_json)
