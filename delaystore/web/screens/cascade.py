"""The cascade of delay queues, drawn as its levels."""

from math import log2
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from delaystore.cascades.status import span_text
from delaystore.web.errors import Refusal
from delaystore.web.site import site_of

_PATIENCE: Final = 15.0


async def show(request: Request) -> Response:
    """How full each level is, and what is wrong."""
    site = site_of(request)
    if site.cascade is None:
        raise Refusal(404, "No cascade is configured: give the page a broker, and its management API.")
    status = await site.calls(site.cascade.status, _PATIENCE)
    counts = [level.messages if level.messages is not None else level.ready for level in status.levels]
    most = max((count for count in counts if count), default=0)
    rows = [
        (level, count, span_text(level.ttl), _width(count, most))
        for level, count in zip(status.levels, counts, strict=True)
    ]
    return site.pages.page(
        request,
        "cascade.html",
        here="/cascade",
        cascade=status,
        rows=rows,
        name=site.cascade.name,
        total=sum(count or 0 for count in counts),
    )


def _width(count: int | None, most: int) -> float:
    """Percent of the widest bar, by the logarithm: one message is seen beside a million."""
    return 100 * log2(1 + (count or 0)) / log2(1 + most) if count and most else 0.0
