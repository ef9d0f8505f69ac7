"""`delaystore setup`."""

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Annotated

import typer

from delaystore.cli._options import (
    DEFAULT_ERROR_QUEUE,
    Endpoint,
    Json,
    Schema,
    StoreUrl,
    Table,
    TransportUrl,
    error_queue_option,
)
from delaystore.cli._output import print_document, say, tell
from delaystore.errors import ConfigurationError
from delaystore.settings import DelayedDeliverySettings
from delaystore.transports import Transport


class QueueType(StrEnum):
    """What RabbitMQ's queues can be."""

    QUORUM = "quorum"
    CLASSIC = "classic"


def setup(
    queue: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Create this queue too; repeatable.")] = None,
    error_queue: Annotated[str, error_queue_option("Where undeliverable messages go.", "setup")] = DEFAULT_ERROR_QUEUE,
    queue_type: Annotated[
        QueueType | None,
        typer.Option(help="The type of --queue in RabbitMQ; a Celery worker declares classic ones. Default: quorum."),
    ] = None,
    store: StoreUrl = None,
    endpoint: Endpoint = None,
    schema: Schema = None,
    table: Table = None,
    transport: TransportUrl = None,
    check: Annotated[
        bool, typer.Option("--check", help="Only report what is missing or wrong; change nothing.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Create, upgrade or repair tables, and create queues.

    That is the store's tables (and a SQLite file, where there is none) and, where a transport is given, the error
    queue. Missing tables and indexes are made, and invalid indexes made again. Each defect that is left is reported in
    a line with its remedy; exit code 1 then. May be run again, and by several processes at once.
    """
    from delaystore.cli._endpoint import EndpointOptions, reading

    if queue and transport is None:
        raise ConfigurationError("--queue needs a transport; pass --transport URL or set DELAYSTORE_TRANSPORT")
    if queue_type and not queue:
        raise ConfigurationError("--queue-type is the type of --queue; pass --queue NAME too")
    if queue_type and (transport or "").partition(":")[0].lower() not in ("amqp", "amqps"):
        raise ConfigurationError("--queue-type goes with RabbitMQ only; leave it out")
    options = EndpointOptions(store=store, endpoint=endpoint, schema=schema, table=table, transport=transport)
    settings = reading(error_queue) if check else DelayedDeliverySettings(error_queue=error_queue)
    with options.open(settings) as opened:
        queues = [] if opened.transport is None else [error_queue, *(queue or ())]
        if check:
            defects = [*opened.store.defects(), *_missing(opened.transport, queues)]
        else:
            opened.store.setup_infrastructure()
            defects = [*opened.store.repair(say)]
            opened.delivery.setup_infrastructure()
            opened.store.tidy()
            for name in queue or ():
                assert opened.transport is not None
                _declare(opened.transport, name, queue_type)
    if as_json:
        print_document({"endpoint": endpoint, "queues": queues, "ready": not defects, "defects": defects})
    elif defects:
        for each in defects:
            tell(f"not ready: {each}")
    else:
        tell(f"ready: the store of endpoint {endpoint!r}")
        for name in queues:
            tell(f"ready: the queue {name!r}")
    if defects:
        raise typer.Exit(1)


def _missing(transport: Transport | None, queues: Sequence[str]) -> Iterator[str]:
    for name in queues:
        if transport is not None and transport.reaches(name) is False:
            yield f"the queue {name!r} is missing; run `delaystore setup`"


def _declare(transport: Transport, name: str, queue_type: QueueType | None) -> None:
    if queue_type is None:
        transport.declare(name)
        return
    from delaystore.transports import RabbitMQTransport

    assert isinstance(transport, RabbitMQTransport)
    transport.declare(name, queue_type=queue_type.value)
