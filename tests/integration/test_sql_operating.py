"""What operators need, where SQL databases differ: rights, tables of earlier releases, locks, plans."""

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import ClassVar

import pytest
from sqlalchemy import Column, Connection, MetaData, String, Table, event, inspect, select, text, update

from delaystore.calls import Call
from delaystore.errors import StoreSetupError
from delaystore.filters import MessageFilter
from delaystore.message import PARKED, DelayedMessage, FailedAttempt, KeyRule, OnKey
from delaystore.settings import TransactionMode
from delaystore.stores import SqlDelayedMessageStore
from delaystore.stores.operable import EXAMINED
from delaystore.stores.records import (
    Activity,
    DispatcherRecord,
    FailedDelivery,
    IngressRecord,
    Operation,
    OperationKind,
    OperationState,
    postponed_until,
)
from delaystore.stores.sql.bulk_partitions import PartitionLimits
from delaystore.stores.sql.codec import UtcDateTime
from delaystore.stores.sql.dialects import Claiming, store_dialect_of
from delaystore.stores.sql.operating._destinations import LOOKED_AT, STRAY_STEPS, DestinationQueries
from delaystore.stores.sql.urls import OPERATING_SUFFIXES
from tests.integration.cli import CommandLine
from tests.integration.sql_stores import message, opened
from tests.integration.test_plans import kind, planned, scan_of
from tests.integration.test_sql_setup import unique
from tests.servers import PostgreSQL, PostgreSQLDatabases

ME = "operator@desk"


@pytest.fixture
def store_of_sqlite(prepared_sqlite_url: str) -> Iterator[SqlDelayedMessageStore]:
    with opened(prepared_sqlite_url) as store:
        yield store


def fail(store: SqlDelayedMessageStore, sent: DelayedMessage, reason: str = "no") -> FailedAttempt:
    """Count a failure of `sent`, the only message that is due, which is shown again at once."""
    attempt = FailedAttempt(store.now(), "Refused", reason)
    with store.transaction() as block:
        (claimed,) = block.fetch_due(store.now(), 1)
        assert claimed.message_id == sent.message_id
        failure = FailedDelivery(message=claimed, next_attempt=sent.due_time, attempt=attempt)
        assert block.count_failures([failure]) == 1
    return attempt


def downgrade(store: SqlDelayedMessageStore) -> None:
    """Make the tables those of the release before."""
    name = store.table.name
    with store.engine.begin() as connection:
        for suffix in OPERATING_SUFFIXES:
            connection.execute(text(f"DROP TABLE {name}{suffix}"))
        on_table = "" if store.engine.dialect.name in ("postgresql", "sqlite") else f" ON {name}"
        connection.execute(text(f"DROP INDEX {name}_failing{on_table}"))
        columns = {column["name"] for column in inspect(connection).get_columns(name)}
        for column in ("failing_at", "failures", "failures_of"):
            if column in columns:
                connection.execute(text(f"ALTER TABLE {name} DROP COLUMN {column}"))
        connection.execute(text(f"UPDATE {name}_version SET version_num = '0003'"))


