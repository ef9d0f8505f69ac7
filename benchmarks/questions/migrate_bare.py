"""A store's messages into NServiceBus' cascade, against publishing alone by bare pika."""

import time

from benchmarks.arena import Arena
from benchmarks.cascades import BATCH, QUEUE, delay_of
from benchmarks.migrations import BODY, OURS, Removal, removal
from benchmarks.peers.pipelined import PipelinedPublisher
from benchmarks.results import Measurement, Question, Rounds, per_second
from delaystore.message import new_message_id

PEER = "bare pika"


def measure(arena: Arena, quick: bool) -> Measurement:
    count, rounds_wanted = (2_000, 1) if quick else (50_000, 5)
    rounds = Rounds()
    with removal(arena) as made:
        _bare(made, BATCH)
        for _ in range(rounds_wanted):
            rounds.add(PEER, _bare(made, count))
            rounds.add(OURS, _ours(made, count))
    return Measurement(
        figure=rounds.ratio(OURS, PEER),
        ours=per_second(rounds.median(OURS)),
        peer=per_second(rounds.median(PEER)),
        numbers=rounds.numbers,
        notes=[
            f"{count:,} messages, each its own delay; the peer has them in memory with their keys and sends no headers"
        ],
    )


def _ours(made: Removal, count: int) -> float:
    made.fill(count)
    began = time.perf_counter()
    made.run()
    seconds = time.perf_counter() - began
    made.cascade.check(count)
    made.clean_up()
    made.clear()
    return count / seconds


def _bare(made: Removal, count: int) -> float:
    """Keys are made before, and the connection."""
    topology = made.cascade.topology
    messages = [(new_message_id(), topology.route(delay_of(number), QUEUE), BODY) for number in range(count)]
    publisher = PipelinedPublisher(made.cascade.url)
    began = time.perf_counter()
    for first in range(0, count, BATCH):
        publisher.publish_to(messages[first : first + BATCH])
    seconds = time.perf_counter() - began
    publisher.close()
    made.cascade.check(count)
    made.cascade.clear()
    return count / seconds


QUESTION = Question(
    name="migrate-bare",
    title="migrate run into NServiceBus' cascade, against bare pika's pipelined publishes",
    limit=0.6,
    measure=measure,
)
