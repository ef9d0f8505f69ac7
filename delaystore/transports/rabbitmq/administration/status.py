"""How a cascade is doing on a broker: how full its levels are, what came to nobody, and what is stuck."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from pika import exceptions

from delaystore.errors import TransportError, TransportSetupError
from delaystore.transports.rabbitmq.administration.blocked import (
    BlockedDestination,
    blocked_destinations,
    queues_behind,
)
from delaystore.transports.rabbitmq.administration.broker import Administered
from delaystore.transports.rabbitmq.administration.comparing import Holdings
from delaystore.transports.rabbitmq.administration.declaring import queue_exists
from delaystore.transports.rabbitmq.administration.inspecting import read_holdings
from delaystore.transports.rabbitmq.administration.levels import Level, levels_by_amqp, watched
from delaystore.transports.rabbitmq.administration.peeking import delivery_limit, routing_keys
from delaystore.transports.rabbitmq.administration.policies import alternate_exchange, undeliverable_name
from delaystore.transports.rabbitmq.administration.undelivered import reason_by_amqp, reason_by_holdings
from delaystore.transports.rabbitmq.held import QueueState
from delaystore.transports.rabbitmq.management import Management
from delaystore.transports.rabbitmq.reasons import reason_of
from delaystore.transports.rabbitmq.topology.cascade import CascadeTopology

_BY_AMQP: Final = (
    "what is unacknowledged or held in the levels: no AMQP method counts it",
    "whether levels are stuck, and which destinations are full: only the management API shows that",
    "whether a policy leads what has no destination elsewhere: only the management API shows policies",
)


@dataclass(frozen=True, slots=True)
class Undelivered:
    """Messages of one address in a sample. `address` None: their routing keys are none of the cascade."""

    address: str | None
    messages: int
    reason: str


@dataclass(frozen=True, slots=True)
class UndeliverableQueue:
    """Where messages without a destination are. `messages`: in all. `sampled`: how many were looked at."""

    name: str
    messages: int
    sampled: int
    undelivered: Sequence[Undelivered]


@dataclass(frozen=True, slots=True, kw_only=True)
class CascadeStatus:
    """A cascade on `broker` (host, port and virtual host). `levels`: the longest first.

    `blocked`: destinations that are full, unavailable, or lead nowhere. `unknown`: what could not be known,
    a sentence each.
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
    broker: Administered,
    topology: CascadeTopology,
    *,
    sample: int,
    watch: float,
    sleep: Callable[[float], object] = time.sleep,
) -> CascadeStatus:
    """How the cascade is doing; nothing is changed, but see `peeking.routing_keys` for the order of a queue.

    `sample`: how many undeliverable messages are looked at to tell why. `watch`: seconds for which levels that hold
    expired messages are looked at, to see whether these leave; 0: once.
    Raises TransportSetupError where nothing of the cascade is there, or may not be looked at,
    TransportUnavailableError, TransportError.
    """
    try:
        if broker.management is None:
            return _by_amqp(broker, topology, sample)
        broker.check_same_cluster()
        return _by_management(broker, broker.management, topology, sample, watch, sleep)
    except exceptions.ChannelClosedByBroker as error:
        raise TransportError(f"a queue of the cascade cannot be looked at: {reason_of(error)}") from None


def _by_management(
    broker: Administered,
    management: Management,
    topology: CascadeTopology,
    sample: int,
    watch: float,
    sleep: Callable[[float], object],
) -> CascadeStatus:
    levels, holdings = watched(topology, partial(read_holdings, management), watch, sleep)
    _check_any(levels, topology)
    unknown: list[str] = []
    if not watch and any(level.held for level in levels):
        unknown.append("whether what is held leaves: that takes more than one look; see --watch")
    if any(level.messages is None and not level.missing for level in levels):
        unknown.append("how many messages some levels have: the broker has not counted yet")
    reason = partial(reason_by_holdings, topology, holdings)
    queues = [
        _look_into(broker, topology, name, sample, reason, unknown, holdings.queues.get(name))
        for name in _undeliverable_queues(topology, holdings, unknown)
    ]
    return CascadeStatus(
        broker=broker.broker.label,
        levels=levels,
        undeliverable=queues,
        blocked=blocked_destinations(topology.delivery, holdings),
        unknown=unknown,
    )


def _by_amqp(broker: Administered, topology: CascadeTopology, sample: int) -> CascadeStatus:
    levels = levels_by_amqp(topology, broker.connections)
    _check_any(levels, topology)
    unknown = list(_BY_AMQP)
    name = undeliverable_name(topology)
    queues = []
    if name is not None and queue_exists(broker.connections, name):
        reason = partial(reason_by_amqp, topology, broker)
        queues.append(_look_into(broker, topology, name, sample, reason, unknown, None))
    return CascadeStatus(broker=broker.broker.label, levels=levels, undeliverable=queues, blocked=(), unknown=unknown)


def _check_any(levels: Iterable[Level], topology: CascadeTopology) -> None:
    if all(level.missing for level in levels):
        raise TransportSetupError(
            f"there is no queue {topology.level(0)!r}, nor any other of this cascade; check --cascade and the virtual "
            "host, or run delaystore delays create"
        )


def _undeliverable_queues(topology: CascadeTopology, holdings: Holdings, unknown: list[str]) -> list[str]:
    if undeliverable_name(topology) is None:
        return []  # everything has a destination
    name = alternate_exchange(topology, holdings)
    if name is None:
        unknown.append(
            "what had no destination: no alternate exchange catches it, so that it is lost, or held in its level; "
            "see delaystore delays verify"
        )
        return []
    return sorted(queues_behind(name, holdings) & holdings.queues.keys())


def _look_into(
    broker: Administered,
    topology: CascadeTopology,
    name: str,
    sample: int,
    reason: Callable[[str], str],
    unknown: list[str],
    state: QueueState | None,
) -> UndeliverableQueue:
    with broker.connections.channel() as channel:  # its own count, newer than the management API's
        messages = max(channel.queue_declare(name, passive=True).method.message_count, (state and state.messages) or 0)
    limit = delivery_limit(broker.version(), state)
    keys: list[str] = []
    if messages and limit is not None:
        unknown.append(
            f"why messages are undeliverable: a look at queue {name!r} counts as a delivery, and its broker drops a "
            f"message after {limit}; set the policy delivery-limit -1 for it, or look with a consumer of your own"
        )
    elif messages:
        keys = routing_keys(broker.connections, name, sample)
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
