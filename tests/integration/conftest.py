"""SQL stores on each database."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import make_url

from delaystore.cascades import Management
from delaystore.stores import SqlDelayedMessageStore
from delaystore.transports.rabbitmq.parameters import broker_from_url
from tests.integration.cascades import channel_to
from tests.integration.sql_stores import DatabaseInTurn, opened, set_up, url_for
from tests.servers import MariaDBDatabases, PostgreSQLDatabases, RabbitMQVhosts


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with the tables in it."""
    template = tmp_path_factory.mktemp("template") / "delaystore.db"
    set_up(f"sqlite:///{template}")
    return template


@pytest.fixture(scope="session")
def postgresql_template(postgresql: PostgreSQLDatabases) -> Iterator[str]:
    """A database with the tables in it."""
    url = postgresql.create_database()
    set_up(url)
    yield url
    postgresql.drop_database(url)


@pytest.fixture(scope="session")
def mariadb_in_turn(mariadb: MariaDBDatabases) -> Iterator[DatabaseInTurn]:
    """A database with the tables in it, one for all tests."""
    database = DatabaseInTurn(mariadb, set_up)
    yield database
    database.drop()


@pytest.fixture
def prepared_sqlite_url(sqlite_url: str, sqlite_template: Path) -> str:
    """A SQLite database with the tables in it."""
    shutil.copy(sqlite_template, str(make_url(sqlite_url).database))
    return sqlite_url


@pytest.fixture
def prepared_postgresql_url(postgresql: PostgreSQLDatabases, postgresql_template: str) -> Iterator[str]:
    """A PostgreSQL database with the tables in it, dropped after the test."""
    url = postgresql.create_database(template=postgresql_template)
    yield url
    postgresql.drop_database(url)


@pytest.fixture
def prepared_mariadb_url(mariadb_in_turn: DatabaseInTurn) -> Iterator[str]:
    """A MariaDB database with the tables in it."""
    yield mariadb_in_turn.take()
    mariadb_in_turn.give_back()


@pytest.fixture(params=["sqlite", "postgresql", "mariadb"])
def database_url(request: pytest.FixtureRequest) -> str:
    """An empty database of each kind; with the tables in it, if the test has a store."""
    return url_for(request, request.param)


@pytest.fixture
def store(database_url: str) -> Iterator[SqlDelayedMessageStore]:
    """A store with its tables."""
    with opened(database_url) as store:
        yield store


@pytest.fixture
def other(database_url: str, store: SqlDelayedMessageStore) -> Iterator[SqlDelayedMessageStore]:
    """The same messages, as another process would see them."""
    with opened(database_url) as other:
        yield other


@pytest.fixture
def channel(rabbitmq_url: str) -> Iterator[Any]:
    """A channel in confirm mode to an empty virtual host."""
    with channel_to(rabbitmq_url) as channel:
        yield channel


@pytest.fixture
def management(rabbitmq: RabbitMQVhosts, rabbitmq_url: str) -> Iterator[Management]:
    """The management API for an empty virtual host."""
    assert rabbitmq.management_url is not None
    with Management(rabbitmq.management_url, broker_from_url(rabbitmq_url)) as management:
        yield management
