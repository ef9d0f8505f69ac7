"""What drivers report, in one form: kinds of faults, hosts of a URL, quoted names, sizes of tables."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from itertools import zip_longest
from typing import Any, Final, NamedTuple

from sqlalchemy import URL, Connection, Dialect, MetaData, Table, TextClause, make_url, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.schema import SchemaItem

from delaystore.errors import ConfigurationError

_SEVERAL: Final = re.compile(
    r"(?P<before>[\w+]+://(?:[^:/]*(?::[^@]*)?@)?+)(?P<hosts>[^/?]*,[^/?]*)(?P<after>[/?].*)?", re.DOTALL
)
"""A URL, taken apart as SQLAlchemy does, whose part for the host has a comma."""
_HOST: Final = re.compile(r"(?:\[(?P<address>[^\s\[\]]+)\]|(?P<name>[^\s\[\]:]+))(?::(?P<port>\d{1,5}))?")
_FORM: Final = "write several hosts as in postgresql://user:password@h1:5432,h2:5432/name, an IPv6 address in brackets"


class DatabaseHost(NamedTuple):
    """Where a server listens. `port` None: where the database's servers usually do."""

    name: str
    port: int | None

    def __str__(self) -> str:
        name = f"[{self.name}]" if ":" in self.name else self.name
        return name if self.port is None else f"{name}:{self.port}"


class HostsInTurn:
    """The hosts of one engine, tried in turn from the one that answered last; threads may share it."""

    def __init__(self, hosts: Iterable[DatabaseHost]) -> None:
        self._hosts = tuple(hosts)

    def __len__(self) -> int:
        return len(self._hosts)

    def __iter__(self) -> Iterator[DatabaseHost]:
        return iter(self._hosts)

    def answered(self, host: DatabaseHost) -> None:
        """Try `host` first from now on, if it is one of these."""
        hosts = self._hosts
        if host in hosts:
            start = hosts.index(host)
            self._hosts = hosts[start:] + hosts[:start]


def parsed(url: str) -> URL:
    """The URL of a text that may name several hosts; raises the errors of `make_url`, and ConfigurationError."""
    if isinstance(url, str):
        scheme, mark, rest = url.partition("://")
        url = f"{scheme.lower()}{mark}{rest}" if mark else url
    found = _SEVERAL.fullmatch(url) if isinstance(url, str) else None
    if found is None:
        return make_url(url)
    if "@" in found["hosts"]:
        raise ConfigurationError("write @ and : in the user name or password of a URL as %40 and %3A")
    plain = make_url(found["before"] + (found["after"] or ""))
    if {"host", "port"} & plain.query.keys():
        raise ConfigurationError("the database URL names hosts in two places; leave one of them out")
    return _with(plain, [_host(text) for text in found["hosts"].split(",")])


def hosts_of(url: URL) -> Sequence[DatabaseHost]:
    """The hosts that `url` names in any form, in their order; none where the driver chooses one."""
    named, ports = _listed(url.query, "host"), _listed(url.query, "port")
    if not named:
        return [DatabaseHost(url.host, url.port)] if url.host else []
    if not ports:
        return [_host(text) if _HOST.fullmatch(text) else DatabaseHost(text, None) for text in named]
    if len(ports) not in (1, len(named)) or not all(port.isdecimal() or not port for port in ports):
        raise ConfigurationError(f"the database URL needs a port for each of its hosts; {_FORM}")
    pairs = zip_longest(named, ports, fillvalue=ports[0])
    return [DatabaseHost(name, int(port) if port else None) for name, port in pairs]


def in_one_form(url: URL, port: int, defaults: Mapping[str, str]) -> URL:
    """`url`, if it names several hosts, in the form that SQLAlchemy and libpq take; `port` where a host has none.

    Values of `defaults` that the URL's query lacks are added to it.
    """
    hosts = hosts_of(url)
    if len(hosts) < 2:
        return url
    added = {name: value for name, value in defaults.items() if name not in url.query}
    return _with(url, [DatabaseHost(host.name, host.port or port) for host in hosts]).update_query_dict(added)


def _with(url: URL, hosts: Sequence[DatabaseHost]) -> URL:
    ports = ",".join("" if host.port is None else str(host.port) for host in hosts)
    query = {"host": ",".join(host.name for host in hosts), "port": ports}
    return url.set(host=None, port=None).update_query_dict(query)


