"""`delaystore serve` and `delaystore web`."""

import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn

import typer

from delaystore.cli._dispatch import DispatcherOptions
from delaystore.cli._options import (
    DEFAULT_ERROR_QUEUE,
    DispatchedEndpoint,
    JsonOption,
    MetricsDestinations,
    MetricsOption,
    environment_option,
    error_queue_option,
    required,
    url_option,
)
from delaystore.cli._output import log_to_standard_error, print_document, print_line, print_note, write
from delaystore.cli._signals import (
    look_for_garbage_seldom,
    saying_stopped,
    second_signal_ends,
    stop_requests,
    tell_at_once,
)
from delaystore.errors import ConfigurationError
from delaystore.server.running import Requests

if TYPE_CHECKING:
    from delaystore.server.configuration.tree import ServiceConfiguration

_UNFINISHED: Final = 1
"""The exit code where something did not finish within --drain."""
_WITH_A_FILE: Final = frozenset({"config", "check", "print_config", "print_systemd", "as_json"})
"""Options that go with --config."""
_USUAL_PLACE: Final = Path("/etc/delaystore/delaystore.toml")
_TYPED: Final[Mapping[tuple[str, ...], str]] = {
    ("web", "listen"): "--web",
    ("metrics", "listen"): "--metrics",
    ("metrics", "destinations"): "--metrics-destinations",
    ("health", "listen"): "--health",
    ("endpoint", "ingress"): "--ingress",
}
"""Options that have another name than their key in the configuration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedDispatcherOptions(DispatcherOptions):
    """The same of a dispatcher within the service."""

    error_queue: Annotated[str, error_queue_option("Queue for undeliverable messages.", "serve")] = DEFAULT_ERROR_QUEUE
    handover_horizon: Annotated[
        str,
        typer.Option(
            metavar="DURATION", help="Give messages to RabbitMQ's native delay this long before they are due."
        ),
    ] = "0s"


def serve(
    context: typer.Context,
    config: Annotated[
        Path | None,
        environment_option(
            "--config",
            "TOML file with the whole configuration, in place of other options.",
            group="serve",
            metavar="FILE",
        ),
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Check the configuration, and end.")] = False,
    print_config: Annotated[
        bool,
        typer.Option("--print-config", help="Print the configuration with defaults and without passwords, and end."),
    ] = False,
    print_systemd: Annotated[bool, typer.Option("--print-systemd", help="Print a systemd unit, and end.")] = False,
    drain: Annotated[str, typer.Option(metavar="DURATION", help="Maximum time for finishing at the end.")] = "30s",
    log_level: Annotated[
        str, typer.Option(metavar="LEVEL", help="Log level: error, warning, info or debug.")
    ] = "warning",
    web: Annotated[str, typer.Option(metavar="HOST:PORT", help="Address of the web page.")] = "127.0.0.1:8765",
    no_web: Annotated[bool, typer.Option("--no-web", help="Serve no web page.")] = False,
    metrics: MetricsOption = None,
    metrics_destinations: MetricsDestinations = 0,
    health: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Also serve /livez and /readyz at this address, with reasons."),
    ] = None,
    ingress: Annotated[
        list[str] | None,
        environment_option(
            "--ingress",
            "Consume messages for this exchange from EXCHANGE.ingress, as `delaystore ingress run` does; repeatable.",
            group="serve",
            metavar="EXCHANGE",
        ),
    ] = None,
    control: Annotated[
        bool,
        typer.Option(
            "--control", help="Answer requests from the queue ENDPOINT.control, as `delaystore control` does."
        ),
    ] = False,
    *,
    of: ServedDispatcherOptions,
    known_as: Annotated[
        str | None,
        environment_option(
            "--name",
            "Name of the dispatcher in `delaystore status`. Default: the endpoint's name.",
            metavar="NAME",
            group="serve",
        ),
    ] = None,
    where: DispatchedEndpoint,
    as_json: JsonOption = False,
) -> None:
    """Run everything in one process (recommended).

    The service runs ingresses, a dispatcher, the web page and metrics. Options configure one endpoint; --config FILE
    configures any number of endpoints. With --config, serve refuses other options and ignores their variables. In the
    file, ${NAME} is an environment variable, and @FILE in place of a URL or a secret is read from that file.

    At SIGTERM or SIGINT the service finishes the messages in flight, for at most --drain. At SIGHUP it reads the file
    again, and reports changes that need a restart. The server of the web page also serves /livez and /readyz.
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
                    required(where.endpoint, "endpoint", "--endpoint NAME or --config FILE", "DELAYSTORE_ENDPOINT"): {
                        "store": where.require_store(),
                        "transport": where.require_transport(),
                        "schema": where.schema,
                        "table": where.table,
                        "error_queue": of.error_queue,
                        "audit": of.audit.value,
                        "retention": of.retention,
                        "history": of.history,
                        "ingress": {name: {} for name in ingress or ()},
                        "control": {"enabled": control},
                        "dispatcher": {
                            "name": known_as,
                            "batch_size": of.batch_size,
                            "number_of_retries": of.number_of_retries,
                            "exactly_once": of.exactly_once,
                            "poll_interval": of.poll_interval,
                            "handover_horizon": of.handover_horizon,
                            "on_expired": of.on_expired.value,
                            "added_headers": of.added_headers,
                        },
                    }
                },
            }
        )

    if config is not None:
        _check_alone(context)
    requests = Requests()
    with saying_stopped(), _reload_requests(requests.reload):
        load = None if config is None else _loader(config)
        configuration = options() if load is None else load()
        if print_config:
            _print(configuration, as_json=as_json)
        elif check:
            _check(configuration, as_json=as_json)
        else:
            _run(configuration, load, requests)


