"""The error queue: messages that could not be forwarded, by groups, and changes of them."""

from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from delaystore.filters import ALL
from delaystore.server.web import _changes, formatting
from delaystore.server.web._site import site_of
from delaystore.server.web.forms import fields_of, meant, text_of, whole_number
from delaystore.server.web.screens.messages import SHOWN

PAGE: Final = 50


async def groups(request: Request) -> Response:
    """By destination, kind and reason, the largest first."""
    site = site_of(request)
    why_none = _changes.why_none(site)
    found = None if why_none else await site.run_within(request, _changes.groups, _changes.SEARCH_TIMEOUT)
    return site.pages.page(
        request,
        "errors.html",
        here="/errors",
        found=found,
        why_none=why_none,
        queue=None if why_none else site.delivery.operations.errors.name,
        jobs=[each for each in site.jobs.running() if each.path == "/errors"],
    )


async def messages(request: Request) -> Response:
    """Those of a group, the oldest first."""
    site, query = site_of(request), request.query_params
    skip = whole_number(query.get("skip", "0"), "skip", 0, _changes.FURTHEST)
    wanted = _changes.wanted_of(query)
    found = await site.run_within(
        request, lambda operations: _changes.page(operations, wanted, skip, PAGE), _changes.SEARCH_TIMEOUT
    )
    return site.pages.page(
        request,
        "error_messages.html",
        here="/errors",
        found=found,
        wanted=wanted,
        query=wanted.as_dict() if wanted else {ALL: "yes"},
        skip=skip,
    )


async def one(request: Request) -> Response:
    """One failed message."""
    site, message_id = site_of(request), request.query_params.get("id", "")
    message = await _changes.message(request, message_id)
    bodies = formatting.bodies(message.body or b"", SHOWN) if site.show_bodies else None
    return site.pages.page(
        request,
        "error_message.html",
        here="/errors",
        message=message,
        bodies=bodies,
        more=max(0, message.size - SHOWN),
    )


async def replay(request: Request) -> Response:
    """Send the originals of matching messages again."""
    fields = await fields_of(request)
    job = _changes.begin(
        request, "replay", meant(fields, _changes.wanted_of(fields)), text_of(fields, "to") or None, _limit(fields)
    )
    return site_of(request).pages.then(request, "/job", {"id": job.job_id})


async def discard(request: Request) -> Response:
    """Remove matching messages for good."""
    fields = await fields_of(request)
    job = _changes.begin(request, "discard", meant(fields, _changes.wanted_of(fields)), limit=_limit(fields))
    return site_of(request).pages.then(request, "/job", {"id": job.job_id})


def _limit(fields: Any) -> int | None:
    """As many as the form spoke of, the oldest: others like them may have come since. None: all that match."""
    given = text_of(fields, "limit")
    return whole_number(given, "limit", 1, _changes.FURTHEST) if given else None
