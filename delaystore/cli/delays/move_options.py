"""The options that `migrate` and `transfer` share."""

from typing import Annotated

import typer

from delaystore.transports.rabbitmq.topology.cascade import Routing

RoutingOption = Annotated[
    Routing,
    typer.Option(
        "--routing", help="How destinations are bound on the target: the queue, or the exchange of that name."
    ),
]
PoisonQueue = Annotated[
    str, typer.Option("--poison-queue", metavar="NAME", help="Where what cannot be moved goes, on the source's broker.")
]
MaxRate = Annotated[
    float | None,
    typer.Option("--max-rate", metavar="NUMBER", show_default=False, help="The most messages a second."),
]
Patience = Annotated[
    str, typer.Option("--patience", metavar="DURATION", help="How long to wait for a target that takes nothing.")
]
DUE_BY_HELP = (
    "What tells the remaining delay. headers: NServiceBus' TimeSent and DelayInSeconds, or a Celery task's eta; exact. "
    "key: the routing key from the present level down; never early, late by the time spent in that level. "
    "either: the headers, or else the key."
)
DEFAULT_POISON_QUEUE = "delays.poison"
