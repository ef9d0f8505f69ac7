"""`delaystore serve`."""

import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn

import typer

from delaystore.cli._garbage import look_for_garbage_seldom
from delaystore.cli._logging import log_to_standard_error
from delaystore.cli._options import (
    DEFAULT_ERROR_QUEUE,
    AuditOption,
    Endpoint,
    Json,
    Retention,
    Schema,
    StoreUrl,
    Table,
    TransportUrl,
    environment_option,
    error_queue_option,
    required,
)
from delaystore.cli._output import print_document, say, tell, write
from delaystore.cli._signals import second_signal_ends, stop_requests, stop_told, tell_at_once
from delaystore.errors import ConfigurationError
from delaystore.service.requests import Requests
from delaystore.settings import DelayedDeliverySettings, TransactionMode

if TYPE_CHECKING:
    from delaystore.service.configuration.tree import ServiceConfiguration

_DEFAULTS: Final = DelayedDeliverySettings()
_UNFINISHED: Final = 1
"""The exit code where something did not finish within --drain."""
_WITH_A_FILE: Final = frozenset({"config", "check", "print_config", "print_systemd", "as_json"})
"""Options that go with --config."""
_USUAL_PLACE: Final = Path("/etc/delaystore/delaystore.toml")
_TYPED: Final[Mapping[tuple[str, ...], str]] = {
    ("drain",): "--drain",
    ("log_level",): "--log-level",
    ("web",): "--web",
    ("web", "listen"): "--web",
    ("metrics",): "--metrics",
    ("metrics", "listen"): "--metrics",
    ("metrics", "destinations"): "--metrics-destinations",
    ("health",): "--health",
    ("health", "listen"): "--health",
    ("endpoint",): "--endpoint",
    ("endpoint", "store"): "--store",
    ("endpoint", "transport"): "--transport",
    ("endpoint", "schema"): "--schema",
    ("endpoint", "table"): "--table",
    ("endpoint", "error_queue"): "--error-queue",
    ("endpoint", "audit"): "--audit",
    ("endpoint", "retention"): "--retention",
    ("endpoint", "ingress"): "--ingest",
    ("endpoint", "control"): "--control",
    ("endpoint", "dispatcher", "name"): "--name",
    ("endpoint", "dispatcher", "batch_size"): "--batch-size",
    ("endpoint", "dispatcher", "retries"): "--retries",
    ("endpoint", "dispatcher", "mode"): "--mode",
    ("endpoint", "dispatcher", "poll_interval"): "--poll-interval",
    ("endpoint", "dispatcher", "handover"): "--handover",
}
"""What the keys of the configuration are called as options."""


def serve(
    context: typer.Context,
    config: Annotated[
        Path | None,
        environment_option(
            "--config", "Everything, in a TOML file, in place of other options.", group="serve", metavar="FILE"
        ),
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Only check the configuration.")] = False,
    print_config: Annotated[
        bool, typer.Option("--print-config", help="Print the whole configuration, with defaults, without passwords.")
    ] = False,
    print_systemd: Annotated[bool, typer.Option("--print-systemd", help="Print a unit for systemd.")] = False,
    drain: Annotated[str, typer.Option(metavar="DURATION", help="How long the end may take.")] = "30s",
    log_level: Annotated[
        str, typer.Option(metavar="LEVEL", help="How much is logged: error, warning, info or debug.")
    ] = "warning",
    web: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where the web page is.")] = "127.0.0.1:8765",
    no_web: Annotated[bool, typer.Option("--no-web", help="Serve no web page.")] = False,
    metrics: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Serve metrics to Prometheus there, as at 127.0.0.1:9464.")
    ] = None,
    metrics_destinations: Annotated[
        int,
        typer.Option(
            min=0, metavar="NUMBER", help="So many destinations have metrics of their own; the others share one."
        ),
    ] = 0,
    health: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Serve /livez and /readyz there, too, with reasons.")
    ] = None,
    ingest: Annotated[
        list[str] | None,
        environment_option(
            "--ingest",
            "Take in what programs publish to this exchange, from E.ingress, as `delaystore ingest` does; repeatable.",
            group="serve",
            metavar="E",
        ),
    ] = None,
    control: Annotated[
        bool, typer.Option("--control", help="Read the control queue ENDPOINT.control, as `delaystore control` does.")
    ] = False,
    batch_size: Annotated[int, typer.Option(min=1, metavar="NUMBER", help="The most messages at once.")] = (
        _DEFAULTS.batch_size
    ),
    retries: Annotated[
        int, typer.Option(min=0, metavar="NUMBER", help="Retries before a message goes to the error queue.")
    ] = _DEFAULTS.number_of_retries,
    error_queue: Annotated[str, error_queue_option("Where undeliverable messages go.", "serve")] = DEFAULT_ERROR_QUEUE,
    mode: Annotated[
        TransactionMode, typer.Option(help="transaction_scope: exactly once, with SQL queues in the store's database.")
    ] = _DEFAULTS.transaction_mode,
    poll_interval: Annotated[
        str, typer.Option(metavar="DURATION", help="The longest sleep where the store cannot wake us.")
    ] = "500ms",
    handover: Annotated[
        str,
        typer.Option(
            metavar="DURATION", help="Give messages to RabbitMQ's native delay this long before they are due."
        ),
    ] = "0s",
    audit: AuditOption = _DEFAULTS.audit,
    retention: Retention = "90d",
    known_as: Annotated[
        str | None,
        environment_option(
            "--name",
            "What `delaystore status` calls its dispatcher. Default: the endpoint's name.",
            metavar="NAME",
            group="serve",
        ),
    ] = None,
    store: StoreUrl = None,
    endpoint: Endpoint = None,
    schema: Schema = None,
    table: Table = None,
    transport: TransportUrl = None,
    as_json: Json = False,
) -> None:
    """Run the whole service in one process.

    That is ingresses, a dispatcher, the web page, and metrics: for one endpoint by options, for any number by --config
    FILE. The file has everything: then other options are refused, and their variables are not read. In it ${NAME} is an
    environment variable, and @FILE in place of a URL or a secret is read from that file.

    SIGTERM and SIGINT finish what is in flight, for --drain at most: beyond that the exit code is 1. SIGHUP reads the
    file again, and says what takes a restart. /livez and /readyz are on the web page's server.
    """
    if print_systemd:
        _print_unit(config)
        return

    def options() -> "ServiceConfiguration":
        return _configured(
            {
                "drain": drain,
                "log_level": log_level,
                "web": {"listen": web, "enabled": not no_web},
                "metrics": {"listen": metrics, "destinations": metrics_destinations},
                "health": {"listen": health},
                "endpoint": {
                    required(endpoint, "endpoint", "--endpoint NAME or --config FILE", "DELAYSTORE_ENDPOINT"): {
                        "store": required(store, "store", "--store URL", "DELAYSTORE_STORE"),
                        "transport": required(transport, "transport", "--transport URL", "DELAYSTORE_TRANSPORT"),
                        "schema": schema,
                        "table": table,
                        "error_queue": error_queue,
                        "audit": audit.value,
                        "retention": retention,
                        "ingress": {name: {} for name in ingest or ()},
                        "control": {"enabled": control},
                        "dispatcher": {
                            "name": known_as,
                            "batch_size": batch_size,
                            "retries": retries,
                            "mode": mode.value,
                            "poll_interval": poll_interval,
                            "handover": handover,
                        },
                    }
                },
            }
        )

    if config is not None:
        _check_alone(context)
    requests = Requests()
    with stop_told(), _reload_requests(requests.reload):
        load = None if config is None else _loader(config)
        configuration = options() if load is None else load()
        if print_config:
            _print(configuration, as_json=as_json)
        elif check:
            _check(configuration, as_json=as_json)
        else:
            _run(configuration, load, requests)


