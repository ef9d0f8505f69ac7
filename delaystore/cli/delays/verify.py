"""`delaystore delays verify`."""

from typing import Annotated

import typer

from delaystore.cli.delays.options import DEFAULT_CASCADE, BrokerUrl, CascadeName, ManagementUrl
from delaystore.cli.options import Json


def verify(
    passive: Annotated[
        bool, typer.Option("--passive", help="This user may not declare: only look, and leave its permissions out.")
    ] = False,
    broker: BrokerUrl = None,
    cascade: CascadeName = DEFAULT_CASCADE,
    management: ManagementUrl = None,
    as_json: Json = False,
) -> None:
    """Compare a cascade with the broker: version, feature flags, permissions, and every part. Changes nothing.

    Names what is missing, different or too much, destinations that get messages for others, and what could not be
    checked, which is more without the management API. Exit code 1: something is wrong.
    """
    from delaystore.cli.delays.opening import administered
    from delaystore.cli.delays.reports import print_verification
    from delaystore.transports.rabbitmq import administration
    from delaystore.transports.rabbitmq.topology import topology_named

    topology = topology_named(cascade)
    with administered(broker, management) as opened:
        found = administration.verify(opened, topology, passive=passive)
    print_verification(cascade, found, as_json)
    if not found.good:
        raise typer.Exit(1)