def _configured(given: Mapping[str, Any]) -> "ServiceConfiguration":
    from delaystore.server.configuration.tables import ConfigurationReader, FromOptions
    from delaystore.server.configuration.tree import ServiceConfiguration

    reader = ConfigurationReader(ServiceConfiguration, FromOptions(_TYPED))
    return reader.read(ServiceConfiguration, _without_none(given))


def _without_none(given: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: _without_none(value) if isinstance(value, Mapping) else value
        for name, value in given.items()
        if value is not None
    }


def _loader(config: Path) -> Callable[[], "ServiceConfiguration"]:
    from delaystore.server.configuration.tree import configuration_in

    return lambda: configuration_in(config)


def _check_alone(context: typer.Context) -> None:
    """Refuse options beside --config that are typed; variables may be there for other commands."""
    for name in context.params:
        source = context.get_parameter_source(name)
        if name not in _WITH_A_FILE and source is not None and source.name == "COMMANDLINE":
            typed = {"known_as": "name"}.get(name, name).replace("_", "-")
            raise ConfigurationError(f"--{typed} does not go with --config; write it into the file")


def _print(configuration: "ServiceConfiguration", *, as_json: bool) -> None:
    from delaystore.server.configuration.shown import as_document, as_toml

    if as_json:
        print_document(as_document(configuration))
    else:
        write(as_toml(configuration))


def _check(configuration: "ServiceConfiguration", *, as_json: bool) -> None:
    from delaystore.server.service import Service

    Service(configuration, print_note).close()
    if as_json:
        print_document({"valid": True, "endpoints": sorted(configuration.endpoint)})
    else:
        print_line(f"valid: {', '.join(map(repr, sorted(configuration.endpoint)))}")


def _print_unit(config: Path | None) -> None:
    from delaystore.server.systemd import obstacles, unit_for

    place = config or _USUAL_PLACE
    write(unit_for(place))
    for sentence in obstacles(place):
        print_note(f"caution: {sentence}")


def _run(
    configuration: "ServiceConfiguration", load: Callable[[], "ServiceConfiguration"] | None, requests: Requests
) -> None:
    from delaystore.server.running import CriticalOnce, Running
    from delaystore.server.service import Service
    from delaystore.server.systemd import Notifier

    log_to_standard_error(CriticalOnce())
    notifier = Notifier()
    running = Running(Service(configuration, print_note), requests, load, notifier, print_note)
    look_for_garbage_seldom()
    with second_signal_ends(), stop_requests(also=requests.stop):
        unfinished = running.run()
        if unfinished:
            _end_unfinished(unfinished)
    notifier.close()
    print_note("stopped")


