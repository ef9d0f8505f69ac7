"""What a worker process of Spark's needs to be quick at its next task."""

import gc
from functools import cache

from pyspark import TaskContext


def spare_imports() -> None:
    """At the end of a worker's first task: leave what is imported out of all further collections of garbage.

    Spark's daemon collects after each task, and would walk over every object of SQLAlchemy's, psycopg's and our
    modules each time: 50 ms of the processor, while staging ten rows takes 10. Outside of a task, nothing happens.
    """
    if TaskContext.get() is not None:
        _freeze()


@cache
def _freeze() -> None:
    """Once in a process: the garbage of later tasks must be found. That of the first goes before."""
    gc.collect()
    gc.freeze()
