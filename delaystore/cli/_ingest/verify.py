"""`delaystore ingest verify`."""

from typing import Annotated

import typer

from delaystore.cli._broker_options import BrokerUrl, ManagementUrl
from delaystore.cli._broker_reports import print_verification
from delaystore.cli._ingest.options import EntranceType, Exchange, Out, OutType, Queue, open_broker
from delaystore.cli._options import Json


def verify(
    exchange: Exchange,
    out_type: OutType = None,
    exchange_type: EntranceType = None,
    out: Out = None,
    queue: Queue = None,
    passive: Annotated[
        bool, typer.Option("--passive", help="This user may not declare: leave its permissions out.")
    ] = False,
    broker: BrokerUrl = None,
    management: ManagementUrl = None,
    as_json: Json = False,
) -> None:
    """Verify that a broker has an ingress as it should be. Changes nothing.

    Names what is wrong with the broker, the user's permissions, each exchange, queue and binding; bindings that lead
    around the delay; and policies that harm. Without a type, the exchanges may have any that fits. Names what could not
    be checked, too: that is more without the management API. Exit code 1: something is wrong.
    """
    from delaystore.ingress import topology as ingress

    names = ingress.IngressNames.of(exchange, queue=queue, out=out)
    with open_broker(broker, management) as client:
        found = ingress.verify(
            client,
            names,
            out_type=None if out_type is None else out_type.value,
            entrance_type=None if exchange_type is None else exchange_type.value,
            passive=passive,
        )
    print_verification(found, repr(exchange), {"exchange": exchange}, as_json=as_json)
    if not found.good:
        raise typer.Exit(1)
