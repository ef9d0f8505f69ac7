"""Creating and upgrading tables, hostile names, missing rights."""

import secrets
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Column, Integer, MetaData, Table, create_engine, event, inspect, make_url, text

from delaystore.errors import (
    ConfigurationError,
    DuplicateMessageError,
    StoreError,
    StorePermissionError,
    StoreSetupError,
    StoreUnavailableError,
)
from delaystore.settings import TransactionMode
from delaystore.stores import SqlDelayedMessageStore
from delaystore.stores.sql import leave_delaystore_alone, setup
from delaystore.stores.sql.dialects import store_dialect_of
from delaystore.stores.sql.schema import OperatingTables, delayed_table
from delaystore.stores.sql.urls import LOADS, OPERATING_SUFFIXES
from tests.integration.sql_stores import message, opened
from tests.servers import PostgreSQLDatabases

HOSTILE_NAMES = [
    'sales"; DROP TABLE users; --',
    "it's",
    "back`tick",
    "50%s %(x)s :colon",
    "Ünïcødé",
    "select",
    "a.b",
    "[x]",
]


def test_the_schema_is_the_sum_of_its_migrations(store: SqlDelayedMessageStore) -> None:
    dialect = store_dialect_of(store.engine)
    table = delayed_table(store.table.name, store.table.schema, dialect)
    for beside in OperatingTables(table, dialect).all:
        beside.to_metadata(table.metadata)
    others = ("sales_delayed_version", "sales_delayed_shelves", "sales_delayed_history_default")

    def is_compared(item: Any, name: str, *_: object) -> bool:
        return name not in others and getattr(getattr(item, "table", None), "name", None) not in others

    with store.engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "include_object": is_compared})
        assert compare_metadata(context, table.metadata) == []


def test_this_release_works_with_the_newest_migration() -> None:
    scripts = ScriptDirectory(str(Path(setup.__file__).parent / "migrations"))
    assert scripts.get_current_head() == setup.HEAD


def test_set_up_twice_changes_nothing(store: SqlDelayedMessageStore) -> None:
    kept = message(store.now(), 60)
    store.store(kept)
    store.setup_infrastructure()
    assert store.get(kept.message_id) == kept


@pytest.mark.long_runs("sqlite")
def test_eight_processes_set_up_at_once(database_url: str) -> None:
    def set_up(_: int) -> None:
        with opened(database_url) as each:
            each.store(message(each.now(), 60))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(set_up, range(8)))
    with opened(database_url) as each:
        assert each.count() == 8


def test_mariadbs_lock_is_held_until_others_see_the_version(mariadb_url: str) -> None:
    store, others = SqlDelayedMessageStore(mariadb_url), create_engine(mariadb_url)
    seen: list[str | None] = []

    def look(_connection: Any, _cursor: Any, statement: str, *_: object) -> None:
        if "release_lock" in statement:
            with others.connect() as connection:
                seen.append(connection.execute(text("SELECT version_num FROM sales_delayed_version")).scalar())

    event.listen(store.engine, "before_cursor_execute", look)
    store.initialize("sales", TransactionMode.RECEIVE_ONLY)
    store.setup_infrastructure()
    assert seen == [setup.HEAD]
    store.close()
    others.dispose()


def test_a_set_up_that_broke_off_half_way_is_finished(store: SqlDelayedMessageStore) -> None:
    with store.engine.begin() as connection:
        connection.execute(text("DROP TABLE sales_delayed_version"))
        connection.execute(text("DROP INDEX sales_delayed_due" + on_table(store)))
    store.setup_infrastructure()
    names = {index["name"] for index in inspect(store.engine).get_indexes("sales_delayed")}
    assert "sales_delayed_due" in names


def test_tables_of_a_newer_release_are_refused(store: SqlDelayedMessageStore) -> None:
    with store.engine.begin() as connection:
        connection.execute(text("UPDATE sales_delayed_version SET version_num = '9999'"))
    with pytest.raises(StoreSetupError, match="version 9999, which this release does not know; upgrade delaystore"):
        store.setup_infrastructure()


def test_without_tables_the_error_names_the_command(database_url: str) -> None:
    bare = SqlDelayedMessageStore(database_url)
    bare.initialize("sales", TransactionMode.NONE)
    with pytest.raises(StoreSetupError, match="run `delaystore setup`"):
        bare.count()
    bare.close()


def test_removed_infrastructure_is_gone_and_can_be_made_again(store: SqlDelayedMessageStore) -> None:
    store.store(message(store.now(), 60))
    store.remove_infrastructure()
    assert inspect(store.engine).get_table_names() == []
    store.setup_infrastructure()
    assert store.count() == 0


