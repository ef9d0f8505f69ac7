"""Messages: send, get, search, cancel, reschedule; and their history."""

from functools import partial
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from delaystore.errors import DuplicateMessageError
from delaystore.message import DelayedMessage, new_message_id
from delaystore.operations import Operations
from delaystore.operations.json_requests import delay_in
from delaystore.server.web._site import site_of
from delaystore.server.web.api import answers
from delaystore.server.web.api._fields import FLAG, TEXT, TIME, ApiCall, NewDueTime, NewMessage, ends_in_id, fields_of
from delaystore.server.web.errors import Refusal
from delaystore.server.web.forms import (
    HISTORY,
    Fields,
    being_changed,
    filter_of,
    history_filter_of,
    id_of,
    position_of,
    text_of,
    unknown,
    whole_number,
)
from delaystore.stores import documents
from delaystore.stores.abc import ManagementOutcome
from delaystore.stores.history import HistoryPage, HistoryStatus
from delaystore.stores.records import Ending

_MOST: Final = 1_000


async def send(request: Request) -> Response:
    """Store a message; with a message_id of its own, again as often as the sender likes."""
    site, given = site_of(request), await fields_of(request, NewMessage)
    own_id = given.message_id
    message_id = new_message_id() if own_id is None else own_id
    try:
        stored_id = await site.calls(
            partial(
                site.sender(request).send,
                given.destination,
                given.content(),
                **given.times(),
                headers=given.headers,
                properties=given.properties_read(),
                message_id=message_id,
                key=given.key,
                on_key=given.on_key,
                max_wait=None if given.max_wait is None else delay_in(given.max_wait, "max_wait"),
            )
        )
    except DuplicateMessageError:
        if own_id is None:
            raise
        return JSONResponse({"message_id": message_id, "stored": False})
    stored = stored_id == message_id
    return JSONResponse({"message_id": stored_id, "stored": stored}, 201 if stored else 200)


async def search(request: Request) -> Response:
    """A page of matching messages; `next` is the cursor of the next page, and is null at the end only: a page may be
    short.
    """
    query = request.query_params
    wanted, after = filter_of(query), position_of(text_of(query, "after"))
    page = await site_of(request).run(request, Operations.search, wanted, after=after, limit=limit_of(query, 100))
    found = [documents.summary(message) for message in page.messages]
    return JSONResponse({"messages": found, "next": None if page.next_key is None else str(page.next_key)})


async def get(request: Request) -> Response:
    """One message."""
    site, message_id = site_of(request), request.path_params["message_id"]
    message = await site.calls(partial(site.delivery.get, message_id))
    if message is None:
        raise _not_waiting(message_id)
    return JSONResponse(_document(message, with_body=site.show_bodies))


async def life(request: Request) -> Response:
    """All that is known of one message, whether it waits or has left."""
    if ends_in_id(request):
        request.path_params["message_id"] += "/history"
        return await get(request)
    message_id = request.path_params["message_id"]
    found = await site_of(request).run(request, Operations.life, message_id)
    if not found.is_known:
        raise unknown(message_id)
    return JSONResponse(found.as_dict())


async def history(request: Request) -> Response:
    """A page of the history, the newest entries first; `next` as of `search`."""
    query = request.query_params
    wanted, after, limit = history_filter_of(query), position_of(text_of(query, "after")), limit_of(query, 100)

    def look(operations: Operations) -> tuple[HistoryStatus, HistoryPage]:
        return operations.history_status(), operations.history(wanted, after=after, limit=limit)

    state, page = await site_of(request).run(request, look)
    found = [each.as_dict() for each in page.entries]
    following = None if page.next_key is None else str(page.next_key)
    return JSONResponse({"history": found, "next": following, **documents.record(state)})


async def cancel(request: Request) -> Response:
    """Delete it."""
    message_id = request.path_params["message_id"]
    return _answer(message_id, await site_of(request).run(request, Operations.cancel_one, message_id))


async def reschedule(request: Request) -> Response:
    """Give it a new due time, or move that; a delay of 0 sends it now."""
    when = (await fields_of(request, NewDueTime)).when()
    message_id = request.path_params["message_id"]
    return _answer(message_id, await site_of(request).run(request, Operations.reschedule_one, message_id, **when))


