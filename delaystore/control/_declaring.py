"""Declaring a control queue, and what belongs to it."""

from typing import Final

from delaystore.control._names import ControlNames
from delaystore.transports.rabbitmq.blocking import BlockingConnections
from delaystore.transports.rabbitmq.declaring import declare
from delaystore.transports.rabbitmq.existence import missing, surely_missing
from delaystore.transports.rabbitmq.parameters import Broker
from delaystore.transports.rabbitmq.queues import declare_queue
from delaystore.transports.rabbitmq.topology.layout import Binding, DestinationKind, Exchange, Layout, Queue

_TYPE: Final = "quorum"


def declare_control(broker: Broker, connections: BlockingConnections, names: ControlNames) -> None:
    """Create the queues and the exchange that do not exist; what exists stays as it is.

    `broker`: the one that `connections` lead to. A rejected queue that says nothing is taken to be there.
    A request goes back to its queue whenever a process dies, and no delivery limit may drop it for that.
    Raises TransportSetupError, TransportUnavailableError.
    """
    exchange = Exchange(names.exchange, "fanout")
    gone = missing(connections, [exchange, Queue(names.queue)])
    if Queue(names.queue) in gone:
        declare_queue(connections, names.queue, _TYPE, lift_limit=True)
    if surely_missing(broker, names.rejected):
        declare_queue(connections, names.rejected, _TYPE, lift_limit=True)
    if exchange in gone or Queue(names.queue) in gone:
        binding = Binding(names.exchange, names.queue, DestinationKind.QUEUE)
        declare(connections, Layout(exchanges=(exchange,) if exchange in gone else (), bindings=(binding,)))