def test_tables_in_use_are_waited_for_as_long_as_told(store: SqlDelayedMessageStore) -> None:
    with store.transaction() as using:
        using.store(message(store.now(), 60))
        with pytest.raises(StoreUnavailableError, match="sales_delayed is in use by a transaction that has not ended"):
            store.remove_infrastructure(lock_wait=0.2)
    assert store.count() == 1


def test_tables_are_dropped_unless_messages_wait_in_them(store: SqlDelayedMessageStore) -> None:
    kept = message(store.now(), 60)
    store.store(kept)
    assert store.remove_if_empty() == 1
    assert store.get(kept.message_id) == kept
    store.cancel(kept.message_id)
    assert store.remove_if_empty() == 0
    assert inspect(store.engine).get_table_names() == []
    assert store.remove_if_empty() == 0
    store.setup_infrastructure()
    store.store(kept)


def test_what_is_committed_while_the_tables_are_to_be_dropped_keeps_them(store: SqlDelayedMessageStore) -> None:
    sent = message(store.now(), 60)
    with ThreadPoolExecutor() as threads:
        with store.transaction() as bound:
            bound.store(sent)
            removal = threads.submit(store.remove_if_empty)
            wait([removal], 0.5)  # so that it looks before the commit
            assert not removal.done()
        assert removal.result() == 1
    assert store.get(sent.message_id) == sent


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_any_name_is_quoted(database_url: str, name: str) -> None:
    hostile = SqlDelayedMessageStore(database_url, table=name)
    hostile.initialize("sales", TransactionMode.NONE)
    hostile.setup_infrastructure()
    now = hostile.now()
    hostile.store_many([message(now, -2), message(now, 60)])
    with hostile.transaction() as transaction:
        assert transaction.remove_many(transaction.fetch_due(now, 10)) == 1
    assert hostile.count() == 1
    own = {name, f"{name}_version", f"{name}{LOADS}", *(f"{name}{suffix}" for suffix in OPERATING_SUFFIXES)} | (
        {f"{name}_shelves", f"{name}_history_default"} if hostile.engine.dialect.name == "postgresql" else set()
    )
    assert set(inspect(hostile.engine).get_table_names()) == own
    hostile.close()


@pytest.mark.parametrize("name", ["", "  ", "a\0b", "tab\tbed", "x" * 300])
def test_names_that_cannot_work_are_refused(sqlite_url: str, name: str) -> None:
    with pytest.raises(ConfigurationError, match="table name"):
        SqlDelayedMessageStore(sqlite_url, table=name)


def test_a_name_postgresql_would_cut_is_refused(postgresql_url: str) -> None:
    store = SqlDelayedMessageStore(postgresql_url)
    with pytest.raises(ConfigurationError, match="postgresql allows 63, use a shorter name"):
        store.initialize("é" * 30, TransactionMode.NONE)
    store.close()


@pytest.mark.parametrize("size", range(50, 60))
def test_a_name_is_refused_or_can_be_set_up(database_url: str, size: int) -> None:
    try:
        store = SqlDelayedMessageStore(database_url, table="x" * size)
    except ConfigurationError:
        return
    store.initialize("sales", TransactionMode.NONE)
    store.setup_infrastructure()
    assert store.count() == 0
    store.close()


def test_a_schema_of_its_own(postgresql_url: str) -> None:
    engine = create_engine(postgresql_url)
    with engine.begin() as connection:
        connection.execute(text('CREATE SCHEMA "my schema"'))
    with opened(postgresql_url, schema="my schema", table="delayed") as each:
        each.store(message(each.now(), 60))
        assert each.count() == 1
    suffixes = ("", "_shelves", "_version", "_history_default", LOADS, *OPERATING_SUFFIXES)
    assert set(inspect(engine).get_table_names("my schema")) == {f"delayed{suffix}" for suffix in suffixes}
    engine.dispose()


def test_a_role_without_rights_gets_one_clear_line(postgresql: PostgreSQLDatabases, postgresql_url: str) -> None:
    with opened(postgresql_url):
        pass
    stranger = SqlDelayedMessageStore(postgresql.create_role(unique("stranger"), "s3cret", postgresql_url))
    stranger.initialize("sales", TransactionMode.NONE)
    with pytest.raises(StorePermissionError, match=r"permission denied.*grant the right") as caught:
        stranger.store(message(stranger.now(), 60))
    assert "s3cret" not in str(caught.value) + repr(stranger)
    stranger.close()


