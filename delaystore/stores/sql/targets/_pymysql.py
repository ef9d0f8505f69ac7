"""Connections of PyMySQL."""

from typing import Any, ClassVar

import pymysql
from pymysql.cursors import Cursor
from sqlalchemy import URL
from typing_extensions import override

from delaystore.stores.sql.targets._drivers import LentConnection


class PyMySqlLentConnection(LentConnection):
    """A pymysql.Connection."""

    driver: ClassVar[str] = "pymysql"
    taken: ClassVar[type] = pymysql.connections.Connection

    @property
    @override
    def address(self) -> URL | None:
        database = self.raw.db
        name = database.decode() if isinstance(database, bytes) else database
        return URL.create("mysql", host=self.raw.host, port=self.raw.port, database=name)

    @property
    @override
    def is_closed(self) -> bool:
        return not self.raw.open

    @override
    def cursor(self, *_arguments: Any, **_options: Any) -> Any:
        """One whose rows are tuples."""
        return self.raw.cursor(Cursor)
