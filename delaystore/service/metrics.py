"""The metrics of a service: one server, and an observer for each endpoint."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from delaystore.dispatcher import DispatchObserver
from delaystore.extras import needed_for
from delaystore.service.configuration.tree import EndpointConfiguration, MetricsConfiguration
from delaystore.service.opening import OpenedEndpoint

if TYPE_CHECKING:
    from delaystore.ingress.ingress import Ingress
    from delaystore.telemetry import OpenTelemetryMetrics


class Metrics:
    """Serves metrics at the address that is configured, once it is made, until `close`.

    Raises ConfigurationError for an address that cannot be used, MissingDependencyError.
    """

    def __init__(self, configuration: MetricsConfiguration) -> None:
        assert configuration.listen is not None
        with needed_for("serving metrics", "prometheus"):
            import opentelemetry.exporter.prometheus  # noqa: F401 - all that the extra brings

            from delaystore.telemetry import MetricsServer
            from delaystore.telemetry.tracing import has_tracer_provider
        self._server = MetricsServer(configuration.listen.host, configuration.listen.port)
        self._traces = has_tracer_provider()
        self._destinations = configuration.destinations
        self._observers: dict[str, OpenTelemetryMetrics] = {}

    @property
    def url(self) -> str:
        """What Prometheus scrapes."""
        return self._server.url

    def observer(self, opened: OpenedEndpoint, configuration: EndpointConfiguration) -> DispatchObserver:
        """The observer of an endpoint, which tells of its store; the same for all of one name, so that counts go on."""
        name = opened.name
        if name not in self._observers:
            self._observers[name] = self._server.observer(name, destinations=self._destinations, traces=self._traces)
        observer = self._observers[name]
        observer.watch(opened.store, opened.transport, configuration.error_queue)
        return observer

    def watch_ingress(self, endpoint: str, ingress: "Ingress") -> object:
        """Tell of an ingress, for as long as what is returned is kept."""
        return self._server.watch_ingress(endpoint, ingress)

    def tell_only_of(self, names: Iterable[str]) -> None:
        """Forget endpoints of other names."""
        wanted = set(names)
        self._observers = {name: each for name, each in self._observers.items() if name in wanted}

    def problems(self) -> Sequence[str]:
        """That nothing is served."""
        return [] if self._server.is_serving else ["it serves nothing any more; restart the service"]

    def close(self) -> None:
        """Serve nothing any more."""
        self._server.close()