def test_tables_that_are_current_need_no_right_to_create(postgresql: PostgreSQLDatabases, postgresql_url: str) -> None:
    role = unique("worker")
    url = postgresql.create_role(role, "w0rker", postgresql_url)
    with opened(postgresql_url) as owner, owner.engine.begin() as connection:
        connection.execute(text("REVOKE ALL ON SCHEMA public FROM PUBLIC"))
        connection.execute(text(f"GRANT USAGE ON SCHEMA public TO {role}"))
        connection.execute(text(f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {role}"))
    with opened(url) as worker:
        worker.store(message(worker.now(), 60))
        assert worker.count() == 1


def test_a_program_that_only_sends_needs_to_read_insert_and_mark(
    postgresql: PostgreSQLDatabases, postgresql_url: str
) -> None:
    role = unique("sender")
    url = postgresql.create_role(role, "s3nder", postgresql_url)
    with opened(postgresql_url) as owner:
        with owner.engine.begin() as connection:
            connection.execute(text(f"GRANT SELECT, INSERT ON sales_delayed TO {role}"))
            connection.execute(text(f"GRANT SELECT ON sales_delayed_version, sales_delayed_shelves TO {role}"))
        with opened(url) as sender:
            sender.store(first := message(owner.now(), 60, message_id="a"))
            with pytest.raises(StorePermissionError, match="grant SELECT, INSERT and UPDATE on it") as caught:
                sender.store(first)
            assert "'a'" in str(caught.value)
            with owner.engine.begin() as connection:
                connection.execute(text(f"GRANT UPDATE (due_time) ON sales_delayed TO {role}"))
            for store in (lambda: sender.store(first), lambda: sender.store_many([first])):
                with pytest.raises(DuplicateMessageError):
                    store()


@pytest.mark.parametrize("database", ["postgresql", "mariadb"])
def test_a_wrong_password_is_named_and_not_shown(database: str, request: pytest.FixtureRequest) -> None:
    url = request.getfixturevalue(f"{database}_url")
    wrong = create_engine(url).url.set(password="wr0ng")
    store = SqlDelayedMessageStore(wrong)
    store.initialize("sales", TransactionMode.NONE)
    with pytest.raises(StoreUnavailableError, match="refuses the login") as caught:
        store.setup_infrastructure()
    assert "wr0ng" not in str(caught.value) + repr(store)
    store.close()


@pytest.mark.parametrize(
    ("database", "changed", "remedy"),
    [
        ("postgresql", {"database": "nowhere"}, 'database "nowhere" does not exist; create it with CREATE DATABASE'),
        ("postgresql", {"host": "nohost.invalid"}, "check host and port in the URL"),
        ("postgresql", {"port": 1}, "Connection refused; check host and port in the URL"),
        ("mariadb", {"database": "nowhere"}, "to database 'nowhere'; grant the right, use another user, or correct"),
        ("mariadb", {"host": "nohost.invalid"}, "check host and port in the URL"),
        ("mariadb", {"port": 1}, "check host and port in the URL"),
    ],
)
def test_a_connection_that_cannot_be_has_a_remedy(
    database: str, changed: dict[str, Any], remedy: str, request: pytest.FixtureRequest
) -> None:
    url = make_url(request.getfixturevalue(f"{database}_url")).set(**changed)
    with pytest.raises(StoreError) as caught, opened(url.render_as_string(hide_password=False)):
        pass
    assert remedy in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_cannot_be_opened_has_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailableError, match="check the path in the URL"), opened(f"sqlite:///{tmp_path}"):
        pass


def test_a_file_that_is_no_database_has_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_bytes(b"no database" * 100)
    with (
        pytest.raises(StoreUnavailableError, match="file is not a database; check the path in the URL"),
        opened(f"sqlite:///{tmp_path}/notes.txt"),
    ):
        pass


def test_a_password_that_would_show_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="as %40 and %3A") as caught:
        SqlDelayedMessageStore("postgresql://u:SECRET@PW@nohost.invalid/x")
    assert "PW" not in str(caught.value)


def test_a_folder_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="missing' of the SQLite database does not exist; create it first"):
        SqlDelayedMessageStore(f"sqlite:///{tmp_path}/missing/app.db")


def test_autogenerate_leaves_the_tables_alone(store: SqlDelayedMessageStore) -> None:
    yours = MetaData()
    Table("orders", yours, Column("id", Integer, primary_key=True))
    yours.create_all(store.engine)
    with store.engine.begin() as connection:
        connection.execute(text("CREATE TABLE billing_queue (seq INTEGER)"))
    with store.engine.connect() as connection:
        blind = MigrationContext.configure(connection)
        assert any(change[0] == "remove_table" for change in compare_metadata(blind, yours))
        spared = MigrationContext.configure(connection, opts={"include_object": leave_delaystore_alone("sales")})
        assert compare_metadata(spared, yours) == []


def unique(name: str) -> str:
    """Roles belong to the server, which outlives a test's database."""
    return f"{name}_{secrets.token_hex(4)}"


def on_table(store: SqlDelayedMessageStore) -> str:
    return " ON sales_delayed" if store.engine.dialect.name in ("mysql", "mariadb") else ""
