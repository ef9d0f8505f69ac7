"""Waiting messages and the history, filtered, page by page; and the life of one message."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from delaystore.errors import InvalidMessageError
from delaystore.filters import MessageFilter
from delaystore.message import FailedAttempt
from delaystore.operations import Operations
from delaystore.server.web import formatting
from delaystore.server.web._site import site_of
from delaystore.server.web.errors import Refusal
from delaystore.server.web.forms import (
    HISTORY,
    being_changed,
    due_of,
    fields_of,
    filter_of,
    history_filter_of,
    id_of,
    position_of,
    query_of,
    text_of,
    typed,
    unknown,
)
from delaystore.stores.abc import ManagementOutcome, Page
from delaystore.stores.history import HistoryEntry, HistoryPage, HistoryStatus, MessageLife
from delaystore.stores.records import AuditEntry, Ending

PAGE: Final = 50
"""Messages or entries of the history on one page."""
SHOWN: Final = 64 * 1024
"""Bytes of a body that are shown."""


async def listed(request: Request) -> Response:
    """A page of matching messages; the life of a message whose id was typed, and which waits no more.

    400: the form has an invalid value; it is shown again with the reason.
    """
    site = site_of(request)
    form: dict[str, Any] = {"typed": typed(request.query_params), "here": "/messages", "problem": None}
    try:
        wanted = filter_of(request.query_params)
        after = position_of(text_of(request.query_params, "after"))
    except InvalidMessageError as error:
        return site.pages.page(
            request, "messages.html", status=400, **{**form, "problem": str(error)}, page=None, query={}, wanted=None
        )

    def look(operations: Operations) -> tuple[datetime, Page, bool]:
        page, typed_id = operations.search(wanted, after=after, limit=PAGE), wanted.id_prefix
        is_no_other = not page.messages and wanted == MessageFilter(id_prefix=typed_id)
        return operations.now(), page, typed_id is not None and is_no_other and operations.life(typed_id).is_known

    now, page, waits_no_more = await site.run(request, look)
    if waits_no_more:
        return site.pages.then(request, "/message", {"id": wanted.id_prefix})
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
    """The life of one message, whether it waits or has left. 404: the store knows nothing of it."""
    site, message_id = site_of(request), _asked_for(request)
    now, life = await site.run(request, lambda operations: (operations.now(), operations.life(message_id)))
    if not life.is_known:
        raise unknown(message_id)
    message, body = life.message, b"" if life.message is None else life.message.body
    return site.pages.page(
        request,
        "message.html",
        here="/history" if message is None else "/messages",
        life=life,
        message=message,
        events=_events(life),
        now=now,
        bodies=formatting.bodies(body, SHOWN) if site.show_bodies else None,
        more=max(0, len(body) - SHOWN),
    )


def _events(life: MessageLife) -> Sequence[AuditEntry | FailedAttempt | HistoryEntry]:
    """Changes of a message, failed attempts before it left, and how it left, the oldest first."""
    failures = [each for entry in life.entries for each in entry.failures]
    return sorted(
        [*failures, *reversed(life.changes), *reversed(life.entries)],
        key=lambda each: each.ended if isinstance(each, HistoryEntry) else each.at,
    )


async def history(request: Request) -> Response:
    """Messages that have left the store, the newest first; the life of a message whose id was typed.

    400: the form has an invalid value; it is shown again with the reason.
    """
    site, given = site_of(request), typed(request.query_params, HISTORY)
    query = {name: value for name, value in given.items() if value}
    form: dict[str, Any] = {"typed": given, "query": query, "here": "/history", "outcomes": [*Ending], "problem": None}
    try:
        wanted = history_filter_of(request.query_params)
        after = position_of(text_of(request.query_params, "after"))
    except InvalidMessageError as error:
        form |= {"problem": str(error), "state": None, "page": None, "gaps": ()}
        return site.pages.page(request, "history.html", status=400, **form)

    def look(operations: Operations) -> tuple[HistoryPage, HistoryStatus, Sequence[str]] | None:
        if wanted.message_id is not None and len(query) == 1 and operations.life(wanted.message_id).is_known:
            return None
        state = operations.history_status()
        return operations.history(wanted, after=after, limit=PAGE), state, operations.history_gaps(state)

    found = await site.run(request, look)
    if found is None:
        return site.pages.then(request, "/message", {"id": wanted.message_id})
    page, state, gaps = found
    form |= {"page": page, "state": state, "gaps": gaps, "is_first": after is None, "size": PAGE}
    return site.pages.page(request, "history.html", **form)


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
