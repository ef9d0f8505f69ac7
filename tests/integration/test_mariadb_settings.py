"""MariaDB and MySQL as administrators set them: delaystore works, or says in a line which setting is to be changed."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, make_url, text
from sqlalchemy.orm import Session

from delaystore import DelayedDelivery, DelayedDeliverySettings
from delaystore.dispatcher import Dispatcher
from delaystore.errors import DuplicateMessageError, StoreError
from delaystore.filters import MessageFilter
from delaystore.message import OnKey
from delaystore.stores import SqlDelayedMessageStore
from delaystore.transports import SqlQueueTransport
from tests.integration.cli import CommandLine
from tests.integration.sql_stores import message, opened
from tests.long import long
from tests.servers import MariaDB, MariaDBDatabases, MySQL

Start = Callable[[Callable[[], Any]], Any]
MANY = 600
SETTINGS = {
    "MyISAM": {"default_storage_engine": "MyISAM"},
    "Aria": {"default_storage_engine": "Aria", "character_set_server": "latin1"},
    "guard-rails": {
        "init_connect": "SET SESSION sql_safe_updates = 1, SESSION sql_select_limit = 3, SESSION autocommit = 0, "
        "SESSION tx_read_only = 1",
    },
    "time": {
        "init_connect": "SET SESSION max_statement_time = 0.1, SESSION lock_wait_timeout = 1, "
        "SESSION innodb_lock_wait_timeout = 1",
    },
    "tables": {
        "innodb_force_primary_key": "ON",
        "innodb_default_row_format": "compact",
        "lower_case_table_names": "1",
    },
    "ORACLE": {"sql_mode": "ORACLE"},
    "ANSI": {"sql_mode": "ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT,IGNORE_SPACE"},
    "lenient": {"sql_mode": ""},
}
ON_MYSQL = {
    "MyISAM": {"default_storage_engine": "MyISAM", "character_set_server": "latin1"},
    "guard-rails": {
        "init_connect": "SET SESSION sql_safe_updates = 1, SESSION sql_select_limit = 3, SESSION autocommit = 0, "
        "SESSION transaction_read_only = 1",
    },
    "time": {
        "init_connect": "SET SESSION max_execution_time = 100, SESSION lock_wait_timeout = 1, "
        "SESSION innodb_lock_wait_timeout = 1",
        "innodb_rollback_on_timeout": "ON",
    },
    "tables": {
        "sql_require_primary_key": "ON",
        "innodb_default_row_format": "compact",
        "sql_generate_invisible_primary_key": "ON",
    },
    "ANSI": SETTINGS["ANSI"],
    "lenient": SETTINGS["lenient"],
    "serializable": {"transaction_isolation": "SERIALIZABLE", "sql_mode": "TRADITIONAL,PAD_CHAR_TO_FULL_LENGTH"},
}
STEADY = DelayedDeliverySettings(automatic_setup=False, max_body_bytes=1000)


@pytest.fixture(params=[pytest.param((MariaDB, each), id=f"mariadb-{name}") for name, each in SETTINGS.items()])
def url(request: pytest.FixtureRequest, start_server: Start) -> str:
    return database_on(start_server, *request.param)


def database_on(start_server: Start, kind: type[MariaDB], settings: dict[str, str]) -> str:
    """An empty database of a user without further rights on a server with these settings."""
    server = start_server(lambda: kind(settings))
    name = make_url(MariaDBDatabases(server.admin_url).create_database()).database
    return make_url(server.url).set(database=name).render_as_string(hide_password=False)


def others_engines(url: str) -> list[str]:
    """The tables that are not InnoDB's, but for Alembic's one row."""
    engine = create_engine(url)
    with engine.connect() as connection:
        found = connection.execute(
            text(
                "SELECT table_name FROM information_schema.tables "
                "WHERE table_schema = DATABASE() AND engine <> 'InnoDB'"
            )
        )
        names = list(found.scalars())
    engine.dispose()
    return names


def works(url: str, run: CommandLine, folder: Path) -> None:
    """Set up, send, roll back, dispatch twice at once, change in bulk, load, migrate."""
    ends = ("--store", url, "--endpoint", "sales")
    assert run("setup", *ends, "--queue", "billing", "--transport", url).code == 0
    with opened(url) as store:
        delivery = DelayedDelivery("sales", store, settings=STEADY)
        if "ORACLE" not in mode_of(url):
            enlisted_is_undone(delivery, url)
        else:
            with pytest.raises(StoreError, match="sql_mode to its default"):
                enlisted_is_undone(delivery, url)
        for _ in range(2):
            delivery.send("billing", b"x", delay=60, key="k", on_key=OnKey.REPLACE)
        assert store.count() == 1
        due = store.now()
        with pytest.raises(DuplicateMessageError):
            store.store_many([message(due, 60, name) for name in "aba"])
        assert store.count() == 1
        store.store_many(message(due, -1) for _ in range(MANY))
        assert dispatched_by_two(store, url) == MANY
        store.store_many(message(due, 3600 + number, body=b"\\'\"%s\0") for number in range(MANY))
        operations = delivery.operations
        assert operations.reschedule(MessageFilter(destination="billing"), delay=7200).changed == MANY + 1
        assert operations.cancel(MessageFilter(destination="billing")).changed == MANY + 1
    rows = folder / "rows.csv"
    rows.write_text("message_id,delay,body\n" + "".join(f"m{number},3600,x\n" for number in range(MANY)))
    loaded = run("send", "billing", "--file", str(rows), "--load-id", "one", *ends)
    assert loaded.code == 0, loaded
    move = ("--from", url, "--to", f"sqlite:///{folder}/target.db", "--endpoint", "sales")
    assert run("setup", "--store", move[3], "--endpoint", "sales").code == 0
    moved = run("migrate", "run", *move, "--yes")
    assert moved.code == 0, moved
    verified = run("migrate", "verify", *move)
    assert verified.code == 0, verified
    with opened(move[3]) as target:
        assert target.count() == MANY
    assert others_engines(url) == []


def mode_of(url: str) -> str:
    """The sql_mode of a session as the server gives it."""
    engine = create_engine(url)
    with engine.connect() as connection:
        mode = str(connection.execute(text("SELECT @@SESSION.sql_mode")).scalar_one())
    engine.dispose()
    return mode


def enlisted_is_undone(delivery: DelayedDelivery, url: str) -> None:
    """In a session of the caller's own, as the server gives it."""
    engine = create_engine(url)
    with Session(engine) as session:
        session.execute(text("SET SESSION TRANSACTION READ WRITE"))
        session.commit()
        enlisted = delivery.enlist(session)
        enlisted.send("billing", b"x", delay=3600, message_id="undone")
        assert enlisted.cancel("undone")
        enlisted.send("billing", b"x", delay=3600, message_id="undone")
        session.rollback()
    engine.dispose()
    assert delivery.get("undone") is None


