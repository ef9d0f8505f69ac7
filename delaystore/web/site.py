"""What all pages of one application share."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Concatenate, ParamSpec, TypeVar

from starlette.requests import Request

from delaystore.delivery import DelayedDelivery
from delaystore.operations import Operations
from delaystore.stores.operable import Way
from delaystore.web.calls import Calls
from delaystore.web.cascade import Cascade
from delaystore.web.pages import Pages
from delaystore.web.paths import is_api
from delaystore.web.readings import Readings
from delaystore.web.users import user_of
from delaystore.web.works import Works

P = ParamSpec("P")
Answer = TypeVar("Answer")


@dataclass(slots=True, kw_only=True)
class Site:
    """One application. `show_bodies`: whether pages show message bodies. `cascade` None: there is none to show."""

    delivery: DelayedDelivery
    pages: Pages
    readings: Readings
    works: Works = field(default_factory=Works)
    calls: Calls = field(default_factory=Calls)
    show_bodies: bool = False
    cascade: Cascade | None = None
    drawn: tuple[object, bytes] | None = None
    """The last event of the first screen, and what it shows: many look at the same."""
    stopping: bool = False
    """Whether the process is about to end: streams of events end too."""

    def operations(self, request: Request) -> Operations:
        """The operations in the name of the user who asks, by the page or by the API."""
        way = Way.API if is_api(request) else Way.WEB
        return self.delivery.operations.acting_as(user_of(request).name or None, way=way)

    async def ask(
        self,
        request: Request,
        work: Callable[Concatenate[Operations, P], Answer],
        *arguments: P.args,
        **named: P.kwargs,
    ) -> Answer:
        """What `work`, a method of Operations, answers in the name of whoever asks; in a thread, within a time.

        Raises as `work`, and StoreUnavailableError where there is no answer in time.
        """
        return await self.calls(partial(work, self.operations(request), *arguments, **named))

    async def look(self, request: Request, work: Callable[[Operations], Answer], patience: float) -> Answer:
        """As `ask`, for what may take `patience` seconds."""
        return await self.calls(partial(work, self.operations(request)), patience)

    def stop(self) -> None:
        """End streams of events, and works after their present step."""
        self.stopping = True
        self.works.stop()


def site_of(request: Request) -> Site:
    """The application that is asked."""
    site: Site = request.app.state.site
    return site


def pages_of(request: Request) -> Pages:
    """The pages of the application that is asked, which may be one of several endpoints."""
    pages: Pages = request.app.state.site.pages
    return pages
