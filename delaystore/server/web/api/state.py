"""How the endpoint is, and who changed what."""

from datetime import datetime
from typing import Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from delaystore.operations import HealthCriteria, Operations
from delaystore.server.web._site import site_of
from delaystore.server.web.api import answers
from delaystore.server.web.api._fields import FLAG, TIME, ApiCall
from delaystore.server.web.api.messages import limit_of
from delaystore.server.web.forms import flag_of, text_of, time_of
from delaystore.stores import documents

_TIMEOUT: Final = 6.0


async def health(request: Request) -> Response:
    """Whether it is healthy, as `delaystore health` says; 503: it is not."""
    criteria = HealthCriteria(dispatcher=flag_of(request.query_params, "require_dispatcher"))
    overview = await site_of(request).cached.overview(_TIMEOUT)
    problems = [overview.store_problem] if overview.store_problem is not None else []
    problems += criteria.unmet(overview)
    answer = {"healthy": not problems, "problems": problems, "warnings": list(overview.wrong)}
    return JSONResponse(answer, 503 if problems else 200)


async def overview(request: Request) -> Response:
    """All that the first screen shows."""
    return JSONResponse((await site_of(request).cached.overview(_TIMEOUT)).as_dict())


async def changes(request: Request) -> Response:
    """Who changed what."""
    before: datetime | None = time_of(text_of(request.query_params, "before"), "before")
    found = await site_of(request).run(request, Operations.changes, limit_of(request.query_params, 100), before)
    kept = await site_of(request).run(request, Operations.audit_kept)
    return JSONResponse({"changes": [documents.record(each) for each in found], **documents.record(kept)})


CALLS: Final = (
    ApiCall(
        method="GET",
        path="/health",
        name="health",
        summary="Health of the endpoint, as in `delaystore health`; 503: unhealthy, with the reasons.",
        do=health,
        query={"require_dispatcher": {**FLAG, "description": "Also require a running dispatcher."}},
        answer=answers.HealthAnswer,
        status=(200, 503),
    ),
    ApiCall(
        method="GET",
        path="/overview",
        name="overview",
        summary="The endpoint's state; null: the store did not answer in time, or does not report it.",
        do=overview,
        answer=answers.OverviewAnswer,
    ),
    ApiCall(
        method="GET",
        path="/changes",
        name="changes",
        summary="The last changes, the newest first.",
        do=changes,
        query={
            "limit": {"type": "integer", "minimum": 1, "maximum": 1000},
            "before": {**TIME, "description": "Only changes before this time."},
        },
        answer=answers.ChangesAnswer,
    ),
)