def _configured(given: Mapping[str, Any]) -> "ServiceConfiguration":
    from delaystore.service.configuration.names import NamesOfOptions
    from delaystore.service.configuration.reading import Reader
    from delaystore.service.configuration.tree import ServiceConfiguration

    reader = Reader(ServiceConfiguration, NamesOfOptions(_TYPED), None)
    return reader.read(ServiceConfiguration, _without_none(given))


def _without_none(given: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: _without_none(value) if isinstance(value, Mapping) else value
        for name, value in given.items()
        if value is not None
    }


def _loader(config: Path) -> Callable[[], "ServiceConfiguration"]:
    from delaystore.service.configuration.files import configuration_in

    return lambda: configuration_in(config)


def _check_alone(context: typer.Context) -> None:
    """Refuse options beside --config that are typed; variables may be there for other commands."""
    for name in context.params:
        source = context.get_parameter_source(name)
        if name not in _WITH_A_FILE and source is not None and source.name == "COMMANDLINE":
            typed = {"known_as": "name"}.get(name, name).replace("_", "-")
            raise ConfigurationError(f"--{typed} does not go with --config; write it into the file")


def _print(configuration: "ServiceConfiguration", *, as_json: bool) -> None:
    from delaystore.service.configuration.shown import as_document, as_toml

    if as_json:
        print_document(as_document(configuration))
    else:
        write(as_toml(configuration))


def _check(configuration: "ServiceConfiguration", *, as_json: bool) -> None:
    from delaystore.service.service import Service

    Service(configuration, say).close()
    if as_json:
        print_document({"valid": True, "endpoints": sorted(configuration.endpoint)})
    else:
        tell(f"valid: {', '.join(map(repr, sorted(configuration.endpoint)))}")


def _print_unit(config: Path | None) -> None:
    from delaystore.service.unit import hindrances, unit_for

    place = config or _USUAL_PLACE
    write(unit_for(place))
    for sentence in hindrances(place):
        say(f"caution: {sentence}")


def _run(
    configuration: "ServiceConfiguration", load: Callable[[], "ServiceConfiguration"] | None, requests: Requests
) -> None:
    from delaystore.service.notify import Notifier
    from delaystore.service.repeats import CriticalOnce
    from delaystore.service.running import Running
    from delaystore.service.service import Service

    log_to_standard_error(CriticalOnce())
    notifier = Notifier()
    running = Running(Service(configuration, say), requests, load, notifier, say)
    look_for_garbage_seldom()
    with second_signal_ends(), stop_requests(also=requests.stop):
        unfinished = running.run()
        if unfinished:
            _end_unfinished(unfinished)
    notifier.close()
    say("stopped")


@contextmanager
def _reload_requests(ask: Callable[[], object]) -> Iterator[None]:
    """Take each SIGHUP within the block as a request to reload."""
    before = signal.signal(signal.SIGHUP, lambda _number, _frame: ask())
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)


def _end_unfinished(names: Sequence[str]) -> NoReturn:
    """End at once: what has not finished may keep the process for ever."""
    try:
        tell_at_once(f"ended before it was finished: {', '.join(names)}; what was in flight is as after a kill")
        sys.stdout.flush()
    finally:
        os._exit(_UNFINISHED)
