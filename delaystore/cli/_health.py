"""`delaystore health`."""

from typing import Annotated

import typer

from delaystore.cli._broker_options import BrokerUrl, ManagementUrl
from delaystore.cli._options import DEFAULT_ERROR_QUEUE, Endpoint, Json, Schema, StoreUrl, Table, TransportUrl
from delaystore.cli._output import print_document, say, tell
from delaystore.cli._store_report import (
    MaxOverdue,
    Patience,
    Timeout,
    require_dispatcher_option,
    told_error_queue_option,
)
from delaystore.errors import TransportError
from delaystore.times import parse_duration


def health(
    max_overdue: MaxOverdue = "5m",
    require_dispatcher: Annotated[bool, require_dispatcher_option("health")] = False,
    timeout: Timeout = "5s",
    store: StoreUrl = None,
    endpoint: Endpoint = None,
    schema: Schema = None,
    table: Table = None,
    transport: TransportUrl = None,
    broker: BrokerUrl = None,
    management: ManagementUrl = None,
    error_queue: Annotated[str, told_error_queue_option("health")] = DEFAULT_ERROR_QUEUE,
    as_json: Json = False,
) -> None:
    """Say in one line whether an endpoint is healthy.

    How many messages wait (over 100,000: about how many), what is overdue, failing and paused. With --transport, also
    how many messages the error queue holds. With --broker and --management, warns of an error queue from which RabbitMQ
    4 drops what is looked at too often. Exit code 1: the oldest is overdue for too long since it was due, the store is
    read-only or does not answer in time, or a table, column or unique index is missing that dispatchers or senders
    need; with --require-dispatcher also where none is running. Failing and paused messages are told, and are not
    unhealthy. Creates no table and no file.
    """
    from delaystore.cli._endpoint import EndpointOptions, reading
    from delaystore.operations.demands import Demands

    demands = Demands(max_overdue=parse_duration(max_overdue, "--max-overdue"), dispatcher=require_dispatcher)
    options = EndpointOptions(store=store, endpoint=endpoint, schema=schema, table=table, transport=transport)
    patience = Patience(timeout)
    with options.open(reading(error_queue)) as opened:
        report = patience.report(opened)
    warning = _limit_warning(broker, management, error_queue)
    faults = report.faults(demands)
    if as_json:
        more = {"store": report.problem, "warning": warning}
        print_document(report.document(demands) | {name: value for name, value in more.items() if value is not None})
    else:
        missing = f"{faults[-1]}; " if demands.dispatcher and not report.overview.dispatchers else ""
        tell(f"{'unhealthy' if faults else 'healthy'}: {missing}{report}")
    if warning is not None:
        say(f"warning: {warning}")
    if faults:
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
