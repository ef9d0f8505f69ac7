"""Why a message has no destination, from its routing key and what the broker holds."""

from typing import Final

from delaystore.transports.rabbitmq.administration.broker import Administered
from delaystore.transports.rabbitmq.administration.comparing import Holdings
from delaystore.transports.rabbitmq.administration.declaring import exists
from delaystore.transports.rabbitmq.topology.cascade import CascadeTopology
from delaystore.transports.rabbitmq.topology.layout import Exchange, Layout, Queue

FOREIGN: Final = "its routing key is none of this cascade"
_MISSING: Final = "no queue or exchange has this name"


def reason_by_holdings(topology: CascadeTopology, holdings: Holdings, key: str) -> str:
    """Why the delivery exchange has no queue for a message with the routing key `key`, all bindings being known.

    A message whose delay is 0 has not passed any queue, and no x-death header: the key alone tells of every message.
    """
    read = topology.read_key(key)
    if read is None:
        return FOREIGN
    if queues := _model(holdings).queues_for(topology.delivery, key):
        return f"bound since: queue {queues[0]!r} would get it now; publish it again"
    taking = [one for one in holdings.bindings if one.source == topology.delivery and one.takes("topic", key)]
    if taking:
        return f"exchange {taking[0].destination!r} is bound, and leads to no queue"
    if read.address in holdings.queues:
        return f"the queue is not bound; {_bind(read.address, 'direct')}"
    if read.address in holdings.exchanges:
        return f"the exchange is not bound; {_bind(read.address, 'conventional')}"
    return _MISSING


def reason_by_amqp(topology: CascadeTopology, broker: Administered, key: str) -> str:
    """The same without a management API, which alone lists bindings."""
    read = topology.read_key(key)
    if read is None:
        return FOREIGN
    if exists(broker.connections, Queue(read.address)):
        return f"the queue is there, but was not bound; {_bind(read.address, 'direct')}"
    if exists(broker.connections, Exchange(read.address)):
        return f"the exchange is there, but was not bound; {_bind(read.address, 'conventional')}"
    return _MISSING


def _model(holdings: Holdings) -> Layout:
    """Without alternate exchanges: where those lead is no destination."""
    return Layout(
        exchanges=tuple(Exchange(one.name, one.type) for one in holdings.exchanges.values()),
        bindings=tuple(holdings.bindings),
    )


def _bind(address: str, routing: str) -> str:
    return f"run delaystore delays bind {address} --routing {routing}"
