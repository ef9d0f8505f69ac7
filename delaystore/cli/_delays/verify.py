"""`delaystore delays verify`."""

from typing import Annotated

import typer

from delaystore.cli._broker_options import BrokerUrl, ManagementUrl
from delaystore.cli._broker_reports import print_verification
from delaystore.cli._delays.options import DEFAULT_CASCADE, CascadeName, open_cascade
from delaystore.cli._options import Json


def verify(
    passive: Annotated[
        bool, typer.Option("--passive", help="This user may not declare: leave its permissions out.")
    ] = False,
    broker: BrokerUrl = None,
    cascade: CascadeName = DEFAULT_CASCADE,
    management: ManagementUrl = None,
    as_json: Json = False,
) -> None:
    """Verify that a broker has a cascade as it should be. Changes nothing.

    Names what is wrong with the broker's version and feature flags, the user's permissions, and each part of the
    cascade, and destinations that get messages for others. Names what could not be checked, too: that is more without
    the management API. Exit code 1: something is wrong.
    """
    from delaystore import cascades

    with open_cascade(broker, cascade, management) as (client, topology):
        found = cascades.verify(client, topology, passive=passive)
    print_verification(found, cascade, {"cascade": cascade}, as_json=as_json)
    if not found.good:
        raise typer.Exit(1)
