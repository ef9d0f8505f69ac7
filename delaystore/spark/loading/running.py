"""Running a job of Spark's while the main thread watches it."""

import logging
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from pyspark import InheritableThread
from pyspark.sql import SparkSession

Result = TypeVar("Result")
_logger = logging.getLogger(__name__)
_INTERVAL: Final = 0.2
_OF_GROUP: Final = ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel")


@dataclass(frozen=True, slots=True)
class Tasks:
    """How far a job is; `total` grows as Spark begins new stages, and is 0 before the first."""

    done: int
    total: int


class Watcher(Protocol):
    """Is told how far the job is, and says whether it shall stop."""

    def watch(self, tasks: Tasks) -> bool:
        """Called every fifth of a second, in a thread of its own. True: cancel what runs."""


def run_watched(spark: SparkSession, action: Callable[[], Result], watcher: Watcher) -> Result:
    """`action()`, in the caller's thread: in another, Spark would not know the session's data sources.

    Cancelling ends Spark's tasks; what Spark calls on the driver (the promotion of a load) is waited for.
    """
    group = f"delaystore-load-{uuid.uuid4()}"
    context = spark.sparkContext
    ended = threading.Event()

    def watch() -> None:
        try:
            while not ended.wait(_INTERVAL):
                if watcher.watch(_tasks(spark, group)):
                    context.cancelJobGroup(group)
        except Exception:  # Java has gone, perhaps, and then `action` says so
            _logger.info("the load is no longer watched", exc_info=True)

    thread = InheritableThread(watch, name="delaystore-load-watch", daemon=True)
    context.setJobGroup(group, "delaystore load", interruptOnCancel=True)
    thread.start()
    try:
        return action()
    finally:
        ended.set()
        thread.join()
        for name in _OF_GROUP:
            context.setLocalProperty(name, None)  # type: ignore[arg-type]  # None removes it


def _tasks(spark: SparkSession, group: str) -> Tasks:
    status = spark.sparkContext.statusTracker()
    jobs = [status.getJobInfo(job) for job in status.getJobIdsForGroup(group)]
    stages = [status.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
    known = [stage for stage in stages if stage is not None]
    return Tasks(sum(stage.numCompletedTasks for stage in known), sum(stage.numTasks for stage in known))