def test_on_tables_of_the_release_before_messages_go_and_operators_are_told(
    store: SqlDelayedMessageStore, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    downgrade(store)
    with opened_as_it_is(database_url) as older:
        assert not older.is_operable
        older.store(message(older.now(), -1))
        older.store_many([message(older.now(), -1), message(older.now(), 60, key="k")])
        with older.transaction() as block:
            claimed = block.fetch_due(older.now(), 10)
            assert block.increment_failure_counts([(claimed[0], older.now())]) == 1
            assert block.remove_many(claimed[1:]) == 1
        with pytest.raises(StoreSetupError, match="run `delaystore setup`"):
            older.pause("billing", by=ME)
        store.setup_infrastructure()
        assert not older.is_operable, "it is asked again only after a while"
        monkeypatch.setattr(older, "_ask_from", 0.0)
        assert older.is_operable
        assert older.count_failing(10) == 1, "what had failed before is found, too"
        assert [each.message_id for each in older.search(MessageFilter(failing=True)).messages] == [
            claimed[0].message_id
        ]


def test_on_tables_of_the_release_before_the_command_line_refuses_changes_in_one_line(
    sqlite_url: str, store_of_sqlite: SqlDelayedMessageStore, run: CommandLine
) -> None:
    store_of_sqlite.store(message(store_of_sqlite.now(), 60, message_id="a", key="k"))
    downgrade(store_of_sqlite)
    where = ("--store", sqlite_url, "--endpoint", "sales")
    for command in (
        ("cancel", "a"),
        ("cancel", "--key", "k"),
        ("cancel", "--all"),
        ("reschedule", "a", "--delay", "2h"),
        ("reschedule", "--key", "k", "--delay", "2h"),
        ("pause", "billing"),
        ("changes",),
    ):
        assert run.refused(*command, *where) == (
            "error: the tables of 'sales' are of an earlier release, without audit trail and operations; "
            "run `delaystore setup`"
        )
    assert run("setup", *where).code == 0
    assert run("cancel", "a", *where).out == "cancelled: a\n", "it waited still"
    assert [entry["action"] for entry in run("changes", "--json", *where).document["changes"]] == ["cancel"]


@contextmanager
def opened_as_it_is(url: str) -> Iterator[SqlDelayedMessageStore]:
    """A store whose tables are used as they are."""
    store = SqlDelayedMessageStore(url)
    store.initialize("sales", TransactionMode.NONE)
    yield store
    store.close()


def test_failures_are_not_those_of_the_message_that_was_replaced(store: SqlDelayedMessageStore) -> None:
    now = store.now()
    store.store_keyed(first := message(now, -1, key="k"), KeyRule())
    attempt = fail(store, first)
    found = store.get(first.message_id)
    assert found is not None
    assert found.failures == (attempt,)
    store.store_keyed(second := message(now, -1, key="k"), KeyRule(OnKey.REPLACE))
    found = store.get(second.message_id)
    assert found is not None
    assert found.failures == ()
    attempt = fail(store, second, "never")
    found = store.get(second.message_id)
    assert found is not None
    assert found.failures == (attempt,)


def test_what_is_parked_in_a_pass_locks_nobody_out(store: SqlDelayedMessageStore, database_url: str) -> None:
    now = store.now()
    store.store_many([message(now, -2), message(now, -1, destination="other")])
    store.pause("billing", by=ME)
    with store.transaction() as block, opened(database_url) as sender:
        parked, postponed = block.fetch_due(store.now(), 10)
        assert list(block.park_claimed([parked, postponed])) == [parked.message_id]
        assert block.postpone([(postponed, now + timedelta(hours=1))]) == 1
        sender.store(message(now, 60))  # as while the rest of the batch is being sent
    assert store.count_parked(10) == 1
    found = store.get(postponed.message_id)
    assert found is not None
    assert found.next_attempt == now + timedelta(hours=1)


def test_a_resume_while_a_pass_parks_leaves_nothing_parked(store: SqlDelayedMessageStore) -> None:
    store.store(message(store.now(), -1))
    store.pause("billing", by=ME)
    with ThreadPoolExecutor(1) as pool:
        with store.transaction() as block:
            (claimed,) = block.park_claimed(block.fetch_due(store.now(), 1))
            resumed = pool.submit(store.resume, "billing", by=ME)
            if store_dialect_of(store.engine).claiming is Claiming.LEASES:
                assert resumed.result()
        assert resumed.result()
        while store.unpark():
            pass
    found = store.get(claimed)
    assert found is not None
    assert found.next_attempt < PARKED
    assert store.destinations() == []


def test_a_limit_is_exact_over_several_stores(store: SqlDelayedMessageStore, database_url: str) -> None:
    store.limit_rate("billing", 50, by=ME)
    granted, times, lock = 0, [], threading.Lock()

    def ask(_: int) -> None:
        nonlocal granted
        with opened(database_url) as each:
            for _number in range(5):
                allowance = each.allowance("billing", 7)
                with lock:
                    granted += allowance.granted
                    times.extend(allowance.later)

    began = store.now()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(ask, range(4)))
    seconds = (store.now() - began).total_seconds()
    assert granted <= 50 + 50 * seconds + 1
    assert len(set(times)) == len(times), "no time is promised twice"


