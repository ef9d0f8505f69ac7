"""The cascade of NServiceBus and Celery: a message walks down, exchange by exchange.

https://docs.particular.net/transports/rabbitmq/delayed-delivery
https://docs.celeryq.dev/projects/kombu/en/v5.5.0/reference/kombu.transport.native_delayed_delivery.html
"""

from dataclasses import dataclass
from datetime import timedelta

from typing_extensions import override

from delaystore.address import Address
from delaystore.transports.rabbitmq.topology.cascade import CascadeTopology, Routing
from delaystore.transports.rabbitmq.topology.layout import Binding, DestinationKind, Exchange, Layout


@dataclass(frozen=True, kw_only=True)
class WalkingCascade(CascadeTopology):
    """Each level has an exchange: digit 1 leads into the level's queue, and from there down; digit 0 leads down.

    `bind_queue_too`: a conventional destination's queue is bound to its exchange with the same key, as Celery does.
    """

    bind_queue_too: bool = False

    @override
    def route(self, delay: timedelta | float, address: str) -> Address:
        """Into the highest level with a digit 1; the levels above would only pass it on."""
        units = self.units(delay)
        return Address(self.level(max(units.bit_length() - 1, 0)), self.key(units, address))

    @override
    def layout(self) -> Layout:
        return self._delivery_layout() + Layout(
            exchanges=tuple(Exchange(self.level(number)) for number in range(self.levels)),
            queues=tuple(self._level_queue(number, self._below(number)) for number in range(self.levels)),
            bindings=tuple(binding for number in range(self.levels) for binding in self._bindings(number)),
        )

    @override
    def destination_bindings(self, address: str, routing: Routing = Routing.DIRECT) -> tuple[Binding, ...]:
        """As for every cascade; with `bind_queue_too` also the queue of a conventional destination."""
        bindings = super().destination_bindings(address, routing)
        if routing is Routing.DIRECT or not self.bind_queue_too:
            return bindings
        return (*bindings, Binding(address, address, DestinationKind.QUEUE, bindings[0].routing_key))

    def _below(self, number: int) -> str:
        return self.level(number - 1) if number else self.delivery

    def _bindings(self, number: int) -> tuple[Binding, Binding]:
        name, digits_above = self.level(number), "*." * (self.levels - 1 - number)
        return (
            Binding(name, name, DestinationKind.QUEUE, f"{digits_above}1.#"),
            Binding(name, self._below(number), DestinationKind.EXCHANGE, f"{digits_above}0.#"),
        )
