"""The error queue: groups, messages, replay, discard."""

from base64 import b64encode
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from delaystore.operations.error_queue import summary_document
from delaystore.operations.failed_message import ErrorFilter, FailedMessage
from delaystore.server.web import _changes, formatting
from delaystore.server.web._site import BackgroundJob, site_of
from delaystore.server.web.api import answers
from delaystore.server.web.api._fields import TEXT, ApiCall, Discard, Replay, fields_of, filter_in
from delaystore.server.web.api.messages import limit_of
from delaystore.server.web.errors import Refusal
from delaystore.server.web.forms import whole_number
from delaystore.server.web.http import API, href
from delaystore.stores import documents


async def groups(request: Request) -> Response:
    """By destination, kind and reason."""
    found = await site_of(request).run_within(request, _changes.groups, _changes.SEARCH_TIMEOUT)
    if found is None:
        return JSONResponse({"groups": [], "depth": 0, "examined": 0})
    return JSONResponse(documents.record(found))


async def messages(request: Request) -> Response:
    """Matching messages, the oldest first."""
    query = request.query_params
    skip = whole_number(query.get("skip", "0"), "skip", 0, _changes.FURTHEST)
    wanted, limit = _changes.wanted_of(query), limit_of(query, 100)
    found = await site_of(request).run_within(
        request, lambda operations: _changes.page(operations, wanted, skip, limit), _changes.SEARCH_TIMEOUT
    )
    listed = [summary_document(message) for message in found.messages]
    return JSONResponse({"messages": listed, "depth": found.depth, "next_skip": found.next_skip})


async def get(request: Request) -> Response:
    """One of them, with the original message."""
    site, message_id = site_of(request), request.path_params["message_id"]
    message = await _changes.message(request, message_id)
    content = {"headers": documents.plain(message.headers), "properties": documents.plain(message.properties)}
    return JSONResponse({**summary_document(message), **content, **(_body(message) if site.show_bodies else {})})


async def replay(request: Request) -> Response:
    """Send the originals again, in the background."""
    given = await fields_of(request, Replay)
    wanted = filter_in(given.filter, ErrorFilter.from_dict)
    return _begun(request, _changes.begin(request, "replay", wanted, given.to, given.limit))


async def discard(request: Request) -> Response:
    """Remove them for good, in the background."""
    given = await fields_of(request, Discard)
    wanted = filter_in(given.filter, ErrorFilter.from_dict)
    return _begun(request, _changes.begin(request, "discard", wanted, limit=given.limit))


async def job(request: Request) -> Response:
    """How far it is."""
    found = site_of(request).jobs.get(request.path_params["job_id"])
    if found is None:
        raise Refusal(404, "This process does not know the job. See its changes in the audit trail.")
    return JSONResponse(_job(found))


def _begun(request: Request, begun: BackgroundJob) -> Response:
    return JSONResponse(_job(begun), 202, {"Location": href(request, f"{API}/jobs/{begun.job_id}")})


def _job(found: BackgroundJob) -> dict[str, Any]:
    answer: dict[str, Any] = msgspec.to_builtins(msgspec.convert(found, answers.Job, from_attributes=True))
    return answer


def _body(message: FailedMessage) -> dict[str, Any]:
    body = message.body or b""
    text = formatting.as_text(body)
    return {"body_base64": b64encode(body).decode()} if text is None else {"body": text}


_COUNT: Final = {"type": "integer", "minimum": 0}
CALLS: Final = (
    ApiCall(
        method="GET",
        path="/errors",
        name="errorGroups",
        summary="The error queue's messages by destination, kind and reason; the oldest 5,000 are read.",
        do=groups,
        answer=answers.ErrorGroupsAnswer,
    ),
    ApiCall(
        method="GET",
        path="/errors/messages",
        name="errorMessages",
        summary="Failed messages that match, the oldest first, without their content.",
        do=messages,
        query={
            **dict.fromkeys(_changes.FIELDS, TEXT),
            "skip": {**_COUNT, "maximum": _changes.FURTHEST},
            "limit": {"type": "integer", "minimum": 1, "maximum": 1000},
        },
        answer=answers.FailedPage,
    ),
    ApiCall(
        method="GET",
        path="/errors/messages/{message_id}",
        name="errorMessage",
        summary="One failed message. The body is included only if the server shows bodies.",
        do=get,
        answer=answers.FailedMessageAnswer,
        refusals=(404,),
    ),
    ApiCall(
        method="POST",
        path="/errors/replay",
        name="replay",
        summary="Send the matching messages again in the background, to their destinations or all `to` another one.",
        do=replay,
        body=Replay,
        answer=answers.Job,
        status=(202,),
    ),
    ApiCall(
        method="POST",
        path="/errors/discard",
        name="discard",
        summary="Delete the matching messages from the error queue for good, in the background.",
        do=discard,
        body=Discard,
        answer=answers.Job,
        status=(202,),
    ),
    ApiCall(
        method="GET",
        path="/jobs/{job_id}",
        name="job",
        summary="Progress or result of a replay or discard of this process.",
        do=job,
        answer=answers.Job,
        refusals=(404,),
    ),
)
