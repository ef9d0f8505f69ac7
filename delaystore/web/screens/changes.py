"""Who changed what, and when."""

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from delaystore.operations import Operations
from delaystore.web.forms import text_of, time_of
from delaystore.web.site import site_of

PAGE: Final = 50


async def listed(request: Request) -> Response:
    """The last changes, the newest first; `before`: older ones."""
    site = site_of(request)
    before = time_of(text_of(request.query_params, "before"), "before")
    now, changes, kept = await site.ask(
        request,
        lambda operations: (operations.now(), Operations.changes(operations, PAGE, before), operations.audit_kept()),
    )
    older = changes[-1].at.isoformat() if len(changes) == PAGE else None
    return site.pages.page(
        request,
        "changes.html",
        here="/changes",
        changes=changes,
        now=now,
        older=older,
        is_first=before is None,
        kept=str(kept),
    )
