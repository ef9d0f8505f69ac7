"""What comes between the steps in which a partition is made: other cleaners, senders, names of the same table."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from secrets import token_hex
from typing import Any

import pyarrow as pa
import pytest
from sqlalchemy import Connection, Engine, Table, create_engine, event, text
from sqlalchemy.exc import DBAPIError

from delaystore.bulk.options import StoreOptions
from delaystore.bulk.spark._driver_client import reader_name
from delaystore.bulk.spark._driver_service import ExportedSnapshot
from delaystore.bulk.spark._postgresql import PostgreSqlPlan, read_batches
from delaystore.bulk.spark._tables import open_table
from delaystore.errors import DuplicateMessageError, MessageBeingStoredError, MigrationError, StoreUnavailableError
from delaystore.message import KeyRule, OnKey
from delaystore.settings import TransactionMode
from delaystore.stores import SqlDelayedMessageStore
from delaystore.stores.sql.bulk_partitions import Fill
from delaystore.stores.sql.dialects.postgresql import PostgreSqlDialect
from delaystore.stores.sql.rows import to_row
from tests.dispatching import wait_until
from tests.integration.loading import load, rows
from tests.integration.migrating import begun, source_of
from tests.integration.partitions import ROWS
from tests.integration.sql_stores import message, opened
from tests.servers.postgresql import PostgreSQL, PostgreSQLDatabases


@pytest.fixture
def qualified(postgresql_url: str, store: SqlDelayedMessageStore) -> Iterator[SqlDelayedMessageStore]:
    """The same table, named with its schema."""
    with opened(postgresql_url, schema="public") as qualified:
        yield qualified


def filling(store: SqlDelayedMessageStore, first_id: str | None = None) -> Fill:
    messages = [message(store.now(), 60, first_id), *(message(store.now(), 60) for _ in range(ROWS - 1))]

    def fill(connection: Connection, table: Table) -> int:
        connection.execute(table.insert(), [to_row(each) for each in messages])
        return ROWS

    return fill


def end_needing(store: SqlDelayedMessageStore) -> None:
    """End the session that has the lock of a partition, as a network that fails does; not those of other databases."""
    held = (
        "FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND pid <> pg_backend_pid() "
        "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    )
    with store.engine.connect() as connection:
        assert connection.execute(text(f"SELECT pg_terminate_backend(pid) {held}")).all()
        wait_until(lambda: connection.execute(text(f"SELECT count(*) {held}")).scalar() == 0, "its locks have ended")


def emptied(store: SqlDelayedMessageStore) -> None:
    """Do what one who takes a partition for abandoned does, where others look at it."""
    with store.engine.begin() as connection:
        found = "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'sales_delayed_shelves'::regclass"
        (name,) = connection.execute(text(found)).scalars()
        connection.exec_driver_sql(f"DELETE FROM ONLY {name}")


@pytest.mark.parametrize("stays", [True, False])
def test_a_partition_that_was_emptied_is_not_stored(store: SqlDelayedMessageStore, stays: bool) -> None:
    """Neither attached nor inserted: its maker's lock was in a session that a pooler gave to somebody else, too."""
    with store.partitions.filled(filling(store), ROWS if stays else ROWS + 1) as partition:
        emptied(store)
        with pytest.raises(StoreUnavailableError, match=f"0 of {ROWS} messages"), store.transaction() as transaction:
            partition.move_in(transaction.connection)
    assert store.count() == 0


def test_a_partition_that_was_dropped_is_to_be_stored_again(
    store: SqlDelayedMessageStore, other: SqlDelayedMessageStore
) -> None:
    with store.partitions.filled(filling(store), ROWS) as partition:
        end_needing(store)
        other.clean_up()
        with pytest.raises(StoreUnavailableError, match="store them again"), store.transaction() as transaction:
            partition.move_in(transaction.connection)
    assert store.count() == 0


