"""Changes of all messages that match: choose, preview, confirm, watch, and see the result."""

from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from delaystore.errors import ConfigurationError, InvalidMessageError
from delaystore.operations import Operations
from delaystore.server.web._changes import follow, previewed
from delaystore.server.web._site import site_of
from delaystore.server.web.errors import Refusal, status_of
from delaystore.server.web.forms import (
    NEW_DUE_TIME,
    Fields,
    due_of,
    fields_of,
    filter_of,
    id_of,
    meant,
    query_of,
    text_of,
    typed,
)
from delaystore.stores.records import Operation, OperationKind, OperationState

_SHOWN: Final = 20


async def choose(request: Request) -> Response:
    """The form, and the last operations."""
    site = site_of(request)
    operations = await site.run(request, Operations.operations, _SHOWN)
    return site.pages.page(
        request,
        "bulk.html",
        here="/bulk",
        typed=typed(request.query_params),
        chosen=text_of(request.query_params, "kind") or OperationKind.CANCEL.value,
        operations=operations,
        problem=None,
        preview=None,
    )


async def preview(request: Request) -> Response:
    """The messages that would be changed, and the button that changes them. It changes nothing itself."""
    site, fields = site_of(request), request.query_params
    form: dict[str, Any] = {
        "here": "/bulk",
        "typed": typed(fields),
        "chosen": text_of(fields, "kind"),
        "operations": (),
        **{name: text_of(fields, name) for name in NEW_DUE_TIME},
    }
    try:
        wanted = filter_of(fields)
        found = await site.run(request, previewed, wanted, _due(_kind_of(fields), fields))
    except (ConfigurationError, InvalidMessageError) as error:
        refused = {**form, "problem": str(error), "preview": None}
        return site.pages.page(request, "bulk.html", status=status_of(type(error)), **refused)
    return site.pages.page(request, "bulk.html", **form, preview=found, query=query_of(wanted), problem=None)


async def begin(request: Request) -> Response:
    """Keep the operation in the store, and have it run."""
    site, fields = site_of(request), await fields_of(request)
    site.jobs.check_room()
    operation = await site.run(request, lambda operations: follow(site, operations, begun(operations, fields)))
    return site.pages.then(request, "/operation", {"id": operation.operation_id})


def begun(operations: Operations, fields: Fields) -> Operation:
    """The operation that a form asks for, kept and not run yet."""
    wanted = meant(fields, filter_of(fields))
    due = _due(_kind_of(fields), fields)
    return operations.begin_cancel(wanted) if due is None else operations.begin_reschedule(wanted, **due)


async def operation(request: Request) -> Response:
    """One operation: its progress, or its result."""
    site = site_of(request)
    operation_id = request.query_params.get("id", "")
    job = site.jobs.on(operation_id)  # asked first: where it has ended, the operation shows it
    found = await site.run(request, Operations.operation, operation_id)
    if found is None:
        raise Refusal(404, f"There is no operation {operation_id!r}.")
    return site.pages.page(
        request,
        "operation.html",
        here="/bulk",
        operation=found,
        waiting=(await site.cached.overview(10)).waiting,
        job=job,
        problem=site.jobs.failed_on(operation_id),
        running=found.state is OperationState.RUNNING,
        query=query_of(found.wanted),
    )


async def resume(request: Request) -> Response:
    """Resume an operation that no process runs any more."""
    site, operation_id = site_of(request), id_of(await fields_of(request))
    found = await site.run(request, Operations.operation, operation_id)
    if found is None:
        raise Refusal(404, f"There is no operation {operation_id!r}.")
    follow(site, site.operations(request), found)
    return site.pages.then(request, "/operation", {"id": operation_id})


async def abandon(request: Request) -> Response:
    """End an operation where it is."""
    site, operation_id = site_of(request), id_of(await fields_of(request))
    if await site.run(request, Operations.abandon, operation_id) is None:
        raise Refusal(404, f"There is no operation {operation_id!r}.")
    return site.pages.then(request, "/operation", {"id": operation_id}, "The operation is stopped. Its changes stay.")


def _kind_of(fields: Fields) -> OperationKind:
    try:
        return OperationKind(text_of(fields, "kind"))
    except ValueError:
        raise Refusal(400, "The form says neither cancel nor reschedule.") from None


def _due(kind: OperationKind, fields: Fields) -> dict[str, Any] | None:
    """The new due time, as `due_of`; None for a cancel. Raises InvalidMessageError, ConfigurationError."""
    if kind is OperationKind.RESCHEDULE:
        return due_of(fields)
    if any(text_of(fields, name) for name in NEW_DUE_TIME):
        raise InvalidMessageError(
            "cancelled messages get no new due time: choose Reschedule, or leave the delay and the time empty"
        )
    return None
