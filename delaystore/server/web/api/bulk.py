"""Operations on all messages that match: preview, begin, look, resume, end."""

from functools import partial
from typing import Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from delaystore.filters import MessageFilter
from delaystore.operations import Operations
from delaystore.server.web._changes import follow, previewed
from delaystore.server.web._site import site_of
from delaystore.server.web.api import answers
from delaystore.server.web.api._fields import (
    ApiCall,
    NewOperation,
    NoFields,
    PreviewFields,
    fields_of,
    filter_in,
    refusal,
)
from delaystore.server.web.errors import Refusal
from delaystore.server.web.forms import NEW_DUE_TIME
from delaystore.server.web.http import API, href
from delaystore.stores import documents
from delaystore.stores.records import Operation, OperationState


async def preview(request: Request) -> Response:
    """How many match, and the first of them; of a reschedule with the due times before and after it."""
    given = await fields_of(request, PreviewFields)
    wanted = filter_in(given.filter, MessageFilter.from_dict)
    found = await site_of(request).run(request, previewed, wanted, given.when())
    return JSONResponse(found.document())


async def begin(request: Request) -> Response:
    """Keep the operation, and run it in the background."""
    given = await fields_of(request, NewOperation)
    wanted, kind = filter_in(given.filter, MessageFilter.from_dict), given.kind
    for name in NEW_DUE_TIME:
        if kind == "cancel" and getattr(given, name) is not None:
            raise refusal(f"unknown field {name!r}; a cancel takes kind and filter")
    if kind == "cancel":
        begin = partial(Operations.begin_cancel, wanted=wanted)
    elif kind == "reschedule":
        begin = partial(Operations.begin_reschedule, wanted=wanted, **given.when())
    else:
        raise Refusal(400, f"The kind must be cancel or reschedule, not {kind[:80]!r}.")
    site = site_of(request)
    site.jobs.check_room()
    return accepted(request, await site.run(request, lambda operations: follow(site, operations, begin(operations))))


async def listed(request: Request) -> Response:
    """The last ones."""
    found = await site_of(request).run(request, Operations.operations)
    return JSONResponse({"operations": [_document(request, each) for each in found]})


async def get(request: Request) -> Response:
    """One of them."""
    return JSONResponse(_document(request, await _asked_for(request)))


async def resume(request: Request) -> Response:
    """Go on with it in the background."""
    await fields_of(request, NoFields)
    site, operation = site_of(request), await _asked_for(request)
    if operation.state is not OperationState.RUNNING:
        raise Refusal(409, f"The operation has already ended: {operation.state}.")
    return accepted(request, follow(site, site.operations(request), operation))


async def abandon(request: Request) -> Response:
    """End it where it is."""
    operation_id = request.path_params["operation_id"]
    found = await site_of(request).run(request, Operations.abandon, operation_id)
    if found is None:
        raise _unknown(operation_id)
    return JSONResponse(_document(request, found))


async def _asked_for(request: Request) -> Operation:
    operation_id = request.path_params["operation_id"]
    found = await site_of(request).run(request, Operations.operation, operation_id)
    if found is None:
        raise _unknown(operation_id)
    return found


def accepted(request: Request, operation: Operation) -> Response:
    """The answer to a call that has begun or resumed an operation."""
    place = href(request, f"{API}/operations/{operation.operation_id}")
    return JSONResponse(_document(request, operation), 202, {"Location": place})


def _document(request: Request, operation: Operation) -> dict[str, object]:
    jobs, subject = site_of(request).jobs, operation.operation_id
    running = operation.state is OperationState.RUNNING
    return {
        **{name: value for name, value in documents.record(operation).items() if name != "after"},
        "runs_here": running and jobs.on(subject) is not None,
        "problem": jobs.failed_on(subject) if running else None,
    }


def _unknown(operation_id: str) -> Refusal:
    return Refusal(404, f"There is no operation {operation_id!r}.")


CALLS: Final = (
    ApiCall(
        method="POST",
        path="/operations/preview",
        name="previewOperation",
        summary=(
            "How many messages match, counted for a few seconds, and the first of them; with a new due time also their "
            "due times before and after it. Changes nothing."
        ),
        do=preview,
        body=PreviewFields,
        answer=answers.Previewed,
        refusals=(404,),
    ),
    ApiCall(
        method="POST",
        path="/operations",
        name="beginOperation",
        summary="Cancel or reschedule all that match, in the background; it can be resumed after a crash.",
        do=begin,
        body=NewOperation,
        answer=answers.OperationAnswer,
        status=(202,),
        refusals=(404,),
    ),
    ApiCall(
        method="GET",
        path="/operations",
        name="operations",
        summary="The last operations, the newest first.",
        do=listed,
        answer=answers.OperationsAnswer,
    ),
    ApiCall(
        method="GET",
        path="/operations/{operation_id}",
        name="operation",
        summary="Progress or result of an operation.",
        do=get,
        answer=answers.OperationAnswer,
        refusals=(404,),
    ),
    ApiCall(
        method="POST",
        path="/operations/{operation_id}",
        name="resumeOperation",
        summary="Resume an interrupted operation in the background. The body is {}.",
        do=resume,
        body=NoFields,
        answer=answers.OperationAnswer,
        status=(202,),
        refusals=(404, 409),
    ),
    ApiCall(
        method="DELETE",
        path="/operations/{operation_id}",
        name="abandonOperation",
        summary="Stop an operation; its changes stay.",
        do=abandon,
        answer=answers.OperationAnswer,
        refusals=(404,),
    ),
)
