"""What all pages of one application share, and its background jobs."""

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Concatenate, Final, ParamSpec, TypeVar

from starlette.requests import Request

from delaystore.delivery import DelayedDelivery, Sender
from delaystore.errors import DelaystoreError
from delaystore.message import new_message_id
from delaystore.operations import Operations
from delaystore.schedules import Schedules
from delaystore.server.web.http import is_api
from delaystore.server.web.pages import Pages
from delaystore.server.web.store_calls import CachedOverview, Calls
from delaystore.server.web.users import user_of
from delaystore.stores.records import Way

if TYPE_CHECKING:
    from delaystore.cascades import CascadeStatus

logger = logging.getLogger("delaystore.server.web")
_KEPT: Final = 100
"""Jobs that are remembered."""
_MOST: Final = 8
"""Jobs at the same time."""


class ProcessEndingError(DelaystoreError):
    """The process is about to end."""


class TooManyJobsError(DelaystoreError):
    """As many jobs run as may at the same time."""


@dataclass(slots=True)
class BackgroundJob:
    """A background job.

    `about`: its heading. `subject`: the id of the operation that it runs. `to_resume`: a sentence on how to resume the
    job if it is left unfinished.
    """

    about: str
    by: str
    subject: str = ""
    to_resume: str = ""
    path: str = "/"
    """The page to go on to."""
    job_id: str = field(default_factory=new_message_id)
    began: datetime = field(default_factory=lambda: datetime.now(UTC))
    done: int = 0
    result: str | None = None
    """Its result, a sentence; None: it goes on, or has failed."""
    problem: str | None = None
    """Why it has failed; None: it has not."""
    error: DelaystoreError | None = None
    """The error whose text `problem` is; None: there was none, or it was not ours."""

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
        self.stop: Final = self._stopping.set
        """Have each job end after its current step."""

    def begin(self, job: BackgroundJob, do: Callable[[Callable[[int], None]], str]) -> BackgroundJob:
        """Have a thread `do` the job: it calls the given function with the count so far, and returns the result.

        Raises TooManyJobsError.
        """
        with self._lock:
            self.check_room()
            self._jobs = [*self._jobs[-_KEPT + 1 :], job]
        threading.Thread(target=self._run, args=(job, do), name="delaystore-web-job", daemon=True).start()
        return job

    def check_room(self) -> None:
        """Raise TooManyJobsError where too many go on: ask before something is kept that a job is to do."""
        if len(self.running()) >= _MOST:
            raise TooManyJobsError(f"{_MOST} changes are in progress; wait until one has ended")

    def get(self, job_id: str) -> BackgroundJob | None:
        """The job of that id; None: this process does not know it."""
        return next((each for each in self._jobs if each.job_id == job_id), None)

    def on(self, subject: str) -> BackgroundJob | None:
        """The running job about `subject` in this process; None: there is none."""
        return next((each for each in self._jobs if each.running and each.subject == subject), None)

    def failed_on(self, subject: str) -> str | None:
        """Why the last job about `subject` in this process has failed; None: it has not."""
        last = next((each for each in reversed(self._jobs) if each.subject == subject), None)
        return None if last is None else last.problem

    def running(self) -> Sequence[BackgroundJob]:
        """All that go on, the newest first."""
        return [each for each in reversed(self._jobs) if each.running]

    def _run(self, job: BackgroundJob, do: Callable[[Callable[[int], None]], str]) -> None:
        def progress(count: int) -> None:
            job.done = count
            if self._stopping.is_set():
                raise ProcessEndingError("the web page's process was ended; its changes stay")

        try:
            job.result = do(progress)
        except DelaystoreError as error:
            job.error = error
            job.problem = str(error)
            if job.to_resume and not self._stopping.is_set():
                logger.warning("unfinished: %s, requested by %s: %s; %s", job.about, job.by, error, job.to_resume)
        except Exception:
            logger.exception("%s failed", job.about)
            job.problem = "internal error in delaystore; see the server's log"