def dispatched_by_two(store: SqlDelayedMessageStore, url: str) -> int:
    """How many messages arrived from two dispatchers together."""
    transports = [SqlQueueTransport(url) for _ in range(2)]
    dispatchers = [Dispatcher(store, transport, STEADY) for transport in transports]
    with ThreadPoolExecutor(2) as pool:
        reports = list(pool.map(lambda each: each.dispatch_due(), dispatchers))
    with transports[0].receive("billing", 10 * MANY) as arrived:
        ids = [each.message_id for each in arrived]
    for transport in transports:
        transport.close()
    assert store.count() == 1
    assert sum(report.delivered for report in reports) == len(ids)
    assert len(set(ids)) == len(ids)
    return len(ids)


@pytest.mark.long
def test_delaystore_works_whatever_mariadb_is_set_to(url: str, run: CommandLine, tmp_path: Path) -> None:
    works(url, run, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("settings", ON_MYSQL.values(), ids=ON_MYSQL)
def test_delaystore_works_whatever_mysql_is_set_to(
    start_server: Start, settings: dict[str, str], run: CommandLine, tmp_path: Path
) -> None:
    works(database_on(start_server, MySQL, settings), run, tmp_path)


def test_delaystore_works_where_much_is_set_at_once(start_server: Start, run: CommandLine, tmp_path: Path) -> None:
    """The quick one of them."""
    settings = {**SETTINGS["MyISAM"], **SETTINGS["guard-rails"], **SETTINGS["tables"], **SETTINGS["lenient"]}
    works(database_on(start_server, MariaDB, settings), run, tmp_path)


def test_a_table_without_transactions_is_reported_with_the_remedy(mariadb_url: str, run: CommandLine) -> None:
    ends = ("--store", mariadb_url, "--endpoint", "sales")
    assert run("setup", *ends).code == 0
    with opened(mariadb_url) as store:
        with store.engine.begin() as connection:
            connection.execute(text("ALTER TABLE sales_delayed_activity ENGINE=MyISAM"))
        (defect,) = store.defects()
        assert "'sales_delayed_activity' is kept by MyISAM" in defect
        assert store.blocking_defects() == [defect]
        with store.engine.begin() as connection:
            connection.execute(text(defect.rpartition("; run ")[2]))
        assert (store.defects(), store.blocking_defects()) == ([], [])


@pytest.mark.parametrize("kind", [MariaDB, long(MySQL)])
def test_a_log_of_statements_is_reported_with_the_remedy(
    start_server: Start, run: CommandLine, kind: type[MariaDB]
) -> None:
    settings = {"log_bin": "log", "binlog_format": "STATEMENT", "server_id": "1"}
    ends = ("--store", database_on(start_server, kind, settings), "--endpoint", "sales")
    assert "set binlog_format = ROW or MIXED" in run.refused("setup", *ends)
