"""URLs of databases, with one host and with several."""

import sys

import pytest
from sqlalchemy import make_url

from delaystore.errors import ConfigurationError
from delaystore.migrations.sources import open_source
from delaystore.migrations.targets import open_target
from delaystore.stores import AsyncSqlDelayedMessageStore, SqlDelayedMessageStore, open_store
from delaystore.stores.sql.engine import create_store_engine
from delaystore.stores.sql.errors import configuration_errors
from delaystore.stores.sql.faults import DatabaseHost, HostsInTurn, hosts_of
from delaystore.stores.sql.urls import database_url, same_address, url_label
from delaystore.transports import open_transport

TWO = [DatabaseHost("h1", 1), DatabaseHost("h2", 2)]


@pytest.mark.parametrize(
    ("url", "hosts"),
    [
        ("postgresql://u:p@h1:1,h2:2/db", TWO),
        ("postgresql+psycopg://u:p@h1:1,h2:2/db?connect_timeout=3", TWO),
        ("postgresql://u:p@/db?host=h1:1&host=h2:2", TWO),
        ("postgresql://u:p@/db?host=h1,h2&port=1,2", TWO),
        ("postgresql://u:p@h1,h2/db", [DatabaseHost("h1", 5432), DatabaseHost("h2", 5432)]),
        ("postgresql://u:p@/db?host=h1,h2&port=1", [DatabaseHost("h1", 1), DatabaseHost("h2", 1)]),
        ("postgresql://u:p@[::1]:1,[fe80::2]/db", [DatabaseHost("::1", 1), DatabaseHost("fe80::2", 5432)]),
        ("postgresql://u:p@/db?host=[::1]:1&host=h2:2", [DatabaseHost("::1", 1), DatabaseHost("h2", 2)]),
        ("postgresql://u:p,q@h1:1/db", [DatabaseHost("h1", 1)]),
        ("postgresql://u:p@[::1]:1/db", [DatabaseHost("::1", 1)]),
        ("postgresql:///db?host=/run/postgresql", [DatabaseHost("/run/postgresql", None)]),
        ("postgresql:///db", []),
        ("mysql://u:p@h1:1,h2:2/db", TWO),
        ("mariadb+pymysql://u:p@h1,h2:2", [DatabaseHost("h1", 3306), DatabaseHost("h2", 2)]),
        ("sqlite:///a,b.db", []),
    ],
)
def test_the_hosts_of_a_url(url: str, hosts: list[DatabaseHost]) -> None:
    read = database_url(url)
    assert hosts_of(read) == hosts
    assert database_url(read) == read


def test_libpq_is_told_all_hosts_and_to_choose_the_one_that_takes_writes() -> None:
    dialect = create_store_engine("postgresql://u:p%40%2C@[::1]:1,h2:2/db?connect_timeout=3").dialect
    url = database_url("postgresql+psycopg://u:p%40%2C@[::1]:1,h2:2/db?connect_timeout=3")
    _, told = dialect.create_connect_args(url)
    assert {name: told[name] for name in ("host", "port", "user", "password", "dbname", "connect_timeout")} == {
        "host": "::1,h2",
        "port": "1,2",
        "user": "u",
        "password": "p@,",
        "dbname": "db",
        "connect_timeout": "3",
    }
    assert told["target_session_attrs"] == "read-write"


def test_what_a_url_says_of_its_hosts_stands() -> None:
    asked = database_url("postgresql://h1,h2/db?target_session_attrs=any")
    assert asked.query["target_session_attrs"] == "any"
    assert "target_session_attrs" not in database_url("postgresql://h1/db").query


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("postgresql://u:secret@h1:x,h2/db", "one of the hosts in the database URL cannot be read; write several"),
        ("postgresql://u:secret@h1:1,/db", "one of the hosts"),
        ("postgresql://u:secret@h1,h2:99999/db", "one of the hosts"),
        ("postgresql://u:secret@::1,h2/db", "one of the hosts"),
        ("postgresql://u:sec@ret@h1,h2/db", "write @ and : in the user name or password"),
        ("postgresql://u:secret@h1,h2/db?host=h3", "names hosts in two places"),
        ("postgresql://u:secret@/db?host=h1,h2,h3&port=1,2", "needs a port for each of its hosts"),
        ("postgresql://u:secret@/db?host=h1,h2&port=x,2", "needs a port for each of its hosts"),
        ("mssql+pyodbc://u:secret@h1,h2/db", "only PostgreSQL, MariaDB and MySQL take several hosts"),
    ],
)
def test_a_malformed_one_is_told_in_one_line(url: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said) as raised, configuration_errors():
        create_store_engine(url)
    assert "secret" not in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("scheme", ["oracle", "cockroachdb", "access"])
