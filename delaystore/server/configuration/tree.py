"""The configuration of a service, all of it: frozen, checked, and read from a TOML file."""

import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from itertools import combinations
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Final

from sqlalchemy import URL
from sqlalchemy.exc import SQLAlchemyError

from delaystore.dispatcher.dispatcher import check_dispatcher_name
from delaystore.errors import ConfigurationError
from delaystore.schedules.documents import ScheduleFile
from delaystore.server.configuration.ingress import IngressConfiguration
from delaystore.server.configuration.tables import ConfigurationReader, FromFile, Positive, Table, Whole
from delaystore.server.configuration.values import (
    Entries,
    FileOfSchedules,
    Hidden,
    Listen,
    ListenAddress,
    NameList,
    Secret,
    Span,
    Url,
    check_regular,
)
from delaystore.server.web.http import is_loopback
from delaystore.server.web.users import accounts_from_environment, accounts_of, tokens_of
from delaystore.settings import Audit, DelayedDeliverySettings, OnExpired, transaction_mode
from delaystore.stores.sql.dialects import DIALECTS
from delaystore.stores.sql.urls import database_url, default_table_name, same_address
from delaystore.text import toml_in

_EVERY_HOST: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104 - compared, not listened to # nosec B104


@dataclass(frozen=True, slots=True)
class KeptTable:
    """A table of the store `store`, a URL. `name` None: the endpoint's. `schema` None: the connection's own."""

    endpoint: str
    store: str
    schema: str | None
    name: str | None

    @property
    def table(self) -> str:
        """The table's name."""
        return self.name or default_table_name(self.endpoint)

    def conflict_with(self, other: "KeptTable") -> str | None:
        """The fault where both are one table, or may be; None: they are two."""
        url, same_store = _url(self.store), self.store == other.store or _are_one(self.store, other.store)
        if not same_store or self.schema != other.schema:
            return None
        if self.table == other.table:
            alike = "too"
        elif url is not None and _by_any_capitals(url) and self.table.lower() == other.table.lower():
            alike = f"and {url.get_backend_name()} may take both for one"
        else:
            return None
        return (
            f"{self.endpoint!r} keeps its messages in the table {self.table!r}, and {other.endpoint!r} in "
            f"{other.table!r}, {alike}: give one another table"
        )


def check_listeners(listeners: Mapping[str, ListenAddress | None]) -> None:
    """Raise ConfigurationError where two tables listen to one port. `listeners`: where each table listens, if it does.

    Errors begin with the later table's name.
    """
    before: dict[str, ListenAddress] = {}
    for name, address in listeners.items():
        if address is None or not address.port:
            continue
        for other, taken in before.items():
            if _collide(address, taken):
                raise ConfigurationError(
                    f"{name} listens to {address}, and {other} to {taken}: give each a port of its own"
                )
        before[name] = address


def _collide(one: ListenAddress, other: ListenAddress) -> bool:
    hosts = {"127.0.0.1" if host.lower() == "localhost" else host.lower() for host in (one.host, other.host)}
    return one.port == other.port and (len(hosts) == 1 or bool(hosts & _EVERY_HOST))


def check_queues(reads: Iterable[tuple[object, str]], error_queues: Iterable[tuple[object, str]]) -> None:
    """Raise ConfigurationError where two components read the same queue, or one reads an error queue.

    Either of them could get a message. Each: a queue, and which endpoint uses it, as in `'sales' reads
    ...`. Errors begin with `endpoint`.
    """
    found: dict[object, str] = {}
    for queue, use in reads:
        if queue in found:
            raise ConfigurationError(f"endpoint {use}, and {found[queue]} too: change one, or leave it out")
        found[queue] = use
    for queue, use in error_queues:
        if queue in found:
            raise ConfigurationError(f"endpoint {use}, and {found[queue]}: name another one")


def check_tables(tables: Sequence[KeptTable]) -> None:
    """Raise ConfigurationError where two endpoints keep their messages in one table; it begins with `endpoint`."""
    for other, one in combinations(tables, 2):
        conflict = one.conflict_with(other)
        if conflict is not None:
            raise ConfigurationError(f"endpoint {conflict}")


def _url(store: str) -> URL | None:
    """None: it is no URL of a database, or of none that can be read, which opening it reports."""
    try:
        return database_url(store)
    except (ConfigurationError, SQLAlchemyError, ValueError):
        return None


def _are_one(store: str, other: str) -> bool:
    one, another = _url(store), _url(other)
    return one is not None and another is not None and same_address(one, another)


def _by_any_capitals(url: URL) -> bool:
    dialect = DIALECTS.get(url.get_backend_name())
    return dialect is not None and dialect.may_ignore_capitals


_DEFAULTS: Final = DelayedDeliverySettings()
TAKEN: Final = frozenset({"livez", "readyz", "static", ".", ".."})
"""Names at the page's own address, where no endpoint can be."""
_LONGEST_QUEUE: Final = 255
"""Bytes of a queue's name on RabbitMQ."""
TimeSpan = Annotated[timedelta, Span()]


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


