"""Declaring a layout, thing by thing, by AMQP alone."""

from collections.abc import Callable, Sequence
from typing import Any, Final

from pika import exceptions

from delaystore.errors import TransportSetupError, TransportUnavailableError
from delaystore.transports.rabbitmq.blocking import BlockingConnections
from delaystore.transports.rabbitmq.logs import quiet_pika
from delaystore.transports.rabbitmq.reasons import reason_of
from delaystore.transports.rabbitmq.topology.cascade import CascadeTopology, Routing
from delaystore.transports.rabbitmq.topology.layout import Binding, DestinationKind, Exchange, Layout, Queue

Part = Exchange | Queue | Binding
NOT_FOUND: Final = 404


class DeclarationError(TransportSetupError):
    """A part of a layout that the broker would not take; `declared` holds those it took before, in their order.

    Some may have been there already: declaring them again makes no difference.
    """

    def __init__(self, failed: Part, reason: str, declared: Sequence[Part]) -> None:
        self.failed = failed
        self.reason = reason
        self.declared = tuple(declared)
        super().__init__(f"{named(failed)} cannot be declared: {reason}; {declared_until_then(declared)}")

    def __reduce__(self) -> tuple[type["DeclarationError"], tuple[Part, str, Sequence[Part]]]:
        return type(self), (self.failed, self.reason, self.declared)


def ensure_declared(connections: BlockingConnections, topology: CascadeTopology) -> None:
    """Declare everything the cascade itself consists of; what is there already, and equal, stays as it is.

    Raises DeclarationError (a TransportSetupError) naming what failed, why, and what had been declared until then;
    TransportUnavailableError.
    """
    declare(connections, topology.layout())


def ensure_bound(connections: BlockingConnections, topology: CascadeTopology, destination: str) -> bool:
    """Bind the queue `destination` to the cascade's end; False: there is no such queue.

    Raises UnsupportedMessageError for a name that does not fit a routing key, TransportSetupError where the cascade
    is missing or the user may not bind, TransportUnavailableError.
    """
    bindings = topology.destination_bindings(destination, Routing.DIRECT)
    if not queue_exists(connections, destination):
        return False
    try:
        declare(connections, Layout(bindings=bindings))
    except DeclarationError as error:
        if not queue_exists(connections, destination):  # deleted meanwhile
            return False
        raise TransportSetupError(
            f"queue {destination!r} cannot be bound to {topology.delivery!r}: {error.reason}; "
            "run delaystore delays create, or grant write on the queue and read on the exchange"
        ) from None
    return True


def declare(
    connections: BlockingConnections, layout: Layout, on_declared: Callable[[Part], object] = lambda _part: None
) -> None:
    """Declare all of `layout` in its order, calling `on_declared` after each part; raises as `ensure_declared`."""
    declared: list[Part] = []
    with connections.channel() as channel:
        for part in parts(layout):
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


def parts(layout: Layout) -> list[Part]:
    """Everything in the layout, in the order in which it can be declared."""
    return [*things(layout), *layout.bindings]


def things(layout: Layout) -> list[Exchange | Queue]:
    """The exchanges and queues in the layout."""
    return [*layout.exchanges, *layout.queues]


def declare_part(channel: Any, part: Part) -> None:
    """Declare one thing; pika's errors pass through."""
    if isinstance(part, Exchange):
        channel.exchange_declare(part.name, part.type, durable=True, arguments=dict(part.arguments))
    elif isinstance(part, Queue):
        channel.queue_declare(part.name, durable=True, arguments=dict(part.arguments))
    elif part.kind is DestinationKind.QUEUE:
        channel.queue_bind(part.destination, part.source, part.routing_key)
    else:
        channel.exchange_bind(part.destination, part.source, part.routing_key)


def queue_exists(connections: BlockingConnections, name: str) -> bool:
    """Whether there is a queue of that name; raises TransportSetupError where the broker will not say."""
    return exists(connections, Queue(name))


def exchange_exists(connections: BlockingConnections, name: str) -> bool:
    """Whether there is an exchange of that name; raises TransportSetupError where the broker will not say."""
    return exists(connections, Exchange(name))


def exists(connections: BlockingConnections, part: Exchange | Queue) -> bool:
    """Whether there is an exchange or queue of that name; raises TransportSetupError where the broker will not say."""
    try:
        with connections.channel() as channel, quiet_pika():
            if isinstance(part, Exchange):
                channel.exchange_declare(part.name, passive=True)
            else:
                channel.queue_declare(part.name, passive=True)
    except exceptions.ChannelClosedByBroker as error:
        if error.reply_code == NOT_FOUND:
            return False
        raise TransportSetupError(f"{named(part)} cannot be looked up: {reason_of(error)}") from None
    return True


def named(part: Part) -> str:
    """`part` for people."""
    if isinstance(part, Exchange):
        return f"exchange {part.name!r}"
    if isinstance(part, Queue):
        return f"queue {part.name!r}"
    return f"binding {part.routing_key!r} from exchange {part.source!r} to {part.kind} {part.destination!r}"


def declared_until_then(declared: Sequence[Part]) -> str:
    """What a failure leaves behind."""
    if not declared:
        return "nothing had been declared until then"
    counts = [
        (sum(isinstance(part, kind) for part in declared), noun)
        for kind, noun in ((Exchange, "exchanges"), (Queue, "queues"), (Binding, "bindings"))
    ]
    listed = ", ".join(f"{count} {noun}" for count, noun in counts if count)
    return f"declared until then, and left so: {listed} (the last: {named(declared[-1])})"
