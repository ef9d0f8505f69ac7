"""Ingresses and control queues as components of a service; they need the libraries of RabbitMQ."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from delaystore.control import ControlQueue
from delaystore.delivery import DelayedDelivery
from delaystore.ingress.ingress import Ingress
from delaystore.service.configuration.ingress import IngressConfiguration
from delaystore.service.configuration.tree import ControlConfiguration, EndpointConfiguration
from delaystore.service.opening import OpenedEndpoint
from delaystore.transports import RabbitMQTransport


class IngressComponent:
    """Takes messages in, once the store is set up. `name`: of its table.

    `own`: the service's own queues and exchanges, which publishers may not name. `watched`: called with the ingress;
    what it returns is kept as long as this. Raises ConfigurationError.
    """

    def __init__(
        self,
        opened: OpenedEndpoint,
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

    def __init__(self, opened: OpenedEndpoint, configuration: ControlConfiguration) -> None:
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
