"""A delivery over Django's database connection, by Django's settings."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, fields
from datetime import datetime
from functools import wraps
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import connections, transaction
from sqlalchemy import URL, Connection, Engine, NullPool, create_engine
from typing_extensions import override

from delaystore.delivery import DelayedDelivery, EnlistedDelivery
from delaystore.errors import ConfigurationError
from delaystore.operations import Operations
from delaystore.schedules import Schedules
from delaystore.settings import DelayedDeliverySettings
from delaystore.stores.records import Way
from delaystore.stores.sql import SqlDelayedMessageStore
from delaystore.stores.sql.bound import BoundSqlStore
from delaystore.stores.sql.engine import create_store_engine

DatabaseSettings = Mapping[str, Any]
_OF_DJANGO_ALONE: Final = {
    "postgresql": {
        "assume_role",
        "client_encoding",
        "isolation_level",
        "pool",
        "prepare_threshold",
        "server_side_binding",
    },
    "mysql": {"charset", "init_command", "isolation_level", "sql_mode", "use_unicode"},
    "sqlite": {"init_command", "isolation_level", "transaction_mode"},
}
"""Options that concern Django's own connections, not where the database is."""


def store_url(database: DatabaseSettings) -> URL:
    """The URL that leads where `database`, an entry of DATABASES, does.

    Raises ImproperlyConfigured for an engine that is no store's, and an option that has no place in a URL.
    """
    engine = str(database["ENGINE"]).rpartition(".")[2]
    make = _MAKERS.get(engine)
    if make is None:
        raise ImproperlyConfigured(
            f"the database engine {database['ENGINE']!r} cannot store delayed messages; use PostgreSQL, "
            "MariaDB, MySQL or SQLite"
        )
    return make(database)


def store_engine(database: DatabaseSettings) -> Engine:
    """An engine that leads where `database` does, and keeps no connection: a test runner drops no database in use.

    Also to a database in memory, as test runners make them.
    """
    url = store_url(database)
    if "mode=memory" not in str(url.database):
        return create_store_engine(url, pooled=False)
    return create_engine(url.update_query_dict({"uri": "true"}), poolclass=NullPool)


def _postgresql(database: DatabaseSettings) -> URL:
    options = _options(database, "postgresql")
    if (host := _host(database)) and not _is_plain(host):  # several hosts, or the folder of a socket
        options |= {"host": host} | ({"port": database["PORT"]} if database.get("PORT") else {})
    return _server("postgresql+psycopg", database, options)


def _mysql(database: DatabaseSettings) -> URL:
    options = _options(database, "mysql")
    for name, value in dict(options.pop("ssl", {})).items():
        options[f"ssl_{name}"] = value
    if (host := _host(database)).startswith("/"):
        options["unix_socket"] = host
    return _server("mysql+pymysql", database, options)


def _sqlite(database: DatabaseSettings) -> URL:
    return URL.create("sqlite", database=str(database["NAME"]), query=_texts(_options(database, "sqlite")))


_MAKERS: Final[Mapping[str, Callable[[DatabaseSettings], URL]]] = {
    "postgresql": _postgresql,
    "postgis": _postgresql,
    "mysql": _mysql,
    "sqlite3": _sqlite,
    "spatialite": _sqlite,
}


def _server(driver: str, database: DatabaseSettings, options: dict[str, Any]) -> URL:
    host = _host(database)
    return URL.create(
        driver,
        username=database.get("USER") or None,
        password=database.get("PASSWORD") or None,
        host=host if _is_plain(host) else None,
        port=int(database["PORT"]) if database.get("PORT") and _is_plain(host) else None,
        database=database.get("NAME") or None,
        query=_texts(options),
    )


def _host(database: DatabaseSettings) -> str:
    return str(database.get("HOST") or "")


def _is_plain(host: str) -> bool:
    return bool(host) and not host.startswith("/") and "," not in host


def _options(database: DatabaseSettings, backend: str) -> dict[str, Any]:
    alone = _OF_DJANGO_ALONE[backend]
    return {name: value for name, value in (database.get("OPTIONS") or {}).items() if name not in alone}


