"""Conflicts within a configuration: two endpoints or servers with the same port, queue, or table."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

from sqlalchemy import URL
from sqlalchemy.exc import SQLAlchemyError

from delaystore.errors import ConfigurationError
from delaystore.service.configuration.values import Address
from delaystore.sql.dialects import DIALECTS
from delaystore.sql.names import default_table_name
from delaystore.sql.urls import database_url, same_address

_EVERY_HOST: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104 - compared, not listened to # nosec B104


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


def check_listeners(listeners: Mapping[str, Address | None]) -> None:
    """Raise ConfigurationError where two tables listen to one port. `listeners`: where each table listens, if it does.

    Errors begin with the later table's name.
    """
    before: dict[str, Address] = {}
    for name, address in listeners.items():
        if address is None or not address.port:
            continue
        for other, taken in before.items():
            if _collide(address, taken):
                raise ConfigurationError(
                    f"{name} listens to {address}, and {other} to {taken}: give each a port of its own"
                )
        before[name] = address


def _collide(one: Address, other: Address) -> bool:
    hosts = {"127.0.0.1" if host.lower() == "localhost" else host.lower() for host in (one.host, other.host)}
    return one.port == other.port and (len(hosts) == 1 or bool(hosts & _EVERY_HOST))


def check_queues(reads: Iterable[tuple[object, str]], error_queues: Iterable[tuple[object, str]]) -> None:
    """Raise ConfigurationError where two endpoints, or two parts of one, read one queue, or one reads an error queue.

    What becomes of a message would be a matter of luck. Each: a queue, and by whom it is used, as in `'sales' reads
    ...`. Errors begin with `endpoint`.
    """
    found: dict[object, str] = {}
    for queue, use in reads:
        if queue in found:
            raise ConfigurationError(f"endpoint {use}, and {found[queue]} too: change one, or leave it out")
        found[queue] = use
    for queue, use in error_queues:
        if queue in found:
            raise ConfigurationError(f"endpoint {use}, and {found[queue]}: name another one")


def check_tables(tables: Sequence[KeptTable]) -> None:
    """Raise ConfigurationError where two endpoints keep their messages in one table; it begins with `endpoint`."""
    for other, one in combinations(tables, 2):
        conflict = one.conflict_with(other)
        if conflict is not None:
            raise ConfigurationError(f"endpoint {conflict}")


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
