"""A background job: how far it is, and its result."""

from starlette.requests import Request
from starlette.responses import Response

from delaystore.web.errors import Refusal
from delaystore.web.site import site_of


async def show(request: Request) -> Response:
    """One job of this process."""
    site = site_of(request)
    job = site.jobs.get(request.query_params.get("id", ""))
    if job is None:
        raise Refusal(404, "This process knows of no such job; the changes say what was done.")
    return site.pages.page(request, "job.html", here=job.path, job=job)
