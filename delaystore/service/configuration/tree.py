"""The configuration of a service: frozen, and checked."""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Final

from delaystore.dispatcher.dispatcher import check_dispatcher_name
from delaystore.errors import ConfigurationError
from delaystore.service.configuration.addresses import Address, Listen
from delaystore.service.configuration.conflicts import check_listeners, check_queues, check_tables
from delaystore.service.configuration.control import ControlConfiguration
from delaystore.service.configuration.fields import key, subtable, subtables
from delaystore.service.configuration.ingress import IngressConfiguration
from delaystore.service.configuration.kinds import Flag, OneOf, Span, Text, Whole
from delaystore.service.configuration.secrets import Entries, Hidden, Secret, Url
from delaystore.service.configuration.tables import KeptTable
from delaystore.settings import Audit, DelayedDeliverySettings, TransactionMode
from delaystore.web.origin import is_loopback
from delaystore.web.users import accounts_from_environment, accounts_of, tokens_of

_DEFAULTS: Final = DelayedDeliverySettings()
_SETTINGS: Final[Mapping[str, str]] = {
    "retries": "number_of_retries",
    "mode": "transaction_mode",
    "handover": "handover_horizon",
}
"""Keys whose setting has another name; they are called as the options of `delaystore dispatch`."""
TAKEN: Final = frozenset({"livez", "readyz", "static", ".", ".."})
"""What is at the page's own address, where no endpoint can be."""
_LONGEST_QUEUE: Final = 255
"""Bytes of a queue's name on RabbitMQ."""


class LogLevel(StrEnum):
    """How much is logged."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"
    DEBUG = "debug"

    @property
    def number(self) -> int:
        """As `logging` counts."""
        return logging.getLevelNamesMapping()[self.name]


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatcherConfiguration:
    """The dispatcher of an endpoint: the options of `delaystore dispatch`, and more of its settings."""

    name: str | None = key(Text(), None)
    batch_size: int = key(Whole(1), _DEFAULTS.batch_size)
    batch_bytes: int = key(Whole(1), _DEFAULTS.batch_bytes)
    retries: int = key(Whole(), _DEFAULTS.number_of_retries)
    retry_span: timedelta = key(Span(), _DEFAULTS.retry_span)
    mode: TransactionMode = key(OneOf(TransactionMode), _DEFAULTS.transaction_mode)
    poll_interval: timedelta = key(Span(), _DEFAULTS.poll_interval)
    maximum_sleep: timedelta = key(Span(), _DEFAULTS.maximum_sleep)
    handover: timedelta = key(Span(zero=True), _DEFAULTS.handover_horizon)
    dispatch_timeout: timedelta = key(Span(), _DEFAULTS.dispatch_timeout)
    store_timeout: timedelta = key(Span(), _DEFAULTS.store_timeout)

    def __post_init__(self) -> None:
        self.settings(_DEFAULTS.error_queue)
        if self.name is not None:
            _check_name(self.name)

    def settings(
        self, error_queue: str, audit: Audit = _DEFAULTS.audit, retention: timedelta = _DEFAULTS.retention
    ) -> DelayedDeliverySettings:
        """The same as settings, with those that are the endpoint's own.

        Raises ConfigurationError, which begins with the key's name.
        """
        keys = {name: getattr(self, name) for name in self.__slots__ if name != "name"}
        try:
            return DelayedDeliverySettings(
                error_queue=error_queue,
                audit=audit,
                retention=retention,
                **{_SETTINGS.get(name, name): value for name, value in keys.items()},
            )
        except ConfigurationError as error:
            name, _, rest = str(error).partition(" ")
            own = {setting: key for key, setting in _SETTINGS.items()}
            raise ConfigurationError(f"{own.get(name, name)} {rest}") from None


def _check_name(name: str) -> None:
    try:
        check_dispatcher_name(name)
    except ConfigurationError as error:
        raise ConfigurationError(str(error).removeprefix("a dispatcher's ")) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointConfiguration:
    """One endpoint: where its messages wait, and where they go."""

    store: Secret = key(Url(lasting=True))
    transport: Secret = key(Url(lasting=True))
    schema: str | None = key(Text(), None)
    table: str | None = key(Text(), None)
    error_queue: str = key(Text(), _DEFAULTS.error_queue)
    audit: Audit = key(OneOf(Audit), _DEFAULTS.audit)
    retention: timedelta = key(Span(), _DEFAULTS.retention)
    management: Secret | None = key(Url("http", "https"), None)
    cascade: str | None = key(Text(), None)
    dispatcher: DispatcherConfiguration = subtable(DispatcherConfiguration)
    control: ControlConfiguration = subtable(ControlConfiguration)
    ingress: Mapping[str, IngressConfiguration] = subtables(IngressConfiguration)

    def __post_init__(self) -> None:
        self.settings()
        for name in ("management", "cascade"):
            if getattr(self, name) is not None and not self._has_broker:
                raise ConfigurationError(_needs_broker(name))
        if self.control.enabled and not self._has_broker:
            raise ConfigurationError(_needs_broker("control"))
        _check_queue("control", self.control.queue)
        if self.cascade is not None:
            _check_cascade(self.cascade)
        for name, ingress in self.ingress.items():
            if ingress.broker is None and not self._has_broker:
                raise ConfigurationError(f"ingress {name!r} takes messages from RabbitMQ; say where: broker = URL")
            try:
                queue = ingress.settings(name).queue
                ingress.destination_rule(name)
            except ConfigurationError as error:
                raise ConfigurationError(f"ingress {name!r}: {error}") from None
            _check_queue(f"ingress {name!r}", queue)

    @property
    def _has_broker(self) -> bool:
        return self.transport.value.lower().startswith("amqp")

    def settings(self) -> DelayedDeliverySettings:
        """Those of the dispatcher; raises ConfigurationError for a name that no error queue can have."""
        return self.dispatcher.settings(self.error_queue, self.audit, self.retention)

    def reads(self, name: str) -> Iterator[tuple[object, str]]:
        """The queues that no other part of a service may read, and how the endpoint of that name reads them."""
        for ingress_name, ingress in self.ingress.items():
            queue, broker = ingress.settings(ingress_name).queue, (ingress.broker or self.transport).value
            yield (broker, queue), f"{name!r} reads the queue {queue!r} as ingress {ingress_name!r}"
        if self.control.enabled:
            queue = self.control.queue or f"{name}.control"
            yield (self.transport.value, queue), f"{name!r} reads the queue {queue!r} as its control queue"

    def own_names(self, name: str) -> frozenset[str]:
        """The queues and exchanges of delaystore's own that the endpoint of that name has."""
        control = self.control.queue or f"{name}.control"
        own = frozenset({self.error_queue, control, f"{control}.rejected"})
        return own.union(*(ingress.own_names(each) for each, ingress in self.ingress.items()))

    def puts_failed(self, name: str) -> tuple[object, str]:
        """The error queue, and how the endpoint of that name uses it."""
        return (self.transport.value, self.error_queue), f"{name!r} has the error queue {self.error_queue!r}"


