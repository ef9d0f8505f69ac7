"""`delaystore health`."""

import time
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from delaystore.cli._arguments import parse_duration
from delaystore.cli._delays.options import BrokerUrl, ManagementUrl
from delaystore.cli._options import Endpoint, Json, Schema, StoreUrl, Table
from delaystore.cli._output import print_document, say, tell
from delaystore.errors import ConfigurationError, StoreUnavailableError, TransportError

if TYPE_CHECKING:
    from delaystore.cli._endpoint import OpenedEndpoint


def health(
    max_overdue: Annotated[
        str, typer.Option(metavar="DURATION", help="How long a message may be overdue before that is unhealthy.")
    ] = "5m",
    timeout: Annotated[
        str, typer.Option(metavar="DURATION", help="How long the store may take to answer before that is unhealthy.")
    ] = "5s",
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
    Exit code 1: the first is overdue for too long, or the store is read-only or does not answer in time. Creates no
    table and no file.
    """
    from delaystore.cli._endpoint import EndpointOptions

    allowed = parse_duration(max_overdue, "--max-overdue")
    options = EndpointOptions(store=store, endpoint=endpoint, schema=schema, table=table)
    limit = parse_duration(timeout, "--timeout")
    if not limit:
        raise ConfigurationError("--timeout is 0; give the store some time to answer, as in 5s")
    with options.open() as opened:
        report = _asked(opened, limit)
    warning = _limit_warning(broker, management, error_queue)
    healthy = report.store is None and (report.overdue is None or report.overdue <= allowed)
    if as_json:
        document = {
            "healthy": healthy,
            "waiting": report.waiting,
            "oldest_overdue": report.overdue.total_seconds() if report.overdue else None,
        }
        more = {"store": report.store, "warning": warning}
        print_document(document | {name: value for name, value in more.items() if value is not None})
    else:
        tell(f"{'healthy' if healthy else 'unhealthy'}: {report}")
    if warning is not None:
        say(f"warning: {warning}")
    if not healthy:
        raise typer.Exit(1)


@dataclass(frozen=True, slots=True)
class _Report:
    """What the store says of itself. `store`: what is wrong with it. `waiting` None: not counted in time."""

    store: str | None
    waiting: int | None = None
    overdue: timedelta | None = None

    def __str__(self) -> str:
        if self.store is not None:
            return self.store
        waiting = "not counted in time how many are" if self.waiting is None else f"{self.waiting:,}"
        state = f"the first is overdue for {self.overdue}" if self.overdue else "nothing is overdue"
        return f"{waiting} waiting, {state}"


def _asked(opened: "OpenedEndpoint", limit: timedelta) -> _Report:
    """What the store answers within `limit`; raises StoreError where it cannot be asked at all."""
    from delaystore.calls import Question

    seconds, began = limit.total_seconds(), time.monotonic()
    asked = Question("asking for the status", opened.store.status, seconds)
    try:
        status = asked.answer()
    except StoreUnavailableError as error:
        if not asked.too_late:
            raise
        return _Report(str(error))
    counted = Question("counting", opened.delivery.count, max(0.0, seconds - (time.monotonic() - began)))
    try:
        return _Report(status.read_only, counted.answer(), status.overdue)
    except StoreUnavailableError:
        return _Report(status.read_only, None, status.overdue)


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
