"""How full the levels of a cascade are, and whether messages leave them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from delaystore.cascades._snapshot import Snapshot
from delaystore.transports.rabbitmq.blocking import BlockingConnections
from delaystore.transports.rabbitmq.queues import ready_counts
from delaystore.transports.rabbitmq.topology.cascades import CascadeTopology

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


def levels_by_snapshot(topology: CascadeTopology, snapshot: Snapshot) -> list[Level]:
    """All levels, the longest delay first."""
    return [_level_of_snapshot(level, snapshot) for level in _levels(topology)]


def levels_by_amqp(topology: CascadeTopology, connections: BlockingConnections) -> list[Level]:
    """All levels, the longest delay first. Passive declares tell how many messages are ready, and no more."""
    levels = _levels(topology)
    counts = ready_counts(connections, [level.queue for level in levels])
    return [replace(level, ready=ready, missing=ready is None) for level, ready in zip(levels, counts, strict=True)]


def watch_levels(
    topology: CascadeTopology, take: Callable[[], Snapshot], seconds: float, sleep: Callable[[float], object]
) -> tuple[list[Level], Snapshot]:
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


def _level_of_snapshot(level: Level, snapshot: Snapshot) -> Level:
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

    That is so if three things are true. Its counts never fall. It has grown by at least half of what channels have
    published to it: not all, since the broker counts messages and publishing at different times; what the level above
    hands down is not counted as published. And if its time to live is at most three quarters of `seconds`, as many
    messages are dead-lettering in the last snapshot as were there in the first.
    """
    first, last = history[0], history[-1]
    dead_lettering = [level.dead_lettering or 0 for level in history]
    messages = [level.messages or 0 for level in history]
    growing = all(later >= earlier for counts in (dead_lettering, messages) for earlier, later in pairwise(counts))
    as_published = 2 * (messages[-1] - messages[0]) >= last.published - first.published
    all_expired = dead_lettering[-1] >= messages[0] or last.ttl > 750 * seconds
    return growing and as_published and all_expired
