"""Declaring a layout by AMQP, part by part."""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from pika import exceptions

from delaystore.errors import TransportSetupError, TransportUnavailableError
from delaystore.transports.rabbitmq.blocking import BlockingConnections
from delaystore.transports.rabbitmq.parameters import Broker
from delaystore.transports.rabbitmq.pika_errors import quiet_pika, reason_of
from delaystore.transports.rabbitmq.queues import declare_queue, missing, queue_exists, surely_missing
from delaystore.transports.rabbitmq.topology.cascades import CascadeTopology, Routing
from delaystore.transports.rabbitmq.topology.layout import Binding, DestinationKind, Exchange, Layout, Part, Queue


class DeclarationError(TransportSetupError):
    """The broker refused a part of a layout. `declared`: the parts declared before it, in their order.

    Some of these may have existed already, and are as they were.
    """

    def __init__(self, failed: Part, reason: str, declared: Sequence[Part]) -> None:
        self.failed = failed
        self.reason = reason
        self.declared = tuple(declared)
        super().__init__(f"{failed} cannot be declared: {reason}; {declared_until_then(declared)}")

    def __reduce__(self) -> tuple[type["DeclarationError"], tuple[Part, str, Sequence[Part]]]:
        return type(self), (self.failed, self.reason, self.declared)


def ensure_bound(connections: BlockingConnections, topology: CascadeTopology, destination: str) -> bool:
    """Bind the queue `destination` to the cascade's end; False: there is no such queue.

    Raises UnsupportedMessageError for a name that does not fit a routing key, TransportSetupError where the cascade
    is missing or the user may not bind, TransportUnavailableError.
    """
    bindings = topology.destination_bindings(destination, Routing.DIRECT)
    if not queue_exists(connections, destination):
        return False
    try:
        declare(connections, bindings)
    except DeclarationError as error:
        if not queue_exists(connections, destination):  # deleted meanwhile
            return False
        raise TransportSetupError(
            f"queue {destination!r} cannot be bound to {topology.delivery!r}: {error.reason}; "
            "run delaystore cascade create, or grant write on the queue and read on the exchange"
        ) from None
    return True


def declare(
    connections: BlockingConnections, parts: Iterable[Part], on_declared: Callable[[Part], object] = lambda _part: None
) -> None:
    """Declare all of `parts` in this order, calling `on_declared` after each; what exists already stays as it is.

    Raises DeclarationError (a TransportSetupError) naming the failed part, the reason, and the parts declared until
    then; TransportUnavailableError.
    """
    declared: list[Part] = []
    with connections.channel() as channel:
        for part in parts:
            try:
                with quiet_pika():
                    declare_part(channel, part)
            except exceptions.AMQPConnectionError as error:
                raise TransportUnavailableError(
                    f"the connection to RabbitMQ was lost: {reason_of(error)}; {declared_until_then(declared)}"
                ) from None
            except exceptions.AMQPError as error:
                raise DeclarationError(part, reason_of(error), declared) from None
            declared.append(part)
            on_declared(part)


def declare_missing(
    broker: Broker, connections: BlockingConnections, layout: Layout, *, optional: Collection[str] = ()
) -> None:
    """Declare missing parts of `layout`; existing parts stay as they are, with any type and arguments.

    A binding is declared if an end of it did not exist. A new quorum queue gets a delivery limit that is never reached:
    a message goes back to its queue whenever a process dies, and must not be dropped for that.

    Args:
        broker: The one that `connections` lead to.
        connections: Connections of the calling thread.
        layout: Exchanges, queues and bindings.
        optional: Queues whose absence is no obstacle: one that does not answer within 3 seconds counts as existing.

    Raises:
        TransportSetupError: The broker refuses a part, or does not say whether it exists.
        TransportUnavailableError: The broker cannot be reached.

    """
    needed = [node for node in layout.nodes if not (isinstance(node, Queue) and node.name in optional)]
    absent = missing(connections, needed)
    absent += [queue for queue in layout.queues if queue.name in optional and surely_missing(broker, queue.name)]
    for queue in layout.queues:
        if queue in absent:
            declare_queue(connections, queue.name, queue.type, lift_limit=True)
    names = {node.name for node in absent}
    bindings = [one for one in layout.bindings if not names.isdisjoint((one.source, one.destination))]
    parts: list[Part] = [*(one for one in layout.exchanges if one in absent), *bindings]
    if parts:
        declare(connections, parts)


def declare_part(channel: Any, part: Part) -> None:
    """Declare one thing; pika's errors pass through."""
    if isinstance(part, Exchange):
        channel.exchange_declare(part.name, part.type, durable=True, arguments=dict(part.arguments))
    elif isinstance(part, Queue):
        channel.queue_declare(part.name, durable=True, arguments=dict(part.arguments))
    elif part.kind is DestinationKind.QUEUE:
        channel.queue_bind(part.destination, part.source, part.routing_key, dict(part.arguments))
    else:
        channel.exchange_bind(part.destination, part.source, part.routing_key, dict(part.arguments))


def declared_until_then(declared: Sequence[Part]) -> str:
    """The part of an error's text that lists the remains of a failure."""
    if not declared:
        return "nothing had been declared until then"
    counts = [
        (sum(isinstance(part, kind) for part in declared), noun)
        for kind, noun in ((Exchange, "exchanges"), (Queue, "queues"), (Binding, "bindings"))
    ]
    listed = ", ".join(f"{count} {noun}" for count, noun in counts if count)
    return f"declared until then, and left so: {listed} (the last: {declared[-1]})"
