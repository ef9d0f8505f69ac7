"""The SQL store on each database it is for."""

import multiprocessing
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import ClassVar
from urllib.parse import quote

import pytest
from sqlalchemy import Column, MetaData, String, Table, create_engine, make_url, select, text, update
from typing_extensions import override

from delaystore.message import DelayedMessage
from delaystore.settings import TransactionMode
from delaystore.stores import SqlDelayedMessageStore
from delaystore.stores.sql.bulk_partitions import PartitionLimits
from delaystore.stores.sql.codec import UtcDateTime
from delaystore.testing import StoreCapabilities, StoreConformance, StoreFactory
from tests.integration.sql_stores import DatabaseInTurn, connected
from tests.servers import MariaDBDatabases, PostgreSQLDatabases

multiprocessing.set_forkserver_preload([__name__])  # the processes that the kit kills start with it imported

TABLE = "conformance messages"
BEARABLE = 5.0
"""Seconds that a test may wait."""
LORD_HOWE = "Australia/Lord_Howe"  # its clocks go forward by half an hour
ROW_LOCKS = StoreCapabilities(
    transactions=True,
    batches=True,
    bounded_batches=True,
    management=True,
    keys=True,
    latest_deliveries=True,
    operations=True,
    ingresses=True,
    history=True,
    schedules=True,
    claims_outside_transactions=False,
    other_processes=True,
    unreadable_rows=True,
    hostile_sessions=True,
)


def set_up(url: str) -> str:
    """Make the tables in an empty database; its URL. Tests get copies, as to make them takes as long as most tests."""
    store = SqlDelayedMessageStore(url, table=TABLE)
    store.initialize("conformance", TransactionMode.RECEIVE_ONLY)
    store.setup_infrastructure()
    store.close()
    return url