_SAMPLE = 0
"""Undeliverable messages that are read: none, so that looking changes nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cascade:
    """A cascade on a RabbitMQ broker.

    Attributes:
        broker: Its URL, `amqp[s]://...`.
        management: The URL of its management API; None: the page shows what AMQP reports.
        name: Its name, as of `delaystore cascade --cascade`.

    """

    broker: str
    management: str | None = None
    name: str = "nservicebus-v2"

    def __repr__(self) -> str:
        return f"<Cascade {self.name}>"  # the URLs hold passwords

    def status(self) -> "CascadeStatus":
        """How it is doing now; changes nothing. Raises TransportError, ConfigurationError."""
        from delaystore.cascades import BrokerClient, read_status
        from delaystore.transports.rabbitmq.topology import topology_named

        with BrokerClient(self.broker, self.management) as client:
            return read_status(client, topology_named(self.name), sample=_SAMPLE, watch=0)


P = ParamSpec("P")
AnswerT = TypeVar("AnswerT")


@dataclass(slots=True, kw_only=True)
class WebSite:
    """One application. `show_bodies`: whether pages show message bodies. `cascade` None: there is none to show."""

    delivery: DelayedDelivery
    pages: Pages
    cached: CachedOverview
    jobs: BackgroundJobs = field(default_factory=BackgroundJobs)
    calls: Calls = field(default_factory=Calls)
    show_bodies: bool = False
    cascade: Cascade | None = None
    drawn: tuple[object, bytes] | None = None
    """The last event of the first screen, and its data: many users see the same."""
    stopping: bool = False
    """Whether the process is about to end: streams of events end too."""

    def operations(self, request: Request) -> Operations:
        """The operations in the name of the user who asks, by the page or by the API."""
        return self.delivery.operations.acting_as(user_of(request).name or None, way=_way_of(request))

    def sender(self, request: Request) -> Sender:
        """A sender in the name of the user who asks."""
        return self.delivery.sending_as(_way_of(request), user_of(request).name or None)

    async def run(
        self,
        request: Request,
        method: Callable[Concatenate[Operations, P], AnswerT],
        *arguments: P.args,
        **named: P.kwargs,
    ) -> AnswerT:
        """Call a method of Operations in a thread, in the name of the request's user, with a time limit.

        Raises as `method`, and StoreUnavailableError where there is no answer in time.
        """
        return await self.calls(partial(method, self.operations(request), *arguments, **named))

    async def run_within(self, request: Request, method: Callable[[Operations], AnswerT], seconds: float) -> AnswerT:
        """As `run`, for calls that may take `seconds` seconds."""
        return await self.calls(partial(method, self.operations(request)), seconds)

    async def run_schedules(
        self,
        request: Request,
        method: Callable[Concatenate[Schedules, P], AnswerT],
        *arguments: P.args,
        **named: P.kwargs,
    ) -> AnswerT:
        """As `run`, with a method of Schedules."""
        schedules = self.delivery.schedules_as(_way_of(request), user_of(request).name or None)
        return await self.calls(partial(method, schedules, *arguments, **named))

    def stop(self) -> None:
        """End streams of events, and background jobs after their present step; log unfinished ones."""
        if self.stopping:
            return
        self.stopping = True
        self.jobs.stop()
        for job in self.jobs.running():
            logger.warning("unfinished: %s, requested by %s; %s", job.about, job.by, job.to_resume or "ask again")


def _way_of(request: Request) -> Way:
    return Way.API if is_api(request) else Way.WEB


def site_of(request: Request) -> WebSite:
    """The application that is asked."""
    site: WebSite = request.app.state.site
    return site


def pages_of(request: Request) -> Pages:
    """The pages of the application that is asked, which may be one of several endpoints."""
    pages: Pages = request.app.state.site.pages
    return pages
