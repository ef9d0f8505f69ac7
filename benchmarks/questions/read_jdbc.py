"""Reading a store back, against Spark's own JDBC reader with as many partitions."""

import time
from collections.abc import Callable

from pyspark.sql import DataFrame, SparkSession

from benchmarks.arena import Arena
from benchmarks.bench import ENDPOINT
from benchmarks.results import Measurement, Question, Rounds, per_second
from benchmarks.spark import PARTITIONS, jdbc_options, session

OURS = "delaystore"
PEER = "JDBC"


def measure(arena: Arena, quick: bool) -> Measurement:
    count, rounds_wanted = (5_000, 1) if quick else (3_000_000, 5)
    rounds = Rounds()
    url = arena.filled(count)
    with session() as spark:
        first, last = _bounds(spark, url)  # ours finds its own within what is measured
        frames: dict[str, Callable[[], DataFrame]] = {
            OURS: lambda: _ours(spark, url),
            PEER: lambda: _jdbc(spark, url, first, last),
        }
        for frame in frames.values():
            if frame().count() != count:
                raise RuntimeError(f"{count} rows wait, and others were read")
        for _ in range(rounds_wanted):
            for name, frame in frames.items():
                began = time.perf_counter()
                frame().write.format("noop").mode("overwrite").save()
                rounds.add(name, count / (time.perf_counter() - began))
    return Measurement(
        figure=rounds.ratio(OURS, PEER),
        ours=per_second(rounds.median(OURS)),
        peer=per_second(rounds.median(PEER)),
        numbers=rounds.numbers,
        notes=[f"{count:,} rows, all columns, {PARTITIONS} partitions, local[2]; ours in one snapshot"],
    )


def _ours(spark: SparkSession, url: str) -> DataFrame:
    reader = spark.read.format("delaystore").option("store", url).option("endpoint", ENDPOINT)
    return reader.option("partitions", str(PARTITIONS)).load()


def _bounds(spark: SparkSession, url: str) -> tuple[str, str]:
    rows = spark.read.format("jdbc").options(**jdbc_options(url)).load()
    bounds = rows.selectExpr("min(due_time) AS first", "max(due_time) AS last").first()
    assert bounds is not None
    return str(bounds["first"]), str(bounds["last"])


def _jdbc(spark: SparkSession, url: str, first: str, last: str) -> DataFrame:
    reader = spark.read.format("jdbc").options(**jdbc_options(url), fetchsize="10000")
    return reader.options(
        partitionColumn="due_time", lowerBound=first, upperBound=last, numPartitions=str(PARTITIONS)
    ).load()


QUESTION = Question(
    name="read-jdbc",
    title="reading 3,000,000 rows back, against Spark's JDBC reader with as many partitions",
    limit=1.2,
    measure=measure,
)