def test_a_database_that_is_not_supported_is_told_which_are(scheme: str) -> None:
    for opening in (create_store_engine, SqlDelayedMessageStore, AsyncSqlDelayedMessageStore):
        with pytest.raises(ConfigurationError, match=f"the database '{scheme}' is not supported.*; there are mariadb"):
            opening(f"{scheme}://u:secret@h/db")


def test_a_database_that_messages_are_only_taken_from_is_no_store() -> None:
    with pytest.raises(ConfigurationError, match="the database 'mssql' is not supported here; there are mariadb, "):
        SqlDelayedMessageStore("mssql://u:secret@h/db")


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("postgres://u:secret@h/db", "'postgres'; write postgresql://; known schemes: "),
        (
            "postgresql+asyncpg://u:secret@h/db",
            "asyncpg:// is for asyncio; write postgresql+psycopg://, or with asyncio use AsyncSqlDelayedMessageStore",
        ),
        ("sqlite+aiosqlite:///app.db", "is for asyncio; write sqlite+pysqlite://, or with asyncio"),
        ("mariadb+pymsql://u:secret@h/db", "no such database or driver: 'mariadb+pymsql'; write mariadb://, without a"),
        ("mariadb+mariadb://u:secret@h/db", "no such database or driver: 'mariadb+mariadb'; write mariadb://"),
        (
            "mysql+mysqldb://u:secret@h/db",
            "driver MySQLdb is not installed; install it, or leave it out, as in postgresql:// or",
        ),
    ],
)
def test_a_misspelt_scheme_is_told_what_to_write(url: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "MySQLdb", raising=False)  # PyMySQL takes its name in a process that tests Django
    for opening in (open_store, open_transport, open_source):
        with pytest.raises(ConfigurationError) as raised:
            opening(url)
        assert said in str(raised.value)
        assert "secret" not in str(raised.value)


def test_a_scheme_may_be_written_in_capitals() -> None:
    assert create_store_engine("PostgreSQL://u:p@Host/DB").url == create_store_engine("postgresql://u:p@Host/DB").url


def test_a_label_names_all_hosts_and_no_password() -> None:
    label = url_label(database_url("postgresql+psycopg://u,v:secret@h1:1,[::1]/a,b?password=secret"))
    assert label.replace("a,b", "a%2Cb") == "postgresql+psycopg://u%2Cv:***@h1:1,[::1]:5432/a%2Cb"  # as SQLAlchemy 2.1


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("postgresql://u@h1:5432,h2/db", "postgresql+psycopg://v@h2/db", True),
        ("mysql://h1/db", "mariadb://h1:3306/db", True),
        ("postgresql://h1,h2/db", "postgresql://h1,h2/other", False),
        ("postgresql://h1/db", "mysql://h1/db", False),
        ("postgresql://h1:1/db", "postgresql://h1:2/db", False),
        ("postgresql:///db", "postgresql:///db?connect_timeout=1", False),
    ],
)
def test_urls_that_lead_to_the_same_database(one: str, other: str, same: bool) -> None:
    assert same_address(database_url(one), database_url(other)) is same


def test_the_host_that_answered_last_comes_first() -> None:
    hosts = HostsInTurn([DatabaseHost("a", 1), DatabaseHost("b", 1), DatabaseHost("c", 1)])
    hosts.answered(DatabaseHost("b", 1))
    assert [host.name for host in hosts] == ["b", "c", "a"]
    hosts.answered(DatabaseHost("unknown", 1))
    assert [host.name for host in hosts] == ["b", "c", "a"]


def test_migrations_take_them() -> None:
    source = open_source("postgresql://u:secret@h1,h2/db?schema=s&table=t")
    assert "h1:5432,h2:5432/db (schema s)" in source.label
    source.close()
    source = open_source("nservicebus-sql+postgresql://u:secret@h1,h2/db")
    assert "h1:5432,h2:5432/db" in source.label
    source.close()
    target = open_target("mysql://u:secret@h1,h2/db", "sales")
    assert target.label == "sales_delayed in mysql h1:3306,h2:3306/db"
    target.close()


def test_sparks_own_connections_take_them() -> None:
    postgresql = pytest.importorskip("delaystore.bulk.spark._postgresql")
    engine = create_store_engine("postgresql://u:p@h1,h2:2/db")
    told = postgresql._conninfo(engine)
    assert {"host=h1,h2", "port=5432,2", "target_session_attrs=read-write"} <= set(told.split())


def test_an_engine_keeps_the_url_that_it_was_made_of() -> None:
    engine = create_store_engine("mysql://u:p@h1,h2/db")
    assert make_url(engine.url) == database_url("mysql+pymysql://u:p@h1,h2/db")
