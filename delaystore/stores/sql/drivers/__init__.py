"""What differs from one driver to the next, an object each."""

from collections.abc import Mapping
from typing import Any, Final

from sqlalchemy import URL, Connection, Engine
from sqlalchemy.engine.interfaces import Dialect

from delaystore.stores.sql.drivers.asyncpg import Asyncpg
from delaystore.stores.sql.drivers.base import Driver
from delaystore.stores.sql.drivers.mysql import Aiomysql, Asyncmy, PyMySql
from delaystore.stores.sql.drivers.psycopg import AsyncPsycopg, Psycopg
from delaystore.stores.sql.drivers.sqlite import AioSqlite, PySqlite

__all__ = ["DRIVERS", "Driver", "driver_of", "driver_of_url", "is_only_async"]

DRIVERS: Final[Mapping[tuple[str, bool], Driver]] = {
    ("psycopg", False): Psycopg(),
    ("psycopg", True): AsyncPsycopg(),
    ("asyncpg", True): Asyncpg(),
    ("pymysql", False): PyMySql(),
    ("aiomysql", True): Aiomysql(),
    ("asyncmy", True): Asyncmy(),
    ("pysqlite", False): PySqlite(),
    ("aiosqlite", True): AioSqlite(),
}
"""By SQLAlchemy's name, and whether it is for an event loop."""
_OTHER: Final = Driver()


def driver_of(bind: Engine | Connection | Dialect) -> Driver:
    """The driver behind `bind`; an unknown driver is treated like most."""
    dialect: Any = bind if isinstance(bind, Dialect) else bind.dialect
    return DRIVERS.get((dialect.driver, dialect.is_async), _OTHER)


def is_only_async(url: URL) -> bool:
    """Whether `url` names a driver that is for event loops alone."""
    name = url.get_driver_name()
    known = {is_async for each, is_async in DRIVERS if each == name.removesuffix("_async")}
    return known == {True} or (bool(known) and name.endswith("_async"))


def driver_of_url(url: URL, *, is_async: bool) -> Driver:
    """The driver that `url` names, for an event loop or not."""
    return DRIVERS.get((url.get_driver_name().removesuffix("_async"), is_async), _OTHER)
