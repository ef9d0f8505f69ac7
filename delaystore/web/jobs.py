"""Background jobs: threads of this process that go on after the answer was given, and are shown on pages."""

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from delaystore.errors import ConfigurationError, DelaystoreError
from delaystore.message import new_message_id

logger = logging.getLogger("delaystore.web")

_KEPT: Final = 100
"""Jobs that are remembered."""
_MOST: Final = 8
"""Jobs at the same time."""


class StoppedError(DelaystoreError):
    """The process is about to end."""


@dataclass(slots=True)
class BackgroundJob:
    """A background job. `about`: its heading. `subject`: the id of what it changes, as of an operation."""

    about: str
    by: str
    subject: str = ""
    path: str = "/"
    """The page to go on to."""
    job_id: str = field(default_factory=new_message_id)
    began: datetime = field(default_factory=lambda: datetime.now(UTC))
    done: int = 0
    result: str | None = None
    """What came of it, a sentence; None: it goes on, or has failed."""
    problem: str | None = None
    """Why it has failed; None: it has not."""
    error: DelaystoreError | None = None
    """The error that `problem` tells of; None: there was none, or none of ours."""

    @property
    def running(self) -> bool:
        """Whether it goes on."""
        return self.result is None and self.problem is None


class BackgroundJobs:
    """The background jobs of one application, the newest last."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jobs: list[BackgroundJob] = []
        self._stopping = threading.Event()

    def begin(self, job: BackgroundJob, do: Callable[[Callable[[int], None]], str]) -> BackgroundJob:
        """Have a thread `do` the job: it calls what it is given with the count so far, and returns the result.

        Raises ConfigurationError where too many go on.
        """
        with self._lock:
            self.check_room()
            self._jobs = [*self._jobs[-_KEPT + 1 :], job]
        threading.Thread(target=self._run, args=(job, do), name="delaystore-web-job", daemon=True).start()
        return job

    def check_room(self) -> None:
        """Raise ConfigurationError where too many go on: ask before something is kept that a job is to do."""
        if len(self.running()) >= _MOST:
            raise ConfigurationError(f"{_MOST} changes are going on already; wait until one has ended")

    def get(self, job_id: str) -> BackgroundJob | None:
        """The job of that id; None: this process does not know it."""
        return next((each for each in self._jobs if each.job_id == job_id), None)

    def on(self, subject: str) -> BackgroundJob | None:
        """What goes on about `subject` in this process; None: nothing."""
        return next((each for each in self._jobs if each.running and each.subject == subject), None)

    def failed_on(self, subject: str) -> str | None:
        """Why the last job about `subject` in this process has failed; None: it has not."""
        last = next((each for each in reversed(self._jobs) if each.subject == subject), None)
        return None if last is None else last.problem

    def running(self) -> Sequence[BackgroundJob]:
        """All that go on, the newest first."""
        return [each for each in reversed(self._jobs) if each.running]

    def stop(self) -> None:
        """Have each end after its present step."""
        self._stopping.set()

    def _run(self, job: BackgroundJob, do: Callable[[Callable[[int], None]], str]) -> None:
        def progress(count: int) -> None:
            job.done = count
            if self._stopping.is_set():
                raise StoppedError("the web page's process was ended; what was changed stays changed")

        try:
            job.result = do(progress)
        except DelaystoreError as error:
            job.error = error
            job.problem = str(error)
        except Exception:
            logger.exception("%s failed", job.about)
            job.problem = "this is a mistake in delaystore; the server's log has the details"
