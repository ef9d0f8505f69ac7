"""The ASGI application of an endpoint, and the one of several endpoints, each under /ENDPOINT/."""

import os
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

from delaystore.delivery import DelayedDelivery
from delaystore.errors import ConfigurationError, DelaystoreError
from delaystore.server.web._site import Cascade, WebSite, pages_of
from delaystore.server.web.access import AccessGate, Dependency, Guard
from delaystore.server.web.api import document
from delaystore.server.web.api.document import CALLS
from delaystore.server.web.errors import answer_error, answer_fault, answer_refusal
from delaystore.server.web.http import API, STATIC, Hardening, Signer, href
from delaystore.server.web.pages import Pages, Screen
from delaystore.server.web.screens import bulk, destinations, errors, loads, messages, overview, schedules
from delaystore.server.web.store_calls import CachedOverview
from delaystore.server.web.users import TOKENS_VARIABLE, accounts_from_environment, accounts_of, tokens_of

SECRET_VARIABLE: Final = "DELAYSTORE_WEB_SECRET"  # noqa: S105 - a variable's name
SCREENS: Final = (
    Screen("Overview", "/"),
    Screen("Messages", "/messages"),
    Screen("History", "/history"),
    Screen("Bulk", "/bulk"),
    Screen("Loads", "/loads"),
    Screen("Schedules", "/schedules"),
    Screen("Errors", "/errors"),
    Screen("Destinations", "/destinations"),
    Screen("Changes", "/changes"),
)
CASCADE: Final = Screen("Cascade", "/cascade")
LOOKS: Final = (
    ("/", overview.show_overview),
    ("/events", overview.events),
    ("/messages", messages.listed),
    ("/message", messages.one),
    ("/history", messages.history),
    ("/bulk", bulk.choose),
    ("/bulk/preview", bulk.preview),
    ("/operation", bulk.operation),
    ("/errors", errors.groups),
    ("/errors/messages", errors.messages),
    ("/errors/message", errors.one),
    ("/destinations", destinations.listed),
    ("/loads", loads.listed),
    ("/load", loads.one),
    ("/schedules", schedules.listed),
    ("/schedule", schedules.one),
    ("/schedules/edit", schedules.edit),
    ("/schedules/preview", schedules.preview),
    ("/cascade", overview.show_cascade),
    ("/changes", overview.show_changes),
    ("/job", overview.show_job),
)
CHANGES: Final = (
    ("/message/cancel", messages.cancel),
    ("/message/send-now", messages.send_now),
    ("/message/reschedule", messages.reschedule),
    ("/bulk/begin", bulk.begin),
    ("/operation/resume", bulk.resume),
    ("/operation/abandon", bulk.abandon),
    ("/errors/replay", errors.replay),
    ("/errors/discard", errors.discard),
    ("/destinations/pause", destinations.pause),
    ("/destinations/resume", destinations.resume),
    ("/destinations/limit", destinations.limit),
    ("/loads/cancel", loads.cancel),
    ("/loads/pause", loads.pause),
    ("/loads/resume", loads.resume),
    ("/schedules/put", schedules.put),
    ("/schedules/pause", schedules.pause),
    ("/schedules/resume", schedules.resume),
    ("/schedules/skip", schedules.skip),
    ("/schedules/trigger", schedules.trigger),
    ("/schedules/delete", schedules.delete),
)


