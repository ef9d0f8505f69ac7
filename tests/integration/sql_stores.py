"""SQL stores and messages for tests, and databases with the tables in them, as to make tables takes long."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, create_engine, event, inspect, text

from delaystore.message import DelayedMessage, new_message_id
from delaystore.settings import TransactionMode
from delaystore.stores import SqlDelayedMessageStore
from tests.servers import MariaDBDatabases

_COUNTER = re.compile(r" AUTO_INCREMENT=\d+")


@contextmanager
def opened(url: str | Engine, **options: Any) -> Iterator[SqlDelayedMessageStore]:
    store = SqlDelayedMessageStore(url, **options)
    store.initialize("sales", TransactionMode.NONE)
    store.setup_infrastructure()
    try:
        yield store
    finally:
        store.close()


def set_up(url: str) -> None:
    """Make the tables in an empty database."""
    with opened(url):
        pass


def url_for(request: pytest.FixtureRequest, kind: str) -> str:
    """The URL of an empty database; of one with the tables in it, if the test has the fixture `store`."""
    prepared = "prepared_" if "store" in request.fixturenames else ""
    url: str = request.getfixturevalue(f"{prepared}{kind}_url")
    return url


class DatabaseInTurn:
    """A MariaDB database with tables in it, which tests use in turn: MariaDB cannot copy a database.

    A test that changes a table, or makes one, leaves a new database to the next test.
    """

    def __init__(self, databases: MariaDBDatabases, set_up: Callable[[str], object]) -> None:
        self._databases = databases
        self._set_up = set_up
        self._url = ""
        self._shape: dict[str, str] = {}

    def take(self) -> str:
        """The URL of the database; its tables are empty."""
        if not self._url:
            self._url = self._databases.create_database()
            self._set_up(self._url)
            with connected(self._url) as connection:
                self._shape = _shape(connection)
        return self._url

    def give_back(self) -> None:
        """Delete all rows but the version of the tables, or drop the database if its tables have changed."""
        self._databases.disconnect(self._url)
        with connected(self._url) as connection:
            unchanged = _shape(connection) == self._shape
            for name in self._shape if unchanged else ():
                if not name.endswith("_version"):
                    connection.execute(text(f"DELETE FROM `{name}`"))
        if not unchanged:
            self.drop()

    def drop(self) -> None:
        """Drop the database, if there is one."""
        if self._url:
            self._databases.drop_database(self._url)
        self._url = ""


@contextmanager
def connected(url: str, **options: Any) -> Iterator[Connection]:
    """A transaction in a database, committed at the end of the block."""
    engine = create_engine(url, **options)
    try:
        with engine.begin() as connection:
            yield connection
    finally:
        engine.dispose()


def execute(url: str, *statements: str) -> None:
    """Execute statements, and commit."""
    with connected(url) as connection:
        for statement in statements:
            connection.execute(text(statement))


def query(url: str, statement: str) -> list[Any]:
    """The rows of a query."""
    with connected(url) as connection:
        return list(connection.execute(text(statement)))


def all_tables(url: str) -> set[str]:
    """The names of all tables."""
    with connected(url) as connection:
        return set(inspect(connection).get_table_names())


def _shape(connection: Connection) -> dict[str, str]:
    """How tables, views and triggers are made, by their names, and the version of the tables."""
    triggers = connection.execute(text("SHOW TRIGGERS")).all()
    names = connection.execute(text("SHOW TABLES")).scalars().all()
    made = {name: connection.execute(text(f"SHOW CREATE TABLE `{name}`")).one()[1] for name in names}
    shape = {name: _COUNTER.sub("", how) for name, how in made.items()} | {
        f"trigger {each[0]}": "" for each in triggers
    }
    for name in names:
        if name.endswith("_version"):
            shape[name] += repr(connection.execute(text(f"SELECT * FROM `{name}`")).all())
    return shape


def message(now: datetime, seconds: float = 0, message_id: str | None = None, **fields: Any) -> DelayedMessage:
    values: dict[str, Any] = {"destination": "billing", "body": b"pay", **fields}
    due_time = now + timedelta(seconds=seconds)
    return DelayedMessage(message_id=message_id or new_message_id(), due_time=due_time, **values)


def set_snapshot_isolation(engine: Engine, to: str) -> None:
    """Set MariaDB's innodb_snapshot_isolation in the engine's sessions; ON is the default from 11.6.2 on."""

    def prepare(connection: Any, _record: object) -> None:
        with connection.cursor() as cursor:
            if cursor.execute("SHOW VARIABLES LIKE 'innodb_snapshot_isolation'"):
                cursor.execute(f"SET SESSION innodb_snapshot_isolation = {to}")

    if engine.dialect.name in ("mysql", "mariadb"):
        event.listen(engine, "connect", prepare)