def _texts(options: Mapping[str, Any]) -> dict[str, str]:
    for name, value in options.items():
        if not isinstance(value, str | int | float):
            raise ImproperlyConfigured(f"the option {name!r} of the database cannot be written in a store's URL")
    return {name: str(value) for name, value in options.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class DjangoSettings:
    """The setting DELAYSTORE, whose names are in capitals."""

    endpoint: str
    database: str = "default"
    """The alias in DATABASES."""
    transport: str | None = None
    """A URL, for `manage.py delaystore dispatch`."""
    schema: str | None = None
    table: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of DelayedDeliverySettings."""

    @property
    def delivery(self) -> DelayedDeliverySettings:
        """Settings of the delivery; the tables are made by Django's migrations, not by the first message."""
        try:
            return DelayedDeliverySettings(**{"automatic_setup": False, **self.settings})
        except (TypeError, ConfigurationError) as error:
            raise ImproperlyConfigured(f"DELAYSTORE['SETTINGS']: {error}") from None


def django_settings() -> DjangoSettings:
    """The setting as it is now. Raises ImproperlyConfigured, with the setting to write."""
    given = getattr(settings, "DELAYSTORE", None)
    if not isinstance(given, Mapping) or not given.get("ENDPOINT"):
        raise ImproperlyConfigured(
            'DELAYSTORE names no endpoint; set DELAYSTORE = {"ENDPOINT": "NAME"}, the name of your program'
        )
    known = {each.name.upper() for each in fields(DjangoSettings)}
    if unknown := sorted(str(name) for name in given if name not in known):
        raise ImproperlyConfigured(f"unknown key {unknown[0]!r} in DELAYSTORE; known are {', '.join(sorted(known))}")
    read = DjangoSettings(**{name.lower(): value for name, value in given.items()})
    if read.database not in settings.DATABASES:
        raise ImproperlyConfigured(f"DELAYSTORE['DATABASE'] is {read.database!r}, but DATABASES has no such entry")
    return read


@contextmanager
def in_transaction(alias: str) -> Iterator[Any]:
    """Django's connection `alias` in the transaction that is open, or in a new one that ends with the block."""
    connection = connections[alias]
    if connection.in_atomic_block or not connection.get_autocommit():
        yield connection
        return
    with transaction.atomic(using=alias):
        yield connection


class DjangoStore(SqlDelayedMessageStore):
    """The store on Django's connection: each call is part of the open transaction, or has a transaction of its own.

    Only the methods that create, upgrade and drop tables open connections of their own.
    """

    def __init__(self, alias: str, *, schema: str | None, table: str | None) -> None:
        super().__init__(store_engine(connections[alias].settings_dict), schema=schema, table=table)
        self.alias: Final = alias

    @override
    def now(self) -> datetime:
        with self._one_call() as bound:
            return bound.now()

    latest_now = now

    @contextmanager
    @override
    def _bound(
        self, connect: Callable[[], AbstractContextManager[Connection]], token: str | None = None
    ) -> Iterator[BoundSqlStore]:
        """Every call of the store opens its transaction here."""
        with in_transaction(self.alias) as connection:
            yield self.enlist(connection)


P = ParamSpec("P")
R = TypeVar("R")


def _enlisted(
    operation: Callable[Concatenate[EnlistedDelivery, P], R],
) -> Callable[Concatenate["DjangoDelivery", P], R]:
    """`operation` in the transaction of Django's connection, or in one of its own where none is open."""

    @wraps(operation)
    def call(self: "DjangoDelivery", /, *args: P.args, **kwargs: P.kwargs) -> R:
        store, delivery = self._open()
        with in_transaction(store.alias) as connection:
            return operation(delivery.enlist(connection), *args, **kwargs)

    return call


class DjangoDelivery:
    """The operations of an EnlistedDelivery, on Django's own connection.

    Within `transaction.atomic` they are part of it: a rolled back message was never sent. Outside of it each is
    committed before it returns. Arguments and errors are those of EnlistedDelivery. Threads may share it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._opened: tuple[Any, DjangoStore, DelayedDelivery] | None = None

    send = _enlisted(EnlistedDelivery.send)
    send_many = _enlisted(EnlistedDelivery.send_many)
    cancel = _enlisted(EnlistedDelivery.cancel)
    reschedule = _enlisted(EnlistedDelivery.reschedule)
    send_now = _enlisted(EnlistedDelivery.send_now)
    get = _enlisted(EnlistedDelivery.get)

    @property
    def operations(self) -> Operations:
        """Search and change waiting messages as an operator does, on Django's connection.

        Example:
            `delayed.operations.acting_as("ada").cancel(MessageFilter(destination="reminders"))`

        """
        return self._open()[1].operations.acting_as(way=Way.DJANGO)

    @property
    def schedules(self) -> Schedules:
        """Recurring schedules, on Django's connection: changes are part of the open transaction."""
        return self._open()[1].schedules

    @property
    def store(self) -> DjangoStore:
        """The store at the database that DELAYSTORE names."""
        return self._open()[0]

    def _open(self) -> tuple[DjangoStore, DelayedDelivery]:
        """Store and delivery; they are created again after the settings have changed, as test runners change them."""
        settings = django_settings()
        key = (settings, store_url(connections[settings.database].settings_dict))
        with self._lock:
            if self._opened is None or self._opened[0] != key:
                store = DjangoStore(settings.database, schema=settings.schema, table=settings.table)
                self._opened = (key, store, DelayedDelivery(settings.endpoint, store, None, settings.delivery))
            return self._opened[1:]