def test_a_transaction_that_is_prepared_is_waited_for(
    start_server: Callable[[Callable[[], PostgreSQL]], PostgreSQL],
) -> None:
    """Its insert did not look into the partition, and may be committed at any time."""
    server = start_server(lambda: PostgreSQL({"max_prepared_transactions": "2"}))
    url = server.create_database()
    with opened(url) as store, opened(url) as other:
        with other.engine.connect() as connection:
            connection.execute(other.table.insert(), to_row(message(store.now(), 60, "same")))
            preparing = threading.Timer(0.3, connection.exec_driver_sql, ["PREPARE TRANSACTION 'theirs'"])
            preparing.start()
            with store.partitions.filled(filling(store, "same"), ROWS) as partition:
                preparing.join()
                assert not partition._stays
        with store.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as ending:
            ending.exec_driver_sql("ROLLBACK PREPARED 'theirs'")


def test_who_may_only_read_drops_nothing(store: SqlDelayedMessageStore, postgresql_url: str) -> None:
    """Such as a dispatcher at a standby, where no lock of the maker's is known."""
    reading = SqlDelayedMessageStore(f"{postgresql_url}?options=-cdefault_transaction_read_only%3Don")
    reading.initialize("sales", TransactionMode.NONE)
    with store.partitions.filled(filling(store), ROWS) as partition:
        end_needing(store)
        reading.clean_up()
        with store.transaction() as transaction:
            partition.move_in(transaction.connection)
    reading.close()
    assert store.count() == ROWS


def test_what_its_maker_gives_up_goes_though_its_lock_was_left_behind(
    store: SqlDelayedMessageStore, other: SqlDelayedMessageStore
) -> None:
    """So a pooler may do, that gives each transaction another session."""
    with ExitStack() as stack, store.partitions.filled(filling(store, "again"), ROWS):
        connection = stack.enter_context(other.engine.connect())
        with store.engine.connect() as looking:
            name = looking.execute(
                text("SELECT relname FROM pg_class WHERE relname ~ '_shelf_[0-9a-f]{20}$'")
            ).scalar_one()
        end_needing(store)
        assert PostgreSqlDialect("postgresql").take_lock(connection, f"shelf {name}", "")
    store.store(message(store.now(), 5, "again"))


def test_setup_makes_do_with_one_connection(postgresql_url: str) -> None:
    engine = create_engine(postgresql_url, pool_size=1, max_overflow=0, pool_timeout=1)
    store = SqlDelayedMessageStore(engine)
    store.initialize("sales", TransactionMode.NONE)
    store.setup_infrastructure()
    engine.dispose()


@contextmanager
def after(engine: Engine | type[Engine], words: str, action: Callable[[], object]) -> Iterator[None]:
    """Do `action` once, between two statements of the engine, or of all: after the first that has `words`."""
    actions = [action]

    def executed(_connection: Any, _cursor: Any, statement: str, *_: object) -> None:
        if words in statement and actions:
            actions.pop()()

    event.listen(engine, "after_cursor_execute", executed)
    yield
    event.remove(engine, "after_cursor_execute", executed)
    assert not actions


def test_a_partition_that_is_just_being_attached_keeps_its_messages(
    store: SqlDelayedMessageStore, other: SqlDelayedMessageStore
) -> None:
    """Its maker has lost its lock: another takes it for abandoned."""
    with store.partitions.filled(filling(store), ROWS) as partition:
        cleaner = threading.Thread(target=other.clean_up)
        with store.transaction() as transaction:
            end_needing(store)
            partition.move_in(transaction.connection)
            cleaner.start()
            cleaner.join(1)
        cleaner.join()
    assert store.count() == ROWS


def test_no_duplicate_of_what_never_waited(store: SqlDelayedMessageStore, other: SqlDelayedMessageStore) -> None:
    """The partition is given up between the insert that found the id there, and the question where it is."""
    again = message(store.now(), 5, "again")
    with store.partitions.filled(filling(store, "again"), ROWS):
        end_needing(store)
        with after(store.engine, "INSERT INTO", other.clean_up):
            store.store(again)
    assert store.count() == 1


