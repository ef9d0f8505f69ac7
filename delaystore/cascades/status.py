"""How a cascade is doing on a broker: how full its levels are, and which messages are undeliverable, stuck or
blocked.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from pika import exceptions

from delaystore.cascades.delivery_limits import delivery_limit
from delaystore.cascades.management import BrokerClient, Management
from delaystore.cascades.policies import undeliverable_name
from delaystore.cascades.snapshot import BrokerSnapshot, QueueState
from delaystore.errors import TransportError, TransportSetupError
from delaystore.transports.rabbitmq.blocking import BlockingConnections
from delaystore.transports.rabbitmq.pika_errors import quiet_pika, reason_of
from delaystore.transports.rabbitmq.queues import exists, queue_exists, ready_counts
from delaystore.transports.rabbitmq.topology.cascades import CascadeTopology
from delaystore.transports.rabbitmq.topology.layout import DestinationKind, Exchange, Layout, Queue

_REJECTING: Final = frozenset({"reject-publish", "reject-publish-dlx"})
_UNAVAILABLE: Final = frozenset({"down", "crashed", "stopped", "minority"})


@dataclass(frozen=True, slots=True)
class BlockedDestination:
    """A destination that confirms no message. `why`: for people, a predicate such as `is down`."""

    kind: DestinationKind
    name: str
    why: str


def blocked_destinations(delivery: str, snapshot: BrokerSnapshot) -> list[BlockedDestination]:
    """Queues behind the exchange `delivery` that are full or unavailable, and exchanges bound to it that lead nowhere.

    An exchange leads nowhere after its endpoint's queue was deleted, for instance. No alternate exchange of `delivery`
    catches its messages: they do have a destination.
    A queue is full at its maximum length if it rejects new messages; one that drops its oldest still confirms. Where
    an argument and a policy differ, the smaller length and the policy's overflow apply, as in the broker.
    """
    states = (snapshot.queues.get(name) for name in sorted(snapshot.queues_behind(delivery)))
    return [
        *(
            BlockedDestination(DestinationKind.QUEUE, queue.name, why)
            for queue in states
            if queue is not None
            for why in _whys(queue)
        ),
        *(
            BlockedDestination(DestinationKind.EXCHANGE, name, "leads to no queue")
            for name in sorted(_exchanges_bound_to(delivery, snapshot))
            if not snapshot.queues_behind(name) and snapshot.alternate_exchange(name) is None
        ),
    ]


def _exchanges_bound_to(exchange: str, snapshot: BrokerSnapshot) -> set[str]:
    return {
        one.destination for one in snapshot.bindings if one.source == exchange and one.kind is DestinationKind.EXCHANGE
    }


def _whys(queue: QueueState) -> Iterator[str]:
    if queue.state in _UNAVAILABLE:
        yield f"is {queue.state}"
    if next(iter(queue.given("overflow")), None) not in _REJECTING:
        return
    ready_only = queue.type == "classic"  # quorum queues count prefetched messages as well
    for setting, noun, present in (
        ("max-length", "messages", queue.ready if ready_only else queue.messages),
        ("max-length-bytes", "bytes", queue.ready_bytes if ready_only else queue.message_bytes),
    ):
        limit = min(queue.given(setting), default=None)
        if limit is not None and present is not None and present >= limit:
            yield f"is full and rejects: {present:,} {noun}, {setting} {limit:,}"


FRESH_AFTER: Final = 6.0
"""Seconds after which the management API has new figures: the broker takes them every 5."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """One level queue, and counts of its messages; None: unknown. `ttl`: milliseconds.

    `dead_lettering`: expired, and not yet confirmed by the next queue; `messages` includes them, `ready` does not.
    `published`: by channels, in all. `missing`: there is no such queue. `stuck`: expired messages do not leave.
    """

    number: int
    queue: str
    ttl: int
    missing: bool = False
    messages: int | None = None
    ready: int | None = None
    unacknowledged: int | None = None
    dead_lettering: int | None = None
    published: int = 0
    stuck: bool = False


def levels_by_snapshot(topology: CascadeTopology, snapshot: BrokerSnapshot) -> list[Level]:
    """All levels, the longest delay first."""
    return [_level_of_snapshot(level, snapshot) for level in _levels(topology)]


def levels_by_amqp(topology: CascadeTopology, connections: BlockingConnections) -> list[Level]:
    """All levels, the longest delay first. Passive declares tell how many messages are ready, and no more."""
    levels = _levels(topology)
    counts = ready_counts(connections, [level.queue for level in levels])
    return [replace(level, ready=ready, missing=ready is None) for level, ready in zip(levels, counts, strict=True)]


def watch_levels(
    topology: CascadeTopology, take: Callable[[], BrokerSnapshot], seconds: float, sleep: Callable[[float], object]
) -> tuple[list[Level], BrokerSnapshot]:
    """The levels, and the last snapshot that `take` returned.

    While any level has dead-lettering messages, further snapshots are taken, for about `seconds`. A level is stuck if
    no message has left it meanwhile, as far as its counts tell. A level that works has dead-lettering messages too, so
    one snapshot tells nothing of this.
    """
    snapshot = take()
    readings = [levels_by_snapshot(topology, snapshot)]
    passed = 0.0
    while passed < seconds and any(level.dead_lettering for level in readings[-1]):
        pause = min(FRESH_AFTER, seconds) if passed == 0 else FRESH_AFTER
        sleep(pause)
        passed += pause
        snapshot = take()
        readings.append(levels_by_snapshot(topology, snapshot))
    return [_judged(history, passed) for history in zip(*readings, strict=True)], snapshot


def _levels(topology: CascadeTopology) -> list[Level]:
    return [
        Level(number=number, queue=topology.level(number), ttl=topology.ttl(number))
        for number in reversed(range(topology.levels))
    ]


def _level_of_snapshot(level: Level, snapshot: BrokerSnapshot) -> Level:
    queue = snapshot.queues.get(level.queue)
    if queue is None:
        return replace(level, missing=True)
    return replace(
        level,
        messages=queue.messages,
        ready=queue.ready,
        unacknowledged=queue.unacknowledged,
        dead_lettering=queue.dead_lettering,
        published=queue.published,
    )


def _judged(history: Sequence[Level], seconds: float) -> Level:
    last = history[-1]
    if len(history) == 1 or not all(level.dead_lettering for level in history):
        return last
    return replace(last, stuck=_nothing_left(history, seconds))


def _nothing_left(history: Sequence[Level], seconds: float) -> bool:
    """Whether the counts of `history`, taken within `seconds`, look as if no message had left the level.

    That is so if three things are true. Its counts never fall. It has grown by at least half of the messages that
    channels have published to it: not all, since the broker counts messages and publishing at different times;
    messages from the level above are not counted as published. And if its time to live is at most three quarters of
    `seconds`, as many messages are dead-lettering in the last snapshot as were there in the first.
    """
    first, last = history[0], history[-1]
    dead_lettering = [level.dead_lettering or 0 for level in history]
    messages = [level.messages or 0 for level in history]
    growing = all(later >= earlier for counts in (dead_lettering, messages) for earlier, later in pairwise(counts))
    as_published = 2 * (messages[-1] - messages[0]) >= last.published - first.published
    all_expired = dead_lettering[-1] >= messages[0] or last.ttl > 750 * seconds
    return growing and as_published and all_expired


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
    snapshot: BrokerSnapshot | None,
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
    """Messages of one address have one reason, for all delays."""
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


def reason_by_snapshot(topology: CascadeTopology, snapshot: BrokerSnapshot, key: str) -> str:
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


def _model(snapshot: BrokerSnapshot) -> Layout:
    """All exchanges and bindings. Alternate exchanges are left out: they lead to no destination."""
    return Layout(exchanges=tuple(snapshot.routing()), bindings=tuple(snapshot.bindings))


def _bind(address: str, routing: str) -> str:
    return f"run delaystore cascade bind {address} --routing {routing}"


_UNKNOWN_BY_AMQP: Final = (
    "how many messages of the levels are unacknowledged or dead-lettering: no AMQP method counts them",
    "whether levels are stuck, and which destinations are full: only the management API shows that",
    "whether a policy leads messages without a destination to other queues: only the management API shows policies",
)
_NOT_CAUGHT: Final = (
    "which messages had no destination: no alternate exchange catches them, so that they are lost, or stay in their "
    "level; see delaystore cascade verify"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CascadeStatus:
    """How a cascade is doing.

    Attributes:
        broker: Host, port and virtual host.
        levels: Its levels, the longest delay first.
        undeliverable: Its queues for messages without a destination.
        blocked: Destinations that are full, unavailable, or lead nowhere.
        unknown: Facts that could not be found out, a sentence each.

    """

    broker: str
    levels: Sequence[Level]
    undeliverable: Sequence[UndeliverableQueue]
    blocked: Sequence[BlockedDestination]
    unknown: Sequence[str]

    @property
    def good(self) -> bool:
        """Whether nothing is undeliverable, stuck, blocked or missing, as far as could be known."""
        wrong = any(level.stuck or level.missing for level in self.levels)
        return not (wrong or self.blocked or any(queue.messages for queue in self.undeliverable))


def read_status(
    broker: BrokerClient,
    topology: CascadeTopology,
    *,
    sample: int,
    watch: float,
) -> CascadeStatus:
    """Report how the cascade is doing. Changes nothing except the order of an undeliverable queue; see `routing_keys`.

    Args:
        broker: The virtual host.
        topology: The cascade.
        sample: Maximum number of undeliverable messages that are read, to find the reasons.
        watch: Seconds for which levels with dead-lettering messages are watched, to see whether these leave. 0: they
            are not watched.

    Returns:
        The cascade's levels, undeliverable messages and blocked destinations.

    Raises:
        TransportSetupError: No part of the cascade exists, or may be looked up.
        TransportUnavailableError, TransportError: The broker does not answer.

    """
    try:
        if broker.management is None:
            return _by_amqp(broker, topology, sample)
        broker.check_same_cluster()
        return _by_management(broker, broker.management, topology, sample, watch)
    except exceptions.ChannelClosedByBroker as error:
        raise TransportError(f"a queue of the cascade cannot be read: {reason_of(error)}") from None


def _by_management(
    broker: BrokerClient,
    management: Management,
    topology: CascadeTopology,
    sample: int,
    watch: float,
) -> CascadeStatus:
    levels, snapshot = watch_levels(topology, management.snapshot, watch, time.sleep)
    _require_any(levels, topology)
    unknown: list[str] = []
    if not watch and any(level.dead_lettering for level in levels):
        unknown.append("whether dead-lettering messages leave their levels: that takes some seconds; see --watch")
    if any(level.messages is None and not level.missing for level in levels):
        unknown.append("how many messages some levels have: the broker has not counted yet")
    names = _undeliverable_queues(topology, snapshot)
    if names is None:
        unknown.append(_NOT_CAUGHT)
    queues, unread = _read_all(broker, topology, names or [], sample, snapshot)
    return CascadeStatus(
        broker=broker.label,
        levels=levels,
        undeliverable=queues,
        blocked=blocked_destinations(topology.delivery, snapshot),
        unknown=[*unknown, *unread],
    )


def _by_amqp(broker: BrokerClient, topology: CascadeTopology, sample: int) -> CascadeStatus:
    levels = levels_by_amqp(topology, broker.connections)
    _require_any(levels, topology)
    name = undeliverable_name(topology)
    names = [name] if name is not None and queue_exists(broker.connections, name) else []
    queues, unread = _read_all(broker, topology, names, sample, None)
    return CascadeStatus(
        broker=broker.label, levels=levels, undeliverable=queues, blocked=(), unknown=[*_UNKNOWN_BY_AMQP, *unread]
    )


def _require_any(levels: Iterable[Level], topology: CascadeTopology) -> None:
    if all(level.missing for level in levels):
        raise TransportSetupError(
            f"there is no queue {topology.level(0)!r}, nor any other of this cascade; check --cascade and the virtual "
            "host, or run delaystore cascade create"
        )


def _undeliverable_queues(topology: CascadeTopology, snapshot: BrokerSnapshot) -> list[str] | None:
    """The queues that catch messages without a destination. None: none does. Empty: none is needed."""
    if undeliverable_name(topology) is None:
        return []  # every message has a destination
    name = snapshot.alternate_exchange(topology.delivery)
    return None if name is None else sorted(snapshot.queues_behind(name) & snapshot.queues.keys())


def _read_all(
    broker: BrokerClient, topology: CascadeTopology, names: Iterable[str], sample: int, snapshot: BrokerSnapshot | None
) -> tuple[list[UndeliverableQueue], list[str]]:
    """The undeliverable queues, and a sentence for each whose messages must not be read."""
    queues: list[UndeliverableQueue] = []
    unread: list[str] = []
    for name in names:
        state = None if snapshot is None else snapshot.queues.get(name)
        policies = () if snapshot is None else snapshot.policies
        limit = delivery_limit(broker.version(), state, policies)
        try:
            queue = read_undeliverable(broker, topology, name, sample if limit is None else 0, snapshot)
        except (exceptions.ChannelClosedByBroker, TransportSetupError) as error:
            if state is None:
                raise
            queues.append(UndeliverableQueue(name, state.messages or 0, 0, ()))
            unread.append(f"why messages are undeliverable: {reason_of(error)}; grant this user read on {name!r}")
            continue
        queues.append(queue)
        if queue.messages and limit is not None:
            unread.append(
                f"why messages are undeliverable: reading queue {name!r} counts as a delivery, and its broker drops a "
                f"message after {limit}; {_how_to_lift(snapshot is None)}"
            )
    return queues, unread


def _how_to_lift(blindly: bool) -> str:
    """The remedy for a limit. `blindly`: there is no management API, which would tell whether it is lifted."""
    if blindly:
        return "unless a policy lifts that, which only the management API shows (--management URL)"
    return "delaystore cascade create sets the policy that lifts this"
