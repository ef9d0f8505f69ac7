"""Changes that pages and the API make alike, as background jobs: operations on many messages, paused destinations."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from time import monotonic
from typing import Final

from starlette.requests import Request

from delaystore.amounts import counted
from delaystore.errors import ConfigurationError, StoreUnavailableError
from delaystore.filters import MessageFilter
from delaystore.message import check_destination
from delaystore.operations import Operations, Overview, Preview
from delaystore.operations.overview import RATE_OVER
from delaystore.stores.operable import Destination, Operation, OperationState
from delaystore.web.jobs import BackgroundJob
from delaystore.web.site import Site, site_of

SAMPLE: Final = 5
COUNTING: Final = 4.0
"""Seconds for which a preview counts; then it says: at least so many."""


class _EnoughError(Exception):
    """Counting has taken long enough."""


def previewed(operations: Operations, wanted: MessageFilter) -> Preview:
    """How many match, counted for a few seconds at most, and the first of them."""
    end, reached = monotonic() + COUNTING, 0

    def progress(count: int) -> None:
        nonlocal reached
        reached = count
        if monotonic() > end:
            raise _EnoughError

    try:
        return operations.preview(wanted, sample=SAMPLE, progress=progress)
    except _EnoughError:
        sample = operations.search(wanted, limit=SAMPLE).messages
        return Preview(wanted=wanted, count=reached, sample=sample, complete=False)


def follow(site: Site, operations: Operations, operation: Operation) -> None:
    """Run `operation` in the background, unless this process does so already, or it has ended."""
    if operation.state is not OperationState.RUNNING or site.jobs.on(operation.operation_id) is not None:
        return

    def do(progress: Callable[[int], None]) -> str:
        ended = operations.run(operation.operation_id, lambda step: progress(step.changed))
        site.cached.forget()
        return f"{counted(ended.changed, 'message')} changed"

    site.jobs.begin(BackgroundJob(about=operation.kind.value, by=operations.by, subject=operation.operation_id), do)


_PATIENCE: Final = 10.0
_COUNTING: Final = 5.0
"""Seconds that are waited for the backlog, which reads all that waits; then it is unknown."""
_MOMENT: Final = 2.0
"""Seconds that a change is waited for: most have ended by then."""
_TICK: Final = 0.05


@dataclass(frozen=True, slots=True)
class Row:
    """One destination. `waiting` None: not counted. `rate`: delivered a second. `state` None: nobody changed it."""

    name: str
    waiting: int | None
    rate: float | None
    state: Destination | None


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a destination. `about`: while it goes on; `done`: what became of the messages."""

    about: str
    told: str
    done: str
    do: Callable[[Operations, Callable[[int], None]], int]


def paused(name: str, until: datetime | None) -> Change:
    """Pause it. Raises InvalidMessageError for a name that is none."""
    check_destination(name)
    return Change(
        f"Pausing {name}",
        f"{name} is paused.",
        "parked",
        lambda operations, progress: operations.pause(name, until=until, progress=progress),
    )


def resumed(name: str) -> Change:
    """Resume it. Raises InvalidMessageError for a name that is none."""
    check_destination(name)
    return Change(
        f"Resuming {name}",
        f"{name} is resumed.",
        "shown again",
        lambda operations, progress: operations.resume(name, progress=progress),
    )


async def rows_of(request: Request) -> tuple[list[Row], Overview]:
    """All that messages wait for, or that were delivered to lately, or that somebody changed, the fullest first."""
    site = site_of(request)
    overview, backlog, changed = await asyncio.gather(  # at once: a store that hangs is waited for once
        site.cached.overview(_PATIENCE), _backlog(site), site.ask(request, Operations.destinations)
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


async def begin_change(request: Request, change: Change) -> BackgroundJob:
    """Begin it in the background, and wait a moment for its end. Raises what it failed by."""
    site = site_of(request)
    operations = site.operations(request)
    job = BackgroundJob(about=change.about, by=operations.by, path="/destinations")

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


async def _backlog(site: Site) -> Mapping[str, int] | None:
    try:
        return await site.cached.backlog(_COUNTING)
    except StoreUnavailableError:
        return None


def _rates(overview: Overview) -> Mapping[str, float]:
    recent = overview.recent(RATE_OVER)
    return {} if recent is None else recent.rates
