"""Something that goes on in the background: how far it is, and what came of it."""

from starlette.requests import Request
from starlette.responses import Response

from delaystore.web.errors import Refusal
from delaystore.web.site import site_of


async def show(request: Request) -> Response:
    """One work of this process."""
    site = site_of(request)
    work = site.works.get(request.query_params.get("id", ""))
    if work is None:
        raise Refusal(404, "This process knows of no such work; the changes say what was done.")
    return site.pages.page(request, "work.html", here=work.path, work=work)