def _host(text: str) -> DatabaseHost:
    found = _HOST.fullmatch(text)
    if found is None or int(found["port"] or 0) > 65535:  # the text may be part of a password
        raise ConfigurationError(f"one of the hosts in the database URL cannot be read; {_FORM}")
    return DatabaseHost(found["address"] or found["name"], int(found["port"]) if found["port"] else None)


def _listed(query: Mapping[str, str | tuple[str, ...]], name: str) -> Sequence[str]:
    value = query.get(name, "")
    return value.split(",") if isinstance(value, str) and value else list(value)


Code = int | str
"""An error as its database numbers it: MySQL's number, PostgreSQL's SQLSTATE."""


class Fault(Enum):
    """The kinds of errors that callers act on."""

    LOGIN = auto()
    """The database refuses the user or the password."""
    NO_DATABASE = auto()
    """The server has no database of that name."""
    UNREACHABLE = auto()
    """No server answers there: no such host, or nothing listens."""
    NO_FILE = auto()
    """The database's file cannot be opened or made."""
    PERMISSION = auto()
    """The user may not do this."""
    MISSING = auto()
    """There is no such table or column, or no unique index that a statement goes by."""
    NO_SCHEMA = auto()
    """There is no such schema, or no name of one."""
    ROW_SECURITY = auto()
    """PostgreSQL would hide rows from the user."""
    DUPLICATE = auto()
    """A unique key exists already, or is there twice."""
    LOCKED = auto()
    """A lock could not be taken at once, or in time."""
    CANCELLED = auto()
    """The database ended the statement: a time limit that is set there, or a request."""
    CONFLICT = auto()
    """A deadlock or a failed serialization: the same may succeed now."""
    READ_ONLY = auto()
    """The server takes no writes: a standby, or a primary that has become one."""
    TOO_LARGE = auto()
    """A row takes more bytes than the database takes at once."""
    POOLED = auto()
    """A statement prepared in another session: a pooler between shares sessions."""
    SETTING = auto()
    """A setting of the server, or of a session that is not ours, forbids the statement."""


def code_of(error: DBAPIError) -> Code | None:
    """PostgreSQL's SQLSTATE, or MySQL's number; None where the driver gives neither."""
    original = error.orig
    number = original.args[0] if original is not None and original.args else None
    if isinstance(number, int):
        return number
    if "password authentication failed" in str(original):
        return "28P01"  # psycopg gives no SQLSTATE for a failed connection
    sqlstate: str | None = getattr(original, "sqlstate", None)
    return sqlstate


def quoted_table(name: str, schema: str | None, *parts: SchemaItem, **options: Any) -> Table:
    """A table whose name and schema's name are always quoted, so that the database takes them as written."""
    return Table(name, MetaData(), *parts, schema=schema, quote=True, quote_schema=True if schema else None, **options)


def quoted_name(table: Table, dialect: Dialect) -> str:
    """The table's name: SQLAlchemy's own quoting, less its doubling of percent signs."""
    return _unquoted(dialect.identifier_preparer.format_table(table), dialect)


def quoted_column(name: str, dialect: Dialect) -> str:
    """A column's name, quoted in any case."""
    return _unquoted(dialect.identifier_preparer.quote_identifier(name), dialect)


def as_it_stands(statement: str) -> TextClause:
    """`statement` to be executed unchanged."""
    return text(escaped(statement))


def escaped(name: str) -> str:
    """A quoted name, or any part of a statement, whose colons begin no parameters."""
    return name.replace(":", r"\:")


def execute_as_it_stands(connection: Connection, statement: str) -> None:
    """Execute `statement` unchanged."""
    connection.execute(as_it_stands(statement))


def _unquoted(quoted: str, dialect: Dialect) -> str:
    return quoted.replace("%%", "%") if dialect.paramstyle in ("format", "pyformat") else quoted


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSize:
    """A table in which messages wait, as the database's own records have it; None: it does not tell."""

    name: str
    """Quoted where the database asks for that; SQLite: the path of its file, which holds all tables."""
    data_bytes: int
    """Of the rows, and of values kept beside them, such as long bodies."""
    index_bytes: int | None
    rows: int | None
    """About how many; not counted."""
    dead_rows: int | None
    """About how many deleted or changed ones still take space."""
