"""What the driver service asks of Spark."""

from collections.abc import Iterable
from typing import Any, Final
from weakref import WeakSet

from pyspark import SparkContext
from pyspark.sql import SparkSession

_WRITER: Final = "PythonBatchWrite.createBatchWriterFactory"
"""What Spark calls when it asks a planning worker for a writer (seen with Spark 4.3)."""
_TABLE: Final = "TableAsSelect"
"""In names of classes: of CREATE (or REPLACE) TABLE ... AS SELECT, which `saveAsTable` is as well."""


class SparkApplication:
    """The application of a SparkContext, as the driver service sees it."""

    def __init__(self, context: SparkContext) -> None:
        self.context = context
        self._sessions: WeakSet[SparkSession] = WeakSet()

    def add(self, session: SparkSession) -> None:
        """Leave out the jobs of this session's streams as well."""
        self._sessions.add(session)

    def is_over(self) -> bool:
        """Whether it has stopped, for good; asks nothing of the JVM, which may have gone."""
        return getattr(self.context, "_jsc", None) is None

    def has_jobs(self) -> bool:
        """Whether a job is running that is no stream's: those run for ever. False once the JVM has gone."""
        try:
            tracker = self.context.statusTracker()
            jobs = set(tracker.getActiveJobsIds())
            for run in self._runs_of_streams() if jobs else ():
                jobs.difference_update(tracker.getJobIdsForGroup(run))
            return bool(jobs)
        except Exception:  # whatever Py4J makes of a JVM that is going: its own errors, OSError, AttributeError
            return False

    def parallelism(self) -> int:
        """How many tasks run at a time: Spark's default, which counts the cores it has."""
        return int(self.context.defaultParallelism)

    def makes_table(self) -> bool:
        """Whether a thread of Spark's that waits for a planning worker's writer is making a table of its rows.

        Spark tells a writer nothing of that; the thread's stack does. False as well where there is none to be seen.
        """
        try:
            jvm: Any = self.context._jvm
            threads = [thread.toString() for thread in jvm.org.apache.spark.util.Utils.getThreadDump()]
        except Exception:  # as above
            return False
        return any(_WRITER in thread and _TABLE in thread for thread in threads)

    def _runs_of_streams(self) -> Iterable[str]:
        """Spark runs a stream's jobs in a group named after the run."""
        return [query.runId for session in list(self._sessions) for query in session.streams.active]