def test_a_name_with_its_schema_is_the_same_table(
    store: SqlDelayedMessageStore, qualified: SqlDelayedMessageStore
) -> None:
    with store.partitions.filled(filling(store), ROWS) as partition:
        qualified.clean_up()
        with store.transaction() as transaction:
            partition.move_in(transaction.connection)
    assert store.count() == ROWS


def test_two_names_of_a_table_store_an_id_once(
    store: SqlDelayedMessageStore, qualified: SqlDelayedMessageStore
) -> None:
    outcome: list[object] = []

    def store_second() -> None:
        try:
            with qualified.transaction() as transaction:
                second.move_in(transaction.connection)
        except DuplicateMessageError as error:
            outcome.append(error)

    with (
        store.partitions.filled(filling(store, "same"), ROWS) as first,
        qualified.partitions.filled(filling(store, "same"), ROWS) as second,
    ):
        thread = threading.Thread(target=store_second)
        with store.transaction() as transaction:
            first.move_in(transaction.connection)
            thread.start()
            thread.join(0.5)
        thread.join()
    assert len(outcome) == 1
    assert store.count() == ROWS


def test_partitions_are_filled_side_by_side(store: SqlDelayedMessageStore, other: SqlDelayedMessageStore) -> None:
    """A partition that is still being filled is compared later: nobody waits for it."""
    in_between = threading.Event(), threading.Event()

    def fill_slowly(connection: Connection, table: Table) -> int:
        rows = filling(store, "same")(connection, table)
        in_between[0].set()
        assert in_between[1].wait(30)
        return rows

    outcome: list[object] = []

    def store_slowly() -> None:
        try:
            with store.partitions.filled(fill_slowly, ROWS) as slow, store.transaction() as transaction:
                slow.move_in(transaction.connection)
        except DuplicateMessageError as error:
            outcome.append(error)

    thread = threading.Thread(target=store_slowly)
    thread.start()
    try:
        assert in_between[0].wait(30)
        with other.partitions.filled(filling(other, "same"), ROWS) as quick, other.transaction() as transaction:
            quick.move_in(transaction.connection)
        with store.engine.connect() as looking:
            attached = "SELECT count(*) FROM pg_inherits WHERE inhparent = 'sales_delayed'::regclass"
            assert looking.exec_driver_sql(attached).scalar() == 1
    finally:
        in_between[1].set()
        thread.join()
    assert len(outcome) == 1
    assert store.count() == ROWS


def test_senders_do_not_wait_while_a_partition_is_counted(
    store: SqlDelayedMessageStore, other: SqlDelayedMessageStore
) -> None:
    """That takes the longer, the more is in it."""

    def send() -> None:
        with other.engine.begin() as connection:
            connection.exec_driver_sql("SET LOCAL lock_timeout = '200ms'")
            other.enlist(connection).store(message(other.now(), 60))

    with (
        store.partitions.filled(filling(store), ROWS) as partition,
        store.transaction() as transaction,
        after(store.engine, "SELECT count(*)", send),
    ):
        partition.move_in(transaction.connection)
    assert store.count() == ROWS + 1


def test_the_limit_of_a_lock_does_not_outlive_it(store: SqlDelayedMessageStore) -> None:
    """A commit that notifies waits for a lock, too."""
    with store.partitions.filled(filling(store), ROWS) as partition, store.transaction() as transaction:
        before = transaction.connection.exec_driver_sql("SHOW lock_timeout").scalar()
        partition.move_in(transaction.connection)
        assert transaction.connection.exec_driver_sql("SHOW lock_timeout").scalar() == before


