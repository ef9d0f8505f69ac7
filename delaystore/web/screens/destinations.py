"""Destinations: what waits for each, how fast it goes, and whether it is paused or limited."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from delaystore.errors import ConfigurationError, StoreUnavailableError
from delaystore.operations import Operations, Overview
from delaystore.operations.overview import RECENT
from delaystore.stores.operable import Destination
from delaystore.web.changing import fields_of
from delaystore.web.forms import text_of, time_of
from delaystore.web.shown import counted
from delaystore.web.site import Site, site_of
from delaystore.web.works import Work

PATIENCE: Final = 10.0
_COUNTING: Final = 5.0
"""Seconds that the page waits for the backlog, which reads all that waits; then it shows none."""


@dataclass(frozen=True, slots=True)
class Row:
    """One destination. `waiting` None: not counted. `rate`: delivered a second. `state` None: nobody changed it."""

    name: str
    waiting: int | None
    rate: float | None
    state: Destination | None


async def listed(request: Request) -> Response:
    """All that messages wait for, or that were delivered to lately, or that somebody changed."""
    site = site_of(request)
    overview, backlog = await asyncio.gather(site.readings.overview(PATIENCE), _backlog(site))
    states = await site.ask(request, Operations.destinations)
    return site.pages.page(
        request,
        "destinations.html",
        here="/destinations",
        rows=_rows(overview, backlog, {each.name: each for each in states}),
        counted=backlog is not None,
        works=[each for each in site.works.running() if each.path == "/destinations"],
        now=overview.now,
        chosen=text_of(request.query_params, "name"),
    )


async def _backlog(site: Site) -> Mapping[str, int] | None:
    try:
        return await site.readings.backlog(_COUNTING)
    except StoreUnavailableError:
        return None


def _rows(overview: Overview, backlog: Mapping[str, int] | None, states: Mapping[str, Destination]) -> list[Row]:
    rates = _rates(overview)
    names = sorted({*(backlog or ()), *rates, *states}, key=lambda name: (-(backlog or {}).get(name, 0), name))
    return [
        Row(
            name,
            None if backlog is None else backlog.get(name, 0),
            None if overview.activity is None else rates.get(name, 0.0),
            states.get(name),
        )
        for name in names
    ]


def _rates(overview: Overview) -> dict[str, float]:
    if overview.activity is None or overview.now is None:
        return {}
    totals: dict[str, int] = {}
    for each in overview.activity:
        if each.minute >= overview.now - RECENT:
            for name, count in each.by_destination.items():
                totals[name] = totals.get(name, 0) + count
    return {name: count / RECENT.total_seconds() for name, count in totals.items()}


async def pause(request: Request) -> Response:
    """Pause it; what is due is parked in the background."""
    fields = await fields_of(request)
    name, until = text_of(fields, "name"), time_of(text_of(fields, "until"), "until")
    return await _begin(
        request,
        f"Pausing {name}",
        f"{name} is paused.",
        lambda operations, progress: operations.pause(name, until=until, progress=progress),
        "parked",
    )


async def resume(request: Request) -> Response:
    """Let it go on; what is parked is shown in the background."""
    name = text_of(await fields_of(request), "name")
    return await _begin(
        request,
        f"Resuming {name}",
        f"{name} is resumed.",
        lambda operations, progress: operations.resume(name, progress=progress),
        "shown again",
    )


async def limit(request: Request) -> Response:
    """Limit how many go there a second; an empty field: any number."""
    site, fields = site_of(request), await fields_of(request)
    name, rate = text_of(fields, "name"), _rate(text_of(fields, "max_rate"))
    await site.ask(request, Operations.limit_rate, name, rate)
    site.readings.forget()
    told = f"{name} has no limit any more." if rate is None else f"At most {rate:g} messages a second go to {name}."
    return site.pages.then(request, "/destinations", None, told)


async def _begin(
    request: Request,
    about: str,
    told: str,
    change: Callable[[Operations, Callable[[int], None]], int],
    done: str,
) -> Response:
    """Begin a change, and wait a moment for it: most have ended by then, and what cannot be is told at once."""
    site = site_of(request)
    operations = site.operations(request)
    work = Work(about=about, by=operations.by, path="/destinations")

    def do(progress: Callable[[int], None]) -> str:
        count = change(operations, progress)
        site.readings.forget()
        return f"{counted(count, 'message')} {done}"

    site.works.begin(work, do)
    for _ in range(20):
        if not work.running:
            break
        await asyncio.sleep(0.1)
    if work.problem is not None:
        raise ConfigurationError(work.problem)
    result = "" if work.result is None else f" {work.result}."
    return site.pages.then(request, "/destinations", None, told + result)


def _rate(text: str) -> float | None:
    if not text:
        return None
    try:
        return float(text)
    except ValueError:
        raise ConfigurationError(f"the limit {text!r} is no number of messages a second") from None
