"""Destinations that take no messages at the moment, and so hold up the levels of at-least-once cascades."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from delaystore.transports.rabbitmq.administration.comparing import Holdings
from delaystore.transports.rabbitmq.held import QueueState
from delaystore.transports.rabbitmq.topology.layout import ALTERNATE_EXCHANGE, DestinationKind

_REJECTING: Final = frozenset({"reject-publish", "reject-publish-dlx"})
_UNAVAILABLE: Final = frozenset({"down", "crashed", "stopped", "minority"})


@dataclass(frozen=True, slots=True)
class BlockedDestination:
    """A destination that confirms nothing. `why`: for people."""

    kind: DestinationKind
    name: str
    why: str


def blocked_destinations(delivery: str, holdings: Holdings) -> list[BlockedDestination]:
    """The queues that `delivery` leads to, directly or through other exchanges, and that are full or unavailable.

    And the exchanges that it leads to, and that lead nowhere, as where an endpoint's queue was deleted: no alternate
    exchange of `delivery` catches what is meant for these, for there it has a destination.
    Full is a queue at its maximum length that rejects what is published; one that drops its head confirms. As the
    broker does: of an argument and a policy, the smaller length applies, and the policy's overflow.
    """
    states = (holdings.queues.get(name) for name in sorted(queues_behind(delivery, holdings)))
    return [
        *(
            BlockedDestination(DestinationKind.QUEUE, queue.name, why)
            for queue in states
            if queue is not None
            for why in _whys(queue)
        ),
        *(
            BlockedDestination(DestinationKind.EXCHANGE, name, "leads to no queue")
            for name in sorted(_exchanges_bound_to(delivery, holdings))
            if not queues_behind(name, holdings) and not _has_alternate(name, holdings)
        ),
    ]


def queues_behind(exchange: str, holdings: Holdings) -> set[str]:
    """All queues that some message of `exchange` may come to; alternate exchanges are not followed."""
    found: set[str] = set()
    passed: set[str] = set()
    waiting = {exchange}
    while waiting:
        passed |= waiting
        ahead = [one for one in holdings.bindings if one.source in waiting]
        found |= {one.destination for one in ahead if one.kind is DestinationKind.QUEUE}
        waiting = {one.destination for one in ahead if one.kind is DestinationKind.EXCHANGE} - passed
    return found


def _exchanges_bound_to(exchange: str, holdings: Holdings) -> set[str]:
    return {
        one.destination for one in holdings.bindings if one.source == exchange and one.kind is DestinationKind.EXCHANGE
    }


def _has_alternate(name: str, holdings: Holdings) -> bool:
    exchange = holdings.exchanges.get(name)
    if exchange is None:
        return False
    by_policy = (one.definition for one in holdings.policies if one.name == exchange.policy)
    return any(ALTERNATE_EXCHANGE in one for one in (exchange.arguments, *by_policy))


def _whys(queue: QueueState) -> Iterator[str]:
    if queue.state in _UNAVAILABLE:
        yield f"is {queue.state}"
    if _setting(queue, "overflow") not in _REJECTING:
        return
    classic = queue.type == "classic"  # which counts what is ready only
    for setting, noun, held in (
        ("max-length", "messages", queue.ready if classic else queue.messages),
        ("max-length-bytes", "bytes", queue.ready_bytes if classic else queue.message_bytes),
    ):
        limit = _limit(queue, setting)
        if limit is not None and held is not None and held >= limit:
            yield f"is full and rejects: {held:,} {noun}, {setting} {limit:,}"


def _setting(queue: QueueState, name: str) -> Any:
    return queue.policy_definition.get(name, queue.arguments.get(f"x-{name}"))


def _limit(queue: QueueState, name: str) -> int | None:
    given = (queue.policy_definition.get(name), queue.arguments.get(f"x-{name}"))
    return min((limit for limit in given if limit is not None), default=None)
