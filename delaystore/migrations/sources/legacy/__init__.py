"""Tables of other programs that keep delayed messages, or jobs.

NServiceBus SQL persistence, its MSMQ transport, NHibernate, APScheduler.
"""

from collections.abc import Mapping
from typing import Final, TypeVar

from sqlalchemy import URL

from delaystore.errors import ConfigurationError
from delaystore.migrations.records.nservicebus import ADDRESSES
from delaystore.migrations.sources._sql.source import SqlSource, url_parameter
from delaystore.migrations.sources._sql.tables import TableLayout
from delaystore.migrations.sources.legacy._apscheduler import ApschedulerLayout
from delaystore.migrations.sources.legacy._recurring import ApschedulerSource, MovedSchedules
from delaystore.migrations.sources.legacy.nservicebus import (
    BYTE_ORDERS,
    FoldedNHibernateLayout,
    MsmqSqlLayout,
    NHibernateLayout,
    NServiceBusSqlLayout,
)
from delaystore.stores.sql.dialects import DIALECTS, dialect_of
from delaystore.stores.sql.errors import configuration_errors
from delaystore.stores.sql.urls import database_url

__all__ = [
    "ApschedulerLayout",
    "ApschedulerSource",
    "MovedSchedules",
    "MsmqSqlLayout",
    "NHibernateLayout",
    "NServiceBusSqlLayout",
    "legacy_layout",
    "open_legacy_source",
]
_T = TypeVar("_T")
_OWN: Final = ("table", "addresses", "guids", "destination")


def open_legacy_source(kind: str, url: str) -> SqlSource:
    """The tables of `kind` in the database at `url`, a SQLAlchemy URL with our parameters.

    `table`: the template of their names, where it is not the default. `addresses=msmq`: destinations are those of MSMQ,
    `queue@machine`, and the machine is left out (for `msmq-sql` it always is). `guids=big-endian`: of `nhibernate` in
    BINARY(16) columns, where they are not in .NET's order. `destination`: of `apscheduler`, where its jobs go.
    `schema`: the tables' schema.
    Raises ConfigurationError, MissingDependencyError.
    """
    with configuration_errors():
        parsed = database_url(url)
    source = ApschedulerSource if kind == "apscheduler" else SqlSource
    return source(parsed.difference_update_query(_OWN), legacy_layout(kind, parsed))


def legacy_layout(kind: str, url: URL) -> TableLayout:
    """The layout of `kind` in the database at `url`, as its parameters say."""
    table = url_parameter(url, "table")
    if kind == "apscheduler":
        return ApschedulerLayout(url_parameter(url, "destination"), table)
    address = _chosen(url, "addresses", ADDRESSES, "queue")
    guids = _chosen(url, "guids", BYTE_ORDERS, "little-endian")
    if kind == "msmq-sql":
        return MsmqSqlLayout(table)
    if kind == "nservicebus-sql":
        return NServiceBusSqlLayout(table, address)
    folds = dialect_of(url, DIALECTS).folds_names
    return (FoldedNHibernateLayout if folds else NHibernateLayout)(table, address, guids)


def _chosen(url: URL, name: str, known: Mapping[str, _T], default: str) -> _T:
    """The meaning of the parameter `name`; ConfigurationError for an unknown one."""
    value = url_parameter(url, name)
    if value is not None and value not in known:
        raise ConfigurationError(f"{name}={value!r} is unknown; known is {', '.join(known)}")
    return known[value or default]