def app(
    delivery: DelayedDelivery,
    *,
    users: str | None = None,
    tokens: str | None = None,
    authenticate: Dependency | None = None,
    secret: str | None = None,
    title: str | None = None,
    show_bodies: bool = False,
    read_only: bool = False,
    cascade: Cascade | None = None,
) -> Starlette:
    """The web page of an endpoint, and its JSON API at /api/v1: an ASGI application.

    It neither starts nor closes `delivery`, and calls it in threads. Without `users`, `tokens` and `authenticate` only
    local requests are accepted, by the name localhost.

    Args:
        delivery: The endpoint.
        users: `NAME:ROLE:PASSWORD`, separated by white space, with the role read or operate; `@FILE`: in that file.
            None: those of the variable DELAYSTORE_WEB_USERS.
        tokens: `TOKEN:ROLE` or `TOKEN:ROLE:NAME`, in the same way, for programs. None: those of the variable
            DELAYSTORE_WEB_TOKENS.
        authenticate: Your own login in place of `users`: it gets the request, and returns a User, None for no user, or
            a Response to be sent, such as a redirect. It may be async, and raise HTTPException.
        secret: The key that signs forms, the same in all processes that serve this page. None: the value of the
            variable DELAYSTORE_WEB_SECRET, or a random one.
        title: The title of the page; None: the endpoint's name.
        show_bodies: Show the bodies of messages.
        read_only: No user can change anything.
        cascade: A cascade to show; None: none.

    Returns:
        The application, to be served, or mounted under any prefix.

    Raises:
        ConfigurationError: An argument cannot work.

    Example:
        ```python
        application = Starlette()
        application.mount("/delays", app(delivery, users="ada:operate:a-long-password"))
        ```

    """
    if not isinstance(delivery, DelayedDelivery):
        raise ConfigurationError(
            f"the web page needs a DelayedDelivery, not {type(delivery).__name__}; beside an AsyncDelayedDelivery make "
            "one with a separate store: the page uses it in threads, and it connects when it is first used"
        )
    signer = Signer(secret or os.environ.get(SECRET_VARIABLE) or None)
    screens = SCREENS if cascade is None else (*SCREENS[:-1], CASCADE, SCREENS[-1])
    site = WebSite(
        delivery=delivery,
        pages=Pages(title or delivery.operations.endpoint, signer, screens),
        cached=CachedOverview(lambda: delivery.operations),
        show_bodies=show_bodies,
        cascade=cascade,
    )
    guard = Guard(
        users=accounts_from_environment() if users is None else accounts_of(users),
        tokens=tokens_of(os.environ.get(TOKENS_VARIABLE) if tokens is None else tokens),
        authenticate=authenticate,
        read_only=read_only,
    )
    application = Starlette(
        routes=_routes(),
        middleware=[Middleware(Hardening), Middleware(AccessGate, guard)],
        exception_handlers={
            HTTPException: answer_refusal,
            DelaystoreError: answer_error,
            Exception: answer_fault,
        },
    )
    application.state.site = site
    return application


def _routes() -> Sequence[BaseRoute]:
    return [
        Mount(STATIC, StaticFiles(packages=[("delaystore.server.web", "static")]), name="static"),
        *(Route(path, look, methods=["GET"]) for path, look in LOOKS),
        *(call.route for call in CALLS),
        Route(f"{API}/openapi.json", document.show, methods=["GET"]),
        *(Route(path, change, methods=["POST"]) for path, change in CHANGES),
    ]


_TITLE: Final = "all endpoints"


@dataclass(frozen=True, slots=True)
class FrontSite:
    """The data of the list of endpoints."""

    pages: Pages


def front(
    pages: Mapping[str, Starlette], *, users: str | None, tokens: str | None, public_routes: Sequence[BaseRoute] = ()
) -> Starlette:
    """An application with all of `pages`, by their endpoints' names; / lists them, or leads to the only one.

    `users`, `tokens`: as those of the pages. `public_routes`: routes without access control. Raises ConfigurationError.
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

    own = [Middleware(Hardening), Middleware(AccessGate, guard)]
    application = Starlette(
        routes=[
            *public_routes,
            Mount(STATIC, StaticFiles(packages=[("delaystore.server.web", "static")]), name="static"),
            *(Mount(f"/{name}", page) for name, page in pages.items()),
            Route("/", listed, methods=["GET"], middleware=own),
        ],
        exception_handlers={HTTPException: answer_refusal, Exception: answer_fault},
    )
    application.state.site = FrontSite(Pages(_TITLE, Signer(), ()))
    return application


def _path(name: str) -> str:
    return f"/{quote(name)}/"
