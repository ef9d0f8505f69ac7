"""A bulk load, exactly once, against one psycopg COPY by hand."""

from collections.abc import Sequence

import psycopg
from pyspark.sql import DataFrame

from benchmarks.arena import Arena, dsn_of
from benchmarks.loading import LOAD, measure_loads
from benchmarks.results import Measurement, Question
from benchmarks.spark import Row, copy_rows

PEER = "COPY"


def measure(arena: Arena, quick: bool) -> Measurement:
    return measure_loads(arena, quick, PEER, _copy)


def _copy(_frame: DataFrame, rows: Sequence[Row], url: str) -> None:
    with psycopg.connect(dsn_of(url)) as connection:
        copy_rows(connection, rows)


QUESTION = Question(
    name="load-copy",
    title=f"{LOAD}, exactly once, against one psycopg COPY of rows in memory",
    limit=1,
    measure=measure,
)