@pytest.fixture(scope="module")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with the tables in it."""
    template = tmp_path_factory.mktemp("template") / "delaystore.db"
    set_up(f"sqlite:///{template}")
    return template


@pytest.fixture(scope="module")
def postgresql_template(postgresql: PostgreSQLDatabases) -> Iterator[str]:
    """A database with the tables in it, to be copied."""
    url = postgresql.create_database()
    yield set_up(url)
    postgresql.drop_database(url)


@pytest.fixture(scope="module")
def postgresql_database(postgresql: PostgreSQLDatabases) -> Iterator[str]:
    """A database with the tables in it, which tests have in turn and leave empty: to copy it takes longer."""
    url = postgresql.create_database()
    yield set_up(url)
    postgresql.drop_database(url)


def empty(url: str) -> None:
    """End all other sessions of a PostgreSQL database, and delete all rows but the version of the tables."""
    engine = create_engine(url)
    quote = engine.dialect.identifier_preparer.quote_identifier
    with engine.begin() as connection:
        others = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        connection.execute(text(f"SELECT pg_terminate_backend(pid) {others} AND backend_type = 'client backend'"))
        names = connection.execute(
            text("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()")
        ).scalars()
        emptied = ", ".join(quote(name) for name in names if not name.endswith("_version"))
        connection.execute(text(f"TRUNCATE {emptied} RESTART IDENTITY"))
    engine.dispose()


@pytest.fixture(scope="module")
def mariadb_in_turn(mariadb: MariaDBDatabases) -> Iterator[DatabaseInTurn]:
    """A database with the tables in it, one for all tests."""
    database = DatabaseInTurn(mariadb, set_up)
    yield database
    database.drop()


CORE = (
    "test_headers_and_properties_come_back_with_their_types",
    "test_any_batch_comes_back_as_it_went_in",
    "test_message_ids_that_look_alike_are_told_apart",
    "test_a_message_is_due_at_its_due_time_and_not_a_microsecond_sooner",
    "test_the_longest_waiting_comes_first",
    "test_a_message_stored_late_still_comes_first",
    "test_due_times_far_away_are_kept",
    "test_next_is_the_earliest_due_time",
    "test_next_is_none_again_when_everything_is_gone",
    "test_what_was_fetched_is_not_fetched_again",
    "test_a_message_id_that_waits_is_refused_and_only_the_due_time_of_what_waits_is_marked",
    "test_a_message_id_may_be_used_again_once_its_message_is_gone",
    "test_a_removed_message_is_gone_and_removing_it_again_says_so",
    "test_a_failed_message_keeps_its_due_time_and_hides_until_its_next_attempt",
    "test_failures_add_up",
    "test_what_a_killed_process_had_claimed_is_found_again",
    "test_what_a_killed_process_had_not_committed_is_undone",
    "test_each_message_goes_to_one_dispatcher_alone",
    "test_what_matches_is_cancelled_and_nothing_else",
    "test_pages_cover_everything_once_also_of_one_instant",
    "test_what_waits_is_counted",
    "test_a_cancelled_message_is_gone",
    "test_a_rescheduled_message_is_due_then_as_if_it_had_never_failed",
    "test_a_message_is_either_cancelled_or_dispatched",
    "test_due_times_are_counted_by_bucket",
    "test_what_is_parked_is_not_fetched_and_keeps_its_due_time",
    "test_resuming_shows_all_of_it_step_by_step",
    "test_postponed_messages_are_shown_then_at_no_failures_cost",
    "test_a_message_is_found_as_it_was_stored",
    "test_pages_of_a_search_cover_ids_of_any_script_once",
    "test_a_cancel_is_noted_with_what_the_message_was",
    "test_a_replacement_is_noted",
    "test_another_process_message_wakes_the_subscriber",
    "test_destinations_are_text_and_nothing_else",
    "test_destinations_that_a_collation_takes_for_one_are_several",
    "test_bodies_of_any_size_come_back",
    "test_due_times_of_any_zone_come_back_as_the_same_instant",
    "test_a_message_that_cannot_be_read_harms_itself_alone",
    "test_pages_cover_ids_of_any_script_once",
    "test_steps_reach_ids_of_any_script",
    "test_two_dispatchers_are_not_given_the_same_times",
    "test_a_dispatcher_is_known_as_it_describes_itself",
    "test_what_dispatchers_did_adds_up_minute_by_minute",
    "test_the_hostile_session_is_hostile",
    "test_what_a_hostile_session_stores_is_due_at_the_same_instant",
)
"""What `make test` has of the contract in partitions and on MariaDB; nearly all of it runs on SQLite and PostgreSQL."""


class SqlStoreTests(StoreConformance):
    lease: ClassVar = timedelta(seconds=60)

    @pytest.fixture
    def url(self) -> str:
        raise NotImplementedError

    @pytest.fixture
    def store_factory(self, url: str) -> StoreFactory:
        return partial(SqlDelayedMessageStore, url, table=TABLE, lease=self.lease)

    @pytest.fixture
    def open_elsewhere(self, store_factory: StoreFactory) -> StoreFactory:
        return store_factory

    @pytest.fixture
    def corrupt(self, url: str) -> Callable[[str], None]:
        def damage(message_id: str) -> None:
            engine = create_engine(url)
            table = engine.dialect.identifier_preparer.quote(TABLE)
            with engine.begin() as connection:
                statement = text(f"UPDATE {table} SET headers = '{{broken' WHERE message_id = :id")
                assert connection.execute(statement, {"id": message_id}).rowcount == 1
            engine.dispose()

        return damage

    @pytest.fixture
    def pass_time(self, url: str) -> Callable[[float], None]:
        """Waits, if that is not long; else whatever dispatchers have said was said earlier."""

        def pass_by(seconds: float) -> None:
            if seconds < BEARABLE:
                time.sleep(seconds)
                return
            engine = create_engine(url)
            heartbeats = Table(
                f"{TABLE}_dispatchers", MetaData(), Column("dispatcher_id", String), Column("beat", UtcDateTime)
            )
            with engine.begin() as connection:
                for row in connection.execute(select(heartbeats)).all():
                    one = heartbeats.c.dispatcher_id == row.dispatcher_id
                    connection.execute(update(heartbeats).where(one).values(beat=row.beat - timedelta(seconds=seconds)))
            engine.dispose()

        return pass_by


@pytest.mark.long_tests(
    "test_any_filter_finds_what_matches_it",
    "test_an_id_that_stays_claimed_is_told_apart_from_one_that_waits",
    "test_what_a_killed_process_had_claimed_is_found_again",  # tests/faults/test_dispatcher_killed.py has it sooner
    "test_what_a_killed_process_had_not_committed_is_undone",
)
class TestSqlite(SqlStoreTests):
    lease: ClassVar = timedelta(seconds=8)
    capabilities: ClassVar = StoreCapabilities(
        transactions=True,
        batches=True,
        bounded_batches=True,
        management=True,
        keys=True,
        latest_deliveries=True,
        operations=True,
        ingresses=True,
        history=True,
        schedules=True,
        other_processes=True,
        lease=lease,
        ending_leases=True,
        unreadable_rows=True,
    )

    @pytest.fixture
    def url(self, sqlite_url: str, sqlite_template: Path) -> str:
        shutil.copy(sqlite_template, str(make_url(sqlite_url).database))
        return sqlite_url

    @pytest.fixture
    def end_leases(self, url: str) -> Callable[[], None]:
        def end() -> None:
            with connected(url) as connection:
                statement = f'UPDATE "{TABLE}" SET claimed_until = :now WHERE claimed_by IS NOT NULL'
                connection.execute(text(statement), {"now": f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S.%f}"})

        return end


def shown(factory: StoreFactory, question: str) -> str:
    """What a session of the stores that `factory` makes answers."""
    store = factory()
    assert isinstance(store, SqlDelayedMessageStore)
    with store.engine.connect() as connection:
        answer = str(connection.execute(text(question)).scalar_one())
    store.close()
    return answer


@pytest.mark.long_tests("test_any_filter_finds_what_matches_it")  # test_what_is_wanted_is_found... tells most of it
class TestPostgreSQL(SqlStoreTests):
    capabilities: ClassVar = replace(ROW_LOCKS, wake_ups=True)

    @pytest.fixture
    def url(self, postgresql_database: str) -> Iterator[str]:
        yield postgresql_database
        empty(postgresql_database)

    @pytest.fixture
    def hostile_store_factory(self, url: str) -> StoreFactory:
        mark = "&" if "?" in url else "?"
        settings = {
            "timezone": LORD_HOWE,
            "default_transaction_isolation": "serializable",
            "datestyle": "German",
            "intervalstyle": "sql_standard",
            "bytea_output": "escape",
            "standard_conforming_strings": "off",
        }
        options = quote(" ".join(f"-c {name}={value}" for name, value in settings.items()))
        return partial(SqlDelayedMessageStore, f"{url}{mark}options={options}", table=TABLE)

    def test_the_hostile_session_is_hostile(self, hostile_store_factory: StoreFactory) -> None:
        assert shown(hostile_store_factory, "SHOW timezone") == LORD_HOWE
        assert shown(hostile_store_factory, "SHOW default_transaction_isolation") == "read committed"  # by the store
        assert shown(hostile_store_factory, "SHOW bytea_output") == "escape"


class PartitioningStore(SqlDelayedMessageStore):
    """Whose messages wait in partitions, but for those that are stored in a transaction of the caller's."""

    partition_limits: ClassVar = PartitionLimits(fewest_rows=1, smallest_table=0)

    @override
    def store(self, message: DelayedMessage) -> None:
        self.store_many([message])


