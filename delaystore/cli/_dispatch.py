"""`delaystore dispatch`, with its metrics, and `delaystore control`."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from delaystore.cli._broker import BrokerUrl, require_broker
from delaystore.cli._options import (
    DEFAULT_ERROR_QUEUE,
    READING,
    AddedHeadersOption,
    AuditOption,
    DispatchedEndpoint,
    FailFast,
    HistoryOption,
    JsonOption,
    MetricsDestinations,
    MetricsOption,
    OnExpiredOption,
    Retention,
    Verbose,
    environment_option,
    error_queue_option,
    parse_address,
    require_tables,
)
from delaystore.cli._output import log_to_standard_error, print_document, print_note
from delaystore.cli._signals import stopped_by, when_reached
from delaystore.errors import (
    ConfigurationError,
    InvalidMessageError,
    StoreError,
    StoreUnavailableError,
    TransportSetupError,
    TransportUnansweredError,
)
from delaystore.message import DelayedMessage, check_destination
from delaystore.registry import needed_for
from delaystore.settings import DelayedDeliverySettings, transaction_mode
from delaystore.stores import DelayedMessageStore
from delaystore.text import counted, parse_duration
from delaystore.transports import Transport

if TYPE_CHECKING:
    from delaystore.dispatcher.dispatcher import Dispatcher
    from delaystore.dispatcher.health import DispatchReport
    from delaystore.server.telemetry import MetricsServer, OpenTelemetryMetrics


@contextmanager
def served_metrics(
    address: str | None, endpoint: str, *, destinations: int, once: bool
) -> "Iterator[OpenTelemetryMetrics | None]":
    """Serve metrics at `address` during the block, of the observer that it gets; None: nothing is served.

    Raises ConfigurationError for an address that cannot be used, MissingDependencyError.
    """
    if address is None:
        if destinations:
            raise ConfigurationError("--metrics-destinations needs --metrics HOST:PORT; give both")
        yield None
        return
    if once:
        raise ConfigurationError("--once ends before Prometheus could read --metrics; leave one of them out")
    with metrics_server(address) as server:
        from delaystore.server.telemetry.traces import has_tracer_provider

        yield server.observer(endpoint, destinations=destinations, traces=has_tracer_provider())


@contextmanager
def metrics_server(address: str) -> "Iterator[MetricsServer]":
    """Serve metrics at `address` during the block. Raises ConfigurationError, MissingDependencyError."""
    host, port = parse_address(address, "--metrics")
    with needed_for("--metrics", "prometheus"):
        import opentelemetry.exporter.prometheus  # noqa: F401 - all that the extra brings

        from delaystore.server.telemetry import MetricsServer
    with MetricsServer(host, port) as server:
        print_note(f"serving metrics at {server.url}")
        yield server


_DEFAULTS = DelayedDeliverySettings()


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatcherOptions:
    """How a dispatcher works, as given on the command line."""

    batch_size: Annotated[int, typer.Option(min=1, metavar="NUMBER", help="Maximum number of messages in a batch.")] = (
        _DEFAULTS.batch_size
    )
    number_of_retries: Annotated[
        int, typer.Option(min=0, metavar="NUMBER", help="Retries before a message goes to the error queue.")
    ] = _DEFAULTS.number_of_retries
    error_queue: Annotated[str, error_queue_option("Queue for undeliverable messages.", "dispatch")] = (
        DEFAULT_ERROR_QUEUE
    )
    exactly_once: Annotated[
        bool,
        typer.Option("--exactly-once", help="Deliver exactly once; needs SQL queues in the store's database."),
    ] = False
    poll_interval: Annotated[
        str, typer.Option(metavar="DURATION", help="Maximum time between two polls, if the store sends no wake-up.")
    ] = "500ms"
    handover_horizon: Annotated[
        str,
        typer.Option(
            metavar="DURATION",
            help="Give messages to RabbitMQ's native delay this long before they are due; needs ?delays=NAME in "
            "--transport.",
        ),
    ] = "0s"
    on_expired: OnExpiredOption = _DEFAULTS.on_expired
    added_headers: AddedHeadersOption = None
    audit: AuditOption = _DEFAULTS.audit
    retention: Retention = "90d"
    history: HistoryOption = None

    def settings(self) -> DelayedDeliverySettings:
        """The same as settings. Raises ConfigurationError, which names the option."""
        _check_name(self.error_queue)
        with _settings_as_typed():
            return DelayedDeliverySettings(
                batch_size=self.batch_size,
                number_of_retries=self.number_of_retries,
                error_queue=self.error_queue,
                transaction_mode=transaction_mode(exactly_once=self.exactly_once),
                poll_interval=_longest_sleep(self.poll_interval),
                handover_horizon=parse_duration(self.handover_horizon, "--handover-horizon"),
                on_expired=self.on_expired,
                added_headers=self.added_headers or (),
                audit=self.audit,
                retention=parse_duration(self.retention, "--retention"),
                history=None if self.history is None else parse_duration(self.history, "--history"),
            )


def dispatch(
    once: Annotated[
        bool, typer.Option("--once", help="Forward the messages that are due now, and end: for cron.")
    ] = False,
    *,
    of: DispatcherOptions,
    fail_fast: FailFast = False,
    metrics: MetricsOption = None,
    metrics_destinations: MetricsDestinations = 0,
    known_as: Annotated[
        str | None,
        environment_option(
            "--name",
            "Name in `delaystore status`. Default: the endpoint's name.",
            metavar="NAME",
            group="dispatch",
        ),
    ] = None,
    verbose: Verbose = False,
    where: DispatchedEndpoint,
    as_json: JsonOption = False,
) -> None:
    """Forward due messages to their destinations.

    The dispatcher creates missing tables (and a SQLite file) and the error queue. If the store or the broker is
    unavailable, it waits and retries, also at the start, unless you pass --fail-fast or --once. At SIGTERM or SIGINT it
    finishes the messages in flight and ends.
    """
    from delaystore.dispatcher.dispatcher import Dispatcher
    from delaystore.dispatcher.health import NOTHING_DONE

    log_to_standard_error(verbose=verbose)
    settings = of.settings()
    name = where.require_endpoint()
    with (
        closing(where.open_store()) as opened_store,
        closing(where.open_transport()) as opened_transport,
        served_metrics(metrics, name, destinations=metrics_destinations, once=once) as observer,
    ):
        _check_reachable(of.error_queue, opened_transport)
        _check_handover(settings.handover_horizon, opened_transport)
        dispatcher = Dispatcher(
            opened_store, opened_transport, settings, endpoint=name, observer=observer, name=known_as
        )
        if observer is not None:
            observer.watch(opened_store, opened_transport, of.error_queue)
        what, done = "stopped", NOTHING_DONE
        stopping = _Stopping(dispatcher)
        with stopped_by(stopping.asked):
            _set_up(opened_store, opened_transport, of.error_queue, fail_fast=fail_fast or once)
            if once:
                stopping.finishes = True
                what, done = "done", dispatcher.dispatch_due()
                try:
                    dispatcher.clean_up()
                except StoreError as error:  # the messages are delivered
                    print_note(f"warning: cannot delete old entries: {error}")
            else:
                print_note(f"dispatching for endpoint {name!r}")
                dispatcher.run()
                done = dispatcher.health()
        print_note(outcome_line(what, done))
    if as_json:
        print_document(done.counts())


@contextmanager
def _settings_as_typed() -> Iterator[None]:
    """Raise an error about a setting, which begins with its name, as one about the option."""
    try:
        yield
    except ConfigurationError as error:
        if str(error).startswith("--"):  # already about an option
            raise
        name, _, rest = str(error).partition(" ")
        raise ConfigurationError(f"--{name.replace('_', '-')} {rest}") from None


def _check_handover(horizon: timedelta, transport: Transport) -> None:
    longest = transport.longest_native_delay or timedelta(0)
    if horizon > longest:
        raise ConfigurationError(
            f"--handover-horizon is longer than --transport delays natively ({longest}); lower it, or give an amqp:// "
            "URL another ?delays=NAME"
        )


def _longest_sleep(text: str) -> timedelta:
    sleep = parse_duration(text, "--poll-interval")
    if not sleep:
        raise ConfigurationError(f"--poll-interval {text!r} must be above 0; write 500ms, or 1s")
    return sleep


def _check_name(error_queue: str) -> None:
    try:
        check_destination(error_queue)
    except InvalidMessageError as error:
        raise ConfigurationError(f"--error-queue {str(error).removeprefix('destination ')}") from None


def _check_reachable(error_queue: str, transport: Transport) -> None:
    """Refuse an error queue that nothing could be sent to, which the transport knows without a connection."""
    sample = DelayedMessage(message_id="-", destination=error_queue, due_time=datetime.now(UTC), body=b"")
    try:
        transport.check(sample)
    except InvalidMessageError as error:
        raise ConfigurationError(f"--error-queue cannot be used: {error}") from None


class _Stopping:
    """The effect of a request to stop: the dispatcher finishes; before it runs, the request interrupts the start.

    `finishes`: the work will end on its own, and is not to be interrupted.
    """

    def __init__(self, dispatcher: "Dispatcher") -> None:
        self._dispatcher = dispatcher
        self.finishes = False

    def asked(self) -> bool:
        """Called by a signal handler; whether to interrupt."""
        return self._dispatcher.stop() and not self.finishes


def _set_up(store: DelayedMessageStore, transport: Transport, error_queue: str, *, fail_fast: bool) -> None:
    """Find faults before the start: a permission, a table, a host."""

    def declare() -> None:
        try:
            transport.declare_error_queue(error_queue)
        except TransportSetupError as error:
            print_note(f"warning: {error}")
        except TransportUnansweredError as error:  # other queues may be well
            print_note(f"warning: the error queue {error_queue!r} could not be declared: {error}")

    when_reached("the store", store.setup_infrastructure, fail_fast=fail_fast)
    if fail_fast and (problem := store.status().read_only):
        raise StoreUnavailableError(problem)
    when_reached("the transport", declare, fail_fast=fail_fast)


def outcome_line(what: str, done: "DispatchReport") -> str:
    """The results, for people."""
    return (
        f"{what}: {done.delivered} delivered, {counted(done.failed, 'failed attempt')}, "
        f"{done.moved_to_error_queue} moved to the error queue{f', {done.expired} expired' if done.expired else ''}"
    )


def control(
    queue: Annotated[
        str | None,
        environment_option("--queue", "Queue of requests. Default: ENDPOINT.control.", metavar="NAME", group="control"),
    ] = None,
    hide_bodies: Annotated[bool, typer.Option("--hide-bodies", help="Answer messages without their bodies.")] = False,
    fail_fast: FailFast = False,
    verbose: Verbose = False,
    broker: BrokerUrl = None,
    *,
    where: DispatchedEndpoint,
    as_json: JsonOption = False,
) -> None:
    """Answer cancel and lookup requests over AMQP.

    Clients send JSON to the queue ENDPOINT.control of --broker (or --transport), and get the answer at their reply_to.
    They can cancel, reschedule and look up messages, and change recurring schedules. The command declares the queue if
    it does not exist. If the store or the broker is unavailable, it waits and retries. At SIGTERM or SIGINT it answers
    the requests in progress and ends. It dispatches no message.
    """
    from delaystore.ingress.control import ControlQueue

    log_to_standard_error(verbose=verbose)
    url = require_broker(broker, where.transport)
    with replace(where, transport=url).open(READING) as opened:
        reader = ControlQueue(
            opened.delivery.operations,
            opened.transport,
            queue=queue,
            with_bodies=not hide_bodies,
            schedules=opened.delivery.schedules,
        )
        with stopped_by(reader.stop):
            when_reached("the store", lambda: require_tables(opened.store, opened.endpoint), fail_fast=fail_fast)
            print_note(f"reading the control queue {reader.queue!r}")
            reader.run()
        done = reader.health()
    print_note(f"stopped: {counted(done.requests, 'request')}, {done.answered} answered, {done.rejected} rejected")
    if as_json:
        print_document({name: getattr(done, name) for name in ("requests", "answered", "unanswered", "rejected")})
