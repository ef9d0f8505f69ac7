"""What differs from one database to the next, an object each."""

from typing import Final

from delaystore.spark.staging.sql.dialects.base import StagingDialect
from delaystore.spark.staging.sql.dialects.mysql import MySqlStaging
from delaystore.spark.staging.sql.dialects.postgresql import PostgreSqlStaging
from delaystore.spark.staging.sql.dialects.sqlite import SqliteStaging

__all__ = ["DIALECTS", "StagingDialect"]

DIALECTS: Final[dict[str, type[StagingDialect]]] = {
    "mariadb": MySqlStaging,
    "mysql": MySqlStaging,
    "postgresql": PostgreSqlStaging,
    "sqlite": SqliteStaging,
}