def test_indexes_are_built_anew_beside_a_partition(
    store: SqlDelayedMessageStore, other: SqlDelayedMessageStore
) -> None:
    """A REINDEX CONCURRENTLY waits for all who read the table, at its end."""
    outcome: list[str] = []

    def build_anew() -> None:
        try:
            autocommit(other, "REINDEX INDEX CONCURRENTLY sales_delayed_due")
            outcome.append("built")
        except DBAPIError as error:
            outcome.append(str(error))

    thread = threading.Thread(target=build_anew)

    def begin() -> None:
        thread.start()
        waiting = "SELECT FROM pg_stat_activity WHERE starts_with(query, 'REINDEX') AND wait_event_type = 'Lock'"
        deadline = time.monotonic() + 20
        with other.engine.connect() as connection:
            while connection.exec_driver_sql(waiting).first() is None and time.monotonic() < deadline:
                connection.rollback()

    autocommit(store, "VACUUM sales_delayed")  # then others are not hurried
    with (
        store.partitions.filled(filling(store), ROWS) as partition,
        store.transaction() as transaction,
        after(store.engine, "w.message_id = s.message_id", begin),
    ):
        partition.move_in(transaction.connection)
    thread.join()
    assert outcome == ["built"]
    assert store.count() == ROWS


def autocommit(store: SqlDelayedMessageStore, statement: str) -> None:
    with store.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql(statement)


def test_a_roles_limit_on_statements_is_not_for_those_about_a_whole_partition(
    store: SqlDelayedMessageStore, postgresql_url: str
) -> None:
    url = f"{postgresql_url}?options=-cstatement_timeout%3D300ms"
    with (
        opened(url) as limited,
        limited.partitions.filled(filling(store), ROWS) as partition,
        store.engine.connect() as connection,
    ):
        connection.exec_driver_sql("LOCK TABLE sales_delayed_shelves IN ROW EXCLUSIVE MODE")
        in_a_second = threading.Timer(1, connection.rollback)
        in_a_second.start()
        with limited.transaction() as transaction:
            partition.move_in(transaction.connection)
        in_a_second.join()
    assert store.count() == ROWS


def test_an_interrupted_store_leaves_no_lock_in_the_pool(store: SqlDelayedMessageStore) -> None:
    def interrupt(_connection: Connection) -> None:
        raise KeyboardInterrupt

    store.now()
    event.listen(store.engine, "commit", interrupt)
    with pytest.raises(KeyboardInterrupt), store.partitions.filled(filling(store), ROWS):
        pass
    event.remove(store.engine, "commit", interrupt)
    with store.engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT FROM pg_locks WHERE locktype = 'advisory'").all() == []


def test_a_load_outlives_the_session_that_fills_its_partition(
    store: SqlDelayedMessageStore, postgresql_url: str
) -> None:
    with after(Engine, 'ANALYZE "sales_delayed_load', lambda: end_needing(store)):
        assert load(postgresql_url, "one", rows(ROWS)).stored == ROWS
    assert store.count() == ROWS


def test_a_partition_lies_where_its_table_does(store: SqlDelayedMessageStore, postgresql_url: str) -> None:
    """Others may have no right to the schema that is the first of the search_path."""
    with store.engine.begin() as connection:
        connection.exec_driver_sql("CREATE SCHEMA another")
    with opened(f"{postgresql_url}?options=-csearch_path%3Danother,public") as elsewhere:
        assert elsewhere.store_many([message(store.now(), 60) for _ in range(ROWS)]) == ROWS
    assert store.count() == ROWS
    with store.engine.connect() as connection:
        found = connection.exec_driver_sql("SELECT relname FROM pg_class WHERE relnamespace = 'another'::regnamespace")
        assert found.all() == []


def test_rows_of_a_migration_do_not_go_back_beside_a_partition(
    store: SqlDelayedMessageStore, postgresql_url: str
) -> None:
    """Their id is in a partition that is attached right after."""
    store.store(message(store.now(), 3600, "same"))
    with source_of(postgresql_url) as source, source.lock("sales", "me"):
        run = begun(source)
        assert store.count() == 0
        with store.partitions.filled(filling(store, "same"), ROWS) as partition:
            with pytest.raises(MigrationError, match="same"):
                list(source.give_back(run, rejected=False))
            with store.transaction() as transaction:
                partition.move_in(transaction.connection)
        assert list(source.give_back(run, rejected=False)) == []
    assert store.count() == ROWS


