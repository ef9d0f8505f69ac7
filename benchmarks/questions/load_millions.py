"""A bulk load into millions, exactly once, against Spark's own JDBC writer into a plain table of as many."""

from benchmarks.arena import Arena
from benchmarks.loading import measure_loads
from benchmarks.millions import millions
from benchmarks.results import Measurement, Question
from benchmarks.spark import jdbc_write

PEER = "JDBC"


def measure(arena: Arena, quick: bool) -> Measurement:
    count, rounds_wanted = (5_000, 1) if quick else (1_000_000, 3)
    return measure_loads(
        arena, millions(quick), count, rounds_wanted, PEER, lambda frame, _, url: jdbc_write(frame, url)
    )


QUESTION = Question(
    name="load-millions",
    title="Spark load of 1,000,000 into 10,000,000, against Spark's JDBC writer",
    limit=1.5,
    measure=measure,
)
