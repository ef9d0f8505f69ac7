"""A Spark driver in a process of its own, to be killed: `python -m tests.spark.driver OPTIONS`, as JSON.

It prints "started", and "done" or "failed: ..." for what it was told to do.
"""

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.sql import SparkSession

from delaystore.bulk.spark import register
from delaystore.bulk.spark._errors import plain_error
from tests.spark.conftest import settings
from tests.spark.gates import is_open
from tests.spark.loads import ENDPOINT, Mapper, load, rows, rows_through

LAST = 3
"""The partition that is slow."""


def attempt() -> tuple[int, int]:
    """Which partition this task has, and how often it failed before."""
    context = TaskContext.get()
    assert context is not None
    return context.partitionId(), context.attemptNumber()


def held_back(gate: int) -> Mapper:
    """The first task's rows come only once the gate is open."""

    def map_rows(rows: Iterable[Any]) -> Iterable[Any]:
        while attempt()[0] == 0 and not is_open(gate):
            time.sleep(0.05)
        yield from rows

    return map_rows


def failing(rows: Iterable[Any]) -> Iterable[Any]:
    """Every first attempt fails once all of its rows have been handed on."""
    yield from rows
    if attempt()[1] == 0:
        raise RuntimeError("a task that fails on its first attempt")


def killing(marks: str) -> Mapper:
    """In the first attempt of the first task the other Python workers, the one that writes among them, are killed."""

    def map_rows(rows: Iterable[Any]) -> Iterable[Any]:
        import signal

        import psutil

        yield from rows
        mark = Path(marks) / "killed"
        if attempt() == (0, 0) and not mark.exists():
            mark.touch()
            for sibling in psutil.Process(os.getppid()).children():
                if sibling.pid != os.getpid():
                    sibling.send_signal(signal.SIGKILL)
            time.sleep(2)

    return map_rows


def slow(seconds: float) -> Mapper:
    """The last of four tasks has rows so large that some are copied at once; its first attempt then takes long to end.

    Speculation starts a second one meanwhile.
    """

    def map_rows(rows: Iterable[Any]) -> Iterable[Any]:
        partition, before = attempt()
        for number, padding in rows:
            yield number, "x" * 2**19 if partition == LAST else padding
        if partition == LAST and before == 0:
            time.sleep(seconds)

    return map_rows


def load_once(spark: SparkSession, options: dict[str, Any]) -> None:
    """Load rows, with what is to happen in the tasks."""
    made: dict[str, Callable[[], Mapper]] = {
        "held_back": lambda: held_back(options["gate"]),
        "failing": lambda: failing,
        "killing": lambda: killing(options["marks"]),
        "slow": lambda: slow(options["slow"]),
    }
    mapper = made[options["mapper"]]()
    frame = rows_through(spark, options["count"], options.get("parts", 2), options.get("padding", 0), mapper)
    load(frame, options["url"], loadId=options["load_id"], **options.get("options", {}))


def stream(spark: SparkSession, options: dict[str, Any]) -> None:
    """Stream a folder's files until there are no more."""
    source = spark.readStream.schema(rows(spark, 1).schema).option("maxFilesPerTrigger", 1).parquet(options["folder"])
    given = {"store": options["url"], "endpoint": ENDPOINT, "checkpointLocation": options["checkpoint"]}
    running = source.writeStream.format("delaystore").options(**given).trigger(availableNow=True).start()
    running.awaitTermination()


def say(line: str) -> None:
    """A line that the test waits for."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def do(spark: SparkSession, job: dict[str, Any]) -> None:
    """Do a job, and say how it ended."""
    try:
        (stream if job.get("job") == "stream" else load_once)(spark, job)
        say("done")
    except Exception as error:
        say(f"failed: {plain_error(error) or ' '.join(str(error).split())[:3000]}")


def main(options: dict[str, Any]) -> None:
    """Start Spark, and do the jobs: one after the other, or all at once."""
    with tempfile.TemporaryDirectory() as folder:
        builder = settings(SparkSession.builder.master(options.get("master", "local[2]")), Path(folder))
        for name, value in options.get("conf", {}).items():
            builder = builder.config(name, value)
        spark = builder.getOrCreate()
        spark.sparkContext.setLogLevel("OFF")
        register(spark)
        say("started")
        jobs = options["jobs"]
        with ThreadPoolExecutor(len(jobs) if options["at_once"] else 1) as threads:
            list(threads.map(lambda job: do(spark, job), jobs))
        spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
