"""The exchanges, queues and bindings of an ingress, as data."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from delaystore.errors import ConfigurationError
from delaystore.ingress.names import IngressNames
from delaystore.transports.rabbitmq.topology.layout import (
    ANY_WORDS,
    Binding,
    DestinationKind,
    Exchange,
    Layout,
    Queue,
    fanout_queue,
)

ENTRANCE_KEYS: Final[Mapping[str, str]] = {"topic": ANY_WORDS, "fanout": "", "headers": ""}
"""By which routing key a binding takes everything, for each type of exchange that has such a binding.

A headers exchange gives everything to a binding without arguments.
"""
GIVEN_BACK: Final = 2**31 - 1
"""The delivery limit: nobody gives a message back so often, and every client can read the number.

RabbitMQ 4 has a limit of 20 unless told otherwise, and 3 takes -1 for 0.
"""
_KEPT: Final[Mapping[str, Any]] = {"x-queue-type": "quorum", "x-delivery-limit": GIVEN_BACK}


@dataclass(frozen=True, slots=True, kw_only=True)
class IngressTopology:
    """An ingress on a broker. `entrance_type`: of the exchange to publish to. `out_type`: as users' bindings need it.

    `out_arguments`, `out_bindings`: of the exchange `names.out`, copied from another. `sources`: bindings that lead
    from other exchanges to the one to publish to.
    `old_keys`: by which the ingress queue is bound as well, for what waits in a plugin; see `PluginExchange`.
    Raises ConfigurationError for an entrance that cannot give everything to one queue.
    """

    names: IngressNames
    out_type: str
    entrance_type: str
    out_arguments: Mapping[str, Any] = field(default_factory=dict, hash=False)
    out_bindings: tuple[Binding, ...] = ()
    sources: tuple[Binding, ...] = ()
    old_keys: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.entrance_type not in ENTRANCE_KEYS:
            raise ConfigurationError(
                f"a {self.entrance_type} exchange cannot give every message to the ingress queue; pass --exchange-type "
                "fanout, or topic, and have publishers declare it so: they go on with their routing keys"
            )

    @property
    def entrance(self) -> Layout:
        """The exchange to publish to, and what leads from it to the ingress queue and into it.

        Declared last, in one go: what is published before it is bound would be dropped.
        """
        exchange, queue = self.names.exchange, self.names.queue
        keys = dict.fromkeys((*self.old_keys, ENTRANCE_KEYS[self.entrance_type]))  # what waits cannot pause
        bindings = (Binding(exchange, queue, DestinationKind.QUEUE, key) for key in keys)
        return Layout(
            exchanges=(Exchange(exchange, self.entrance_type),),
            bindings=(*bindings, *self.sources),
        )

    @property
    def behind(self) -> Layout:
        """Everything else. It takes no message before the entrance is there."""
        out = Layout(
            exchanges=(Exchange(self.names.out, self.out_type, self.out_arguments),), bindings=self.out_bindings
        )
        return fanout_queue(self.names.expired, _KEPT) + Layout(queues=self._own_queues) + out

    @property
    def exchanges(self) -> tuple[Exchange, ...]:
        """All exchanges of it."""
        return self.behind.exchanges + self.entrance.exchanges

    @property
    def ends(self) -> frozenset[str]:
        """Exchanges to which others may bind what they like."""
        return frozenset({self.names.out, self.names.expired})

    @property
    def _own_queues(self) -> tuple[Queue, ...]:
        ingress = {
            **_KEPT,
            "x-dead-letter-exchange": self.names.expired,
            "x-dead-letter-strategy": "at-least-once",
            "x-overflow": "reject-publish",
        }
        return Queue(self.names.rejected, _KEPT), Queue(self.names.queue, ingress)


def entrance_type_for(out_type: str) -> str:
    """The type of the exchange to publish to, where nobody says: that of the other, where such a one takes everything.

    Publishers that declare their exchange then name the type that they know. A fanout otherwise.
    """
    return out_type if out_type in ENTRANCE_KEYS else "fanout"