def test_two_who_advance_an_operation_change_each_message_once(
    store: SqlDelayedMessageStore, database_url: str
) -> None:
    now = store.now()
    store.store_many(message(now, 3600 + number) for number in range(400))
    operation = Operation(
        operation_id="o",
        kind=OperationKind.RESCHEDULE,
        wanted=MessageFilter(destination="billing"),
        by=ME,
        began=now,
        due_time=now + timedelta(days=1),
    )
    store.begin_operation(operation)

    def advance(_: int) -> None:
        with opened(database_url) as each:
            while (step := each.advance_operation("o", 40)) and step.state is OperationState.RUNNING:
                pass

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(advance, range(2)))
    done = store.operation("o")
    assert done is not None
    assert (done.state, done.examined, done.changed, done.held) == (OperationState.DONE, 400, 400, 0)


def test_an_operation_waits_for_no_dispatcher(store: SqlDelayedMessageStore, database_url: str) -> None:
    now = store.now()
    store.store_many([held := message(now, -1), message(now, 60)])
    with opened(database_url) as dispatcher, dispatcher.transaction() as block:
        assert [each.message_id for each in block.fetch_due(now, 1)] == [held.message_id]
        operation = Operation(operation_id="o", kind=OperationKind.CANCEL, wanted=MessageFilter(), by=ME, began=now)
        store.begin_operation(operation)
        done = store.advance_operation("o")
        assert done is not None
        assert (done.changed, done.held, list(done.held_ids)) == (1, 1, [held.message_id])


def test_dispatchers_may_do_what_they_must_after_an_upgrade(
    postgresql: PostgreSQLDatabases, postgresql_url: str
) -> None:
    role, reader = unique("dispatcher"), unique("reader")
    urls = [postgresql.create_role(name, "s3cret", postgresql_url) for name in (role, reader)]
    with opened(postgresql_url) as owner:
        downgrade(owner)
        with owner.engine.begin() as connection:
            connection.execute(text(f"GRANT SELECT, INSERT, UPDATE, DELETE ON sales_delayed TO {role}"))
            connection.execute(text(f"GRANT SELECT ON sales_delayed, sales_delayed_version TO {reader}"))
            connection.execute(text(f"GRANT SELECT ON sales_delayed_shelves, sales_delayed_version TO {role}"))
        owner.setup_infrastructure()
    with opened(urls[0]) as dispatcher:
        now = dispatcher.now()
        dispatcher.heartbeat(
            DispatcherRecord(dispatcher_id="d", name="n", host="h", pid=1, version="1", since=now, heartbeat=now)
        )
        dispatcher.pause("billing", by=ME)
    with opened(urls[1]) as watcher:
        assert len(watcher.dispatchers()) == len(watcher.destinations()) == 1


def test_the_owner_of_the_tables_may_use_what_another_role_has_added(
    postgresql: PostgreSQLDatabases, postgresql_url: str
) -> None:
    first, second = unique("app"), unique("app")
    old = postgresql.create_role(first, "s3cret", postgresql_url)
    new = postgresql.create_role(second, "s3cret", postgresql_url, member_of=first)
    with opened(postgresql_url) as database, database.engine.begin() as connection:
        database.remove_infrastructure()
        connection.execute(text(f"GRANT ALL ON SCHEMA public TO {first}"))
    with opened(old) as owner:
        downgrade(owner)
        with opened(new):
            pass
        assert owner.is_operable
        owner.pause("billing", by=ME)
        assert [each.name for each in owner.destinations()] == ["billing"]


