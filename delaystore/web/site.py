"""What all pages of one application share."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from starlette.requests import Request

from delaystore.delivery import DelayedDelivery
from delaystore.operations import Operations
from delaystore.stores.operable import Way
from delaystore.web.http import is_api
from delaystore.web.jobs import BackgroundJobs
from delaystore.web.pages import Pages
from delaystore.web.store_calls import CachedOverview, Calls
from delaystore.web.users import user_of

if TYPE_CHECKING:
    from delaystore.cascades import CascadeStatus

_SAMPLE = 0
"""Undeliverable messages that are read: none, so that looking changes nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cascade:
    """A cascade on a RabbitMQ broker. `broker`: amqp[s]://...; `management`: the URL of its management API.

    `name`: as of `delaystore delays --cascade`. Without `management` the page shows what AMQP tells.
    """

    broker: str
    management: str | None = None
    name: str = "nservicebus-v2"

    def __repr__(self) -> str:
        return f"<Cascade {self.name}>"  # the URLs hold passwords

    def status(self) -> "CascadeStatus":
        """How it is doing now; changes nothing. Raises TransportError, ConfigurationError."""
        from delaystore.cascades import BrokerClient, read_status
        from delaystore.transports.rabbitmq.topology import topology_named

        with BrokerClient(self.broker, self.management) as client:
            return read_status(client, topology_named(self.name), sample=_SAMPLE, watch=0)


P = ParamSpec("P")
Answer = TypeVar("Answer")


@dataclass(slots=True, kw_only=True)
class Site:
    """One application. `show_bodies`: whether pages show message bodies. `cascade` None: there is none to show."""

    delivery: DelayedDelivery
    pages: Pages
    cached: CachedOverview
    jobs: BackgroundJobs = field(default_factory=BackgroundJobs)
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
        """End streams of events, and background jobs after their present step."""
        self.stopping = True
        self.jobs.stop()


def site_of(request: Request) -> Site:
    """The application that is asked."""
    site: Site = request.app.state.site
    return site


def pages_of(request: Request) -> Pages:
    """The pages of the application that is asked, which may be one of several endpoints."""
    pages: Pages = request.app.state.site.pages
    return pages
