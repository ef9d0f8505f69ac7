"""Several endpoints' pages at one address: each under /ENDPOINT/, and a list of them at /."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from delaystore.web.access import Access, Guard
from delaystore.web.errors import answer_fault, answer_refusal
from delaystore.web.hardening import Hardening
from delaystore.web.pages import Pages
from delaystore.web.paths import STATIC, href
from delaystore.web.signing import Signer
from delaystore.web.site import pages_of
from delaystore.web.users import accounts_from_environment, accounts_of, tokens_of

_TITLE: Final = "all endpoints"


@dataclass(frozen=True, slots=True)
class FrontSite:
    """What the list of endpoints needs."""

    pages: Pages


def front(
    pages: Mapping[str, Starlette], *, users: str | None, tokens: str | None, beside: Sequence[BaseRoute] = ()
) -> Starlette:
    """An application with all of `pages`, by their endpoints' names; / lists them, or leads to the only one.

    `users`, `tokens`: as those of the pages. `beside`: routes that anybody may have. Raises ConfigurationError.
    """
    guard = Guard(
        users=accounts_from_environment() if users is None else accounts_of(users),
        tokens=tokens_of(tokens),
    )

    async def listed(request: Request) -> Response:
        if len(pages) == 1:
            (name,) = pages
            return RedirectResponse(href(request, _path(name)), 307)
        return pages_of(request).page(
            request, "front.html", here=None, endpoints=[(_path(name), name) for name in sorted(pages)]
        )

    own = [Middleware(Hardening), Middleware(Access, guard)]
    application = Starlette(
        routes=[
            *beside,
            Mount(STATIC, StaticFiles(packages=[("delaystore.web", "static")]), name="static"),
            *(Mount(f"/{name}", page) for name, page in pages.items()),
            Route("/", listed, methods=["GET"], middleware=own),
        ],
        exception_handlers={HTTPException: answer_refusal, Exception: answer_fault},
    )
    application.state.site = FrontSite(Pages(_TITLE, Signer(), ()))
    return application


def _path(name: str) -> str:
    return f"/{quote(name)}/"
