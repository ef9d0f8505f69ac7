"""A bulk load, exactly once, against Spark's own JDBC writer, which is not."""

from benchmarks.arena import Arena
from benchmarks.loading import LOAD, measure_loads
from benchmarks.results import Measurement, Question
from benchmarks.spark import jdbc_write

PEER = "JDBC"


def measure(arena: Arena, quick: bool) -> Measurement:
    return measure_loads(arena, quick, PEER, lambda frame, _rows, url: jdbc_write(frame, url))


QUESTION = Question(
    name="load-jdbc",
    title=f"{LOAD}, exactly once, against Spark's JDBC writer with reWriteBatchedInserts",
    limit=0.7,
    measure=measure,
)
