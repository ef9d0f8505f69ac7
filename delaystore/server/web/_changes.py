"""Changes that the page and the API begin: of destinations, of many messages, of the error queue."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from starlette.requests import Request

from delaystore.errors import ConfigurationError, StoreUnavailableError, TransportError
from delaystore.filters import MessageFilter
from delaystore.message import check_destination
from delaystore.operations import Operations, Overview, Preview
from delaystore.operations.error_queue import ErrorGroups, ErrorPage
from delaystore.operations.failed_message import ErrorFilter, ErrorReport, FailedMessage
from delaystore.operations.overview import RATE_OVER
from delaystore.server.web._site import BackgroundJob, WebSite, site_of
from delaystore.server.web.errors import Refusal
from delaystore.server.web.forms import Fields, id_of
from delaystore.stores.records import Destination, Operation, OperationState
from delaystore.text import counted

SAMPLE: Final = 5
COUNTING: Final = 4.0
"""Seconds for which a preview counts; then it shows the number as a lower bound."""


def previewed(operations: Operations, wanted: MessageFilter, when: Mapping[str, Any] | None) -> Preview:
    """How many match, counted for a few seconds at most, and the first of them.

    `when`: the arguments of a reschedule that say the new due time; None: there is none.
    """
    return operations.preview(wanted, **when or {}, sample=SAMPLE, seconds=COUNTING)


def follow(site: WebSite, operations: Operations, operation: Operation) -> Operation:
    """Run `operation` in the background, unless this process runs it already, or it has ended; returns it.

    Called in the thread that has begun it: an operation that was kept too late for the answer is run nevertheless.
    """
    if operation.state is not OperationState.RUNNING or site.jobs.on(operation.operation_id) is not None:
        return operation

    def do(progress: Callable[[int], None]) -> str:
        ended = operations.run(operation.operation_id, lambda step: progress(step.changed))
        site.cached.forget()
        return f"{counted(ended.changed, 'message')} changed"

    job = BackgroundJob(
        about=f"operation {operation.operation_id} ({operation.kind}: {operation.wanted})",
        by=operations.by,
        subject=operation.operation_id,
        to_resume=f"resume it on its page, or by `{operation.resume_command}`",
    )
    site.jobs.begin(job, do)
    return operation


_TIMEOUT: Final = 10.0
_COUNTING: Final = 5.0
"""Seconds to wait for the backlog, which reads all waiting messages; then it is unknown."""
_MOMENT: Final = 2.0
"""Seconds that a change is waited for: most have ended by then."""
_TICK: Final = 0.05


@dataclass(frozen=True, slots=True)
class Row:
    """One destination. `waiting` None: not counted. `rate`: delivered a second. `state` None: never changed."""

    name: str
    waiting: int | None
    rate: float | None
    state: Destination | None


@dataclass(frozen=True, slots=True)
class PauseChange:
    """A pause, or its end, of a destination or a load.

    `about`: shown while it runs; `notice`: afterwards; `done`: the messages' state then; `path`: the screen that shows
    it.
    """

    about: str
    notice: str
    done: str
    do: Callable[[Operations, Callable[[int], None]], int]
    path: str = "/destinations"


def paused(name: str, until: datetime | None) -> PauseChange:
    """Pause it. Raises InvalidMessageError for a name that is none."""
    check_destination(name)
    return PauseChange(
        f"Pausing {name}",
        f"{name} is paused.",
        "parked",
        lambda operations, progress: operations.pause(name, until=until, progress=progress),
    )


def resumed(name: str) -> PauseChange:
    """Resume it. Raises InvalidMessageError for a name that is none."""
    check_destination(name)
    return PauseChange(
        f"Resuming {name}",
        f"{name} is resumed.",
        "shown again",
        lambda operations, progress: operations.resume(name, progress=progress),
    )


def load_paused(load_id: str, until: datetime | None) -> PauseChange:
    """Pause a load."""
    return PauseChange(
        f"Pausing the load {load_id}",
        f"The load {load_id} is paused.",
        "parked",
        lambda operations, progress: operations.loads.pause(load_id, until=until, progress=progress),
        "/loads",
    )


def load_resumed(load_id: str) -> PauseChange:
    """Resume a load."""
    return PauseChange(
        f"Resuming the load {load_id}",
        f"The load {load_id} is resumed.",
        "shown again",
        lambda operations, progress: operations.loads.resume(load_id, progress=progress),
        "/loads",
    )


def pause_notice(change: PauseChange, job: BackgroundJob) -> str:
    """The result in words: that a message was parked or shown says that the change is made."""
    if job.result is not None:
        return f"{change.notice} {job.result}."
    return change.notice if job.done else f"{change.about} is in progress; the store has not answered yet."


async def rows_of(request: Request) -> tuple[list[Row], Overview]:
    """Destinations with waiting messages, recent deliveries or a changed state, the fullest first."""
    site = site_of(request)
    overview, backlog, changed = await asyncio.gather(  # at once: a store that hangs is waited for once
        site.cached.overview(_TIMEOUT), _backlog(site), site.run(request, Operations.destinations)
    )
    states = {each.name: each for each in changed}
    rates, waiting = _rates(overview), backlog or {}
    names = sorted({*waiting, *rates, *states}, key=lambda name: (-waiting.get(name, 0), name))
    rows = [
        Row(
            name,
            None if backlog is None else waiting.get(name, 0),
            None if overview.activity is None else rates.get(name, 0.0),
            states.get(name),
        )
        for name in names
    ]
    return rows, overview


async def begin_change(request: Request, change: PauseChange) -> BackgroundJob:
    """Begin it in the background, and wait a moment for its end. Raises the error that it failed by."""
    site = site_of(request)
    operations = site.operations(request)
    job = BackgroundJob(about=change.about, by=operations.by, path=change.path)

    def do(progress: Callable[[int], None]) -> str:
        count = change.do(operations, progress)
        progress(count)
        site.cached.forget()
        return f"{counted(count, 'message')} {change.done}"

    site.jobs.begin(job, do)
    end = asyncio.get_running_loop().time() + _MOMENT
    while job.running and asyncio.get_running_loop().time() < end:
        await asyncio.sleep(_TICK)
    if job.error is not None:
        raise job.error
    if job.problem is not None:
        raise ConfigurationError(job.problem)
    return job


async def _backlog(site: WebSite) -> Mapping[str, int] | None:
    try:
        return await site.cached.backlog(_COUNTING)
    except StoreUnavailableError:
        return None


def _rates(overview: Overview) -> Mapping[str, float]:
    recent = overview.recent(RATE_OVER)
    return {} if recent is None else recent.rates


EXAMINED: Final = 5_000
"""Messages that one page looks at, at most."""
FURTHEST: Final = 1_000_000
"""Messages that a page may skip."""
SEARCH_TIMEOUT: Final = 30.0
"""Seconds: a look at a long queue takes a while."""
FIELDS: Final = ("destination", "kind", "reason", "message_id")
"""Of a filter, as forms and addresses have them; an empty destination: nothing says where a message was to go."""


def wanted_of(fields: Fields) -> ErrorFilter:
    """The filter in the fields of an address or a form."""
    given: dict[str, Any] = {name: id_of(fields, name) for name in FIELDS if name in fields}
    return ErrorFilter(**given)


def groups(operations: Operations) -> ErrorGroups | None:
    """The content of the error queue; None: there is no such queue."""
    return None if operations.errors.depth() is None else operations.errors.groups(examine=EXAMINED)


def page(operations: Operations, wanted: ErrorFilter, skip: int, limit: int) -> ErrorPage:
    """Failed messages, without their bodies; none where there is no error queue."""
    if operations.errors.depth() is None:
        return ErrorPage(messages=(), depth=0, examined=0, next_skip=None)
    return operations.errors.messages(wanted, limit=limit, skip=skip, examine=max(EXAMINED, skip + limit))


async def message(request: Request, message_id: str) -> FailedMessage:
    """One failed message. Raises Refusal: it is not among the inspected messages, or there is no error queue."""

    def look(operations: Operations) -> FailedMessage | None:
        errors = operations.errors
        return None if errors.depth() is None else errors.get(message_id, examine=EXAMINED)

    found = await site_of(request).run_within(request, look, SEARCH_TIMEOUT)
    if found is None:
        raise Refusal(404, f"Message {message_id!r} is not among the first messages of the error queue.")
    return found


def begin(
    request: Request, action: str, wanted: ErrorFilter, destination: str | None = None, limit: int | None = None
) -> BackgroundJob:
    """Begin to `replay` or `discard`. Raises ConfigurationError without a transport, and where too much goes on."""
    site = site_of(request)
    operations = site.operations(request)
    errors = operations.errors

    about = "Replaying failed messages" if action == "replay" else "Discarding failed messages"
    job = BackgroundJob(about=about, by=operations.by, path="/errors")

    def do(_progress: Callable[[int], None]) -> str:
        def progress(_step: str, done: int, _total: int | None) -> None:
            job.done = done

        named: dict[str, Any] = {"limit": limit, "progress": progress, "stopping": lambda: site.stopping}
        if action == "replay":
            report = errors.replay(wanted, destination=destination, **named)
        else:
            report = errors.discard(wanted, **named)
        job.done = report.done
        site.cached.forget()
        return _result(action, report)

    return site.jobs.begin(job, do)


def _result(action: str, report: ErrorReport) -> str:
    done = "sent again" if action == "replay" else "discarded"
    parts = [f"{counted(report.done, 'message')} {done}"]
    parts += [f"{counted(count, 'message')} left: {why}" for why, count in report.left.items()]
    if report.perhaps_twice:
        parts.append(f"{counted(report.perhaps_twice, 'message')} may be there twice")
    if report.problem is not None:
        raise TransportError("; ".join([*parts, report.problem]))
    return "; ".join(parts)


def why_none(site: WebSite) -> str | None:
    """Why this page has no error queue; None: it has."""
    try:
        site.delivery.operations.errors  # noqa: B018 - it raises where there is none
    except ConfigurationError as error:
        return str(error)
    return None
