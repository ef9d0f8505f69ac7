"""What differs from one database to the next, an object each."""

from collections.abc import Mapping
from typing import Final, TypeVar

from sqlalchemy import URL, Connection, Engine
from sqlalchemy.exc import DBAPIError

from delaystore.errors import ConfigurationError
from delaystore.stores.sql.dialects.base import Claiming, Defect, SqlDialect, StoreDialect, made_by_setup
from delaystore.stores.sql.dialects.mssql import SqlServerDialect
from delaystore.stores.sql.dialects.mysql import MySqlDialect
from delaystore.stores.sql.dialects.postgresql import PostgreSqlDialect
from delaystore.stores.sql.dialects.sqlite import SqliteDialect
from delaystore.stores.sql.faults import Fault, code_of

__all__ = [
    "DIALECTS",
    "STORE_DIALECTS",
    "Claiming",
    "Defect",
    "SqlDialect",
    "StoreDialect",
    "dialect_of",
    "fault_of",
    "is_outage",
    "made_by_setup",
    "store_dialect_of",
]

_D = TypeVar("_D", bound=SqlDialect)

STORE_DIALECTS: Final[Mapping[str, StoreDialect]] = {
    "mariadb": MySqlDialect("mariadb"),
    "mysql": MySqlDialect("mysql"),
    "postgresql": PostgreSqlDialect("postgresql"),
    "sqlite": SqliteDialect("sqlite"),
}
"""The databases in which messages can wait, by SQLAlchemy's names."""
DIALECTS: Final[Mapping[str, SqlDialect]] = {**STORE_DIALECTS, "mssql": SqlServerDialect("mssql")}
"""All databases, also sources that messages are only taken from."""


def dialect_of(bind: Engine | Connection | URL, dialects: Mapping[str, _D]) -> _D:
    """The one of `dialects` for the database of `bind`; raises ConfigurationError where there is none."""
    name = bind.get_backend_name() if isinstance(bind, URL) else bind.dialect.name
    if name not in dialects:
        raise ConfigurationError(f"the database {name!r} is not supported here; there are {', '.join(dialects)}")
    return dialects[name]


def store_dialect_of(bind: Engine | Connection | URL) -> StoreDialect:
    """The dialect of a database in which messages can wait; raises ConfigurationError for another."""
    return dialect_of(bind, STORE_DIALECTS)


def fault_of(error: DBAPIError) -> Fault | None:
    """The meaning of `error` of any database; None: nothing that callers act on."""
    return next((fault for dialect in DIALECTS.values() if (fault := dialect.fault(error)) is not None), None)


def is_outage(error: DBAPIError) -> bool:
    """Whether `error` is about the state of the database, not about the rows, as its own database tells it."""
    kind = type(code_of(error))
    dialect = next((each for each in STORE_DIALECTS.values() if each.code_type is kind), STORE_DIALECTS["sqlite"])
    return dialect.is_outage(error)
