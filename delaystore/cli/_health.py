"""`delaystore health`."""

from typing import Annotated

import typer

from delaystore.cli._arguments import parse_duration
from delaystore.cli._delays.options import BrokerUrl, ManagementUrl
from delaystore.cli._options import Endpoint, Json, Schema, StoreUrl, Table
from delaystore.cli._output import print_document, say, tell
from delaystore.cli._store_report import MaxOverdue, Patience, Timeout
from delaystore.errors import TransportError


def health(
    max_overdue: MaxOverdue = "5m",
    timeout: Timeout = "5s",
    store: StoreUrl = None,
    endpoint: Endpoint = None,
    schema: Schema = None,
    table: Table = None,
    broker: BrokerUrl = None,
    management: ManagementUrl = None,
    error_queue: Annotated[str, typer.Option(metavar="NAME", help="Looked at where --management is given.")] = "error",
    as_json: Json = False,
) -> None:
    """Say how many messages wait (over 100,000: about how many), and what is overdue.

    With --broker and --management, warns of an error queue from which RabbitMQ 4 drops what is looked at too often.
    Exit code 1: the first is overdue for too long, or the store is read-only or does not answer in time. Creates no
    table and no file.
    """
    from delaystore.cli._endpoint import EndpointOptions

    allowed = parse_duration(max_overdue, "--max-overdue")
    options = EndpointOptions(store=store, endpoint=endpoint, schema=schema, table=table)
    patience = Patience(timeout)
    with options.open() as opened:
        report = patience.report(opened)
    warning = _limit_warning(broker, management, error_queue)
    healthy = report.healthy(allowed)
    if as_json:
        more = {"store": report.problem, "warning": warning}
        document = report.document(healthy=healthy)
        print_document(document | {name: value for name, value in more.items() if value is not None})
    else:
        tell(f"{'healthy' if healthy else 'unhealthy'}: {report}")
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
