"""Tables of other programs by URL."""

from typing import Final

from sqlalchemy import URL, make_url

from delaystore.errors import ConfigurationError
from delaystore.migrations.sources.legacy.msmq_sql import MsmqSqlShape
from delaystore.migrations.sources.legacy.nhibernate import FoldedNHibernateShape, NHibernateShape
from delaystore.migrations.sources.legacy.nservicebus import ADDRESSES
from delaystore.migrations.sources.legacy.nservicebus_sql import NServiceBusSqlShape
from delaystore.migrations.sources.sql.shape import TableShape
from delaystore.migrations.sources.sql.source import SqlSource
from delaystore.stores.sql.translation import configuration_errors

_OWN: Final = ("table", "addresses")


def open_legacy_source(kind: str, url: str) -> SqlSource:
    """The tables of `kind` in the database at `url`, a SQLAlchemy URL with parameters of ours.

    `table`: the template of their names, where it is not the default. `addresses=msmq`: destinations are those of MSMQ,
    `queue@machine`, and the machine is left out (for `msmq-sql` it always is). `schema`: theirs.
    Raises ConfigurationError, MissingDependencyError.
    """
    with configuration_errors():
        parsed = make_url(url)
        backend = parsed.get_backend_name()
    own = parsed.difference_update_query(_OWN)
    return SqlSource(own.render_as_string(hide_password=False), legacy_shape(kind, backend, parsed))


def legacy_shape(kind: str, backend: str, url: URL) -> TableShape:
    """The shape of `kind` on the database `backend`, as the parameters of `url` say."""
    table, addresses = _one(url, "table"), _one(url, "addresses")
    if addresses is not None and addresses not in ADDRESSES:
        raise ConfigurationError(f"addresses={addresses!r} is unknown; known is {', '.join(ADDRESSES)}")
    if kind == "msmq-sql":
        return MsmqSqlShape(table)
    address = ADDRESSES[addresses or "queue"]
    if kind == "nservicebus-sql":
        return NServiceBusSqlShape(table, address)
    return (FoldedNHibernateShape if backend == "postgresql" else NHibernateShape)(table, address)


def _one(url: URL, name: str) -> str | None:
    value = url.query.get(name)
    if isinstance(value, tuple):
        raise ConfigurationError(f"the parameter {name} is given twice")
    return value