@pytest.mark.parametrize("database_url", ["postgresql", "mariadb"], indirect=True)
def test_who_ends_a_resume_waits_for_nobody_who_parks_for_another_destination(
    store: SqlDelayedMessageStore, other: SqlDelayedMessageStore
) -> None:
    store.pause("billing", by=ME)
    store.pause("sales", by=ME)
    store.resume("sales", by=ME)
    with other.transaction() as block, ThreadPoolExecutor() as pool:
        DestinationQueries(block).paused(lasting=True)
        assert pool.submit(store.unpark).result(10) == 0
        assert [each.name for each in store.destinations()] == ["billing"]


def postpone(store: SqlDelayedMessageStore) -> None:
    """As a dispatcher does with messages of a limited destination; it removes those that may go."""
    with store.transaction() as block:
        messages = block.fetch_due(store.now(), 1000)
        allowance = store.allowance("billing", len(messages))
        block.remove_many(messages[: allowance.granted])
        times = [postponed_until(time) for time in allowance.later]
        block.postpone(list(zip(messages[allowance.granted :], times, strict=True)))


def test_a_dispatcher_that_knows_no_postponed_messages_ends_no_resume_before_they_are_shown(
    store: SqlDelayedMessageStore,
) -> None:
    """Those of earlier builds set `resuming` to 0 once no message is parked."""
    store.limit_rate("billing", 0.05, by=ME)
    store.store_many(message(store.now(), -9 + number) for number in range(4))
    postpone(store)
    store.limit_rate("billing", 0.1, by=ME)
    with store.engine.begin() as connection:
        connection.execute(text(f"UPDATE {store.table.name}_destinations SET resuming = 0"))
    assert [each.resuming for each in store.destinations()] == [True]
    assert [store.unpark(100, timedelta(0)) for _ in range(2)] == [3, 0]
    assert [each.resuming for each in store.destinations()] == [False]
    postpone(store)
    assert [each.resuming for each in store.destinations()] == [False]


def test_a_resume_that_reaches_further_by_now_is_not_ended(store: SqlDelayedMessageStore) -> None:
    """Where the clock steps back during a walk, a row gets a further reach, and the time of its change stays."""
    store.limit_rate("billing", 0.05, by=ME)
    store.allowance("billing", 5)
    store.limit_rate("billing", 0.1, by=ME)
    with store.transaction() as block:
        destinations, table = DestinationQueries(block), block.parts.statements.operating_tables.destinations
        (seen,) = destinations.resuming()
        assert seen.reach is not None
        further = seen.reach + timedelta(hours=1)
        block.connection.execute(update(table).values(paused_until=further))
        destinations.end_resuming([seen])
        assert [each.reach for each in destinations.resuming()] == [further]
        destinations.end_resuming(destinations.resuming())
        assert destinations.resuming() == []


class StepsOfCall(Call):
    """Counts how often its time begins anew."""

    begun = 0

    def resume(self) -> None:
        StepsOfCall.begun += 1
        super().resume()


def test_a_walk_past_a_million_parked_messages_is_no_call_that_takes_too_long(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StepsOfCall, "begun", 0)
    with opened(sqlite_url) as store:
        store.store_many(message(store.now(), -1) for _ in range(20))
        store.pause("billing", by=ME)
        assert store.park(store.now()) == 20
        store.pause("sales", by=ME)
        store.resume("sales", by=ME)
        with StepsOfCall("showing parked messages again", 30):
            assert store.unpark(1) == 0
        assert StepsOfCall.begun >= 20 // LOOKED_AT
        assert [each.name for each in store.destinations()] == ["billing"]