@pytest.mark.long_but(*CORE)
class TestPostgreSQLPartitions(TestPostgreSQL):
    @pytest.fixture
    def url(self, postgresql: PostgreSQLDatabases, postgresql_template: str) -> Iterator[str]:
        url = postgresql.create_database(template=postgresql_template)
        yield url
        postgresql.drop_database(url)

    @pytest.fixture
    def store_factory(self, url: str) -> StoreFactory:
        return partial(PartitioningStore, url, table=TABLE)

    @pytest.mark.skip(
        reason="eight senders, a partition for each message: told to try again; tests/integration/partitions"
    )
    def test_one_of_several_senders_of_an_id_succeeds(self, open_store: StoreFactory) -> None: ...


@pytest.mark.long_but(*CORE)
class TestMariaDB(SqlStoreTests):
    capabilities: ClassVar = ROW_LOCKS

    @pytest.fixture
    def url(self, mariadb_in_turn: DatabaseInTurn) -> Iterator[str]:
        yield mariadb_in_turn.take()
        mariadb_in_turn.give_back()

    @pytest.fixture
    def hostile_store_factory(self, url: str) -> StoreFactory:
        mark = "&" if "?" in url else "?"
        settings = "SET time_zone = '%2B11:00', sql_mode = 'ANSI_QUOTES,PIPES_AS_CONCAT,NO_BACKSLASH_ESCAPES'"
        return partial(SqlDelayedMessageStore, f"{url}{mark}init_command={settings}", table=TABLE)

    def test_the_hostile_session_is_hostile(self, hostile_store_factory: StoreFactory) -> None:
        assert shown(hostile_store_factory, "SELECT @@time_zone") == "+11:00"
        assert "NO_BACKSLASH_ESCAPES" not in shown(hostile_store_factory, "SELECT @@sql_mode")  # set by the store
