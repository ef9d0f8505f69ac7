"""A bulk load, exactly once, against one psycopg COPY by hand."""

from collections.abc import Sequence

import psycopg
from pyspark.sql import DataFrame

from benchmarks.arena import Arena, dsn_of
from benchmarks.loading import measure_loads
from benchmarks.results import Measurement, Question
from benchmarks.spark import Row, copy_rows

PEER = "COPY"


def measure(arena: Arena, quick: bool) -> Measurement:
    count, rounds_wanted = (5_000, 1) if quick else (1_000_000, 3)
    return measure_loads(arena, count, count, rounds_wanted, PEER, _copy)


def _copy(_frame: DataFrame, rows: Sequence[Row], url: str) -> None:
    with psycopg.connect(dsn_of(url)) as connection:
        copy_rows(connection, rows)


QUESTION = Question(
    name="load-copy",
    title="Spark load of 1,000,000 into 1,000,000, against one psycopg COPY",
    limit=1,
    measure=measure,
)