def test_a_snapshot_of_spark_is_the_same_for_all_tasks(store: SqlDelayedMessageStore, postgresql_url: str) -> None:
    """Neither before nor after the attachment of a partition that was announced when it was taken."""
    options = StoreOptions(store=postgresql_url, endpoint="sales")
    with store.partitions.filled(filling(store), ROWS) as partition:
        snapshot = ExportedSnapshot(options)
        try:
            assert rows_of(options, snapshot) == 0
            with store.transaction() as transaction:
                partition.move_in(transaction.connection)
            assert rows_of(options, snapshot) == 0
        finally:
            snapshot.close()
    snapshot = ExportedSnapshot(options)
    assert rows_of(options, snapshot) == ROWS
    snapshot.close()


def test_a_partition_stays_that_is_attached_while_a_snapshot_is_taken(
    store: SqlDelayedMessageStore, postgresql_url: str
) -> None:
    options = StoreOptions(store=postgresql_url, endpoint="sales")
    with store.partitions.filled(filling(store), ROWS) as partition:

        def attach() -> None:
            with store.transaction() as transaction:
                partition.move_in(transaction.connection)

        with after(Engine, 'LOCK TABLE "sales_delayed" IN ACCESS', attach):
            snapshot = ExportedSnapshot(options)
    with store.engine.begin() as connection:
        connection.exec_driver_sql("DELETE FROM sales_delayed")
    store.clean_up()
    assert rows_of(options, snapshot) == ROWS
    snapshot.close()


def rows_of(options: StoreOptions, snapshot: ExportedSnapshot) -> int:
    source = open_table(options)
    with PostgreSqlPlan(source, ["message_id"], []) as plan:
        (statement,) = plan.statements([])
    schema = pa.schema([("message_id", pa.string())])
    batches = read_batches(source.engine, statement, schema, snapshot.name, reader_name(snapshot.name))
    return sum(batch.num_rows for batch in batches)


@pytest.mark.parametrize("on_key", [OnKey.REPLACE, OnKey.KEEP, OnKey.REJECT])
def test_an_id_of_a_pending_partition_is_being_stored_by_any_key(store: SqlDelayedMessageStore, on_key: OnKey) -> None:
    for kept in (None, timedelta(days=1)):
        store.keep_history(kept)
        with store.partitions.filled(filling(store, "pending"), ROWS):
            store.store_keyed(message(store.now(), 3600, "holder", key="k"), KeyRule(OnKey.REPLACE))
            for key in ("k", "free"):
                with pytest.raises(MessageBeingStoredError):
                    store.store_keyed(message(store.now(), 3600, "pending", key=key), KeyRule(on_key))
        assert store.message_id_of("k") == "holder"


def test_who_may_not_drop_a_partition_frees_its_ids(
    store: SqlDelayedMessageStore, postgresql: PostgreSQLDatabases, postgresql_url: str
) -> None:
    """A dispatcher of fewer rights, when the maker has died and does not come back."""
    role = f"dispatcher_{token_hex(4)}"
    url = postgresql.create_role(role, "secret", postgresql_url)
    granted = "sales_delayed, sales_delayed_version, sales_delayed_shelves"
    with store.engine.begin() as connection:
        connection.exec_driver_sql(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {granted} TO {role}")
    again = message(store.now(), 60, "again")

    def is_stored() -> bool:
        """Each turn of cleaning up leaves out a partition that somebody, such as autovacuum, has just locked."""
        lesser.clean_up()
        try:
            lesser.store(again)
        except MessageBeingStoredError:
            return False
        return True

    with opened(url) as lesser, store.partitions.filled(filling(store, "again"), ROWS):
        with pytest.raises(MessageBeingStoredError):
            lesser.store(again)
        end_needing(store)
        wait_until(is_stored, "its ids are free")
