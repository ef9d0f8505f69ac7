"""`cascade migrate`, against one basic.get, confirmed publish and acknowledgement at a time."""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

import pika

from benchmarks.arena import Arena
from benchmarks.bench import BODY_BYTES
from benchmarks.peers.one_at_a_time import migrate_one_at_a_time
from benchmarks.results import Measurement, Question, Rounds, per_second
from delaystore.calls import unwatched
from delaystore.cascades.moving.broker_cascade import BrokerCascade
from delaystore.cascades.moving.mover import MoveSettings, move
from delaystore.message import new_message_id
from delaystore.transports.rabbitmq.declaring import declare
from delaystore.transports.rabbitmq.delay_headers import DELAY_IN_SECONDS, TIME_SENT, time_sent_text
from delaystore.transports.rabbitmq.topology import NSERVICEBUS_V1, NSERVICEBUS_V2

OURS: Final = "cascade migrate"
PEER: Final = "one at a time"
DESTINATION: Final = "bench"
SOONEST: Final = 5000
"""Seconds, so that nothing falls due meanwhile; the longest delay is a year."""
SPREAD: Final = 31_536_000


def measure(arena: Arena, quick: bool) -> Measurement:
    count, fewer, rounds_wanted = (2_000, 300, 1) if quick else (100_000, 3_000, 3)
    rounds = Rounds()
    for _ in range(rounds_wanted):
        rounds.add(PEER, _rate(arena, fewer, _one_at_a_time))
        rounds.add(OURS, _rate(arena, count, _ours))
    return Measurement(
        figure=rounds.ratio(OURS, PEER),
        ours=per_second(rounds.median(OURS)),
        peer=per_second(rounds.median(PEER)),
        numbers=rounds.numbers,
        notes=[f"{count:,} messages, the peer {fewer:,}; ours with the second it waits for stragglers at the end"],
    )


def _rate(arena: Arena, count: int, migrate: Callable[[str, int], int]) -> float:
    """Messages a second from v1 to v2, both in a virtual host of their own."""
    url = arena.rabbitmq.create_vhost()
    try:
        _fill(url, count)
        began = time.perf_counter()
        moved = migrate(url, count)
        seconds = time.perf_counter() - began
    finally:
        arena.rabbitmq.delete_vhost(url)
    if moved != count:
        raise RuntimeError(f"{moved} of {count} messages were moved")
    return count / seconds


def _fill(url: str, count: int) -> None:
    with (
        BrokerCascade(url, NSERVICEBUS_V1, "nservicebus-v1") as source,
        BrokerCascade(url, NSERVICEBUS_V2, "nservicebus-v2") as target,
    ):
        declare(source.connections, source.cascade.layout().parts)
        declare(target.connections, target.cascade.layout().parts)
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    channel.queue_declare(DESTINATION, durable=True, arguments={"x-queue-type": "quorum"})
    sent = time_sent_text(datetime.now(UTC))
    for number in range(count):
        delay = SOONEST + number * 7919 % SPREAD
        to = NSERVICEBUS_V1.route(delay, DESTINATION)
        properties = pika.BasicProperties(
            message_id=new_message_id(), delivery_mode=2, headers={TIME_SENT: sent, DELAY_IN_SECONDS: delay}
        )
        channel.basic_publish(to.exchange, to.routing_key, b"x" * BODY_BYTES, properties)
    connection.close()
    _await_arrival(url, count)


def _await_arrival(url: str, count: int) -> None:
    """Until the broker has worked off what was published: it should not be doing so while somebody is measured."""
    with BrokerCascade(url, NSERVICEBUS_V1, "nservicebus-v1") as source:
        for _ in range(600):
            if sum(source.ready()) == count:
                return
            time.sleep(0.1)
    raise RuntimeError(f"{count} messages were published, and {sum(source.ready())} arrived")


def _one_at_a_time(url: str, count: int) -> int:
    return migrate_one_at_a_time(url, NSERVICEBUS_V1, NSERVICEBUS_V2, count)


def _ours(url: str, _count: int) -> int:
    with (
        BrokerCascade(url, NSERVICEBUS_V1, "nservicebus-v1") as source,
        BrokerCascade(url, NSERVICEBUS_V2, "nservicebus-v2") as target,
    ):
        return move(source, target, MoveSettings(), unwatched, lambda: False).moved


QUESTION = Question(
    name="delays-migrate",
    title="cascade migrate, against one basic.get, publish and ack at a time",
    limit=8,
    measure=measure,
)
