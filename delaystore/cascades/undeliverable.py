"""Messages without a destination: how many wait in the queue that catches them, and why."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from delaystore.cascades._broker_client import BrokerClient
from delaystore.cascades._snapshot import Snapshot
from delaystore.transports.rabbitmq.blocking import BlockingConnections
from delaystore.transports.rabbitmq.pika_errors import quiet_pika
from delaystore.transports.rabbitmq.queues import exists, ready_counts
from delaystore.transports.rabbitmq.topology.cascades import CascadeTopology
from delaystore.transports.rabbitmq.topology.layout import Exchange, Layout, Queue

FOREIGN: Final = "its routing key is none of this cascade"
_MISSING: Final = "no queue or exchange has this name"


@dataclass(frozen=True, slots=True)
class Undelivered:
    """Messages of one address in a sample. `address` None: their routing keys are not the cascade's."""

    address: str | None
    messages: int
    reason: str


@dataclass(frozen=True, slots=True)
class UndeliverableQueue:
    """A queue that catches messages without a destination. `messages`: in all. `sampled`: how many were read."""

    name: str
    messages: int
    sampled: int
    undelivered: Sequence[Undelivered]


def read_undeliverable(
    broker: BrokerClient,
    topology: CascadeTopology,
    name: str,
    sample: int,
    snapshot: Snapshot | None,
) -> UndeliverableQueue:
    """The queue `name`, and why messages in it are undeliverable; at most the first `sample` of them are read.

    `snapshot` None: there is no management API. Raises pika's ChannelClosedByBroker as `routing_keys` does.
    """
    state = None if snapshot is None else snapshot.queues.get(name)
    # the queue's own count is newer than the management API's
    (ready,) = ready_counts(broker.connections, [name])
    messages = max(ready or 0, (state and state.messages) or 0)
    keys = routing_keys(broker.connections, name, sample) if messages and sample else []

    def reason(key: str) -> str:
        if snapshot is None:
            return reason_by_amqp(topology, broker, key)
        return reason_by_snapshot(topology, snapshot, key)

    return UndeliverableQueue(name, messages, len(keys), _grouped(topology, keys, reason))


def _grouped(topology: CascadeTopology, keys: Iterable[str], reason: Callable[[str], str]) -> list[Undelivered]:
    """Messages of one address have one reason, whatever their delays."""
    examples: dict[str | None, str] = {}
    counts: Counter[str | None] = Counter()
    for key in keys:
        read = topology.read_key(key)
        address = None if read is None else read.address
        examples.setdefault(address, key)
        counts[address] += 1
    return [Undelivered(address, count, reason(examples[address])) for address, count in counts.most_common()]


def routing_keys(connections: BlockingConnections, queue: str, limit: int) -> list[str]:
    """The routing keys of the first messages of `queue`, `limit` at most. The messages stay in the queue.

    They go back when all have been read, or when the channel ends: in a classic queue to where they were, in a quorum
    queue to its end. Until then, other consumers of the queue get only later ones.
    Raises pika's ChannelClosedByBroker if there is no such queue, or no permission.
    """
    keys: list[str] = []
    with connections.channel() as channel, quiet_pika():
        last = None
        while len(keys) < limit:
            method, _, _ = channel.basic_get(queue)
            if method is None:
                break
            keys.append(method.routing_key)
            last = method.delivery_tag
        if last is not None:
            channel.basic_nack(last, multiple=True, requeue=True)
    return keys


def reason_by_snapshot(topology: CascadeTopology, snapshot: Snapshot, key: str) -> str:
    """Why the delivery exchange has no queue for a message with the routing key `key`.

    Only the key tells this of every message: one with a delay of 0 has passed no queue, and has no x-death header.
    """
    read = topology.read_key(key)
    if read is None:
        return FOREIGN
    if queues := _model(snapshot).queues_for(topology.delivery, key):
        return f"bound since: queue {queues[0]!r} would get it now; publish it again"
    taking = [one for one in snapshot.bindings if one.source == topology.delivery and one.takes("topic", key)]
    if taking:
        return f"exchange {taking[0].destination!r} is bound, and leads to no queue"
    if read.address in snapshot.queues:
        return f"the queue is not bound; {_bind(read.address, 'direct')}"
    if read.address in snapshot.exchanges:
        return f"the exchange is not bound; {_bind(read.address, 'conventional')}"
    return _MISSING


def reason_by_amqp(topology: CascadeTopology, broker: BrokerClient, key: str) -> str:
    """As `reason_by_snapshot`, but without the management API, and so without the bindings."""
    read = topology.read_key(key)
    if read is None:
        return FOREIGN
    if exists(broker.connections, Queue(read.address)):
        return f"the queue exists, but was not bound; {_bind(read.address, 'direct')}"
    if exists(broker.connections, Exchange(read.address)):
        return f"the exchange exists, but was not bound; {_bind(read.address, 'conventional')}"
    return _MISSING


def _model(snapshot: Snapshot) -> Layout:
    """All exchanges and bindings. Alternate exchanges are left out: they lead to no destination."""
    return Layout(exchanges=tuple(snapshot.routing()), bindings=tuple(snapshot.bindings))


def _bind(address: str, routing: str) -> str:
    return f"run delaystore delays bind {address} --routing {routing}"
