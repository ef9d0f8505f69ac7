"""HTTP servers of a service: the web pages of all endpoints, and /livez and /readyz."""

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from delaystore.processes import Listener
from delaystore.server.components import ServedEndpoint
from delaystore.server.configuration.tree import EndpointConfiguration, WebConfiguration
from delaystore.server.configuration.values import ListenAddress, Secret
from delaystore.server.endpoints import Endpoint
from delaystore.server.web import Cascade
from delaystore.server.web.application import SECRET_VARIABLE, app, front
from delaystore.server.web.serving import PageServer, address_of, listening

_NOT_KEPT = {"Cache-Control": "no-store"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceState:
    """`live`: a restart would fix nothing. `problems`: why components are not ready, by their names."""

    live: bool
    problems: Mapping[str, Sequence[str]]

    @property
    def ready(self) -> bool:
        """Whether every component is ready."""
        return not self.problems

    def as_dict(self, *, reasons: bool) -> dict[str, Any]:
        """For JSON. `reasons`: also why, which may name hosts."""
        document: dict[str, Any] = {"live": self.live, "ready": self.ready, "not_ready": sorted(self.problems)}
        return document | {"reasons": {name: list(why) for name, why in self.problems.items()}} if reasons else document

    def __str__(self) -> str:
        if self.ready:
            return "ready"
        return "not ready: " + "; ".join(f"{name}: {', '.join(why)}" for name, why in self.problems.items())


def probes(state: Callable[[], ServiceState], *, reasons: bool) -> Sequence[BaseRoute]:
    """The two routes: 200 or 503, with JSON that names the parts that are not ready. `reasons`: also why, which may
    name hosts.
    """

    def live(_request: Request) -> Response:
        return _answer(state(), lambda state: state.live)

    def ready(_request: Request) -> Response:
        return _answer(state(), lambda state: state.ready)

    def _answer(found: ServiceState, judged: Callable[[ServiceState], bool]) -> Response:
        return JSONResponse(found.as_dict(reasons=reasons), 200 if judged(found) else 503, _NOT_KEPT)

    return [Route("/livez", live, methods=["GET"]), Route("/readyz", ready, methods=["GET"])]


def probe_application(state: Callable[[], ServiceState]) -> Starlette:
    """The two routes alone, with reasons."""
    return Starlette(routes=probes(state, reasons=True))


class ServiceSite:
    """The ASGI application that a service serves; `show` puts others in the place of its pages.

    `public_routes`: routes without access control.
    """

    def __init__(self, public_routes: Sequence[BaseRoute], environment: Mapping[str, str]) -> None:
        self._public_routes = public_routes
        self._own_secret: Final = environment.get(SECRET_VARIABLE) or secrets.token_urlsafe()
        self._pages: dict[_PageKey, Starlette] = {}
        self._front: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """An ASGI application."""
        assert self._front is not None
        await self._front(scope, receive, send)

    def show(self, configuration: WebConfiguration, endpoints: Iterable[Endpoint]) -> None:
        """Serve the pages of `endpoints` from now on; background jobs of removed pages end."""
        keys = [_PageKey(configuration, each.opened, _cascade(each.configuration)) for each in endpoints]
        pages = {key: self._pages.get(key) or self._page(key) for key in keys}
        self._front = front(
            {key.opened.name: page for key, page in pages.items()},
            users=_value(configuration.users),
            tokens=_value(configuration.tokens),
            public_routes=self._public_routes,
        )
        removed, self._pages = [page for key, page in self._pages.items() if key not in pages], pages
        _end(removed)

    def stop(self) -> None:
        """End streams of events, and background jobs."""
        _end(self._pages.values())

    def _page(self, key: "_PageKey") -> Starlette:
        web = key.configuration
        return app(
            key.opened.delivery,
            users=_value(web.users),
            tokens=_value(web.tokens),
            secret=_value(web.secret) or self._own_secret,
            show_bodies=web.show_bodies,
            read_only=web.read_only,
            cascade=key.cascade,
        )


@dataclass(frozen=True, slots=True)
class _PageKey:
    """All that a page is made of; one of the same goes on, with its streams of events."""

    configuration: WebConfiguration
    opened: ServedEndpoint
    cascade: Cascade | None


def _end(pages: Iterable[Starlette]) -> None:
    for page in pages:
        page.state.site.stop()


class ServerComponent:
    """Serves `application` at `listener`. `ending`: called as it ends. `ready`: called with where, once it answers."""

    def __init__(
        self,
        application: ASGIApp,
        listener: Listener,
        *,
        ending: Callable[[], object],
        ready: Callable[[str], object],
    ) -> None:
        self._answers = False

        def answers() -> None:
            self._answers = True
            ready(address_of(listener))

        self._server = PageServer(application, listener, answers, ending)
        self.run: Final = self._server.serve_until_stopped
        """Serve until `stop`."""
        self.stop: Final = self._server.stop
        """End once the answers in progress are given."""

    def problems(self) -> Sequence[str]:
        """That it does not answer yet."""
        return [] if self._answers else ["it does not answer yet"]


def listener_at(address: ListenAddress, what: str, most: int | None = None) -> Listener:
    """A socket that listens there. `what`: whose address errors say it is. `most`: see `listening`.

    Raises ConfigurationError.
    """
    return listening(address.host, address.port, protected=True, option=f"{what}:", most=most)


def _value(secret: Secret | None) -> str | None:
    return None if secret is None else secret.value


def _cascade(configuration: EndpointConfiguration) -> Cascade | None:
    if configuration.management is None and configuration.cascade is None:
        return None
    return Cascade(
        broker=configuration.transport.value,
        management=_value(configuration.management),
        name=configuration.cascade or "nservicebus-v2",
    )
