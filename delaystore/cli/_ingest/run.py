"""`delaystore ingest`, without a command after it: takes messages in until it is stopped."""

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Final

import typer

from delaystore.cli._broker_options import BrokerUrl
from delaystore.cli._garbage import look_for_garbage_seldom
from delaystore.cli._ingest import run_options as options
from delaystore.cli._logging import log_to_standard_error
from delaystore.cli._metrics import metrics_server
from delaystore.cli._options import (
    DEFAULT_ERROR_QUEUE,
    Endpoint,
    Json,
    Schema,
    StoreUrl,
    Table,
    TransportUrl,
    required,
)
from delaystore.cli._output import print_document, say
from delaystore.cli._server_wait import when_reached
from delaystore.cli._signals import stopped_by
from delaystore.errors import ConfigurationError
from delaystore.ingress.settings import OnDuplicate
from delaystore.settings import DelayedDeliverySettings
from delaystore.times import parse_duration

if TYPE_CHECKING:
    from delaystore.delivery import DelayedDelivery
    from delaystore.ingress.health import IngressHealth
    from delaystore.ingress.ingress import Ingress

_TICK: Final = 0.2
"""Seconds between two looks at whether somebody asked to stop."""
_KEYS: Final = frozenset(
    {"allow_destination", "batch_size", "destination", "max_body_bytes", "memory_bytes", "prefetch", "queue"}
)
"""Keys of the configuration with which errors begin, and which are options here."""


def run(
    context: typer.Context,
    exchange: options.Exchange = None,
    queue: options.Queue = None,
    destination: options.Destination = None,
    forms: options.Forms = None,
    allow_destination: options.AllowedDestinations = None,
    count_from: options.CountsFrom = "received",
    on_duplicate: options.Duplicates = OnDuplicate.BOTH,
    direct_below: options.DirectBelow = "0s",
    rejected_queue: options.RejectedQueue = None,
    error_queue: options.ErrorQueue = DEFAULT_ERROR_QUEUE,
    batch_size: options.BatchSize = 1000,
    prefetch: options.Prefetch = 2500,
    memory: options.Memory = 64 * 1024 * 1024,
    most_body: options.MostBody = 16 * 1024 * 1024,
    metrics: options.MetricsAddress = None,
    fail_fast: options.FailFast = False,
    verbose: options.Verbose = False,
    broker: BrokerUrl = None,
    store: StoreUrl = None,
    endpoint: Endpoint = None,
    schema: Schema = None,
    table: Table = None,
    transport: TransportUrl = None,
    as_json: Json = False,
) -> None:
    """Take delayed messages from RabbitMQ, of any program.

    Without a command it takes messages in, until SIGTERM or SIGINT. They are kept in the store until they are due. Each
    is acknowledged once it is stored. `delaystore dispatch` forwards what is due, or `delaystore serve` does both. The
    commands below are about the exchanges and queues that this takes.
    """
    if context.invoked_subcommand is not None:
        return
    from delaystore.cli._endpoint import EndpointOptions
    from delaystore.delivery import DelayedDelivery
    from delaystore.ingress.ingress import Ingress
    from delaystore.ingress.reading.content import parse_count_from
    from delaystore.ingress.reading.forms.naming import parse_forms
    from delaystore.service.configuration.ingress import IngressConfiguration
    from delaystore.transports.rabbitmq import RabbitMQTransport

    log_to_standard_error()
    if verbose:
        logging.getLogger("delaystore").setLevel(logging.DEBUG)
    with _as_typed():
        ingress_of = IngressConfiguration(
            exchange=exchange,
            queue=_required_queue(exchange, queue),
            destination=destination,
            forms=None if forms is None else tuple(form.name for form in parse_forms(forms, "--forms")),
            allow_destination=tuple(allow_destination or ()) or None,
            count_from=parse_count_from(count_from, "--count-from"),
            on_duplicate=on_duplicate,
            direct_below=parse_duration(direct_below, "--direct-below"),
            rejected_queue=rejected_queue,
            batch_size=batch_size,
            prefetch=prefetch,
            memory_bytes=memory,
            max_body_bytes=most_body,
        )
        longest = DelayedDeliverySettings(max_body_bytes=most_body)
    url = required(broker or transport, "broker", "--broker URL", "DELAYSTORE_BROKER")
    name = required(endpoint, "endpoint", "--endpoint NAME", "DELAYSTORE_ENDPOINT")
    opened = EndpointOptions(store=store, endpoint=name, schema=schema, table=table)
    with closing(opened.open_store()) as opened_store:
        delivery = DelayedDelivery(name, opened_store, settings=longest)
        rules = ingress_of.rules(exchange or "", RabbitMQTransport(url).check, frozenset({error_queue}))
        ingress = Ingress(delivery, url, rules, ingress_of.settings(exchange or ""), longest)
        with _served(metrics, name, ingress):
            _run(ingress, delivery, name, fail_fast=fail_fast)
        health = ingress.health()
    say(_outcome(health))
    if as_json:
        print_document(health.as_dict())


def _required_queue(exchange: str | None, queue: str | None) -> str | None:
    if queue is None and exchange is None:
        raise ConfigurationError(
            "which messages? name the exchange that programs publish to (--exchange E), or the queue (--queue NAME)"
        )
    return queue


@contextmanager
def _as_typed() -> Iterator[None]:
    """Raise an error about a key, which begins with its name, as one about the option."""
    try:
        yield
    except ConfigurationError as error:
        name, _, rest = str(error).partition(" ")
        key = name.rstrip(":")
        if key in _KEYS:
            name = f"--{name.replace('_', '-')}"
        raise ConfigurationError(f"{name} {rest}") from None


def _run(ingress: "Ingress", delivery: "DelayedDelivery", endpoint: str, *, fail_fast: bool) -> None:
    """Until somebody asks to stop. Whatever it still waits for is interrupted."""
    asked = threading.Event()
    interruptible = True

    def ask() -> bool:
        asked.set()
        return interruptible

    with stopped_by(ask):
        when_reached("the store", delivery.setup_infrastructure, fail_fast=fail_fast)
        when_reached("the broker", ingress.check, fail_fast=fail_fast)
        say(f"taking messages of {ingress.queue!r} in for endpoint {endpoint!r}")
        interruptible = False
        look_for_garbage_seldom()
        ingress.start()
        while not asked.is_set():
            time.sleep(_TICK)  # a signal interrupts it; waiting for the event would lock against its own handler
        ingress.stop()


@contextmanager
def _served(address: str | None, endpoint: str, ingress: "Ingress") -> Iterator[None]:
    """Serve the metrics of `ingress` during the block, if an address is given."""
    if address is None:
        yield
        return
    with metrics_server(address) as server:
        told = server.watch_ingress(endpoint, ingress)
        yield
        del told  # it was kept as long as it was to be told of


def _outcome(health: "IngressHealth") -> str:
    others = {
        "were in the store already": health.duplicate,
        "forwarded at once": health.passthrough,
        "dropped": health.discarded,
        "rejected": health.rejected,
        "obeyed": health.applied,
    }
    told = "".join(f", {count} {what}" for what, count in others.items() if count)
    return f"stopped: {health.stored} stored{told}"
