"""`delaystore health`."""

from datetime import timedelta
from typing import Annotated

import typer

from delaystore.cli._arguments import parse_duration
from delaystore.cli._delays.options import BrokerUrl, ManagementUrl
from delaystore.cli._options import Endpoint, Json, Schema, StoreUrl, Table
from delaystore.cli._output import print_document, say, tell
from delaystore.errors import TransportError


def health(
    max_overdue: Annotated[
        str, typer.Option(metavar="DURATION", help="How long a message may be overdue before that is unhealthy.")
    ] = "5m",
    store: StoreUrl = None,
    endpoint: Endpoint = None,
    schema: Schema = None,
    table: Table = None,
    broker: BrokerUrl = None,
    management: ManagementUrl = None,
    error_queue: Annotated[str, typer.Option(metavar="NAME", help="Looked at where --management is given.")] = "error",
    as_json: Json = False,
) -> None:
    """Say how many messages wait, and what is overdue.

    With --broker and --management, warns of an error queue from which RabbitMQ 4 drops what is looked at too often.
    Exit code 1: the first is overdue for too long. Creates no table and no file.
    """
    from delaystore.cli._endpoint import EndpointOptions

    allowed = parse_duration(max_overdue, "--max-overdue")
    options = EndpointOptions(store=store, endpoint=endpoint, schema=schema, table=table)
    with options.open() as opened:
        first = next(iter(opened.delivery.list(limit=1).messages), None)
        waiting = opened.delivery.count()
        overdue = None if first is None else max(timedelta(0), opened.store.now() - first.next_attempt)
    warning = _limit_warning(broker, management, error_queue)
    healthy = overdue is None or overdue <= allowed
    if as_json:
        document = {
            "healthy": healthy,
            "waiting": waiting,
            "oldest_overdue": overdue.total_seconds() if overdue else None,
        }
        print_document(document if warning is None else {**document, "warning": warning})
    else:
        state = f"the first is overdue for {overdue}" if overdue else "nothing is overdue"
        tell(f"{'healthy' if healthy else 'unhealthy'}: {waiting:,} waiting, {state}")
    if warning is not None:
        say(f"warning: {warning}")
    if not healthy:
        raise typer.Exit(1)


def _limit_warning(broker: str | None, management: str | None, error_queue: str) -> str | None:
    if not (broker and management):
        return None
    from delaystore.cascades import BrokerClient
    from delaystore.cascades.delivery_limits import limit_warning

    try:
        with BrokerClient(broker, management) as client:
            return limit_warning(client, error_queue)
    except TransportError as error:  # how messages wait is told all the same
        return f"the delivery limit of queue {error_queue!r} is unknown: {error}"
