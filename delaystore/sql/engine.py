"""SQLAlchemy engines, set up for stores."""

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from sqlalchemy import URL, Engine, create_engine, event, exc, make_url
from sqlalchemy.engine.interfaces import DBAPIConnection, Dialect
from sqlalchemy.pool import ConnectionPoolEntry, PoolProxiedConnection

from delaystore.errors import ConfigurationError
from delaystore.forks import renew_in_children
from delaystore.sql.dialects import DIALECTS, SqlDialect
from delaystore.sql.errors import configuration_errors

IDLE_BEFORE_PING: Final = 1.0
"""Seconds without use after which a pooled connection is tested first, so that callers do not notice a restart."""

_SQLITE_OPTIONS: Final = frozenset(
    {"cached_statements", "check_same_thread", "detect_types", "isolation_level", "timeout", "uri"}
)
"""What Python's driver takes. With `uri`, the others go to SQLite itself."""


_PASSWORDS: Final = frozenset({"password", "passwd"})
"""Options of libpq and PyMySQL that mean the same as the password before the host."""


def create_store_engine(url: str | URL) -> Engine:
    """An engine for `url`, tuned for a store: SQLite in WAL mode, MySQL and MariaDB under READ COMMITTED.

    PostgreSQL's sessions write times as ISO and text as UTF-8, whatever the role's or the database's settings.

    The URL's query goes to the driver; `prepare_threshold=none` keeps psycopg from preparing statements, which poolers
    such as pgbouncer before 1.21 do not know.

    Raises ConfigurationError for a URL that cannot work, MissingDependencyError for a missing driver.
    """
    with configuration_errors():
        parsed = make_url(url)
        if "@" in (parsed.host or ""):
            raise ConfigurationError("write @ and : in the user name or password of a URL as %40 and %3A")
        backend = parsed.get_backend_name()
        options: dict[str, Any] = {"hide_parameters": True, "pool_size": 5, "max_overflow": 15}
        dialect = DIALECTS.get(backend)
        if dialect is not None:
            parsed = _with_password_hidden(_with_driver(parsed, dialect))
            if dialect.sets_isolation:
                options["isolation_level"] = dialect.transaction_isolation
        if backend == "sqlite":
            _check_sqlite_url(parsed)
            options["paramstyle"] = "named"  # for any other, SQLAlchemy takes a table called "%(id)s" for a parameter
        defaults = {} if dialect is None else dialect.connect_arguments
        given = {name: value for name, value in defaults.items() if name not in parsed.query}
        if "prepare_threshold" in parsed.query:
            # psycopg prepares a statement after so many uses; it takes a number or None, not text
            threshold = str(parsed.query["prepare_threshold"])
            given["prepare_threshold"] = None if threshold == "none" else int(threshold)
            parsed = parsed.difference_update_query(["prepare_threshold"])
        engine = create_engine(parsed, connect_args=given, **options)
    event.listen(engine, "do_connect", _connect)
    if dialect is not None:
        event.listen(engine, "connect", lambda connection, _record: dialect.prepare(connection))
    if backend != "sqlite":
        event.listen(engine, "checkin", _note_use)
        event.listen(engine, "checkout", _ping_after_idling)
    renew_after_fork(engine)
    return engine


def same_database(one: Engine, other: Engine) -> bool:
    """Whether both engines lead to the same database, so that one transaction can span both."""
    if one.pool is other.pool:
        return True
    return _address(one.url) == _address(other.url)


def url_label(url: URL) -> str:
    """The URL for people: without its password, and without options, one of which may be a password."""
    return url.set(query={}).render_as_string(hide_password=True)


def sqlite_file(url: URL) -> Path | None:
    """The file of a SQLite database, which connecting would create; None: another database."""
    if url.get_backend_name() != "sqlite":
        return None
    database = url.database or ""
    return Path(unquote(urlsplit(database).path) if database.startswith("file:") else database)


def renew_after_fork(engine: Engine) -> None:
    """Let a forked child open connections of its own: a socket shared with the parent would mix up both."""
    renew_in_children(engine, lambda inherited: inherited.dispose(close=False))


def _address(url: URL) -> tuple[object, ...]:
    backend = "mysql" if url.get_backend_name() == "mariadb" else url.get_backend_name()
    if backend == "sqlite":
        return backend, os.path.realpath(url.database or "")
    if not (url.host and url.database):
        return (url,)  # only the driver knows what it means
    return backend, url.host, url.port, url.database


def _with_driver(url: URL, dialect: SqlDialect) -> URL:
    if dialect.default_driver is None or "+" in url.drivername:
        return url
    return url.set(drivername=f"{url.drivername}+{dialect.default_driver}")


def _with_password_hidden(url: URL) -> URL:
    """A password among the options as the URL's own, which the engine's repr and SQLAlchemy's logs leave out."""
    for name in _PASSWORDS & set(url.query):
        url = url.set(password=str(url.query[name])).difference_update_query([name])
    return url


def _check_sqlite_url(url: URL) -> None:
    if url.database in (None, "", ":memory:") or "mode=memory" in str(url.database):
        raise ConfigurationError("a SQLite store needs a file, as in sqlite:///app.db; for memory use memory://")
    unknown = sorted(set(url.query) - _SQLITE_OPTIONS)
    if unknown and "uri" not in url.query:
        raise ConfigurationError(f"SQLite knows no option {unknown[0]!r}; take it out of the URL")
    folder = os.path.dirname(os.path.abspath(str(url.database)))
    if not str(url.database).startswith("file:") and not os.path.isdir(folder):
        raise ConfigurationError(f"the folder {folder!r} of the SQLite database does not exist; create it first")


def _connect(
    dialect: Dialect, _record: ConnectionPoolEntry, arguments: Sequence[Any], parameters: Mapping[str, Any]
) -> DBAPIConnection:
    """The driver's connection; ConfigurationError for an option it does not know, which some tell only now."""
    with configuration_errors():
        return dialect.connect(*arguments, **parameters)


def _note_use(_connection: DBAPIConnection | None, record: ConnectionPoolEntry) -> None:
    record.info["delaystore_used"] = time.monotonic()


def _ping_after_idling(connection: DBAPIConnection, record: ConnectionPoolEntry, _proxy: PoolProxiedConnection) -> None:
    used = record.info.get("delaystore_used")
    if used is None or time.monotonic() - used < IDLE_BEFORE_PING:
        return
    try:
        cursor = connection.cursor()
        cursor.execute("SELECT 1")
        cursor.close()
        connection.rollback()
    except Exception as error:
        raise exc.DisconnectionError("a pooled connection had gone") from error
