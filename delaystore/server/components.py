"""The components of a service that need an open endpoint, RabbitMQ or a port for metrics."""

import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from delaystore.delivery import DelayedDelivery
from delaystore.dispatcher import DispatchObserver
from delaystore.dispatcher.dispatcher import Dispatcher, check_pair
from delaystore.ingress.control import ControlQueue
from delaystore.ingress.ingress import Ingress
from delaystore.registry import needed_for
from delaystore.schedules.documents import ScheduleFile
from delaystore.server.configuration.tree import ControlConfiguration, EndpointConfiguration, MetricsConfiguration
from delaystore.stores.opening import store_at
from delaystore.stores.records import Way
from delaystore.stores.schedules import StoreWithSchedules, no_schedules
from delaystore.transports import RabbitMQTransport
from delaystore.transports.opening import transport_at

if TYPE_CHECKING:
    from delaystore.server.telemetry import OpenTelemetryMetrics


class ServedEndpoint:
    """One endpoint, opened; nothing is connected yet. `delivery`: for the page, and for the control queue.

    `tell`: called with remarks for people, a line each.
    Raises ConfigurationError for settings that cannot work, MissingDependencyError.
    """

    def __init__(self, name: str, configuration: "EndpointConfiguration", tell: Callable[[str], object]) -> None:
        self.name: Final = name
        self._tell = tell
        self._lock = threading.Lock()
        self._prepared = False
        self._putting = threading.Lock()
        self._put: ScheduleFile | None = None
        self._dispatcher: Dispatcher | None = None
        with ExitStack() as opened:
            self.store: Final = store_at(configuration.store.value, configuration.schema, configuration.table)
            opened.callback(self.store.close)
            self.transport: Final = transport_at(configuration.transport.value, configuration.schema)
            opened.callback(self.transport.close)
            settings = replace(configuration.settings(), automatic_setup=False)
            self.delivery: Final = DelayedDelivery(name, self.store, self.transport, settings)
            self.check(configuration)
            opened.pop_all()

    def check(self, configuration: "EndpointConfiguration") -> None:
        """Raise ConfigurationError, or UnsupportedModeError, where the components could not work so."""
        check_pair(self.store, self.transport, configuration.settings())
        if configuration.schedules is not None:
            if not isinstance(self.store, StoreWithSchedules):
                raise no_schedules(self.store)
            self.delivery.schedules.check(configuration.schedules.schedules)

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

    def put_schedules(self, wanted: ScheduleFile | None) -> None:
        """Make the schedules below the prefix of a file its schedules, unless the last call did.

        Raises StoreError; StoreUnavailableError: try again.
        """
        with self._putting:
            if wanted is None or wanted == self._put:
                return
            schedules = self.delivery.schedules_as(Way.CLI)
            changes = schedules.put_all(wanted.schedules, prefix=wanted.prefix)
            self._put = wanted
        numbers = {"created": len(changes.created), "changed": len(changes.changed), "deleted": len(changes.deleted)}
        counts = ", ".join(f"{number:,} {what}" for what, number in {**numbers, "unchanged": changes.unchanged}.items())
        self._tell(f"schedules of {self.name!r} below {wanted.prefix!r}: {counts}")

    def close(self) -> None:
        """Close store and transport; may be called twice."""
        self.transport.close()
        self.store.close()


class Runnable(Protocol):
    """A dispatcher, an ingress or a control queue."""

    def run(self) -> None:
        """Work until `stop`."""
        ...

    def stop(self, timeout: float, /) -> object:
        """Have `run` finish the work in flight, and return; wait for its end, at most this number of seconds."""
        ...


