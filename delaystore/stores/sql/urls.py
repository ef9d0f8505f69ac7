"""Database URLs, and the names of tables and schemas."""

import os
import re
from hashlib import sha256
from pathlib import Path
from typing import Final

from sqlalchemy import URL, Dialect, exc

from delaystore.errors import ConfigurationError
from delaystore.stores.sql.dialects import DIALECTS, SqlDialect
from delaystore.stores.sql.dialects.sqlite import path_of
from delaystore.stores.sql.faults import hosts_of, in_one_form, parsed

_KNOWN: Final = f"there are {', '.join(f'{name}://' for name in DIALECTS)}"
_HOSTS: Final = ","
"""Stands for the hosts while a URL is being written: anywhere else in it a comma is escaped."""


def database_url(url: str | URL) -> URL:
    """SQLAlchemy's form of `url`, which may name several hosts: `scheme://user:password@h1:p1,h2:p2/database`.

    Of several hosts the one that takes writes is meant, unless PostgreSQL's `target_session_attrs` says otherwise.
    Raises ConfigurationError, and what SQLAlchemy's make_url raises; `configuration_errors` translates that.
    """
    read = url if isinstance(url, URL) else parsed(url)
    if "@" in (read.host or ""):
        raise ConfigurationError("write @ and : in the user name or password of a URL as %40 and %3A")
    dialect = DIALECTS.get(read.get_backend_name())
    if dialect is not None and dialect.default_port is not None:
        return in_one_form(read, dialect.default_port, dialect.several_hosts)
    if read.host is None and len(hosts_of(read)) > 1:
        raise ConfigurationError("only PostgreSQL, MariaDB and MySQL take several hosts; name one")
    return read


def known_dialect(url: URL) -> SqlDialect:
    """The dialect for the database of `url`; raises ConfigurationError where delaystore has none."""
    backend = url.get_backend_name()
    if backend not in DIALECTS:
        raise ConfigurationError(f"the database {backend!r} is not supported; {_KNOWN}")
    return DIALECTS[backend]


def sqlalchemy_dialect(url: URL) -> type[Dialect]:
    """SQLAlchemy's class for the driver of `url`; raises ConfigurationError where it knows none. Imports no driver.

    So it does for a database that delaystore has no dialect for.
    """
    known_dialect(url)
    try:
        return url.get_dialect()
    except (exc.NoSuchModuleError, AttributeError):  # the latter: a module of SQLAlchemy's that is no driver
        raise ConfigurationError(f"there is no such database or driver: {url.drivername!r}; {_plain(url)}") from None


def same_address(one: URL, other: URL) -> bool:
    """Whether both URLs lead to the same database; of several hosts one in common is enough."""
    if one == other:
        return True
    (known, hosts), (also_known, other_hosts) = _address(one), _address(other)
    return known is not None and known == also_known and not hosts.isdisjoint(other_hosts)


def url_label(url: URL) -> str:
    """The URL for people: without its password, and without options, as one may be a password."""
    hosts = hosts_of(url)
    plain = url.set(query={})
    if len(hosts) < 2:
        return plain.render_as_string(hide_password=True)
    label = plain.set(host=_HOSTS, port=None).render_as_string(hide_password=True)
    return label.replace(_HOSTS, hosts_label(url), 1)


def hosts_label(url: URL) -> str:
    """The hosts and ports of a URL, as it names them; empty where it names none."""
    return ",".join(map(str, hosts_of(url)))


def sqlite_file(url: URL) -> Path | None:
    """The file of a SQLite database, which connecting would create; None: another database."""
    return path_of(url) if url.get_backend_name() == "sqlite" else None


def _plain(url: URL) -> str:
    return f"write {url.get_backend_name()}://, without a driver"


def _address(url: URL) -> tuple[object, set[tuple[str, int | None]]]:
    """The identity of a database, None where only the driver understands the URL; and the addresses of its servers."""
    backend = "mysql" if url.get_backend_name() == "mariadb" else url.get_backend_name()
    if backend == "sqlite":
        return (backend, os.path.realpath(url.database or "")), {("", None)}
    hosts = hosts_of(url)
    if not (hosts and url.database):
        return None, set()
    dialect = DIALECTS.get(backend)
    default = None if dialect is None else dialect.default_port
    return (backend, url.database), {(host.name, host.port or default) for host in hosts}


LONGEST_SUFFIX: Final = "_version_pkc"
"""The longest suffix that a table's name must leave room for: Alembic's, for the primary key of the version table."""
LOADS: Final = "_loads"
"""The table that remembers bulk loads."""
LOAD: Final = "_load_"
"""Followed by a token: the table in which a bulk load is staged."""
PARTITIONS: Final = "_shelves"
"""The table whose children are the partitions."""
PARTITION: Final = "_shelf_"
"""Followed by a token: a partition."""
OPERATING_SUFFIXES: Final = (
    "_destinations",
    "_dispatchers",
    "_activity",
    "_operations",
    "_changes",
    "_load_changes",
    "_settings",
    "_history",
    "_schedules",
)
"""The tables of what operators and dispatchers note, in the order in which `operating_table_names` has them."""
TEST_CLOCK: Final = "_test_clock"
"""The end of a table's name whose store goes by a test's clock; no other table's name ends so."""
TOKEN_LENGTH: Final = 20
"""Hexadecimal digits."""
_DIGEST: Final = 8
_NO_TOKEN: Final = "0" * TOKEN_LENGTH


