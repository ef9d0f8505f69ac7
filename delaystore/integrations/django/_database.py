"""Django's databases, as URLs of stores."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from django.core.exceptions import ImproperlyConfigured
from sqlalchemy import URL, Engine, NullPool, create_engine

from delaystore.sql.engine import create_store_engine

Parts = Mapping[str, Any]
_OF_DJANGO_ALONE: Final = {
    "postgresql": {
        "assume_role",
        "client_encoding",
        "isolation_level",
        "pool",
        "prepare_threshold",
        "server_side_binding",
    },
    "mysql": {"charset", "init_command", "isolation_level", "sql_mode", "use_unicode"},
    "sqlite": {"init_command", "isolation_level", "transaction_mode"},
}
"""Options that concern Django's own connections, not where the database is."""


def store_url(database: Parts) -> URL:
    """The URL that leads where `database`, an entry of DATABASES, does.

    Raises ImproperlyConfigured for an engine that is no store's, and an option that has no place in a URL.
    """
    engine = str(database["ENGINE"]).rpartition(".")[2]
    make = _MAKERS.get(engine)
    if make is None:
        raise ImproperlyConfigured(
            f"the database engine {database['ENGINE']!r} holds no delayed messages; PostgreSQL, MariaDB, MySQL and "
            "SQLite do"
        )
    return make(database)


def store_engine(database: Parts) -> Engine:
    """An engine that leads where `database` does, and keeps no connection: a test runner drops no database in use.

    Also to a database in memory, as test runners make them.
    """
    url = store_url(database)
    if "mode=memory" not in str(url.database):
        return create_store_engine(url, pooled=False)
    return create_engine(url.update_query_dict({"uri": "true"}), poolclass=NullPool)


def _postgresql(database: Parts) -> URL:
    options = _options(database, "postgresql")
    if (host := _host(database)) and not _is_plain(host):  # several hosts, or the folder of a socket
        options |= {"host": host} | ({"port": database["PORT"]} if database.get("PORT") else {})
    return _server("postgresql+psycopg", database, options)


def _mysql(database: Parts) -> URL:
    options = _options(database, "mysql")
    for name, value in dict(options.pop("ssl", {})).items():
        options[f"ssl_{name}"] = value
    if (host := _host(database)).startswith("/"):
        options["unix_socket"] = host
    return _server("mysql+pymysql", database, options)


def _sqlite(database: Parts) -> URL:
    return URL.create("sqlite", database=str(database["NAME"]), query=_texts(_options(database, "sqlite")))


_MAKERS: Final[Mapping[str, Callable[[Parts], URL]]] = {
    "postgresql": _postgresql,
    "postgis": _postgresql,
    "mysql": _mysql,
    "sqlite3": _sqlite,
    "spatialite": _sqlite,
}


def _server(driver: str, database: Parts, options: dict[str, Any]) -> URL:
    host = _host(database)
    return URL.create(
        driver,
        username=database.get("USER") or None,
        password=database.get("PASSWORD") or None,
        host=host if _is_plain(host) else None,
        port=int(database["PORT"]) if database.get("PORT") and _is_plain(host) else None,
        database=database.get("NAME") or None,
        query=_texts(options),
    )


def _host(database: Parts) -> str:
    return str(database.get("HOST") or "")


def _is_plain(host: str) -> bool:
    return bool(host) and not host.startswith("/") and "," not in host


def _options(database: Parts, backend: str) -> dict[str, Any]:
    alone = _OF_DJANGO_ALONE[backend]
    return {name: value for name, value in (database.get("OPTIONS") or {}).items() if name not in alone}


def _texts(options: Mapping[str, Any]) -> dict[str, str]:
    for name, value in options.items():
        if not isinstance(value, str | int | float):
            raise ImproperlyConfigured(f"the option {name!r} of the database cannot be written in a store's URL")
    return {name: str(value) for name, value in options.items()}
