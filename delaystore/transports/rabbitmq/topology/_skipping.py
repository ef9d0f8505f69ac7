"""A cascade in which a message skips the levels that it need not wait in.

https://gist.github.com/deefdragon/122fecdc37a883b9c5498e0ba4c4cca3
"""

from dataclasses import dataclass
from datetime import timedelta

from typing_extensions import override

from delaystore.address import Address
from delaystore.errors import UnsupportedMessageError
from delaystore.transports.rabbitmq.topology.cascade import CascadeTopology, Routing
from delaystore.transports.rabbitmq.topology.layout import Binding, DestinationKind, Exchange, Layout, Queue


@dataclass(frozen=True, kw_only=True)
class SkippingCascade(CascadeTopology):
    """Each queue leads to an exchange of its own, bound to all shorter queues; the next digit 1 decides.

    `ingest`: the exchange that everything is published to. `done_name`: a format string with `{level}`.
    `addresses` False: one queue `delivery` gets everything, and keys are digits alone, as in the gist. Bindings then
    begin with `#`; with an address behind the digits these would misroute, so `*` for each digit anchors them.
    """

    ingest: str
    done_name: str
    addresses: bool = True

    @override
    def route(self, delay: timedelta | float, address: str) -> Address:
        return Address(self.ingest, self.key(self.units(delay), address))

    @override
    def layout(self) -> Layout:
        end = self._delivery_layout() if self.addresses else Layout(queues=(self._only_destination(),))
        levels = range(self.levels)
        return end + Layout(
            exchanges=(*(Exchange(self.done(number)) for number in levels), Exchange(self.ingest)),
            queues=tuple(self._level_queue(number, self.done(number)) for number in levels),
            bindings=(
                *(binding for number in levels for binding in self._bindings(self.done(number), number)),
                *self._bindings(self.ingest, self.levels),
            ),
        )

    @override
    def names(self) -> list[str]:
        """The names of all exchanges and level queues, each once."""
        return [*super().names(), *(self.done(number) for number in range(self.levels)), self.ingest]

    def done(self, number: int) -> str:
        """The exchange behind the queue of level `number`."""
        return self.done_name.format(level=number)

    @override
    def key(self, units: int, address: str) -> str:
        """The routing key; without addresses the digits alone."""
        if self.addresses:
            return super().key(units, address)
        self.check_address(address)
        return ".".join(f"{units:0{self.levels}b}")

    @override
    def check_address(self, address: str) -> None:
        """Raise UnsupportedMessageError for an address that does not fit; without addresses, for any but `delivery`."""
        if self.addresses:
            super().check_address(address)
        elif address not in ("", self.delivery):
            raise UnsupportedMessageError(f"this cascade has one destination, {self.delivery!r}, not {address[:40]!r}")

    @override
    def destination_bindings(self, address: str, routing: Routing = Routing.DIRECT) -> tuple[Binding, ...]:
        """As for every cascade; none without addresses."""
        if self.addresses:
            return super().destination_bindings(address, routing)
        self.check_address(address)
        return ()

    def _bindings(self, source: str, above: int) -> list[Binding]:
        """The bindings of `source`, an exchange that decides by the digits below level `above`."""
        bindings = [
            Binding(
                source,
                self.level(number),
                DestinationKind.QUEUE,
                self._pattern(above, ["0"] * (above - 1 - number) + ["1"], number),
            )
            for number in reversed(range(above))
        ]
        kind = DestinationKind.EXCHANGE if self.addresses else DestinationKind.QUEUE
        return [*bindings, Binding(source, self.delivery, kind, self._pattern(above, ["0"] * above, 0))]

    def _pattern(self, above: int, digits: list[str], undecided: int) -> str:
        if self.addresses:
            return ".".join(["*"] * (self.levels - above) + digits + ["#"])
        return ".".join(["#", *digits, *["*"] * undecided])

    def _only_destination(self) -> Queue:
        return Queue(self.delivery, {"x-queue-type": self.arguments.get("x-queue-type", "classic")})