def _check_queue(what: str, name: str | None) -> None:
    if name is not None and len(name.encode()) > _LONGEST_QUEUE:
        raise ConfigurationError(f"{what} reads a queue whose name has more than {_LONGEST_QUEUE} bytes; shorten it")


def _check_cascade(name: str) -> None:
    from delaystore.transports.rabbitmq.topology import topology_named  # which needs the libraries of RabbitMQ

    try:
        topology_named(name)
    except ConfigurationError as error:
        raise ConfigurationError(f"cascade {name!r}: {error}") from None


def _needs_broker(name: str) -> str:
    return (
        f"{name} goes with a transport that begins with amqp:// or amqps://; correct the transport, or leave {name} out"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WebConfiguration:
    """The web page."""

    enabled: bool = key(Flag(), True, fixed=True)
    listen: Address = key(Listen(), Address("127.0.0.1", 8765), fixed=True)
    users: Secret | None = key(Entries(accounts_of), None)
    tokens: Secret | None = key(Entries(tokens_of), None)
    secret: Secret | None = key(Hidden(), None)
    show_bodies: bool = key(Flag(), False)
    read_only: bool = key(Flag(), False)

    def __post_init__(self) -> None:
        if self.enabled and not is_loopback(self.listen.host) and not self.is_protected:
            raise ConfigurationError(
                f"listen {self.listen} lets other machines in, and no user is configured; set users, or "
                "DELAYSTORE_WEB_USERS, as in ada:operate:PASSWORD, or listen to 127.0.0.1"
            )

    @property
    def is_protected(self) -> bool:
        """Whether somebody has to log in."""
        return bool(accounts_from_environment() if self.users is None else accounts_of(self.users.value))


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsConfiguration:
    """What Prometheus scrapes. `listen` None: nothing is served."""

    listen: Address | None = key(Listen(), None, fixed=True)
    destinations: int = key(Whole(), 0, fixed=True)

    def __post_init__(self) -> None:
        if self.destinations and self.listen is None:
            raise ConfigurationError('destinations goes with listen = "HOST:PORT"; set both')


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthConfiguration:
    """A server for /livez and /readyz alone. `listen` None: the web page's server has them."""

    listen: Address | None = key(Listen(), None, fixed=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceConfiguration:
    """The whole of it. `drain`: how long the end may take."""

    drain: timedelta = key(Span(), timedelta(seconds=30))
    log_level: LogLevel = key(OneOf(LogLevel), LogLevel.WARNING)
    web: WebConfiguration = subtable(WebConfiguration)
    metrics: MetricsConfiguration = subtable(MetricsConfiguration)
    health: HealthConfiguration = subtable(HealthConfiguration)
    endpoint: Mapping[str, EndpointConfiguration] = subtables(EndpointConfiguration)

    def __post_init__(self) -> None:
        if not self.endpoint:
            raise ConfigurationError("endpoint is missing; write a table [endpoint.NAME], with store and transport")
        for name in self.endpoint:
            if name in TAKEN or set(name) & set("/{}?#"):
                raise ConfigurationError(f"endpoint cannot be called {name!r} here: the page has no address for it")
        check_queues(
            (read for name, each in self.endpoint.items() for read in each.reads(name)),
            (each.puts_failed(name) for name, each in self.endpoint.items()),
        )
        check_tables(
            [KeptTable(name, each.store.value, each.schema, each.table) for name, each in self.endpoint.items()]
        )
        web = self.web.listen if self.web.enabled else None
        check_listeners({"web": web, "metrics": self.metrics.listen, "health": self.health.listen})
