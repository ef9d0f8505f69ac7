"""Spark, for one command."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from delaystore.cli._output import say
from delaystore.cli._progress_bar import ProgressBar
from delaystore.cli._signals import StopRequest, stop_requests, tell_at_once
from delaystore.spark import register
from delaystore.spark.session import Java, spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from delaystore.spark.loading import Tasks


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
def spark_run(
    master: str | None, settings: Mapping[str, str], log: Path | None, *, left: str, small: bool
) -> Iterator[SparkRun]:
    """Spark for the block. An interrupt ends its start at once, and its tasks later; a promotion is finished.

    `left`: what is true if it does not start; `small`: there is little to do. Raises as `spark_session`, and typer.Exit
    where an interrupt came before the block began.
    """
    java, started = Java(), threading.Event()

    def give_up() -> None:
        if not started.is_set():
            tell_at_once("stopping: Spark is still starting")
            java.kill()

    with ProgressBar(transient=True) as bar, stop_requests(give_up) as stop, ExitStack() as stack:
        bar.show("starting Spark", 0, None)
        try:
            spark = stack.enter_context(spark_session(master, settings, log, java, small=small))
            register(spark)
        except Exception:
            if not stop.made:
                raise
            say(f"stopped; {left}")
            raise typer.Exit(stop.exit_code) from None
        started.set()
        yield SparkRun(spark, stop, bar)
