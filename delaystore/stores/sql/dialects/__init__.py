"""What differs from one database to the next, an object each."""

from sqlalchemy import Engine

from delaystore.errors import ConfigurationError
from delaystore.stores.sql.dialects.base import SqlDialect
from delaystore.stores.sql.dialects.mssql import SqlServerDialect
from delaystore.stores.sql.dialects.mysql import MySqlDialect
from delaystore.stores.sql.dialects.postgresql import PostgreSqlDialect
from delaystore.stores.sql.dialects.sqlite import SqliteDialect

__all__ = ["SqlDialect", "dialect_of"]

_DIALECTS: dict[str, type[SqlDialect]] = {
    "mariadb": MySqlDialect,
    "mssql": SqlServerDialect,
    "mysql": MySqlDialect,
    "postgresql": PostgreSqlDialect,
    "sqlite": SqliteDialect,
}


def dialect_of(engine: Engine) -> SqlDialect:
    """The dialect for `engine`. Raises ConfigurationError for a database or driver there is none for."""
    dialect = _DIALECTS.get(engine.dialect.name)
    if dialect is None:
        known = ", ".join(sorted(_DIALECTS))
        raise ConfigurationError(f"no store for the database {engine.dialect.name!r}; there are {known}")
    return dialect(engine)
