"""Spark, for one command."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from delaystore.cli._progress_bar import ProgressBar
from delaystore.cli._signals import StopRequest, stop_requests
from delaystore.spark import register
from delaystore.spark.loading.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from delaystore.spark.loading.running import Tasks


@dataclass(frozen=True, slots=True)
class SparkRun:
    """A session, its progress bar, and whether it was asked to stop: then what Spark raises is no error."""

    spark: "SparkSession"
    stop: StopRequest
    bar: ProgressBar

    def watch(self, tasks: "Tasks") -> bool:
        """Move the bar. True: cancel."""
        step = "stopping" if self.stop.made else "finishing" if 0 < tasks.total == tasks.done else "loading"
        self.bar.show(f"{step} (tasks)", tasks.done, tasks.total or None)
        return self.stop.made


@contextmanager
def spark_run(master: str | None, settings: Mapping[str, str], log: Path | None) -> Iterator[SparkRun]:
    """Spark for the block. An interrupt ends its tasks once it has started; a promotion that has begun is finished.

    Raises as `spark_session`.
    """
    with ProgressBar(transient=True) as bar:
        bar.show("starting Spark", 0, None)
        with stop_requests() as stop, spark_session(master, settings, log) as spark:
            register(spark)
            yield SparkRun(spark, stop, bar)
