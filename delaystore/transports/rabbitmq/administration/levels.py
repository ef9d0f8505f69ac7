"""How full the levels of a cascade are."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final

from pika import exceptions

from delaystore.transports.rabbitmq.administration.comparing import Holdings
from delaystore.transports.rabbitmq.administration.declaring import NOT_FOUND
from delaystore.transports.rabbitmq.blocking import BlockingConnections
from delaystore.transports.rabbitmq.logs import quiet_pika
from delaystore.transports.rabbitmq.topology.cascade import CascadeTopology

FRESH_AFTER: Final = 6.0
"""Seconds after which the management API has other figures: the broker takes them every 5."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """One level queue. `ttl`: milliseconds. Numbers are of messages; None: not known.

    `held`: their time is over, and the next queue has not confirmed them; `messages` includes them, no AMQP method
    does. `published`: by channels, ever. `stuck`: nothing leaves.
    """

    number: int
    queue: str
    ttl: int
    missing: bool = False
    messages: int | None = None
    ready: int | None = None
    unacknowledged: int | None = None
    held: int | None = None
    published: int = 0
    stuck: bool = False


def levels_by_holdings(topology: CascadeTopology, holdings: Holdings) -> list[Level]:
    """All levels, the longest first."""
    return [_level_held(level, holdings) for level in _levels(topology)]


def levels_by_amqp(topology: CascadeTopology, connections: BlockingConnections) -> list[Level]:
    """All levels, as passive declares tell: what is ready, and no more."""
    return [_level_declared(level, connections) for level in _levels(topology)]


def watched(
    topology: CascadeTopology, look: Callable[[], Holdings], seconds: float, sleep: Callable[[float], object]
) -> tuple[list[Level], Holdings]:
    """The levels, looked at again for so long if any holds expired messages, and what was held at the last look.

    Stuck is a level that nothing has left meanwhile, as far as its figures go; one look tells nothing of that.
    A level that passes messages on holds some as well, so that holding some is no sign by itself.
    """
    holdings = look()
    looks = [levels_by_holdings(topology, holdings)]
    passed = 0.0
    while passed < seconds and any(level.held for level in looks[-1]):
        pause = min(FRESH_AFTER, seconds) if passed == 0 else FRESH_AFTER
        sleep(pause)
        passed += pause
        holdings = look()
        looks.append(levels_by_holdings(topology, holdings))
    return [_judged(history, passed) for history in zip(*looks, strict=True)], holdings


def _levels(topology: CascadeTopology) -> list[Level]:
    return [
        Level(number=number, queue=topology.level(number), ttl=topology.ttl(number))
        for number in reversed(range(topology.levels))
    ]


def _level_held(level: Level, holdings: Holdings) -> Level:
    queue = holdings.queues.get(level.queue)
    if queue is None:
        return replace(level, missing=True)
    return replace(
        level,
        messages=queue.messages,
        ready=queue.ready,
        unacknowledged=queue.unacknowledged,
        held=queue.dead_lettering,
        published=queue.published,
    )


def _level_declared(level: Level, connections: BlockingConnections) -> Level:
    try:
        with connections.channel() as channel, quiet_pika():
            answer: Any = channel.queue_declare(level.queue, passive=True)
    except exceptions.ChannelClosedByBroker as error:
        if error.reply_code != NOT_FOUND:
            raise
        return replace(level, missing=True)
    return replace(level, ready=answer.method.message_count)


def _judged(history: Sequence[Level], seconds: float) -> Level:
    last = history[-1]
    if len(history) == 1 or not all(level.held for level in history):
        return last
    return replace(last, stuck=_nothing_left(history, seconds))


def _nothing_left(history: Sequence[Level], seconds: float) -> bool:
    """Whether the figures of `history`, taken within `seconds`, are such as if no message had left the level.

    Then it grows by what comes in, by more than channels publish to it: what the level above hands down is not
    counted. The broker counts messages at other times than publishing, hence the half. And what is there at the
    first look has expired at the last, if its time to live is within three quarters of the time between them.
    """
    first, last = history[0], history[-1]
    held, messages = ([getattr(level, name) or 0 for level in history] for name in ("held", "messages"))
    growing = all(later >= earlier for figures in (held, messages) for earlier, later in pairwise(figures))
    as_published = 2 * (messages[-1] - messages[0]) >= last.published - first.published
    all_expired = held[-1] >= messages[0] or last.ttl > 750 * seconds
    return growing and as_published and all_expired
