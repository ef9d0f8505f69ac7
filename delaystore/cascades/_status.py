"""How a cascade is doing on a broker: how full its levels are, what is undeliverable, stuck or blocked."""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from pika import exceptions

from delaystore.cascades._blocked import BlockedDestination, blocked_destinations
from delaystore.cascades._broker_client import BrokerClient
from delaystore.cascades._management import Management
from delaystore.cascades._snapshot import Snapshot
from delaystore.cascades.delivery_limits import delivery_limit
from delaystore.cascades.levels import Level, levels_by_amqp, watch_levels
from delaystore.cascades.policies import undeliverable_name
from delaystore.cascades.undeliverable import UndeliverableQueue, read_undeliverable
from delaystore.errors import TransportError, TransportSetupError
from delaystore.transports.rabbitmq.pika_errors import reason_of
from delaystore.transports.rabbitmq.queues import queue_exists
from delaystore.transports.rabbitmq.topology.cascades import CascadeTopology

_UNKNOWN_BY_AMQP: Final = (
    "how many messages of the levels are unacknowledged or dead-lettering: no AMQP method counts them",
    "whether levels are stuck, and which destinations are full: only the management API shows that",
    "whether a policy leads messages without a destination elsewhere: only the management API shows policies",
)
_NOT_CAUGHT: Final = (
    "which messages had no destination: no alternate exchange catches them, so that they are lost, or stay in their "
    "level; see delaystore delays verify"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CascadeStatus:
    """A cascade on `broker` (host, port and virtual host). `levels`: the longest delay first.

    `blocked`: destinations that are full, unavailable, or lead nowhere. `unknown`: what could not be known, a sentence
    each.
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
    sleep: Callable[[float], object] = time.sleep,
) -> CascadeStatus:
    """How the cascade is doing. Changes nothing but the order of an undeliverable queue; see `routing_keys`.

    `sample`: how many undeliverable messages are read, to tell why. `watch`: for how many seconds levels with
    dead-lettering messages are watched, to see whether they leave. 0: not at all.
    Raises TransportSetupError where no part of the cascade exists or may be looked up, TransportUnavailableError,
    TransportError.
    """
    try:
        if broker.management is None:
            return _by_amqp(broker, topology, sample)
        broker.check_same_cluster()
        return _by_management(broker, broker.management, topology, sample, watch, sleep)
    except exceptions.ChannelClosedByBroker as error:
        raise TransportError(f"a queue of the cascade cannot be read: {reason_of(error)}") from None


def _by_management(
    broker: BrokerClient,
    management: Management,
    topology: CascadeTopology,
    sample: int,
    watch: float,
    sleep: Callable[[float], object],
) -> CascadeStatus:
    levels, snapshot = watch_levels(topology, management.snapshot, watch, sleep)
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
            "host, or run delaystore delays create"
        )


def _undeliverable_queues(topology: CascadeTopology, snapshot: Snapshot) -> list[str] | None:
    """The queues that catch messages without a destination. None: none does. Empty: none is needed."""
    if undeliverable_name(topology) is None:
        return []  # every message has a destination
    name = snapshot.alternate_exchange(topology.delivery)
    return None if name is None else sorted(snapshot.queues_behind(name) & snapshot.queues.keys())


def _read_all(
    broker: BrokerClient, topology: CascadeTopology, names: Iterable[str], sample: int, snapshot: Snapshot | None
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
    """What to do about a limit. `blindly`: there is no management API, which would tell whether it is lifted."""
    if blindly:
        return "unless a policy lifts that, which only the management API shows (--management URL)"
    return "delaystore delays create sets the policy that lifts this"
