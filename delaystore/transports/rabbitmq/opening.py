"""Opening a blocking connection to one of a broker's nodes."""

from typing import Final

from pika import exceptions
from pika.adapters.utils.connection_workflow import AMQPConnectorException

from delaystore.errors import TransportUnavailableError
from delaystore.transports.rabbitmq.nodes import Node, nodes_of, told
from delaystore.transports.rabbitmq.parameters import Broker
from delaystore.transports.rabbitmq.pika_errors import quiet_pika, reason_of
from delaystore.transports.rabbitmq.pika_internals import PunctualConnection

_NOT_CONNECTED: Final = (exceptions.AMQPError, AMQPConnectorException, OSError)
"""What pika raises where there is no connection to be had."""


def open_connection(
    broker: Broker,
    *,
    first: Node | None = None,
    last: Node | None = None,
    answer: float | None = None,
    decoded: bool = False,
    **parameters: int,
) -> PunctualConnection:
    """A connection to one of the broker's nodes, tried in turn; its `node` says which.

    `first`, `last`: see `Nodes.in_turn`. `answer`: see PunctualConnection. `decoded`: messages have pika's
    properties. `parameters`: of pika, in place of the broker's. Raises TransportUnavailableError, which says for
    each node why it could not be reached.
    """
    nodes = nodes_of(broker)
    failures = list(nodes.unknown.items())
    turn = nodes.in_turn(first=first, last=last)
    for node in turn:
        attempt = node.parameters(last=node is turn[-1], **parameters)
        try:
            with quiet_pika():
                return PunctualConnection(attempt, node, answer=answer, decoded=decoded)
        except _NOT_CONNECTED as error:
            failures.append((node.label, reason_of(error, attempt.stack_timeout)))
    raise TransportUnavailableError(f"RabbitMQ at {broker.label} cannot be reached: {told(failures)}")