class DispatcherConfiguration(Table, frozen=True, kw_only=True):
    """The dispatcher of an endpoint: the options of `delaystore dispatch`, and more of its settings."""

    name: str | None = None
    batch_size: Positive = _DEFAULTS.batch_size
    batch_bytes: Positive = _DEFAULTS.batch_bytes
    number_of_retries: Whole = _DEFAULTS.number_of_retries
    retry_span: TimeSpan = _DEFAULTS.retry_span
    exactly_once: bool = False
    poll_interval: TimeSpan = _DEFAULTS.poll_interval
    maximum_sleep: TimeSpan = _DEFAULTS.maximum_sleep
    handover_horizon: Annotated[timedelta, Span(zero=True)] = _DEFAULTS.handover_horizon
    on_expired: OnExpired = _DEFAULTS.on_expired
    added_headers: Annotated[tuple[str, ...], NameList()] = ()
    dispatch_timeout: TimeSpan = _DEFAULTS.dispatch_timeout
    store_timeout: TimeSpan = _DEFAULTS.store_timeout

    def __post_init__(self) -> None:
        self.settings(_DEFAULTS.error_queue)
        if self.name is not None:
            _check_name(self.name)

    def settings(
        self,
        error_queue: str,
        audit: Audit = _DEFAULTS.audit,
        retention: timedelta = _DEFAULTS.retention,
        history: timedelta | None = _DEFAULTS.history,
    ) -> DelayedDeliverySettings:
        """The same as settings, with the endpoint's own.

        Raises ConfigurationError, which begins with the key's name.
        """
        keys = {name: getattr(self, name) for name in self.__struct_fields__ if name not in ("name", "exactly_once")}
        mode = transaction_mode(exactly_once=self.exactly_once)
        return DelayedDeliverySettings(
            error_queue=error_queue, audit=audit, retention=retention, history=history, transaction_mode=mode, **keys
        )


def _check_name(name: str) -> None:
    try:
        check_dispatcher_name(name)
    except ConfigurationError as error:
        raise ConfigurationError(str(error).removeprefix("a dispatcher's ")) from None


class ControlConfiguration(Table, frozen=True, kw_only=True):
    """The control queue of an endpoint. `queue` None: `ENDPOINT.control`. `bodies`: whether answers have them."""

    enabled: bool = False
    queue: str | None = None
    bodies: bool = True


class EndpointConfiguration(Table, frozen=True, kw_only=True):
    """One endpoint: where its messages wait, and where they go."""

    store: Annotated[Secret, Url(lasting=True)]
    transport: Annotated[Secret, Url(lasting=True)]
    schema: str | None = None
    table: str | None = None
    error_queue: str = _DEFAULTS.error_queue
    audit: Audit = _DEFAULTS.audit
    retention: TimeSpan = _DEFAULTS.retention
    history: Annotated[timedelta, Span(zero=True)] | None = _DEFAULTS.history
    management: Annotated[Secret, Url("http", "https")] | None = None
    cascade: str | None = None
    schedules: Annotated[ScheduleFile, FileOfSchedules()] | None = None
    dispatcher: DispatcherConfiguration = DispatcherConfiguration()
    control: ControlConfiguration = ControlConfiguration()
    ingress: Mapping[str, IngressConfiguration] = MappingProxyType({})

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
                raise ConfigurationError(f"ingress {name!r} reads from RabbitMQ; set broker = URL")
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
        return self.dispatcher.settings(self.error_queue, self.audit, self.retention, self.history)

    def reads(self, name: str) -> Iterator[tuple[object, str]]:
        """The queues that no other component of a service may read, and how the endpoint of that name reads them."""
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


class WebConfiguration(Table, frozen=True, kw_only=True):
    """The web page."""

    fixed: ClassVar = frozenset({"enabled", "listen"})
    enabled: bool = True
    listen: Annotated[ListenAddress, Listen()] = ListenAddress("127.0.0.1", 8765)
    users: Annotated[Secret, Entries(accounts_of)] | None = None
    tokens: Annotated[Secret, Entries(tokens_of)] | None = None
    secret: Annotated[Secret, Hidden()] | None = None
    show_bodies: bool = False
    read_only: bool = False

    def __post_init__(self) -> None:
        if self.enabled and not is_loopback(self.listen.host) and not self.is_protected:
            raise ConfigurationError(
                f"listen {self.listen} accepts requests from other machines, and no user is configured; set users, or "
                "DELAYSTORE_WEB_USERS, as in ada:operate:PASSWORD, or listen to 127.0.0.1"
            )

    @property
    def is_protected(self) -> bool:
        """Whether users have to log in."""
        return bool(accounts_from_environment() if self.users is None else accounts_of(self.users.value))


class MetricsConfiguration(Table, frozen=True, kw_only=True):
    """What Prometheus scrapes. `listen` None: nothing is served."""

    fixed: ClassVar = frozenset({"listen", "destinations"})
    listen: Annotated[ListenAddress, Listen()] | None = None
    destinations: Whole = 0

    def __post_init__(self) -> None:
        if self.destinations and self.listen is None:
            raise ConfigurationError('destinations needs listen = "HOST:PORT"; set both')


class HealthConfiguration(Table, frozen=True, kw_only=True):
    """A server for /livez and /readyz alone. `listen` None: the web page's server has them."""

    fixed: ClassVar = frozenset({"listen"})
    listen: Annotated[ListenAddress, Listen()] | None = None


class ServiceConfiguration(Table, frozen=True, kw_only=True):
    """The whole of it. `drain`: how long the end may take."""

    drain: TimeSpan = timedelta(seconds=30)
    log_level: LogLevel = LogLevel.WARNING
    web: WebConfiguration = WebConfiguration()
    metrics: MetricsConfiguration = MetricsConfiguration()
    health: HealthConfiguration = HealthConfiguration()
    endpoint: Mapping[str, EndpointConfiguration] = MappingProxyType({})

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


def configuration_in(path: Path) -> ServiceConfiguration:
    """The configuration that the file holds, with the variables of the environment.

    Raises ConfigurationError: with line and column for invalid TOML, and with table and key for the rest.
    """
    return ConfigurationReader(ServiceConfiguration, FromFile(path.name, os.environ)).read(
        ServiceConfiguration, parsed(path)
    )


def parsed(path: Path) -> Mapping[str, Any]:
    """The tables of the file, unchecked. Raises ConfigurationError, for invalid TOML with line and column."""
    check_regular(path, str(path))
    return toml_in(path)
