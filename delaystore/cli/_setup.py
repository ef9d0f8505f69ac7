"""`delaystore setup`."""

from typing import Annotated

import typer

from delaystore.cli._options import Endpoint, Json, Schema, StoreUrl, Table, TransportUrl
from delaystore.cli._output import print_document, tell
from delaystore.errors import ConfigurationError
from delaystore.settings import DelayedDeliverySettings


def setup(
    queue: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Create this queue too; repeatable.")] = None,
    error_queue: Annotated[str, typer.Option(metavar="NAME", help="Where undeliverable messages go.")] = "error",
    store: StoreUrl = None,
    endpoint: Endpoint = None,
    schema: Schema = None,
    table: Table = None,
    transport: TransportUrl = None,
    as_json: Json = False,
) -> None:
    """Create or upgrade tables, and create queues.

    That is the store's tables (and a SQLite file, where there is none) and, where a transport is given, the error
    queue. May be run again, and by several processes at once.
    """
    from delaystore.cli._endpoint import EndpointOptions

    if queue and transport is None:
        raise ConfigurationError("--queue needs a transport; pass --transport URL or set DELAYSTORE_TRANSPORT")
    options = EndpointOptions(store=store, endpoint=endpoint, schema=schema, table=table, transport=transport)
    with options.open(DelayedDeliverySettings(error_queue=error_queue)) as opened:
        opened.delivery.setup_infrastructure()
        opened.store.tidy()
        queues = [] if opened.transport is None else [error_queue, *(queue or ())]
        for name in queue or ():
            assert opened.transport is not None
            opened.transport.declare(name)
    if as_json:
        print_document({"endpoint": endpoint, "queues": queues})
        return
    tell(f"ready: the store of endpoint {endpoint!r}")
    for name in queues:
        tell(f"ready: the queue {name!r}")
