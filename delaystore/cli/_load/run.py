"""Spark, for one command."""

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from delaystore.cli._progress_bar import ProgressBar
from delaystore.cli._signals import StopRequest, stop_requests
from delaystore.spark import register
from delaystore.spark.loading.session import spark_session

if TYPE_CHECKING:
    from delaystore.spark.loading.running import Tasks


class SparkRun:
    """A session, its progress bar, and what a request to stop does; for the block.

    An interrupt ends Spark's tasks once it has started; a promotion that has begun is finished. Raises as
    `spark_session`.
    """

    def __init__(self, master: str | None, settings: Mapping[str, str], log: Path | None) -> None:
        self._session = spark_session(master, settings, log)
        self._bar = ProgressBar(transient=True)
        self._stop = StopRequest()
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self._bar)
            self._bar.show("starting Spark", 0, None)
            self._stop = stack.enter_context(stop_requests())
            self.spark = stack.enter_context(self._session)
            register(self.spark)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, traceback)

    def watch(self, tasks: "Tasks") -> bool:
        """Move the bar. True: cancel."""
        step = "stopping" if self._stop.made else "finishing" if 0 < tasks.total == tasks.done else "loading"
        self._bar.show(f"{step} (tasks)", tasks.done, tasks.total or None)
        return self._stop.made

    @property
    def stopped(self) -> bool:
        """Whether it was asked to stop: then what Spark raises is no error."""
        return self._stop.made

    @property
    def exit_code(self) -> int:
        """128 and the signal's number."""
        return self._stop.exit_code
