"""Waiting messages, filtered, page by page; and one message."""

from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from delaystore.errors import InvalidMessageError
from delaystore.operations import Operations
from delaystore.server.web import formatting
from delaystore.server.web._site import site_of
from delaystore.server.web.errors import Refusal
from delaystore.server.web.forms import (
    being_changed,
    due_of,
    fields_of,
    filter_of,
    id_of,
    position_of,
    query_of,
    text_of,
    typed,
)
from delaystore.stores.abc import ManagementOutcome

PAGE: Final = 50
"""Messages on one page."""
SHOWN: Final = 64 * 1024
"""Bytes of a body that are shown."""


async def listed(request: Request) -> Response:
    """A page of matching messages. 400: the form has an invalid value; it is shown again with the reason."""
    site = site_of(request)
    form: dict[str, Any] = {"typed": typed(request.query_params), "here": "/messages", "problem": None}
    try:
        wanted = filter_of(request.query_params)
        after = position_of(text_of(request.query_params, "after"))
    except InvalidMessageError as error:
        return site.pages.page(
            request, "messages.html", status=400, **{**form, "problem": str(error)}, page=None, query={}, wanted=None
        )
    now, page = await site.run(
        request, lambda operations: (operations.now(), operations.search(wanted, after=after, limit=PAGE))
    )
    return site.pages.page(
        request,
        "messages.html",
        page=page,
        now=now,
        wanted=wanted,
        query=query_of(wanted),
        is_first=after is None,
        is_short=len(page.messages) < PAGE,
        **form,
    )


async def one(request: Request) -> Response:
    """One message: 404 where it waits no longer."""
    site, message_id = site_of(request), _asked_for(request)
    now, message = await site.run(request, lambda operations: (operations.now(), site.delivery.get(message_id)))
    if message is None:
        raise Refusal(
            404, f"Message {message_id!r} is not waiting. It was delivered or cancelled, or it never existed."
        )
    return site.pages.page(
        request,
        "message.html",
        here="/messages",
        message=message,
        now=now,
        bodies=formatting.bodies(message.body, SHOWN) if site.show_bodies else None,
        more=max(0, len(message.body) - SHOWN),
    )


async def cancel(request: Request) -> Response:
    """Delete it."""
    message_id = id_of(await fields_of(request))
    outcome = await site_of(request).run(request, Operations.cancel_one, message_id)
    return _after(request, message_id, outcome, "is cancelled", left=True)


async def send_now(request: Request) -> Response:
    """Make it due."""
    message_id = id_of(await fields_of(request))
    outcome = await site_of(request).run(request, Operations.send_now, message_id)
    return _after(request, message_id, outcome, "is due now", left=True)


async def reschedule(request: Request) -> Response:
    """Give it a new due time."""
    fields = await fields_of(request)
    message_id = id_of(fields)
    outcome = await site_of(request).run(request, Operations.reschedule_one, message_id, **due_of(fields))
    return _after(request, message_id, outcome, "has a new due time")


def _after(request: Request, message_id: str, outcome: ManagementOutcome, done: str, *, left: bool = False) -> Response:
    """Show the result; `left`: the message has no page any more, or will soon have none."""
    site = site_of(request)
    site.cached.forget()
    if outcome is ManagementOutcome.DONE:
        path, query = ("/messages", None) if left else ("/message", {"id": message_id})
        return site.pages.then(request, path, query, f"Message {message_id} {done}.")
    if outcome is ManagementOutcome.BEING_DISPATCHED:
        notice = f"Nothing was changed, because {being_changed(message_id)}."
        return site.pages.then(request, "/message", {"id": message_id}, notice)
    return site.pages.then(
        request, "/messages", None, f"Nothing was changed: message {message_id} is no longer waiting."
    )


def _asked_for(request: Request) -> str:
    message_id = request.query_params.get("id", "")
    if not message_id:
        raise Refusal(404, "The address does not name a message.")
    return message_id