class EndpointComponent:
    """Runs a dispatcher, an ingress or a control queue of an endpoint, once the store is set up.

    Args:
        opened: The endpoint.
        runnable: The object that it runs.
        problems: Says why it is not ready, a clause each.
        kept: An object that lives as long as this component.
        before: Called before the object runs, once the store is set up; may raise StoreError.

    """

    def __init__(
        self,
        opened: ServedEndpoint,
        runnable: Runnable,
        problems: Callable[[], Sequence[str]],
        kept: object = None,
        before: Callable[[], object] = lambda: None,
    ) -> None:
        self._opened = opened
        self._runnable = runnable
        self._kept = kept
        self._before = before
        self.problems: Final = problems

    def run(self) -> None:
        """Run until `stop`. Raises StoreError where the tables cannot be set up, or not yet."""
        self._opened.prepare()
        self._before()
        self._runnable.run()

    def stop(self) -> None:
        """Have it finish the work in flight."""
        self._runnable.stop(0)


LONGEST_QUESTION: Final = 2.0
"""Seconds that the store has to say how it is."""


def dispatcher_of(
    opened: ServedEndpoint, configuration: EndpointConfiguration, observer: DispatchObserver | None
) -> EndpointComponent:
    """The dispatcher of an endpoint, which first puts the schedules of its file.

    Its problems are as `delaystore health` judges. `observer` None: no metrics.
    """
    name, settings = configuration.dispatcher.name, configuration.settings()
    dispatcher = Dispatcher(opened.store, opened.transport, settings, opened.name, observer=observer, name=name)
    opened.dispatched_by(dispatcher)
    put = partial(opened.put_schedules, configuration.schedules)
    return EndpointComponent(opened, dispatcher, lambda: dispatcher.health(LONGEST_QUESTION).problems, before=put)


def ingress_of(
    opened: ServedEndpoint,
    endpoint: EndpointConfiguration,
    name: str,
    own: frozenset[str],
    watched: Callable[[Ingress], object],
) -> EndpointComponent:
    """An ingress of an endpoint.

    Args:
        opened: The endpoint.
        endpoint: Its configuration.
        name: The name of the ingress' table in it.
        own: The service's own queues and exchanges, which publishers may not name.
        watched: Called with the ingress; its result is kept as long as the component.

    Raises:
        ConfigurationError: It cannot work so.

    """
    configuration = endpoint.ingress[name]
    broker = (configuration.broker or endpoint.transport).value
    rules = configuration.rules(name, RabbitMQTransport(broker).check, own)
    settings = replace(
        endpoint.settings(),
        automatic_setup=False,
        max_body_bytes=configuration.max_body_bytes,
        handover_horizon=0,
    )
    delivery = DelayedDelivery(opened.name, opened.store, settings=settings)
    ingress = Ingress(delivery, broker, rules, configuration.settings(name), settings, on_stored=opened.wake_up)
    return EndpointComponent(opened, ingress, lambda: ingress.health().problems, watched(ingress))


def control_of(opened: ServedEndpoint, configuration: ControlConfiguration) -> EndpointComponent:
    """The control queue of an endpoint. Raises ConfigurationError."""
    queue = ControlQueue(
        opened.delivery.operations,
        opened.transport,
        queue=configuration.queue,
        with_bodies=configuration.bodies,
        schedules=opened.delivery.schedules,
        on_rescheduled=opened.wake_up,
    )
    return EndpointComponent(opened, queue, lambda: queue.health().problems)


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
        """The observer of an endpoint, which reports its store; the same for all of one name, so that counts go on."""
        name = opened.name
        if name not in self._observers:
            self._observers[name] = self._server.observer(name, destinations=self._destinations, traces=self._traces)
        observer = self._observers[name]
        observer.watch(opened.store, opened.transport, configuration.error_queue)
        return observer

    def keep_only(self, names: Iterable[str]) -> None:
        """Forget endpoints of other names."""
        wanted = set(names)
        self._observers = {name: each for name, each in self._observers.items() if name in wanted}

    def problems(self) -> Sequence[str]:
        """That nothing is served."""
        return [] if self._server.is_serving else ["it serves nothing any more; restart the service"]