def default_table_name(endpoint: str) -> str:
    """The table of `endpoint`, unless another is named."""
    return f"{endpoint}_delayed"


def check_identifier(name: str, dialect: SqlDialect, what: str) -> str:
    """`name`, if the database takes it as it is; raises ConfigurationError naming `what` otherwise."""
    if not isinstance(name, str) or not name.strip():
        raise ConfigurationError(f"{what} is empty; give it a name")
    if not name.isprintable():
        raise ConfigurationError(f"{what} {name!r} contains a character that does not print; use letters and digits")
    limit = dialect.max_identifier_bytes
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise ConfigurationError(f"{what} {name!r} cannot be written as UTF-8") from None
    if size > limit:
        raise ConfigurationError(f"{what} {name!r} has {size} bytes; {dialect.name} allows {limit}, use a shorter name")
    if name.endswith(" ") and not dialect.takes_trailing_space:
        raise ConfigurationError(f"{what} {name!r} ends with a space, which {dialect.name} does not allow")
    return name


def check_table_name(name: str, dialect: SqlDialect) -> str:
    """`name`, if it leaves room for the names derived from it."""
    check_identifier(name + LONGEST_SUFFIX, dialect, f"the table name {name!r} with its suffix,")
    return check_identifier(name, dialect, "the table name")


def timed_table_name(table: str, dialect: SqlDialect, *, by_test_clock: bool) -> str:
    """The name of the table that `table` stands for, checked: one of its own where the store goes by a test's clock.

    Raises ConfigurationError for the name of such a table where it does not.
    """
    if by_test_clock:
        table = table.removesuffix(TEST_CLOCK)
        table = derived_name(table, TEST_CLOCK + LONGEST_SUFFIX, dialect).removesuffix(LONGEST_SUFFIX)
    elif table.lower().endswith(TEST_CLOCK):  # SQLite's names are the same in capitals
        raise ConfigurationError(
            f"the table {table!r} is for tests, which set a clock; name another table, or give the store a clock"
        )
    return check_table_name(table, dialect)


def derived_name(table: str, suffix: str, dialect: SqlDialect) -> str:
    """`table` and `suffix`; if that is too long, a digest replaces the end of the table's name.

    So a table with a long name, which may be another program's, need not be renamed.
    """
    limit = dialect.max_identifier_bytes
    if len((table + suffix).encode()) <= limit:
        return table + suffix
    ending = "_" + sha256(table.encode()).hexdigest()[:_DIGEST] + suffix
    return table.encode()[: limit - len(ending)].decode(errors="ignore") + ending


def loads_table_name(table: str, dialect: SqlDialect) -> str:
    """The name of the table that remembers the bulk loads into `table`."""
    return derived_name(table, LOADS, dialect)


def load_table_name(table: str, token: str, dialect: SqlDialect) -> str:
    """The name of the table in which the bulk load `token` into `table` is staged."""
    return derived_name(table, LOAD + token, dialect)


def is_load_table(name: str, table: str, dialect: SqlDialect) -> bool:
    """Whether a table of that name is, or was left behind by, a bulk load into `table`."""
    return _is_of_a_token(name, load_table_name(table, _NO_TOKEN, dialect))


def partitions_table_name(table: str, dialect: SqlDialect) -> str:
    """The name of the table whose children are the partitions of `table`."""
    return derived_name(table, PARTITIONS, dialect)


def operating_table_names(table: str, dialect: SqlDialect) -> list[str]:
    """The names of the tables in which operators and dispatchers of `table` record their work."""
    return [derived_name(table, suffix, dialect) for suffix in OPERATING_SUFFIXES]


def history_partition_name(table: str, end: str, dialect: SqlDialect) -> str:
    """The name of a partition of the history of `table`; `end`: the beginning of its time in digits, or "default"."""
    return derived_name(table, f"_history_{end}", dialect)


def is_history_partition(name: str, table: str, dialect: SqlDialect) -> bool:
    """Whether a table of that name is a partition of the history of `table`."""
    default = history_partition_name(table, "default", dialect)
    pattern = re.escape(history_partition_name(table, "0" * 12, dialect)[:-12]) + "[0-9]{12}"
    return name == default or re.fullmatch(pattern, name) is not None


def partition_name(table: str, token: str, dialect: SqlDialect) -> str:
    """The name of the partition `token` of `table`."""
    return derived_name(table, PARTITION + token, dialect)


def is_partition(name: str, table: str, dialect: SqlDialect) -> bool:
    """Whether a table of that name is a partition of `table`."""
    return _is_of_a_token(name, partition_name(table, _NO_TOKEN, dialect))


def _is_of_a_token(name: str, without: str) -> bool:
    return re.fullmatch(re.escape(without[:-TOKEN_LENGTH]) + f"[0-9a-f]{{{TOKEN_LENGTH}}}", name) is not None
