"""`delaystore control`."""

import logging
from typing import Annotated

import typer

from delaystore.amounts import counted
from delaystore.cli._broker_options import BrokerUrl
from delaystore.cli._options import Endpoint, Json, Schema, StoreUrl, Table, TransportUrl, environment_option, required
from delaystore.cli._output import print_document, say
from delaystore.cli._server_wait import when_reached
from delaystore.cli._signals import stopped_by


def control(
    queue: Annotated[
        str | None,
        environment_option(
            "--queue", "Where requests come. Default: ENDPOINT.control.", metavar="NAME", group="control"
        ),
    ] = None,
    hide_bodies: Annotated[bool, typer.Option("--hide-bodies", help="Answer messages without their bodies.")] = False,
    fail_fast: Annotated[
        bool, typer.Option("--fail-fast", help="End where the store cannot be reached at the start.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log more, on standard error.")] = False,
    broker: BrokerUrl = None,
    store: StoreUrl = None,
    endpoint: Endpoint = None,
    schema: Schema = None,
    table: Table = None,
    transport: TransportUrl = None,
    as_json: Json = False,
) -> None:
    """Let AMQP clients cancel, reschedule and look up messages.

    They send JSON to the queue ENDPOINT.control of --broker (or --transport), and are answered to their reply_to. The
    queue is declared where it is missing. Ends at SIGTERM or SIGINT, once the requests at hand are answered. Waits for
    a store or a broker that cannot be reached. It dispatches nothing, and creates no table.
    """
    from delaystore.cli._endpoint import READING, EndpointOptions
    from delaystore.cli._logging import log_to_standard_error
    from delaystore.cli._unknown_endpoint import require_tables
    from delaystore.control import ControlQueue

    log_to_standard_error()
    if verbose:
        logging.getLogger("delaystore").setLevel(logging.DEBUG)
    url = required(broker or transport, "broker", "--broker URL", "DELAYSTORE_BROKER")
    options = EndpointOptions(store=store, endpoint=endpoint, schema=schema, table=table, transport=url)
    with options.open(READING) as opened:
        reader = ControlQueue(opened.delivery.operations, opened.transport, queue=queue, with_bodies=not hide_bodies)
        with stopped_by(reader.stop):
            when_reached("the store", lambda: require_tables(opened.store, opened.endpoint), fail_fast=fail_fast)
            say(f"reading the control queue {reader.queue!r}")
            reader.run()
        done = reader.health()
    say(f"stopped: {counted(done.requests, 'request')}, {done.answered} answered, {done.rejected} rejected")
    if as_json:
        print_document({name: getattr(done, name) for name in ("requests", "answered", "unanswered", "rejected")})
