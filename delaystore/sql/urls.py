"""URLs of databases: read, compared, shown."""

import os
from pathlib import Path
from typing import Final

from sqlalchemy import URL, exc
from sqlalchemy.engine.interfaces import Dialect

from delaystore.errors import ConfigurationError
from delaystore.sql.dialects import DIALECTS
from delaystore.sql.dialects.sqlite import path_of
from delaystore.sql.hosts import hosts_of, in_one_form, parsed

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


def sqlalchemy_dialect(url: URL) -> type[Dialect]:
    """SQLAlchemy's class for the driver of `url`; raises ConfigurationError where it knows none. Imports no driver.

    So it does for a database that delaystore has no dialect for.
    """
    backend = url.get_backend_name()
    if backend not in DIALECTS:
        raise ConfigurationError(f"the database {backend!r} is not supported; {_KNOWN}")
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
    """The URL for people: without its password, and without options, one of which may be a password."""
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
    """What a database is known by, None where only the driver knows what the URL means; and where its servers are."""
    backend = "mysql" if url.get_backend_name() == "mariadb" else url.get_backend_name()
    if backend == "sqlite":
        return (backend, os.path.realpath(url.database or "")), {("", None)}
    hosts = hosts_of(url)
    if not (hosts and url.database):
        return None, set()
    dialect = DIALECTS.get(backend)
    default = None if dialect is None else dialect.default_port
    return (backend, url.database), {(host.name, host.port or default) for host in hosts}
