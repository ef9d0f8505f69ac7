"""What differs from one database to the next, an object each."""

from importlib import import_module
from typing import Final

from sqlalchemy import Engine

from delaystore.errors import ConfigurationError
from delaystore.stores.sql.dialects.base import SqlDialect

__all__ = ["SqlDialect", "dialect_of"]

_DIALECTS: Final = {
    "mariadb": ("mysql", "MySqlDialect"),
    "mssql": ("mssql", "SqlServerDialect"),
    "mysql": ("mysql", "MySqlDialect"),
    "postgresql": ("postgresql", "PostgreSqlDialect"),
    "sqlite": ("sqlite", "SqliteDialect"),
}
"""Module and class; imported when asked for, since a driver may be an extra."""


def dialect_of(engine: Engine) -> SqlDialect:
    """The dialect for `engine`. Raises ConfigurationError for a database or driver there is none for."""
    if engine.dialect.name not in _DIALECTS:
        known = ", ".join(_DIALECTS)
        raise ConfigurationError(f"no store for the database {engine.dialect.name!r}; there are {known}")
    module, name = _DIALECTS[engine.dialect.name]
    dialect: type[SqlDialect] = getattr(import_module(f"{__name__}.{module}"), name)
    return dialect(engine)
