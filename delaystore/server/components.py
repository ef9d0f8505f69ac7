"""The components of a service that need an open endpoint, RabbitMQ or a port for metrics."""

import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Final

from delaystore.delivery import DelayedDelivery
from delaystore.dispatcher import DispatchObserver
from delaystore.dispatcher.dispatcher import Dispatcher, check_pair
from delaystore.errors import ConfigurationError
from delaystore.ingress.control import ControlQueue
from delaystore.ingress.ingress import Ingress
from delaystore.registry import needed_for
from delaystore.server.configuration.ingress import IngressConfiguration
from delaystore.server.configuration.tree import ControlConfiguration, EndpointConfiguration, MetricsConfiguration
from delaystore.stores.opening import store_at
from delaystore.transports import RabbitMQTransport
from delaystore.transports.opening import transport_at

if TYPE_CHECKING:
    from delaystore.server.telemetry import OpenTelemetryMetrics


class ServedEndpoint:
    """One endpoint, opened; nothing is connected yet. `delivery`: for the page, and for the control queue.

    Raises ConfigurationError for what cannot work, MissingDependencyError.
    """

    def __init__(self, name: str, configuration: "EndpointConfiguration") -> None:
        self.name: Final = name
        self._lock = threading.Lock()
        self._prepared = False
        self._dispatcher: Dispatcher | None = None
        with ExitStack() as opened:
            self.store: Final = store_at(configuration.store.value, configuration.schema, configuration.table)
            opened.callback(self.store.close)
            self.transport: Final = transport_at(configuration.transport.value, configuration.schema)
            opened.callback(self.transport.close)
            self.check(configuration)
            settings = replace(configuration.settings(), automatic_setup=False)
            self.delivery: Final = DelayedDelivery(name, self.store, self.transport, settings)
            opened.pop_all()

    def check(self, configuration: "EndpointConfiguration") -> None:
        """Raise ConfigurationError, or UnsupportedModeError, where the components could not work so."""
        try:
            check_pair(self.store, self.transport, configuration.settings())
        except ConfigurationError as error:
            raise ConfigurationError(str(error).replace("handover_horizon", "handover", 1)) from None

    def dispatched_by(self, dispatcher: Dispatcher) -> None:
        """Have `wake_up` wake that dispatcher from now on."""
        self._dispatcher = dispatcher

    def wake_up(self, due_time: datetime) -> None:
        """Have the dispatcher begin a pass at that time: a component of this process has stored something."""
        if self._dispatcher is not None:
            self._dispatcher.wake_up(due_time)

    def prepare(self) -> None:
        """Set up the store's tables, once. Raises StoreError; StoreUnavailableError: try again."""
        with self._lock:
            if not self._prepared:
                self.store.setup_infrastructure()
                self._prepared = True

    def close(self) -> None:
        """Close store and transport; may be called twice."""
        self.transport.close()
        self.store.close()


class IngressComponent:
    """Takes messages in, once the store is set up. `name`: of its table.

    `own`: the service's own queues and exchanges, which publishers may not name. `watched`: called with the ingress;
    what it returns is kept as long as this. Raises ConfigurationError.
    """

    def __init__(
        self,
        opened: ServedEndpoint,
        endpoint: EndpointConfiguration,
        name: str,
        configuration: IngressConfiguration,
        own: frozenset[str],
        watched: Callable[[Ingress], object],
    ) -> None:
        self._opened = opened
        broker = (configuration.broker or endpoint.transport).value
        settings, most = configuration.settings(name), configuration.max_body_bytes
        rules = configuration.rules(name, RabbitMQTransport(broker).check, own)
        keeping = replace(endpoint.settings(), automatic_setup=False, max_body_bytes=most, handover_horizon=0)
        delivery = DelayedDelivery(opened.name, opened.store, settings=keeping)
        self._ingress = Ingress(delivery, broker, rules, settings, keeping, on_stored=opened.wake_up)
        self._watching = watched(self._ingress)

    def run(self) -> None:
        """Take messages in until `stop`. Raises StoreError where the tables cannot be set up, or not yet."""
        self._opened.prepare()
        self._ingress.run()

    def stop(self) -> None:
        """Have it store and acknowledge what is under way."""
        self._ingress.stop(0)

    def problems(self) -> Sequence[str]:
        """Why it takes nothing in."""
        return self._ingress.health().problems


class ControlComponent:
    """Does what programs that speak AMQP ask for, once the store is set up. Raises ConfigurationError."""

    def __init__(self, opened: ServedEndpoint, configuration: ControlConfiguration) -> None:
        self._opened = opened
        self._queue = ControlQueue(
            opened.delivery.operations,
            opened.transport,
            queue=configuration.queue,
            with_bodies=configuration.bodies,
            on_rescheduled=opened.wake_up,
        )

    def run(self) -> None:
        """Answer requests until `stop`. Raises StoreError where the tables cannot be set up, or not yet."""
        self._opened.prepare()
        self._queue.run()

    def stop(self) -> None:
        """Have it finish the requests at hand."""
        self._queue.stop(0)

    def problems(self) -> Sequence[str]:
        """Why requests are not done."""
        return self._queue.health().problems


class Metrics:
    """Serves metrics at the address that is configured, once it is made, until `close`.

    Raises ConfigurationError for an address that cannot be used, MissingDependencyError.
    """

    def __init__(self, configuration: MetricsConfiguration) -> None:
        assert configuration.listen is not None
        with needed_for("serving metrics", "prometheus"):
            import opentelemetry.exporter.prometheus  # noqa: F401 - all that the extra brings

            from delaystore.server.telemetry import MetricsServer
            from delaystore.server.telemetry.traces import has_tracer_provider
        self._server = MetricsServer(configuration.listen.host, configuration.listen.port)
        self.watch_ingress: Final = self._server.watch_ingress
        self.close: Final = self._server.close
        self._traces = has_tracer_provider()
        self._destinations = configuration.destinations
        self._observers: dict[str, OpenTelemetryMetrics] = {}

    @property
    def url(self) -> str:
        """What Prometheus scrapes."""
        return self._server.url

    def observer(self, opened: ServedEndpoint, configuration: EndpointConfiguration) -> DispatchObserver:
        """The observer of an endpoint, which tells of its store; the same for all of one name, so that counts go on."""
        name = opened.name
        if name not in self._observers:
            self._observers[name] = self._server.observer(name, destinations=self._destinations, traces=self._traces)
        observer = self._observers[name]
        observer.watch(opened.store, opened.transport, configuration.error_queue)
        return observer

    def tell_only_of(self, names: Iterable[str]) -> None:
        """Forget endpoints of other names."""
        wanted = set(names)
        self._observers = {name: each for name, each in self._observers.items() if name in wanted}

    def problems(self) -> Sequence[str]:
        """That nothing is served."""
        return [] if self._server.is_serving else ["it serves nothing any more; restart the service"]