@contextmanager
def _reload_requests(ask: Callable[[], object]) -> Iterator[None]:
    """Take each SIGHUP within the block as a request to reload."""
    before = signal.signal(signal.SIGHUP, lambda _number, _frame: ask())
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)


def _end_unfinished(names: Sequence[str]) -> NoReturn:
    """End at once: unfinished components may keep the process forever."""
    try:
        tell_at_once(f"ended before it was finished: {', '.join(names)}; what was in flight is as after a kill")
        sys.stdout.flush()
    finally:
        os._exit(_UNFINISHED)


def web(
    host: Annotated[str, environment_option("--host", "Address to listen at.", group="web", metavar="HOST")] = (
        "127.0.0.1"
    ),
    port: Annotated[
        int, typer.Option(min=0, max=65535, metavar="NUMBER", help="Port to listen at; 0: any free port.")
    ] = 8765,
    show_bodies: Annotated[bool, typer.Option("--show-bodies", help="Show the bodies of messages.")] = False,
    read_only: Annotated[bool, typer.Option("--read-only", help="Refuse all changes.")] = False,
    management: Annotated[
        str | None,
        url_option("--management", "Management API, for --cascade: http[s]://[user:password@]host:15672."),
    ] = None,
    cascade: Annotated[
        str | None,
        environment_option("--cascade", "Show this cascade of --transport, as nservicebus-v2.", metavar="NAME"),
    ] = None,
    hash_password: Annotated[
        bool,
        typer.Option("--hash-password", help="Ask for a password, print its hash for DELAYSTORE_WEB_USERS, and end."),
    ] = False,
    *,
    where: DispatchedEndpoint,
    error_queue: Annotated[str, error_queue_option("Error queue to show.", "web")] = DEFAULT_ERROR_QUEUE,
) -> None:
    """Serve the web page and the JSON API.

    The API is at /api/v1. Without users, only local requests are accepted. DELAYSTORE_WEB_USERS names users as
    NAME:ROLE:PASSWORD, separated by white space, or @FILE; the role is read or operate. DELAYSTORE_WEB_TOKENS gives
    programs access, as TOKEN:ROLE. With --transport the page shows and replays the error queue. The web server
    dispatches no message.
    """
    if hash_password:
        _print_hash()
        return
    from delaystore.cli._options import reading
    from delaystore.server.web import Cascade, app
    from delaystore.server.web.serving import PageServer, address_of, listening
    from delaystore.server.web.users import accounts_from_environment

    shown = None
    if cascade is not None or management is not None:
        if where.transport is None or not where.transport.startswith("amqp"):
            raise ConfigurationError("--cascade and --management go with a --transport of amqp:// or amqps://")
        shown = Cascade(broker=where.transport, management=management, name=cascade or "nservicebus-v2")
    protected = bool(accounts_from_environment())
    with where.open(reading(error_queue)) as opened, listening(host, port, protected=protected) as listener:
        application = app(opened.delivery, show_bodies=show_bodies, read_only=read_only, cascade=shown)
        ready = partial(print_note, f"serving {address_of(listener)} (Ctrl-C ends it)")
        log_to_standard_error()
        server = PageServer(application, listener, ready, application.state.site.stop)
        with stop_requests(also=server.stop):
            server.serve_until_stopped()
    print_note("stopped")


def _print_hash() -> None:
    from getpass import getpass

    from delaystore.server.web.users import hashed

    if sys.stdin is not None and sys.stdin.isatty():
        password = getpass("Password: ")
        if getpass("Again: ") != password:
            raise ConfigurationError("the two passwords differ")
    else:
        password = sys.stdin.readline().rstrip("\n")
    if not password:
        raise ConfigurationError("the password is empty")
    print_line(hashed(password))
