"""Tables of other programs that keep delayed messages: NServiceBus SQL persistence, its MSMQ transport, NHibernate."""

from typing import Final

from sqlalchemy import URL, make_url

from delaystore.errors import ConfigurationError
from delaystore.migrations.sources._sql.shape import TableShape
from delaystore.migrations.sources._sql.source import SqlSource, url_parameter
from delaystore.migrations.sources.legacy._msmq_sql import MsmqSqlShape
from delaystore.migrations.sources.legacy._nhibernate import FoldedNHibernateShape, NHibernateShape
from delaystore.migrations.sources.legacy.nservicebus_sql import NServiceBusSqlShape
from delaystore.records.nservicebus import ADDRESSES
from delaystore.sql.dialects import DIALECTS, dialect_of
from delaystore.sql.errors import configuration_errors

__all__ = ["MsmqSqlShape", "NHibernateShape", "NServiceBusSqlShape", "legacy_shape", "open_legacy_source"]
_OWN: Final = ("table", "addresses")


def open_legacy_source(kind: str, url: str) -> SqlSource:
    """The tables of `kind` in the database at `url`, a SQLAlchemy URL with parameters of ours.

    `table`: the template of their names, where it is not the default. `addresses=msmq`: destinations are those of MSMQ,
    `queue@machine`, and the machine is left out (for `msmq-sql` it always is). `schema`: the tables' schema.
    Raises ConfigurationError, MissingDependencyError.
    """
    with configuration_errors():
        parsed = make_url(url)
    return SqlSource(parsed.difference_update_query(_OWN), legacy_shape(kind, parsed))


def legacy_shape(kind: str, url: URL) -> TableShape:
    """The shape of `kind` in the database at `url`, as its parameters say."""
    table, addresses = url_parameter(url, "table"), url_parameter(url, "addresses")
    if addresses is not None and addresses not in ADDRESSES:
        raise ConfigurationError(f"addresses={addresses!r} is unknown; known is {', '.join(ADDRESSES)}")
    if kind == "msmq-sql":
        return MsmqSqlShape(table)
    address = ADDRESSES[addresses or "queue"]
    if kind == "nservicebus-sql":
        return NServiceBusSqlShape(table, address)
    return (FoldedNHibernateShape if dialect_of(url, DIALECTS).folds_names else NHibernateShape)(table, address)