def limit_of(query: Fields, default: int, name: str = "limit") -> int:
    """How many are wanted, at most. Raises InvalidMessageError."""
    return whole_number(id_of(query, name) if name in query else str(default), f"the {name}", 1, _MOST)


def _document(message: DelayedMessage, *, with_body: bool) -> dict[str, Any]:
    found = {**documents.waiting(message), "parked": message.is_parked, "failures": documents.field(message.failures)}
    hidden = () if with_body else ("body", "body_base64")
    return {name: value for name, value in found.items() if name not in hidden}


def _answer(message_id: str, outcome: ManagementOutcome) -> Response:
    if outcome is ManagementOutcome.NOT_FOUND:
        raise _not_waiting(message_id)
    if outcome is ManagementOutcome.BEING_DISPATCHED:
        raise Refusal(409, f"Nothing was changed, because {being_changed(message_id)}.")
    return JSONResponse({"message_id": message_id})


def _not_waiting(message_id: str) -> Refusal:
    return Refusal(404, f"Message {message_id!r} is not waiting.")


_LIMIT: Final = {"type": "integer", "minimum": 1, "maximum": _MOST}
_AFTER: Final = {**TEXT, "description": "The `next` of the page before."}
CALLS: Final = (
    ApiCall(
        method="POST",
        path="/messages",
        name="send",
        summary=(
            "Store a message until it is due. 200: a message of this message_id, or key, is waiting already. 409: a "
            "dispatcher has the message of this message_id; send again."
        ),
        do=send,
        body=NewMessage,
        answer=answers.Stored,
        status=(201, 200),
        refusals=(409,),
    ),
    ApiCall(
        method="GET",
        path="/messages",
        name="search",
        summary="A page of waiting messages that match; a page may be short although more match: go on with `next`.",
        do=search,
        query={
            "destination": TEXT,
            "since": {**TIME, "description": "Due at this time or later; without an offset it is UTC."},
            "until": {**TIME, "description": "Due before this time."},
            "id_prefix": TEXT,
            "load": TEXT,
            "header": {"type": "array", "items": TEXT, "description": "NAME=VALUE, as often as wanted."},
            "failing": FLAG,
            "paused": FLAG,
            "after": _AFTER,
            "limit": _LIMIT,
        },
        answer=answers.MessagePage,
        refusals=(404,),
    ),
    ApiCall(
        method="GET",
        path="/history",
        name="history",
        summary=(
            "A page of messages that have left the store, the newest first, and how far the history reaches back; a "
            "page may be short although more match: go on with `next`."
        ),
        do=history,
        query={
            **dict.fromkeys(HISTORY, TEXT),
            "since": {**TIME, "description": "Left at this time or later; without an offset it is UTC."},
            "until": {**TIME, "description": "Left before this time."},
            "outcome": {"type": "string", "enum": [*Ending]},
            "after": _AFTER,
            "limit": _LIMIT,
        },
        answer=answers.HistoryAnswer,
    ),
    ApiCall(  # before `get`, whose id may hold slashes
        method="GET",
        path="/messages/{message_id}/history",
        name="life",
        summary="All that is known of one message: whether it waits, its changes, and how it left.",
        do=life,
        answer=answers.LifeAnswer,
        refusals=(404,),
    ),
    ApiCall(
        method="GET",
        path="/messages/{message_id}",
        name="get",
        summary="One waiting message; its body only where the server shows bodies.",
        do=get,
        answer=answers.Message,
        refusals=(404,),
    ),
    ApiCall(
        method="DELETE",
        path="/messages/{message_id}",
        name="cancel",
        summary="Delete a waiting message, unless a dispatcher has it.",
        do=cancel,
        answer=answers.MessageId,
        refusals=(404, 409),
    ),
    ApiCall(
        method="PATCH",
        path="/messages/{message_id}",
        name="reschedule",
        summary=(
            "Give a waiting message a new due time, or move its own by a span, unless a dispatcher has it; a delay of "
            "0 sends it now."
        ),
        do=reschedule,
        body=NewDueTime,
        answer=answers.MessageId,
        refusals=(404, 409),
    ),
)
