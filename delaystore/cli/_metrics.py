"""`--metrics` of commands that run for long."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from delaystore.cli._arguments import parse_address
from delaystore.cli._output import say
from delaystore.errors import ConfigurationError
from delaystore.extras import needed_for

if TYPE_CHECKING:
    from delaystore.telemetry import MetricsServer, OpenTelemetryMetrics


@contextmanager
def served_metrics(
    address: str | None, endpoint: str, *, destinations: int, once: bool
) -> "Iterator[OpenTelemetryMetrics | None]":
    """Serve metrics at `address` during the block, of the observer that it gets; None: nothing is served.

    Raises ConfigurationError for an address that cannot be used, MissingDependencyError.
    """
    if address is None:
        if destinations:
            raise ConfigurationError("--metrics-destinations goes with --metrics HOST:PORT; give both")
        yield None
        return
    if once:
        raise ConfigurationError("--once ends before anybody could read --metrics; leave one of them out")
    with metrics_server(address) as server:
        from delaystore.telemetry.tracing import has_tracer_provider

        yield server.observer(endpoint, destinations=destinations, traces=has_tracer_provider())


@contextmanager
def metrics_server(address: str) -> "Iterator[MetricsServer]":
    """Serve metrics at `address` during the block. Raises ConfigurationError, MissingDependencyError."""
    host, port = parse_address(address, "--metrics")
    with needed_for("--metrics", "prometheus"):
        import opentelemetry.exporter.prometheus  # noqa: F401 - all that the extra brings

        from delaystore.telemetry import MetricsServer
    with MetricsServer(host, port) as server:
        say(f"serving metrics at {server.url}")
        yield server
