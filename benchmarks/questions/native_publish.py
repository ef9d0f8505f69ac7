"""Publishing into NServiceBus' cascade, against bare pika."""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial

from benchmarks.arena import Arena
from benchmarks.bench import BODY_BYTES
from benchmarks.cascades import BATCH, QUEUE, Cascade, cascade, delay_of
from benchmarks.peers.pipelined import PipelinedPublisher
from benchmarks.results import Measurement, Question, Rounds, per_second
from delaystore.message import DelayedMessage, new_message_id
from delaystore.transports.rabbitmq.topology import NSERVICEBUS_V2

BODY = b"x" * BODY_BYTES


def measure(arena: Arena, quick: bool) -> Measurement:
    count, rounds_wanted = (2_000, 1) if quick else (30_000, 5)
    rounds = Rounds()
    with cascade(arena, NSERVICEBUS_V2) as made:
        publisher = PipelinedPublisher(made.url)
        candidates: dict[str, Callable[[int], Callable[[], None]]] = {
            "bare pika": partial(_bare, made, publisher),
            "delaystore": partial(_ours, made),
        }
        for prepare in candidates.values():
            prepare(BATCH)()
        made.clear()
        for _ in range(rounds_wanted):
            for name, prepare in candidates.items():
                publish = prepare(count)
                began = time.perf_counter()
                publish()
                rounds.add(name, count / (time.perf_counter() - began))
                made.check(count)
                made.clear()
        publisher.close()
    return Measurement(
        figure=rounds.ratio("delaystore", "bare pika"),
        ours=per_second(rounds.median("delaystore")),
        peer=per_second(rounds.median("bare pika")),
        numbers=rounds.numbers,
        notes=[f"{count:,} messages, each its own delay; ours add NServiceBus' headers, bare pika sends none"],
    )


def _bare(made: Cascade, publisher: PipelinedPublisher, count: int) -> Callable[[], None]:
    """Keys are made before."""
    batch = [(new_message_id(), made.topology.route(delay_of(number), QUEUE), BODY) for number in range(count)]

    def publish() -> None:
        for first in range(0, count, BATCH):
            publisher.publish_to(batch[first : first + BATCH])

    return publish


def _ours(made: Cascade, count: int) -> Callable[[], None]:
    """Keys are made while publishing, as ever."""
    now = datetime.now(UTC)
    messages = [
        DelayedMessage(message_id=new_message_id(), destination=QUEUE, due_time=now + delay_of(number), body=BODY)
        for number in range(count)
    ]
    return lambda: made.send(messages)


QUESTION = Question(
    name="native-publish",
    title="publishing into NServiceBus' cascade, against bare pika's pipelined publishes",
    limit=0.7,
    measure=measure,
)
