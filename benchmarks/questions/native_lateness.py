"""Lateness of a burst: our store and direct dispatch, beside RabbitMQ's cascades."""

import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta

from benchmarks.arena import Arena
from benchmarks.bench import BODY_BYTES, DUE
from benchmarks.cascades import BATCH, QUEUE, cascade
from benchmarks.lateness import GRACE, LEAD, Lateness, measure_lateness, summary
from benchmarks.lateness_rounds import note, shown
from benchmarks.programs import OURS, ROOT
from benchmarks.results import Measurement, Question, Rounds
from delaystore.message import DelayedMessage, new_message_id
from delaystore.transports.rabbitmq.topology import NSERVICEBUS_V2, SKIPPING, CascadeTopology

CASCADES = {"v2 cascade": NSERVICEBUS_V2, "skipping cascade": SKIPPING}
PUBLISHED_PER_SECOND = (2_000, 500, 100)
"""Cautious guesses of how fast messages enter a cascade; the next where one was not cautious enough."""
PADDING = b"x" * (BODY_BYTES - DUE.size)


def measure(arena: Arena, quick: bool) -> Measurement:
    count, seconds, rounds_wanted = (3_000, 2, 1) if quick else (50_000, 10, 3)
    span = timedelta(seconds=seconds)
    rounds = Rounds()
    for _ in range(rounds_wanted):
        with arena.bench() as bench:
            note(rounds, OURS.name, measure_lateness(OURS, bench, count, span))
        for name, topology in CASCADES.items():
            note(rounds, name, _through(arena, topology, count, span))
    return Measurement(
        figure=rounds.ratio("v2 cascade p99", f"{OURS.name} p99"),
        ours=shown(rounds, OURS.name),
        peer=shown(rounds, "v2 cascade"),
        numbers=rounds.numbers,
        notes=[
            f"skipping cascade: {shown(rounds, 'skipping cascade')}",
            "the cascades' whole seconds, rounded up, are up to 1 s of their lateness",
        ],
    )


def _through(arena: Arena, topology: CascadeTopology, count: int, span: timedelta) -> Lateness:
    """Lateness of `count` messages that are due evenly over `span`, published into the cascade before."""
    for guess in PUBLISHED_PER_SECOND:
        found = _published(arena, topology, count, span, LEAD + timedelta(seconds=count / guess))
        if found is not None:
            return found
    raise RuntimeError(f"publishing takes longer than expected: less than {PUBLISHED_PER_SECOND[-1]} messages a second")


def _published(
    arena: Arena, topology: CascadeTopology, count: int, span: timedelta, lead: timedelta
) -> Lateness | None:
    """The first is due in `lead`. None: by then not all were published."""
    with cascade(arena, topology) as made:
        consumer = subprocess.Popen(
            (sys.executable, "-m", "benchmarks.consumer", str(count)),
            cwd=ROOT,
            env=os.environ | {"DELAYSTORE_TRANSPORT": made.url, "BENCHMARK_QUEUE": QUEUE},
            stdout=subprocess.PIPE,
        )
        try:
            start = datetime.now(UTC) + lead
            for first in range(0, count, BATCH):
                made.send([_message(start + span * number / count) for number in range(first, first + BATCH)])
            if datetime.now(UTC) >= start:
                return None
            printed, _ = consumer.communicate(timeout=GRACE)
        finally:
            consumer.kill()
            consumer.wait()
    return summary(json.loads(printed))


def _message(due_time: datetime) -> DelayedMessage:
    body = DUE.pack(round(due_time.timestamp() * 1_000_000)) + PADDING
    return DelayedMessage(message_id=new_message_id(), destination=QUEUE, due_time=due_time, body=body)


QUESTION = Question(
    name="native-lateness",
    title="p99 lateness, 50,000 due within 10 s: NServiceBus' cascade's, against ours by store and dispatcher",
    limit=20,
    measure=measure,
)
