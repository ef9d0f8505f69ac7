"""The table in which an endpoint keeps its messages, compared with others."""

from dataclasses import dataclass

from sqlalchemy import URL
from sqlalchemy.exc import SQLAlchemyError

from delaystore.errors import ConfigurationError
from delaystore.sql.dialects import DIALECTS
from delaystore.sql.names import default_table_name
from delaystore.sql.urls import database_url, same_address


@dataclass(frozen=True, slots=True)
class KeptTable:
    """A table of the store `store`, a URL. `name` None: that of the endpoint. `schema` None: the connection's own."""

    endpoint: str
    store: str
    schema: str | None
    name: str | None

    @property
    def table(self) -> str:
        """The table's name."""
        return self.name or default_table_name(self.endpoint)

    def conflict_with(self, other: "KeptTable") -> str | None:
        """What is wrong where both are one table, or may be; None: they are two."""
        url, same_store = _url(self.store), self.store == other.store or _are_one(self.store, other.store)
        if not same_store or self.schema != other.schema:
            return None
        if self.table == other.table:
            alike = "too"
        elif url is not None and _by_any_capitals(url) and self.table.lower() == other.table.lower():
            alike = f"and {url.get_backend_name()} may take both for one"
        else:
            return None
        return (
            f"{self.endpoint!r} keeps its messages in the table {self.table!r}, and {other.endpoint!r} in "
            f"{other.table!r}, {alike}: give one another table"
        )


def _url(store: str) -> URL | None:
    """None: it is no URL of a database, or of none that can be read, which opening it tells."""
    try:
        return database_url(store)
    except (ConfigurationError, SQLAlchemyError, ValueError):
        return None


def _are_one(store: str, other: str) -> bool:
    one, another = _url(store), _url(other)
    return one is not None and another is not None and same_address(one, another)


def _by_any_capitals(url: URL) -> bool:
    dialect = DIALECTS.get(url.get_backend_name())
    return dialect is not None and dialect.may_ignore_capitals