def test_what_was_told_is_told_once_though_old_records_cannot_be_deleted(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(sqlite_url) as store:
        now = store.now()
        with store.engine.begin() as connection:
            refuse = "BEFORE DELETE ON sales_delayed_dispatchers BEGIN SELECT RAISE(ABORT, 'no'); END"
            connection.execute(text(f"CREATE TRIGGER refuse {refuse}"))
        record = DispatcherRecord(dispatcher_id="d", name="n", host="h", pid=1, version="1", since=now, heartbeat=now)
        monkeypatch.setattr("delaystore.stores.sql.operating._reports.FORGOTTEN", -timedelta(hours=1))
        store.heartbeat(record, [Activity(minute=now, delivered=1)])
        assert [each.delivered for each in store.activity(now)] == [1]


class PartitioningStore(SqlDelayedMessageStore):
    """Whose messages wait in partitions."""

    partition_limits: ClassVar = PartitionLimits(fewest_rows=1, smallest_table=0)


def test_partitions_get_what_an_upgrade_adds(postgresql_url: str) -> None:
    store = PartitioningStore(postgresql_url)
    with opened(postgresql_url) as plain:
        store.initialize("sales", TransactionMode.NONE)
        store.store_many(message(plain.now(), -1 - number) for number in range(5))
        partition = only_partition(store)
        downgrade(plain)
        with plain.engine.begin() as connection:
            for index in inspect(connection).get_indexes(partition):
                if index["dialect_options"].get("postgresql_where"):
                    connection.execute(text(f'DROP INDEX "{index["name"]}"'))
        plain.setup_infrastructure()
        store.store_many(message(plain.now(), -10 - number) for number in range(5))
        with plain.engine.connect() as connection:
            inspector = inspect(connection)
            for name in partitions_of(connection):
                assert {"failures", "failures_of"} <= {each["name"] for each in inspector.get_columns(name)}
                indexes = inspector.get_indexes(name)
                assert "(failure_count > 0)" in [each["dialect_options"].get("postgresql_where") for each in indexes]
    store.close()


def partitions_of(connection: Connection) -> list[str]:
    found = text("SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'sales_delayed'::regclass")
    return [name.strip('"') for name in connection.execute(found).scalars()]


def only_partition(store: SqlDelayedMessageStore) -> str:
    with store.engine.connect() as connection:
        (partition,) = partitions_of(connection)
    return partition


FILL = (
    "INSERT INTO sales_delayed (message_id, destination, due_time, next_attempt, failure_count, body) "
    "SELECT n::text, 'billing', due, due, CASE WHEN n % 1000 = 0 THEN 1 ELSE 0 END, 'x' "
    "FROM (SELECT n, now() + n * INTERVAL '1 second' AS due FROM generate_series(1, 60000) AS n) AS s"
)


def test_a_search_looks_at_so_many_by_index(private_postgresql: PostgreSQL) -> None:
    url = private_postgresql.create_database()
    with opened(url) as store:
        with store.engine.begin() as connection:
            connection.execute(text(FILL))
        plans = planned(store.engine, 'FROM "sales_delayed"', "EXPLAIN (ANALYZE, FORMAT JSON)")
        page = store.search(MessageFilter(destination="nowhere"))
        assert page.messages == []
        assert page.next_key is not None
        assert page.next_key.message_id == str(EXAMINED)
        scans = [scan_of(plan) for plan in plans]
        assert {kind(scan).removeprefix("Index Only ").removeprefix("Index ") for scan in scans} == {
            "Scan using sales_delayed_due"
        }
        looked_at = [scan["Actual Rows"] + scan.get("Rows Removed by Filter", 0) for scan in scans]
        assert max(looked_at) <= EXAMINED + 1
        plans.clear()
        assert len(store.search(MessageFilter(failing=True)).messages) == 60
        assert store.count_failing(100) == 60
        assert all("sales_delayed_failing" in kind(scan_of(plan)) for plan in plans)
        assert len(plans) == 3
    private_postgresql.drop_database(url)


def test_a_step_past_what_no_limit_has_postponed_looks_at_so_many(private_postgresql: PostgreSQL) -> None:
    """Such messages may be millions; here they are due in the time in which postponed ones are searched."""
    url = private_postgresql.create_database()
    with opened(url) as store:
        store.limit_rate("billing", 0.05, by=ME)
        store.store(message(store.now(), -9))
        store.store(message(store.now(), -8))
        postpone(store)
        store.store_many(message(store.now(), 1 + number / 100) for number in range(500))
        store.limit_rate("billing", None, by=ME)
        plans = planned(store.engine, 'FROM "sales_delayed"', "EXPLAIN (ANALYZE, FORMAT JSON)")
        assert [store.unpark(5, timedelta(0)) for _ in range(2)] == [1, 0]
        scans = [scan_of(plan) for plan in plans]
        assert sum(scan["Actual Rows"] for scan in scans) >= 500
        assert max(scan["Actual Rows"] + scan.get("Rows Removed by Filter", 0) for scan in scans) <= LOOKED_AT * 5 + 1
    private_postgresql.drop_database(url)


def test_bodies_of_what_does_not_match_stay_in_the_database(store: SqlDelayedMessageStore) -> None:
    now = store.now()
    store.store_many(message(now, number, headers={"n": number % 10}, body=b"x" * 1000) for number in range(50))
    statements: list[str] = []
    event.listen(store.engine, "before_cursor_execute", lambda _c, _cursor, statement, *_: statements.append(statement))
    page = store.search(MessageFilter(headers={"n": "7"}))
    assert len(page.messages) == 5
    with_bodies = [each for each in statements if "body" in each]
    assert len(with_bodies) == 1
    assert "headers" in with_bodies[0]
    assert " IN (" in with_bodies[0] or "ANY" in with_bodies[0]


def test_rows_that_are_no_messages_break_no_search(store: SqlDelayedMessageStore) -> None:
    now = store.now()
    store.store_many(message(now, number, f"m{number}", headers={"a": 1}) for number in range(5))
    with store.engine.begin() as connection:
        connection.execute(text("UPDATE sales_delayed SET headers = '{broken \"a\": 1' WHERE message_id = 'm2'"))
    assert [each.message_id for each in store.search(MessageFilter()).messages] == [f"m{n}" for n in range(5)]
    found = store.search(MessageFilter(headers={"a": "1"})).messages
    assert [each.message_id for each in found] == ["m0", "m1", "m3", "m4"]
    operation = Operation(
        operation_id="o", kind=OperationKind.CANCEL, wanted=MessageFilter(headers={"a": "1"}), by=ME, began=now
    )
    store.begin_operation(operation)
    done = store.advance_operation("o")
    assert done == replace(operation, state=OperationState.DONE, examined=5, changed=4, ended=done and done.ended)


def test_parking_goes_on_where_the_last_step_ended(store: SqlDelayedMessageStore) -> None:
    """Also past many others that come first, and back to what came before."""
    now = store.now()
    store.store_many(message(now, -500 + number, destination="other") for number in range(100))
    store.store_many(message(now, -100 + number) for number in range(60))
    store.pause("billing", by=ME)
    assert [store.park(now, 20) for _ in range(4)] == [20, 20, 20, 0]
    store.store(message(now, -1000))
    assert store.park(now, 20) == 1
    assert store.park(now, 20) == 0
    assert store.status().first_due == now - timedelta(seconds=500)
    store.resume("billing", by=ME)
    counts = []
    while count := store.unpark(25):
        counts.append(count)
    assert sum(counts) == 61
    assert max(counts) <= 25
    assert store.destinations() == []
    assert store.count_parked(100) == 0


def test_a_stray_is_found_behind_many_that_are_parked(store: SqlDelayedMessageStore) -> None:
    """By the next call where one does not look so far: what is not lost must not wait for days."""
    now, step = store.now(), 10
    far = STRAY_STEPS * LOOKED_AT * step
    store.store_many(replace(message(now, -1), message_id=f"a{number:05}") for number in range(far))
    store.store(replace(message(now, -1), message_id="b", destination="other"))
    for name in ("billing", "other"):
        store.pause(name, by=ME)
    while store.park(now):
        pass
    with store.engine.begin() as connection:
        connection.execute(text(f"DELETE FROM {store.table.name}_destinations WHERE name = 'other'"))
    assert [store.unpark(step) for _ in range(3)] == [0, 1, 0]
    assert store.count_parked(far + 1) == far


def test_a_queue_without_an_ingress_is_told_of_for_a_day(store: SqlDelayedMessageStore) -> None:
    now, table = store.now(), f"{store.table.name}_dispatchers"
    place = {"host": "h", "pid": 1, "version": "1", "since": now, "heartbeat": now}

    def pass_hours(hours: int) -> None:
        store._next_clean_up = 0.0
        heartbeats = Table(table, MetaData(), Column("dispatcher_id", String), Column("beat", UtcDateTime))
        with store.engine.begin() as connection:
            for name, heartbeat in connection.execute(select(heartbeats)).all():
                earlier = update(heartbeats).where(heartbeats.c.dispatcher_id == name)
                connection.execute(earlier.values(beat=heartbeat - timedelta(hours=hours)))

    def rows() -> int:
        with store.engine.connect() as connection:
            return connection.execute(text(f"SELECT count(*) FROM {table}")).scalar_one()

    store.heartbeat_of_ingress(IngressRecord(ingress_id="i", queue="q", rejected_queue="r", **place))  # type: ignore[arg-type]
    store.heartbeat(DispatcherRecord(dispatcher_id="d", name="n", **place))  # type: ignore[arg-type]
    pass_hours(23)
    store.heartbeat(DispatcherRecord(dispatcher_id="new", name="n", **place))  # type: ignore[arg-type]
    assert [(each.ingress_id, each.is_offline(store.now())) for each in store.ingresses()] == [("i", True)]
    assert rows() == 2, "the dispatcher that died is forgotten"
    pass_hours(2)
    assert list(store.ingresses()) == []
    store.heartbeat_of_ingress(IngressRecord(ingress_id="new", queue="other", rejected_queue="r", **place))  # type: ignore[arg-type]
    assert [each.ingress_id for each in store.ingresses()] == ["new"]
    assert rows() == 1, "all that died are forgotten"


def test_what_another_release_tells_of_an_ingress_is_read(store: SqlDelayedMessageStore) -> None:
    now = store.now()
    record = IngressRecord(
        ingress_id="i", queue="q", rejected_queue="r", host="h", pid=1, version="9", since=now, heartbeat=now, stored=3
    )
    store.heartbeat_of_ingress(record)
    table = f"{store.table.name}_dispatchers"
    told = {"queue": "q", "rejected_queue": "r", "host": "h", "pid": 1, "version": "9", "since": now.isoformat()}
    with store.engine.begin() as connection:
        connection.execute(text(f"UPDATE {table} SET record = :told"), {"told": json.dumps({**told, "mood": "fine"})})
    (found,) = store.ingresses()
    assert (found.queue, found.version, found.since, found.stored, found.rejected_depth) == ("q", "9", now, 0, None)


def test_a_mistake_in_one_id_cancels_none(
    sqlite_url: str, store_of_sqlite: SqlDelayedMessageStore, run: CommandLine
) -> None:
    store_of_sqlite.store(message(store_of_sqlite.now(), 60, message_id="a"))
    named = ("--store", sqlite_url, "--endpoint", "sales")
    for mistake in (("a", ""), ("a", "--key", "")):
        assert "is empty" in run.refused("cancel", *mistake, *named)
    assert store_of_sqlite.count() == 1
    assert run("cancel", "a", "b", *named, "--json").document["results"] == [
        {"message_id": "a", "outcome": "done"},
        {"message_id": "b", "outcome": "not_found"},
    ]
