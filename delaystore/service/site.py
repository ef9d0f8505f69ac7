"""The web page of a service: every endpoint's, as the configuration has them now."""

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from starlette.applications import Starlette
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from delaystore.listening import Listener
from delaystore.service.configuration.tree import EndpointConfiguration, WebConfiguration
from delaystore.service.configuration.values import Address, Secret
from delaystore.service.endpoint import Endpoint
from delaystore.service.opened import OpenedEndpoint
from delaystore.web import Cascade
from delaystore.web.application import SECRET_VARIABLE, app
from delaystore.web.front import front
from delaystore.web.serving import PageServer, address_of, listening


class Site:
    """The ASGI application that a service serves; `show` puts others in the place of its pages.

    `beside`: routes that anybody may have.
    """

    def __init__(self, beside: Sequence[BaseRoute], environment: Mapping[str, str]) -> None:
        self._beside = beside
        self._own_secret: Final = environment.get(SECRET_VARIABLE) or secrets.token_urlsafe()
        self._pages: dict[_PageKey, Starlette] = {}
        self._front: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """An ASGI application."""
        assert self._front is not None
        await self._front(scope, receive, send)

    def show(self, configuration: WebConfiguration, endpoints: Iterable[Endpoint]) -> None:
        """Serve the pages of `endpoints` from now on; what goes on in those that are gone ends."""
        keys = [_PageKey(configuration, each.opened, _cascade(each.configuration)) for each in endpoints]
        pages = {key: self._pages.get(key) or self._page(key) for key in keys}
        self._front = front(
            {key.opened.name: page for key, page in pages.items()},
            users=_value(configuration.users),
            tokens=_value(configuration.tokens),
            beside=self._beside,
        )
        gone, self._pages = [page for key, page in self._pages.items() if key not in pages], pages
        _end(gone)

    def stop(self) -> None:
        """End streams of events, and what goes on in the background."""
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
    opened: OpenedEndpoint
    cascade: Cascade | None


def _end(pages: Iterable[Starlette]) -> None:
    for page in pages:
        page.state.site.stop()


class ServerPart:
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

    def run(self) -> None:
        """Serve until `stop`."""
        self._server.serve_until_stopped()

    def stop(self) -> None:
        """End once the answers in progress are given."""
        self._server.stop()

    def problems(self) -> Sequence[str]:
        """That it does not answer yet."""
        return [] if self._answers else ["it does not answer yet"]


def listener_at(address: Address, what: str, most: int | None = None) -> Listener:
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
