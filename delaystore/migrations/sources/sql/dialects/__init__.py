"""What differs from one database to the next, an object each."""

from typing import Final

from sqlalchemy import Engine

from delaystore.errors import ConfigurationError
from delaystore.migrations.sources.sql.dialects.base import MigrationDialect
from delaystore.migrations.sources.sql.dialects.mssql import SqlServerMigration
from delaystore.migrations.sources.sql.dialects.mysql import MySqlMigration
from delaystore.migrations.sources.sql.dialects.postgresql import PostgreSqlMigration
from delaystore.migrations.sources.sql.dialects.sqlite import SqliteMigration

__all__ = ["MigrationDialect", "dialect_of"]

_DIALECTS: Final[dict[str, type[MigrationDialect]]] = {
    "mariadb": MySqlMigration,
    "mssql": SqlServerMigration,
    "mysql": MySqlMigration,
    "postgresql": PostgreSqlMigration,
    "sqlite": SqliteMigration,
}


def dialect_of(engine: Engine) -> MigrationDialect:
    """The dialect for `engine`. Raises ConfigurationError for a database there is none for."""
    dialect = _DIALECTS.get(engine.dialect.name)
    if dialect is None:
        raise ConfigurationError(f"no migration from {engine.dialect.name!r}; there are {', '.join(_DIALECTS)}")
    return dialect()
