"""Engines as the stores need them."""

import os
import time
import weakref
from typing import Any, Final

from sqlalchemy import URL, Engine, create_engine, event, exc, make_url
from sqlalchemy.engine.interfaces import DBAPIConnection, DBAPICursor
from sqlalchemy.pool import ConnectionPoolEntry, PoolProxiedConnection
from tenacity import retry, retry_if_exception_message, stop_after_delay, wait_random

from delaystore.errors import ConfigurationError
from delaystore.stores.sql.translation import configuration_errors

CONNECT_TIMEOUT: Final = 10
"""Seconds to wait for a server to answer a connection."""
SILENCE: Final = 300
"""Seconds after which a server that says nothing is given up."""
BUSY_TIMEOUT: Final = 30
"""Seconds one SQLite writer waits for another."""
IDLE_BEFORE_PING: Final = 1.0
"""Seconds after which a pooled connection is tried before use: cheaper than each time, and a restart goes unseen."""
_CONNECT_ARGS: Final[dict[str, dict[str, Any]]] = {
    "postgresql": {
        "connect_timeout": CONNECT_TIMEOUT,
        "keepalives_idle": 30,
        "keepalives_interval": 10,
        "keepalives_count": 3,
        "tcp_user_timeout": 60_000,
    },
    "mysql": {
        "connect_timeout": CONNECT_TIMEOUT,
        "charset": "utf8mb4",
        "read_timeout": SILENCE,
        "write_timeout": SILENCE,
    },
    "sqlite": {"timeout": BUSY_TIMEOUT},
}
_CONNECT_ARGS["mariadb"] = _CONNECT_ARGS["mysql"]


def create_store_engine(url: str | URL) -> Engine:
    """An engine for `url`, tuned for a store: SQLite in WAL mode, MySQL and MariaDB under READ COMMITTED.

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
        if backend in ("mysql", "mariadb"):
            parsed = _with_driver(parsed)
            # REPEATABLE READ, the default there, blocks inserts beside locked rows
            options["isolation_level"] = "READ COMMITTED"
        if backend == "sqlite":
            _check_sqlite_url(parsed)
        defaults = _CONNECT_ARGS.get(backend, {})
        given = {name: value for name, value in defaults.items() if name not in parsed.query}
        if "prepare_threshold" in parsed.query:
            # psycopg's own parameter, which must not reach it as text: after how many uses a statement is prepared
            threshold = str(parsed.query["prepare_threshold"])
            given["prepare_threshold"] = None if threshold == "none" else int(threshold)
            parsed = parsed.difference_update_query(["prepare_threshold"])
        engine = create_engine(parsed, connect_args=given, **options)
    if backend == "sqlite":
        event.listen(engine, "connect", _prepare_sqlite)
    else:
        event.listen(engine, "checkin", _note_use)
        event.listen(engine, "checkout", _ping_after_idling)
    renew_after_fork(engine)
    return engine


def same_database(one: Engine, other: Engine) -> bool:
    """Whether both engines lead to the same database, so that one transaction can span both."""
    if one.pool is other.pool:
        return True
    return _address(one.url) == _address(other.url)


def renew_after_fork(engine: Engine) -> None:
    """Let a forked child open connections of its own: a socket shared with the parent would mix up both."""
    reference = weakref.ref(engine)

    def renew() -> None:
        engine = reference()
        if engine is not None:
            engine.dispose(close=False)

    os.register_at_fork(after_in_child=renew)


def _address(url: URL) -> tuple[object, ...]:
    backend = "mysql" if url.get_backend_name() == "mariadb" else url.get_backend_name()
    if backend == "sqlite":
        return backend, os.path.realpath(url.database or "")
    if not (url.host and url.database):
        return (url,)  # what it means is the driver's to say
    return backend, url.host, url.port, url.database


def _with_driver(url: URL) -> URL:
    """PyMySQL, where the URL names no driver: SQLAlchemy's own default there must be compiled."""
    return url if "+" in url.drivername else url.set(drivername=f"{url.drivername}+pymysql")


def _check_sqlite_url(url: URL) -> None:
    if url.database in (None, "", ":memory:") or "mode=memory" in str(url.database):
        raise ConfigurationError("a SQLite store needs a file, as in sqlite:///app.db; for memory use memory://")
    folder = os.path.dirname(os.path.abspath(str(url.database)))
    if not str(url.database).startswith("file:") and not os.path.isdir(folder):
        raise ConfigurationError(f"the folder {folder!r} of the SQLite database does not exist; create it first")


def _prepare_sqlite(connection: DBAPIConnection, _record: ConnectionPoolEntry) -> None:
    cursor = connection.cursor()
    _switch_to_wal(cursor)
    cursor.execute("PRAGMA synchronous=FULL")  # in WAL mode less would lose the last commits in a power cut
    cursor.close()


@retry(
    retry=retry_if_exception_message(match=".*locked"),
    stop=stop_after_delay(BUSY_TIMEOUT),
    wait=wait_random(0.01, 0.1),
    reraise=True,
)
def _switch_to_wal(cursor: DBAPICursor) -> None:
    """SQLite does not wait by itself for another process that switches a new file at the same moment."""
    if cursor.execute("PRAGMA journal_mode").fetchone() != ("wal",):
        cursor.execute("PRAGMA journal_mode=WAL")


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
