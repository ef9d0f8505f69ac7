"""A server that Prometheus scrapes."""

import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from socketserver import ThreadingMixIn
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from typing_extensions import override

from delaystore.errors import ConfigurationError
from delaystore.processes import Listener
from delaystore.registry import needed_for

if TYPE_CHECKING:
    from wsgiref.types import WSGIApplication

    from prometheus_client import Metric

    from delaystore.ingress.ingress import Ingress
    from delaystore.server.telemetry._ingress import IngressMetrics
    from delaystore.server.telemetry._metrics import CountedLateness, OpenTelemetryMetrics

_SILENCE: Final = 10
"""Seconds that a client may take for the next part of its request, and of the answer."""


class MetricsServer:
    """Serves metrics at `http://HOST:PORT/metrics`, in daemon threads, until `close`; a `with` block closes it.

    Args:
        host: The address to listen at.
        port: The port; 0: any that is free, see `port`.

    Raises:
        ConfigurationError: The address cannot be used.
        MissingDependencyError: The extra `prometheus` is not installed.

    """

    def __init__(self, host: str = "127.0.0.1", port: int = 9464) -> None:
        with needed_for("serving metrics to Prometheus", "prometheus"):
            from opentelemetry.exporter.prometheus import PrometheusMetricReader
            from opentelemetry.sdk.metrics import MeterProvider
            from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector, make_wsgi_app

            from delaystore.server.telemetry._metrics import CountedLateness
        self._host = host
        registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        GCCollector(registry)
        self._lateness: Final = CountedLateness()
        registry.register(_LatenessCollector(self._lateness))
        with ExitStack() as stack:
            self.meter_provider: Final = MeterProvider(
                [PrometheusMetricReader(registry=registry)], shutdown_on_exit=False
            )
            stack.callback(self.meter_provider.shutdown)
            try:
                listener = Listener(host, port)
            except (OSError, OverflowError, UnicodeError) as error:
                reason = "no such name can be" if isinstance(error, UnicodeError) else getattr(error, "strerror", error)
                raise ConfigurationError(
                    f"metrics cannot be served at {host}:{port}: {reason}; give another address"
                ) from None
            self._server = _Server(listener, make_wsgi_app(registry))
            self._thread = threading.Thread(target=self._server.serve_forever, name="delaystore-metrics", daemon=True)
            self._thread.start()
            stack.pop_all()

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._server.server_port)

    @property
    def url(self) -> str:
        """What Prometheus scrapes."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self.port}/metrics"

    @property
    def is_serving(self) -> bool:
        """Whether it answers, as far as this process knows."""
        return self._thread.is_alive()

    def observer(self, endpoint: str, *, destinations: int = 0, traces: bool = True) -> "OpenTelemetryMetrics":
        """Make an observer whose metrics are served here.

        The lateness of messages is counted a batch at a time, which costs a fiftieth of the meter's time.

        Args:
            endpoint: As of OpenTelemetryMetrics.
            destinations: As of OpenTelemetryMetrics.
            traces: Also make spans, by the global tracer provider.

        Returns:
            The observer.

        """
        from delaystore.server.telemetry._metrics import OpenTelemetryMetrics
        from delaystore.server.telemetry.traces import OpenTelemetryObserver

        return (OpenTelemetryObserver if traces else OpenTelemetryMetrics)(
            endpoint, destinations=destinations, meter_provider=self.meter_provider, lateness=self._lateness
        )

    def watch_ingress(self, endpoint: str, ingress: "Ingress") -> "IngressMetrics":
        """Have metrics of an ingress served here.

        Args:
            endpoint: The value of the attribute `delaystore.endpoint`.
            ingress: The ingress.

        Returns:
            The metrics, which are served as long as the object is referenced.

        """
        from delaystore.server.telemetry._ingress import IngressMetrics

        return IngressMetrics(endpoint, ingress, meter_provider=self.meter_provider)

    def close(self) -> None:
        """Serve nothing any more; may be called twice."""
        if self.is_serving:
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()
            self.meter_provider.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class _MetricsRequestHandler(WSGIRequestHandler):
    timeout = _SILENCE

    @override
    def log_message(self, format: str, *args: Any) -> None:
        """Log no requests."""


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True

    def __init__(self, listener: socket.socket, application: "WSGIApplication") -> None:
        host, port = listener.getsockname()[:2]
        super().__init__((host, port), _MetricsRequestHandler, bind_and_activate=False)
        self.socket.close()
        self.socket = listener
        self.server_name, self.server_port = host, port
        self.setup_environ()
        self.set_app(application)

    @override
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log nothing of a connection that ended, or of a client that is silent: any client can cause that."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _LatenessCollector:
    """Lateness for prometheus_client, as the exporter would tell it."""

    def __init__(self, lateness: "CountedLateness") -> None:
        self._lateness = lateness

    def collect(self) -> "Iterator[Metric]":
        from prometheus_client.core import HistogramMetricFamily

        from delaystore.server.telemetry._names import ENDPOINT, LATENESS

        name, label = LATENESS.name.replace(".", "_"), ENDPOINT.replace(".", "_")
        family = HistogramMetricFamily(name, LATENESS.description, labels=[label], unit="seconds")
        for attributes, buckets, total in self._lateness.counted():
            family.add_metric([attributes[ENDPOINT]], buckets, total)
        yield family
