"""Destinations that take no messages at the moment, and so block the levels of at-least-once cascades."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from delaystore.cascades._snapshot import QueueState, Snapshot
from delaystore.transports.rabbitmq.topology.layout import DestinationKind

_REJECTING: Final = frozenset({"reject-publish", "reject-publish-dlx"})
_UNAVAILABLE: Final = frozenset({"down", "crashed", "stopped", "minority"})


@dataclass(frozen=True, slots=True)
class BlockedDestination:
    """A destination that confirms no message. `why`: for people, a predicate such as `is down`."""

    kind: DestinationKind
    name: str
    why: str


def blocked_destinations(delivery: str, snapshot: Snapshot) -> list[BlockedDestination]:
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


def _exchanges_bound_to(exchange: str, snapshot: Snapshot) -> set[str]:
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
