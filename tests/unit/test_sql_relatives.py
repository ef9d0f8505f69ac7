"""A database that is nearly PostgreSQL needs only what differs."""

from datetime import UTC, datetime

from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg

from delaystore.stores.sql._statements import statements_of
from delaystore.stores.sql.codec import ExactText, UtcDateTime
from delaystore.stores.sql.dialects.postgresql import PostgreSqlDialect

NOW = datetime(2034, 5, 6, 7, 8, 9, tzinfo=UTC)


class RelativeDialect(PGDialect_psycopg):
    name = "relative"
    supports_statement_cache = True


class WithoutNotifications(PostgreSqlDialect):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.notifications = None


def test_it_stores_its_columns_like_postgresql() -> None:
    dialect = RelativeDialect()
    assert UtcDateTime().compile(dialect) == "TIMESTAMP WITH TIME ZONE"
    assert UtcDateTime().process_bind_param(NOW, dialect) == NOW
    assert ExactText(9).compile(dialect) == ExactText(9).compile(PGDialect_psycopg())


def test_without_notifications_it_has_no_statement_that_notifies() -> None:
    without, postgresql = WithoutNotifications("relative"), PostgreSqlDialect("postgresql")
    assert statements_of("sales_delayed", None, without).inserts.insert_and_notify is None
    assert statements_of("sales_delayed", None, postgresql).inserts.insert_and_notify is not None
