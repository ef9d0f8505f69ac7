"""Loads wait beside the messages until all of them are there, and become visible once."""

import os
import pickle
import secrets
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import psycopg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Engine, MetaData, Select, Table, event, false, inspect, make_url, text

from delaystore.bulk.attempts import AttemptReport, promote
from delaystore.bulk.options import OnDuplicate, StoreOptions, new_load_id
from delaystore.bulk.staging import (
    FinishedLoad,
    LoadKey,
    LoadOwner,
    LoadState,
    StagedAttempt,
    Staging,
    _database,
    _promotion,
    _registry,
    _runs,
    cleanup,
    list_loads,
    load_status,
)
from delaystore.bulk.staging._database import load_database
from delaystore.bulk.staging._dialects import waiting_already
from delaystore.bulk.staging._registry import Registry
from delaystore.dispatcher._in_flight import fingerprint
from delaystore.errors import (
    ConfigurationError,
    DuplicateKeyError,
    DuplicateMessageError,
    LoadError,
    LoadInProgressError,
    LoadLostError,
    StorePermissionError,
    StoreUnavailableError,
)
from delaystore.message import LATEST_DUE_TIME, DelayedMessage, FailedAttempt, KeyRule, OnKey, are_same_time, marked
from delaystore.processes import user_at_host
from delaystore.stores import SqlDelayedMessageStore
from delaystore.stores.records import FailedDelivery
from delaystore.stores.sql import leave_delaystore_alone
from delaystore.stores.sql.bound import BoundSqlStore
from delaystore.stores.sql.bulk_partitions import PartitionLimits
from tests.dispatching import wait_until
from tests.integration.loading import DEAD, DUE, HERE, batch, end_lease, load, row, rows, staged, staging_of, tables
from tests.integration.sql_stores import connected, execute, message, opened, query, url_for
from tests.long import long
from tests.servers import PostgreSQL, PostgreSQLDatabases, ServerMissingError, SmallDisk

pytestmark = pytest.mark.long_runs("partitions", "mariadb")

ODD = [
    row("a\tb\nc\\N\r", 5, body=b""),
    row("Ünï 日本 🎉", 4, body=b"\0\xff" * 3, headers={"name": "Zoë", "raw": b"\0"}),
    row("'; DROP TABLE sales_delayed; --", 3, properties={"priority": 3, "timestamp": DUE}),
    row("Case", 2, destination="/exchanges/a%2Fb/c"),
    row("case", 1, body=os.urandom(300_000)),
    row("case ", 0, body=b"x" * 9_999),
    row("%s %(x)s :y", -0.000001),
    row("i" * 255, 7e9),
]


@pytest.fixture(params=["sqlite", "postgresql", "partitions", "mariadb"])
def database_url(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """An empty database of each kind; PostgreSQL also with partitions for the smallest load."""
    if request.param == "partitions":
        monkeypatch.setattr(
            SqlDelayedMessageStore, "partition_limits", PartitionLimits(fewest_rows=1, smallest_table=0)
        )
    return url_for(request, "postgresql" if request.param == "partitions" else request.param)


def options(url: str) -> StoreOptions:
    return StoreOptions(store=url, endpoint="sales")


def everything(store: SqlDelayedMessageStore) -> dict[str, DelayedMessage]:
    return {message.message_id: message for message in store.list(limit=10_000).messages}


@contextmanager
def begun(url: str, load_id: str = "one", **how: object) -> Iterator[Staging]:
    staging = staging_of(url, **how)  # type: ignore[arg-type]
    assert staging.begin(LoadKey(load_id)) is None
    yield staging
    staging.discard()


def test_tasks_of_one_process_share_a_connection_until_none_comes(
    postgresql_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Connecting takes longer than staging a few rows, and a load may have a thousand small tasks."""
    monkeypatch.setattr(_database, "KEPT", 60.0)
    connected: list[object] = []

    def note(connection: object, _record: object) -> None:
        connected.append(connection)

    def sessions() -> int:
        found = admin.execute("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()").fetchone()
        return 0 if found is None else int(found[0]) - 1

    with (
        psycopg.connect(postgresql_url.replace("+psycopg", ""), autocommit=True) as admin,
        begun(postgresql_url) as staging,
    ):
        attempts = [staged(staging, [row("first")])]
        event.listen(Engine, "connect", note)
        try:
            attempts += [staged(staging, [row(f"m{number}")]) for number in range(5)]
        finally:
            event.remove(Engine, "connect", note)
        assert not connected
        monkeypatch.setattr(_database, "KEPT", 0.1)
        attempts.append(staged(staging, [row("last")]))
        wait_until(lambda: sessions() == 0)
        assert staging.promote(attempts, OnDuplicate.ERROR).stored == len(attempts)


@pytest.mark.long_runs
def test_nothing_is_seen_until_all_of_it_is(store: SqlDelayedMessageStore, database_url: str) -> None:
    with begun(database_url) as staging:
        attempts = [staged(staging, ODD[:3], ODD[3:]), staged(staging, rows(50))]
        assert store.list().messages == []
        assert store.count() == 0
        assert store.fetch_due(DUE + timedelta(days=1), 10) == []
        assert store.next() is None
        finished = staging.promote(attempts, OnDuplicate.ERROR)
    assert (finished.stored, finished.skipped) == (58, 0)
    assert everything(store) == {message.message_id: message for message in [*ODD, *rows(50)]}
    assert tables(database_url) == ["sales_delayed_loads"]


@pytest.mark.long_runs
def test_many_chunks_are_one_load(
    store: SqlDelayedMessageStore, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_runs, "CHUNK_BYTES", 700)
    messages = rows(100)
    assert load(database_url, "one", messages[::-1]).stored == 100
    assert everything(store) == {message.message_id: message for message in messages}


def test_a_load_of_nothing_is_finished(store: SqlDelayedMessageStore, database_url: str) -> None:
    assert load(database_url, "one", []).stored == 0
    assert staging_of(database_url).begin(LoadKey("one")) is not None


def test_a_finished_load_is_never_loaded_again(store: SqlDelayedMessageStore, database_url: str) -> None:
    first = load(database_url, "one", rows(3))
    with store.transaction() as transaction:
        assert transaction.remove_many(transaction.fetch_due(DUE + timedelta(days=1), 10)) == 3
    assert load(database_url, "one", rows(3)) == first
    assert store.count() == 0


def test_a_promotion_asked_for_again_says_what_was(store: SqlDelayedMessageStore, database_url: str) -> None:
    with begun(database_url) as staging:
        attempts = [staged(staging, rows(3))]
        travelled: Staging = pickle.loads(pickle.dumps(staging))
        assert travelled.promote(attempts, OnDuplicate.ERROR) == staging.promote(attempts, OnDuplicate.ERROR)
    assert store.count() == 3


@pytest.mark.long_runs
def test_only_attempts_that_won_are_promoted(store: SqlDelayedMessageStore, database_url: str) -> None:
    with begun(database_url) as staging:
        with pytest.raises(RuntimeError), staging.attempt() as failing:
            failing.write(batch(rows(5)))
            failing.finish()
            raise RuntimeError
        staged(staging, rows(5))  # speculative, and too late
        won = staged(staging, rows(5))
        staging.promote([won], OnDuplicate.ERROR)
    assert store.count() == 5


def test_an_attempt_that_outlives_the_load_harms_nothing(store: SqlDelayedMessageStore, database_url: str) -> None:
    with begun(database_url) as staging, staging.attempt() as zombie:
        zombie.write(batch(rows(5, "zombie")))
        staging.promote([staged(staging, rows(5))], OnDuplicate.ERROR)
        with pytest.raises(LoadLostError, match="finished, given up or taken over"):
            zombie.finish()
    assert sorted(everything(store)) == [message.message_id for message in rows(5)]


@pytest.mark.long_runs("partitions", "mariadb", "replace", "ignore")
@pytest.mark.parametrize("on_duplicate", OnDuplicate)
def test_missing_rows_are_noticed(store: SqlDelayedMessageStore, database_url: str, on_duplicate: OnDuplicate) -> None:
    with begun(database_url) as staging:
        attempts = [staged(staging, rows(3)), staged(staging, rows(3, "n"))]
        (name,) = set(tables(database_url)) - {"sales_delayed_loads"}
        with store.engine.begin() as connection:
            connection.execute(text(f"DELETE FROM {name} WHERE destination = 'billing' AND failure_count = 0"))
        with pytest.raises(LoadLostError, match="0 rows of the load 'one' are left where 6 were staged"):
            staging.promote(attempts, on_duplicate)
    assert store.count() == 0
    assert load(database_url, "one", rows(3)).stored == 3


@pytest.mark.long_runs
def test_duplicates_are_named_and_nothing_is_stored(store: SqlDelayedMessageStore, database_url: str) -> None:
    waiting = rows(12)
    store.store_many(waiting)
    with pytest.raises(DuplicateMessageError) as caught:
        load(database_url, "one", [row("new"), *rows(12, body=b"other")])
    assert caught.value.message_ids == tuple(message.message_id for message in waiting[:10])
    found = everything(store)
    assert {each: (one.body, one.next_attempt) for each, one in found.items()} == {
        one.message_id: (one.body, one.next_attempt) for one in waiting
    }
    assert all(found[each].due_time == marked(found[each].next_attempt) for each in caught.value.message_ids)


@pytest.mark.parametrize("on_duplicate", [OnDuplicate.ERROR, OnDuplicate.REPLACE])
def test_duplicates_in_the_load_are_named(
    store: SqlDelayedMessageStore, database_url: str, on_duplicate: OnDuplicate
) -> None:
    with begun(database_url) as staging:
        attempts = [staged(staging, rows(3)), staged(staging, [row("m-00001"), row("other")])]
        with pytest.raises(DuplicateMessageError) as caught:
            staging.promote(attempts, on_duplicate)
    for error in (caught.value, pickle.loads(pickle.dumps(caught.value))):
        assert error.message_ids == ("m-00001",)
        assert str(error).startswith("twice in the load: message_id 'm-00001'; ")
    assert store.count() == 0


def test_duplicates_that_are_gone_when_they_are_looked_for_are_not_blamed(
    store: SqlDelayedMessageStore, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone_by_then(staged: Select[Any], live: Table) -> Select[Any]:
        return waiting_already(staged, live).where(false())

    store.store(row("m-00001", body=b"first"))
    with begun(database_url) as staging:
        attempts = [staged(staging, rows(3))]
        with monkeypatch.context() as patch:
            patch.setattr(_promotion, "waiting_already", gone_by_then)
            with pytest.raises(StoreUnavailableError, match="the load 'one' failed after"):
                staging.promote(attempts, OnDuplicate.ERROR)
        with pytest.raises(DuplicateMessageError, match="already waiting in the store: message_id 'm-00001'"):
            staging.promote(attempts, OnDuplicate.ERROR)
    assert store.count() == 1


@pytest.mark.long_runs
def test_duplicates_can_be_ignored(store: SqlDelayedMessageStore, database_url: str) -> None:
    waiting = row("m-00001", 99, body=b"first")
    store.store(waiting)
    with begun(database_url) as staging:
        attempts = [staged(staging, rows(3)), staged(staging, rows(2))]
        finished = staging.promote(attempts, OnDuplicate.IGNORE)
    assert (finished.stored, finished.skipped) == (2, 3)
    kept = replace(waiting, due_time=marked(waiting.due_time))
    assert everything(store) == {message.message_id: message for message in [*rows(3), kept]}


@pytest.mark.long_runs
def test_duplicates_can_be_replaced(store: SqlDelayedMessageStore, database_url: str) -> None:
    store.store(row("m-00001", 99, body=b"first", headers={"a": 1}))
    with store.transaction() as claimed:
        (failed,) = claimed.fetch_due(LATEST_DUE_TIME, 1)
        assert claimed.increment_failure_count(failed, DUE + timedelta(days=3))
    assert load(database_url, "one", rows(3), OnDuplicate.REPLACE).stored == 3
    assert everything(store) == {message.message_id: message for message in rows(3)}


def test_replaced_messages_are_one_audit_entry_of_the_load(store: SqlDelayedMessageStore, database_url: str) -> None:
    store.store_many([row("m-00001", 99), row("keyed", 99, key="k"), row("other", 99)])
    options: dict[str, Any] = {"key_rule": KeyRule(OnKey.REPLACE)}
    messages = [*rows(3), row("new", key="k")]
    repeated = [*rows(1), *rows(1)]
    with pytest.raises(DuplicateMessageError):
        load(database_url, "refused", repeated, OnDuplicate.REPLACE, **options)
    assert store.changes() == []
    for _ in range(2):  # the second run finds the load finished
        load(database_url, "one", messages, OnDuplicate.REPLACE, **options)
        (entry,) = store.changes()
        assert (entry.action, entry.way, entry.count) == ("replace", "load", 2)
        assert (entry.by, entry.about) == (user_at_host(), "messages of the load one")
    load(database_url, "nothing to replace", rows(3, "other"), OnDuplicate.REPLACE, **options)
    assert len(store.changes()) == 1


@pytest.mark.long_runs("partitions", "mariadb", "k")
@pytest.mark.parametrize("key", [None, "k"])
def test_a_row_that_replaces_its_like_differs_from_all_before_it(
    store: SqlDelayedMessageStore, database_url: str, key: str | None
) -> None:
    """A dispatcher that has sent one of them, and could not remove it, must send the next."""
    message, seen = row("m-00001", 1, body=b"same", key=key), set[bytes]()
    replacing: dict[str, Any] = {"key_rule": KeyRule(OnKey.REPLACE)} if key else {}
    for number in range(4):
        finished = load(database_url, str(number), [*rows(1), message], OnDuplicate.REPLACE, **replacing)
        assert finished.stored == 2
        assert load(database_url, str(number), [*rows(1), message], OnDuplicate.REPLACE, **replacing) == finished
        found = everything(store)
        for one in (*rows(1), message):
            assert are_same_time(found[one.message_id].due_time, one.due_time)
            assert replace(found[one.message_id], due_time=one.due_time) == one
            seen.add(fingerprint(found[one.message_id]))
        assert len(seen) == 2 * (number + 1)
    later = replace(message, due_time=DUE + timedelta(days=1), next_attempt=DUE + timedelta(days=1))
    load(database_url, "later", [later], OnDuplicate.REPLACE, **replacing)
    assert everything(store)["m-00001"] == later


@pytest.mark.parametrize("looked_at", [1, 10_000])
def test_keys_go_by_their_rule(
    store: SqlDelayedMessageStore, database_url: str, monkeypatch: pytest.MonkeyPatch, looked_at: int
) -> None:
    monkeypatch.setattr(_promotion, "LOOKED_AT", looked_at)
    store.store(row("waits", key="k"))
    messages = [row("later", 9, key="k"), row("sooner", 8, key="k"), row("other", 7, key="l"), *rows(3)]
    with pytest.raises(DuplicateKeyError, match="the message 'waits' already waits with the key 'k'"):
        load(database_url, "rejected", messages)
    assert list(everything(store)) == ["waits"]
    kept = load(database_url, "kept", messages, key_rule=KeyRule(OnKey.KEEP))
    assert (kept.stored, kept.skipped) == (4, 2)
    assert sorted(everything(store)) == ["m-00000", "m-00001", "m-00002", "other", "waits"]
    store.cancel("other")
    again = [row("later", 9, key="k"), row("sooner", 8, key="k"), row("other", 7, key="l"), *rows(3)]
    replaced = load(database_url, "replaced", again, OnDuplicate.IGNORE, key_rule=KeyRule(OnKey.REPLACE))
    assert (replaced.stored, replaced.skipped) == (3, 3)
    found = everything(store)
    assert sorted(found) == ["later", "m-00000", "m-00001", "m-00002", "other"]
    assert found["later"] == row("later", 9, key="k")


def fail(store: SqlDelayedMessageStore, message_id: str) -> None:
    """Have a dispatcher fail with the message, and note why."""
    with store.transaction() as dispatcher:
        (claimed,) = [each for each in dispatcher.fetch_due(LATEST_DUE_TIME, 100) if each.message_id == message_id]
        attempt = FailedAttempt(store.now(), "Refused", "no")
        failure = FailedDelivery(message=claimed, next_attempt=claimed.due_time, attempt=attempt)
        assert dispatcher.count_failures([failure]) == 1


@pytest.mark.parametrize(
    ("key", "on_key"), [(None, OnKey.REJECT), ("new", OnKey.REJECT), *(("old", on_key) for on_key in OnKey)]
)
def test_a_message_is_replaced_as_a_whole(
    store: SqlDelayedMessageStore, database_url: str, key: str | None, on_key: OnKey
) -> None:
    """The replaced message's own key is no conflict under any rule of keys, and nothing of that message is left."""
    long_ago = "2001-01-01 00:00:00.000000"
    store.store(row("m-00001", 99, body=b"first", headers={"a": 1}, key="old"))
    fail(store, "m-00001")
    execute(database_url, f"UPDATE sales_delayed SET first_sent = '{long_ago}'")
    messages = [row("m-00000"), row("m-00001", 1, body=b"second", key=key), row("m-00002", 2)]
    rule = KeyRule(on_key, timedelta(days=9000) if on_key is OnKey.DEBOUNCE else None)
    finished = load(database_url, "one", messages, OnDuplicate.REPLACE, key_rule=rule)
    assert (finished.stored, finished.skipped) == (3, 0)
    assert everything(store) == {message.message_id: message for message in messages}
    assert store.message_id_of("old") == ("m-00001" if key == "old" else None)
    unlike_new = "failures IS NOT NULL OR failures_of IS NOT NULL OR (first_sent IS NULL) <> (message_key IS NULL)"
    assert not query(database_url, f"SELECT * FROM sales_delayed WHERE {unlike_new} OR first_sent = '{long_ago}'")
    assert [entry.count for entry in store.changes()] == [1]


@pytest.mark.parametrize("on_key", OnKey)
def test_a_key_of_another_message_goes_by_its_rule_where_messages_are_replaced(
    store: SqlDelayedMessageStore, database_url: str, on_key: OnKey
) -> None:
    waiting = [row("a", 1, key="of a"), row("b", 2, key="of b")]
    store.store_many(waiting)
    messages = [row("a", 3, body=b"new", key="of b"), row("other", 4)]
    if on_key is OnKey.REJECT:
        with pytest.raises(DuplicateKeyError, match="the message 'b' already waits with the key 'of b'"):
            load(database_url, "one", messages, OnDuplicate.REPLACE, key_rule=KeyRule(on_key))
        assert list(everything(store).values()) == waiting
        assert store.changes() == []
        return
    finished = load(database_url, "one", messages, OnDuplicate.REPLACE, key_rule=KeyRule(on_key))
    if on_key is OnKey.KEEP:
        assert (finished.stored, finished.skipped) == (1, 1)
        assert list(everything(store).values()) == [*waiting, messages[1]]
        assert store.changes() == []
    else:
        assert (finished.stored, finished.skipped) == (2, 0)
        assert list(everything(store).values()) == messages
        assert [entry.count for entry in store.changes()] == [2]


@pytest.mark.parametrize("others", [[row("a")], [row("a", 2, key="l")]])
def test_an_id_that_is_twice_in_a_load_with_keys_is_named(
    store: SqlDelayedMessageStore, database_url: str, others: list[DelayedMessage]
) -> None:
    store.store(row("a", 9, key="k"))
    with pytest.raises(DuplicateMessageError, match="twice in the load: message_id 'a'"):
        load(database_url, "one", [row("a", 1, key="k"), *others], OnDuplicate.REPLACE, key_rule=KeyRule(OnKey.REPLACE))
    assert list(everything(store).values()) == [row("a", 9, key="k")]


@pytest.mark.parametrize("key", [None, "k"])
def test_a_message_is_replaced_once_no_dispatcher_holds_it(
    store: SqlDelayedMessageStore, database_url: str, key: str | None
) -> None:
    store.store(row("m-00001", body=b"first", key=key))
    messages = [*rows(1, body=b"new"), row("m-00001", 1, body=b"new", key=key), row("m-00002", 2, body=b"new")]
    with ThreadPoolExecutor() as pool:
        with store.transaction() as dispatcher:
            (held,) = dispatcher.fetch_due(DUE, 1)
            replacing = pool.submit(load, database_url, "one", messages, OnDuplicate.REPLACE)
            with pytest.raises(TimeoutError):
                replacing.result(timeout=1)
            assert dispatcher.remove(held)
        assert replacing.result(timeout=60).stored == 3
    assert everything(store) == {message.message_id: message for message in messages}


@pytest.mark.long_runs("partitions", "mariadb", "sqlite")
@pytest.mark.parametrize("on_duplicate", [OnDuplicate.ERROR, OnDuplicate.IGNORE])
@pytest.mark.parametrize("key", [None, long("k")])
def test_a_message_that_is_being_dispatched_is_no_duplicate(
    store: SqlDelayedMessageStore, database_url: str, on_duplicate: OnDuplicate, key: str | None
) -> None:
    store.store(row("m-00001", body=b"first"))
    new = [*rows(1), row("m-00001", 1, body=b"new", key=key)]
    with ThreadPoolExecutor() as pool:
        with store.transaction() as dispatcher:
            (held,) = dispatcher.fetch_due(LATEST_DUE_TIME, 1)
            loading = pool.submit(load, database_url, "one", new, on_duplicate)
            with pytest.raises(TimeoutError):
                loading.result(timeout=1)
            assert dispatcher.remove(held)
        assert loading.result(timeout=60).stored == 2
    assert everything(store)["m-00001"].body == b"new"


@pytest.mark.parametrize("database_url", ["postgresql", "mariadb"], indirect=True)
def test_dispatchers_take_what_waits_while_a_load_leaves_its_ids_out(
    store: SqlDelayedMessageStore, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.store_many(rows(4, body=b"first"))
    seen: list[list[str]] = []

    def note(method: str, kind: type) -> None:
        former = getattr(kind, method)

        def noted(self: object, *arguments: object, **named: object) -> object:
            with store.transaction() as dispatcher:
                seen.append(sorted(each.message_id for each in dispatcher.fetch_due(LATEST_DUE_TIME, 10)))
            return former(self, *arguments, **named)

        monkeypatch.setattr(kind, method, noted)

    with begun(database_url) as staging:
        attempts = [staged(staging, rows(6))]
        monkeypatch.setattr(_promotion, "LOOKED_AT", 2)
        note("unclaimed_ids", BoundSqlStore)
        note("finish", Registry)
        finished = staging.promote(attempts, OnDuplicate.IGNORE)
    assert (finished.stored, finished.skipped) == (2, 4)
    first = [f"m-{number:05d}" for number in range(4)]
    assert seen == [first, first, first]  # ahead of either look, and before the load's commit
    assert {each.body for each in everything(store).values() if each.message_id in first} == {b"first"}


@pytest.mark.long_runs("partitions", "mariadb", "sqlite")
def test_a_message_that_comes_and_is_claimed_while_a_load_is_stored_is_waited_for(
    store: SqlDelayedMessageStore, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.store(row("m-00001", body=b"first"))
    looks, came = _promotion.Promotion._leave_out_waiting, threading.Event()
    with ThreadPoolExecutor() as pool, ExitStack() as claim:
        dispatchers: list[Any] = []

        def looked_before(self: _promotion.Promotion) -> None:
            looks(self)
            if not came.is_set():
                assert store.cancel("m-00001")
                store.store(row("m-00002", body=b"second"))
                dispatchers.append(claim.enter_context(store.transaction()))
                dispatchers.extend(dispatchers[0].fetch_due(LATEST_DUE_TIME, 10))
                came.set()

        monkeypatch.setattr(_promotion.Promotion, "_leave_out_waiting", looked_before)
        loading = pool.submit(load, database_url, "one", rows(4, body=b"new"), OnDuplicate.IGNORE)
        wait_until(lambda: came.is_set() or loading.done())
        assert came.is_set(), loading.result()
        with pytest.raises(TimeoutError):
            loading.result(timeout=1)
        dispatcher, held = dispatchers
        assert dispatcher.remove(held)
        claim.close()
        finished = loading.result(timeout=60)
    assert (finished.stored, finished.skipped) == (3, 1)  # what was left out has gone since, as if it were forwarded
    assert sorted(everything(store)) == ["m-00000", "m-00002", "m-00003"]
    assert {each.body for each in everything(store).values()} == {b"new"}


def test_a_load_that_died_while_it_left_ids_out_is_run_again(
    store: SqlDelayedMessageStore, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.store_many(rows(4, body=b"first"))
    former = _promotion.Promotion._look_at
    monkeypatch.setattr(_promotion, "LOOKED_AT", 2)
    looks: list[object] = []

    def dies_later(self: _promotion.Promotion, bound: BoundSqlStore, ids: list[str]) -> list[str]:
        looks.append(ids)
        if len(looks) == 2:
            raise KeyboardInterrupt
        return former(self, bound, ids)

    with begun(database_url) as staging:
        attempts = [staged(staging, rows(5)), staged(staging, rows(6))]
        monkeypatch.setattr(_promotion.Promotion, "_look_at", dies_later)
        with pytest.raises(KeyboardInterrupt):
            staging.promote(attempts, OnDuplicate.IGNORE)
        assert store.count() == 4
        finished = staging.promote(attempts, OnDuplicate.IGNORE)
        assert (finished.stored, finished.skipped) == (2, 9)
        assert staging.promote(attempts, OnDuplicate.IGNORE) == finished
    looks.clear()
    with pytest.raises(KeyboardInterrupt):
        load(database_url, "two", rows(8), OnDuplicate.IGNORE)
    end_lease(database_url)
    again = load(database_url, "two", rows(8), OnDuplicate.IGNORE)
    assert (again.stored, again.skipped) == (2, 6)
    assert {each.body for each in everything(store).values() if each.message_id < "m-00004"} == {b"first"}


def test_a_load_given_up_while_it_leaves_ids_out_says_so(
    store: SqlDelayedMessageStore, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.store_many(rows(2, body=b"first"))
    former = _promotion.Promotion._looked_at

    def given_up_before(self: _promotion.Promotion, ids: list[str]) -> list[str]:
        end_lease(database_url)
        assert len(cleanup(options(database_url)).tables) == 1
        return former(self, ids)

    monkeypatch.setattr(_promotion.Promotion, "_looked_at", given_up_before)
    for fewest in (_promotion.INDEXED, 1):
        monkeypatch.setattr(_promotion, "INDEXED", fewest)
        with begun(database_url) as staging:
            attempts = [staged(staging, rows(3))]
            with pytest.raises(LoadLostError, match="given up after a time without a sign of life"):
                staging.promote(attempts, OnDuplicate.IGNORE)
    assert {each.due_time for each in everything(store).values()} == {each.due_time for each in rows(2)}


@pytest.mark.long_runs
def test_a_load_keeps_its_lease_while_it_leaves_ids_out(
    store: SqlDelayedMessageStore, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.store_many(rows(2, body=b"first"))
    former, states = _promotion.Promotion._looked_at, list[LoadState]()

    def late(self: _promotion.Promotion, ids: list[str]) -> list[str]:
        end_lease(database_url)
        claimed = former(self, ids)
        states.append(list_loads(options(database_url))[0].state)
        return claimed

    monkeypatch.setattr(_promotion.Promotion, "_looked_at", late)
    assert load(database_url, "one", rows(3), OnDuplicate.IGNORE).stored == 1
    assert states == [LoadState.RUNNING]


def test_a_load_keeps_its_lease_while_it_waits_for_a_dispatcher(
    store: SqlDelayedMessageStore, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.store(row("m-00001", body=b"first"))
    monkeypatch.setattr(_promotion, "_POLL", 0.01)
    former, states, pauses = _promotion.Promotion._pause, list[LoadState](), threading.Event()

    def late(self: _promotion.Promotion, deadline: float, error: Exception) -> None:
        end_lease(database_url)
        former(self, deadline, error)
        states.append(list_loads(options(database_url))[0].state)
        pauses.set()

    monkeypatch.setattr(_promotion.Promotion, "_pause", late)
    with ThreadPoolExecutor() as pool:
        with store.transaction() as dispatcher:
            (held,) = dispatcher.fetch_due(LATEST_DUE_TIME, 1)
            loading = pool.submit(load, database_url, "one", rows(3), OnDuplicate.IGNORE)
            assert pauses.wait(60)
            assert dispatcher.remove(held)
        assert loading.result(timeout=60).stored == 3
    assert set(states) == {LoadState.RUNNING}


def test_a_staging_has_an_index_before_hundreds_of_ids_are_left_out(
    store: SqlDelayedMessageStore, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.store_many(rows(300, body=b"first"))
    former, indexes = _promotion.Promotion._look_at, list[int]()

    def seen(self: _promotion.Promotion, bound: BoundSqlStore, ids: list[str]) -> list[str]:
        found = inspect(bound.connection).get_indexes(self._staging.name, schema=self._staging.schema)
        indexes.append(sum(each["column_names"] == ["message_id"] for each in found))
        return former(self, bound, ids)

    monkeypatch.setattr(_promotion.Promotion, "_look_at", seen)
    assert load(database_url, "one", rows(301), OnDuplicate.IGNORE).stored == 1
    assert load(database_url, "two", rows(10), OnDuplicate.IGNORE).stored == 0
    assert indexes == [1, 0]


@pytest.mark.long_runs
def test_a_load_in_progress_is_refused(database_url: str) -> None:
    with begun(database_url):
        with pytest.raises(LoadInProgressError, match=r"'one' is in progress: process 7 on here, since 20.*last seen"):
            staging_of(database_url).begin(LoadKey("one"))
        assert [load.state for load in list_loads(options(database_url))] == [LoadState.RUNNING]
        assert cleanup(options(database_url)).tables == ()


@pytest.mark.long_runs("partitions", "mariadb", "sqlite")
def test_of_several_at_once_one_wins(store: SqlDelayedMessageStore, database_url: str) -> None:
    load(database_url, "zero", [])
    together = threading.Barrier(4)

    def begin(staging: Staging, number: int) -> bool:
        together.wait()
        try:
            return staging.begin(LoadKey(f"load-{number}")) is None
        except LoadInProgressError:
            return False

    with ThreadPoolExecutor(4) as pool:
        for number in range(6):
            staging_of(database_url, DEAD).begin(LoadKey(f"load-{number}"))
            stagings = [staging_of(database_url) for _ in range(4)]
            assert sum(pool.map(begin, stagings, [number] * 4)) == 1


def test_a_load_without_a_sign_of_life_is_taken_over(store: SqlDelayedMessageStore, database_url: str) -> None:
    first, second = staging_of(database_url), staging_of(database_url)
    first.begin(LoadKey("one"))
    attempts = [staged(first, rows(3))]
    end_lease(database_url)
    assert [load.state for load in list_loads(options(database_url))] == [LoadState.ABANDONED]
    assert second.begin(LoadKey("one")) is None
    with pytest.raises(LoadLostError, match="taken over"):
        first.promote(attempts, OnDuplicate.ERROR)
    with pytest.raises(LoadLostError, match="taken over"):
        first.renew()
    with pytest.raises(LoadLostError, match="taken over"):
        staged(first, rows(3))
    first.discard()
    assert second.promote([staged(second, rows(4))], OnDuplicate.ERROR).stored == 4
    assert store.count() == 4
    with pytest.raises(LoadLostError):
        first.renew()


def test_a_late_promotion_of_a_load_that_nobody_took_over_is_good(
    store: SqlDelayedMessageStore, database_url: str
) -> None:
    with begun(database_url) as staging:
        attempts = [staged(staging, rows(3))]
        end_lease(database_url)
        assert staging.promote(attempts, OnDuplicate.ERROR).stored == 3


def test_the_load_of_a_process_that_has_ended_is_taken_over_at_once(database_url: str) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        staging_of(database_url, LoadOwner.of(process.pid)).begin(LoadKey("one"))
        with pytest.raises(LoadInProgressError, match=f"process {process.pid} on "):
            staging_of(database_url).begin(LoadKey("one"))
        process.kill()
        process.wait()
    assert load(database_url, "one", rows(3)).stored == 3


def test_the_next_load_removes_what_others_left(store: SqlDelayedMessageStore, database_url: str) -> None:
    staging_of(database_url, DEAD).begin(LoadKey("dead"))
    with begun(database_url, "alive") as alive:
        left = set(tables(database_url))
        assert len(left) == 2
        load(database_url, "one", rows(1))
        assert set(tables(database_url)) == left
        end_lease(database_url)
        load(database_url, "two", rows(1, "n"))
        assert tables(database_url) == ["sales_delayed_loads"]
        with pytest.raises(LoadLostError, match="taken over, or given up"):
            alive.promote([], OnDuplicate.ERROR)
    assert [status.load_id for status in list_loads(options(database_url))] == ["one", "two"]


def test_a_cleanup_says_what_it_removed(store: SqlDelayedMessageStore, database_url: str) -> None:
    assert cleanup(options(database_url)).loads == ()
    assert list_loads(options(database_url)) == []
    with begun(database_url, "alive", owner=HERE) as alive:
        dead = staging_of(database_url, DEAD)
        dead.begin(LoadKey("dead"))
        assert [(status.load_id, status.state) for status in list_loads(options(database_url))] == [
            ("alive", LoadState.RUNNING),
            ("dead", LoadState.ABANDONED),
        ]
        cleaned = cleanup(options(database_url))
        assert cleaned.loads == ("dead",)
        assert len(cleaned.tables) == 1
        assert cleaned.in_use == ()
        assert cleanup(options(database_url)).tables == ()
        assert alive.promote([staged(alive, rows(2))], OnDuplicate.ERROR).stored == 2


def test_a_body_that_mariadb_would_not_take_is_named(mariadb_url: str) -> None:
    with opened(mariadb_url) as store, store.engine.connect() as connection:
        packet = connection.exec_driver_sql("SELECT @@max_allowed_packet").scalar_one()
    with begun(mariadb_url) as staging, pytest.raises(LoadError, match=r"'large', \d+ bytes, is more than .*packet"):
        staged(staging, [row("small"), row("large", body=b"\0" * (packet // 4))])
    load(mariadb_url, "two", [row("plain", body=b"x" * (packet // 2 - 2**18))])


@pytest.mark.long_runs("partitions", "mariadb", "sqlite")
def test_only_loads_without_a_name_are_forgotten(
    store: SqlDelayedMessageStore, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    past = store.now() - timedelta(seconds=1)
    load(database_url, new_load_id(), [replace(row("a"), due_time=past, next_attempt=past)])
    due_later = new_load_id()
    load(database_url, due_later, [row("b")])
    by_users = {"unnamed but not by us", "unnamed-november", f"{new_load_id()}-2", "named"}
    for load_id in by_users:
        load(database_url, load_id, rows(1, load_id))
    cleanup(options(database_url))
    assert len(list_loads(options(database_url))) == 6
    monkeypatch.setattr(_registry, "UNNAMED_KEPT", timedelta(0))
    assert cleanup(options(database_url)).loads == ()
    assert len(list_loads(options(database_url))) == 6  # a message of each waits
    store.cancel("a")
    store.cancel("b")
    assert cleanup(options(database_url)).loads == ()
    assert {status.load_id for status in list_loads(options(database_url))} == {*by_users, due_later}


def test_one_load_is_known_by_its_id(store: SqlDelayedMessageStore, database_url: str) -> None:
    assert load_status(options(database_url), "one") is None
    load(database_url, "one", rows(2))
    with begun(database_url, "two"):
        known = {status.load_id: status for status in list_loads(options(database_url))}
        assert load_status(options(database_url), "one") == known["one"]
        assert load_status(options(database_url), "two") == known["two"]
    assert known["one"].stored == 2
    assert load_status(options(database_url), "ONE") is None


@pytest.mark.long_runs("partitions", "mariadb", "sqlite")
def test_an_attempt_keeps_the_lease(database_url: str) -> None:
    with begun(database_url, lease=1) as staging:
        (before,) = list_loads(options(database_url))
        with staging.attempt():
            wait_until(lambda: list_loads(options(database_url))[0].heartbeat > before.began + timedelta(seconds=2))
            # a slow machine may be late with one renewal, and with this question
            wait_until(lambda: list_loads(options(database_url))[0].state is LoadState.RUNNING)
        wait_until(lambda: list_loads(options(database_url))[0].state is LoadState.ABANDONED)

        def renewed() -> bool:
            staging.renew()
            return list_loads(options(database_url))[0].state is LoadState.RUNNING

        wait_until(renewed)


def test_an_attempt_of_a_load_that_was_lost_stops(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_runs, "CHUNK_ROWS", 1)
    with begun(database_url, lease=1) as staging, staging.attempt() as sink:
        staging.discard()
        with pytest.raises(LoadLostError):
            for _ in range(2):
                sink.write(batch(rows(1)))


def test_a_load_that_was_discarded_can_be_begun_again(store: SqlDelayedMessageStore, database_url: str) -> None:
    staging = staging_of(database_url)
    staging.discard()
    staging.begin(LoadKey("one"))
    staged(staging, rows(2))
    staging.discard()
    staging.discard()
    assert tables(database_url) == ["sales_delayed_loads"]
    assert list_loads(options(database_url)) == []
    assert load(database_url, "one", rows(3)).stored == 3


@pytest.mark.long_runs("partitions", "mariadb", "sqlite")
def test_two_loads_at_once_end_well(store: SqlDelayedMessageStore, database_url: str) -> None:
    with begun(database_url, "one") as one, begun(database_url, "two") as two, ThreadPoolExecutor() as pool:
        shared = rows(400)
        first = staged(one, shared, rows(100, "one"))
        second = staged(two, rows(100, "two"), shared[::-1])
        finishing = [pool.submit(s.promote, [a], OnDuplicate.IGNORE) for s, a in [(one, first), (two, second)]]
        done = [future.result(timeout=120) for future in finishing]
    assert sum(load.stored for load in done) == 600
    assert sum(load.skipped for load in done) == 400
    assert store.count() == 600


def test_a_promotion_that_met_a_deadlock_is_done_again(postgresql: PostgreSQLDatabases, postgresql_url: str) -> None:
    """PostgreSQL ends the one that looks for a deadlock first, which has to be the promotion."""
    database = make_url(postgresql_url)

    def look_for_deadlocks_after(seconds: int) -> None:
        """Of sessions that begin from now on."""
        admin = make_url(postgresql.admin_url).set(drivername="postgresql", database=database.database)
        with psycopg.connect(admin.render_as_string(hide_password=False), autocommit=True) as connection:
            role = f'"{database.username}" IN DATABASE "{database.database}"'
            connection.execute(f"ALTER ROLE {role} SET deadlock_timeout = '{seconds}s'".encode())

    look_for_deadlocks_after(60)
    with opened(postgresql_url) as store, store.transaction() as other, ThreadPoolExecutor() as pool:
        other.store(rows(3)[2])
        look_for_deadlocks_after(2)
        with begun(postgresql_url) as staging:
            attempts = [staged(staging, rows(3))]
            promoting = pool.submit(staging.promote, attempts, OnDuplicate.ERROR)
            waiting = text("SELECT count(*) FROM pg_locks WHERE NOT granted")
            wait_until(lambda: other.connection.execute(waiting).scalar() == 1)
            with pytest.raises(DuplicateMessageError):  # waits for the promotion, which then finds the deadlock
                other.store(rows(3)[0])
                other.store(rows(3)[2])
            other.connection.rollback()
            assert promoting.result(timeout=60).stored == 3
        assert store.count() == 3


@pytest.mark.long_runs("partitions", "mariadb", "sqlite")
def test_batches_of_a_stream_are_loaded_once_each(store: SqlDelayedMessageStore, database_url: str) -> None:
    for number in (0, 1, 5):
        key, messages = LoadKey("query", number), rows(4, f"batch-{number}")
        tasks = [staging_of(database_url) for _ in range(2)]
        attempts = []
        for staging, part in zip(tasks, (messages[:2], messages[2:]), strict=True):
            assert staging.join(key) is None
            attempts.append(staged(staging, part))
        straggler = staging_of(database_url)
        straggler.join(key)
        staged(straggler, messages)
        driver = staging_of(database_url)
        assert driver.join(key) is None
        finished = driver.promote(attempts, OnDuplicate.ERROR)
        assert (finished.key, finished.stored) == (key, 4)
        for earlier in (key, LoadKey("query", 0)):
            assert staging_of(database_url).join(earlier) == finished
        assert driver.promote(attempts, OnDuplicate.ERROR) == finished
    assert store.count() == 12
    (name,) = set(tables(database_url)) - {"sales_delayed_loads"}
    with store.engine.connect() as connection:
        assert connection.execute(text(f"SELECT count(*) FROM {name}")).scalar() == 0


def test_a_stream_goes_on_after_its_staging_was_removed(store: SqlDelayedMessageStore, database_url: str) -> None:
    first = staging_of(database_url)
    first.join(LoadKey("query", 0))
    first.promote([staged(first, rows(2))], OnDuplicate.ERROR)
    end_lease(database_url)
    assert len(cleanup(options(database_url)).tables) == 1
    (found,) = list_loads(options(database_url))
    assert found.state is LoadState.FINISHED
    again = staging_of(database_url)
    assert again.join(LoadKey("query", 0)) is not None
    assert again.join(LoadKey("query", 1)) is None
    assert again.promote([staged(again, rows(2, "n"))], OnDuplicate.ERROR).stored == 2
    assert store.count() == 4
    assert [status.began for status in list_loads(options(database_url))] == [found.began]


@pytest.mark.long_runs("partitions", "mariadb", "sqlite")
def test_tasks_join_at_once(store: SqlDelayedMessageStore, database_url: str) -> None:
    load(database_url, "zero", [])
    together = threading.Barrier(4)

    def task(query: str, number: int) -> StagedAttempt:
        staging = staging_of(database_url)
        together.wait()
        assert staging.join(LoadKey(query, 0)) is None
        return staged(staging, rows(5, f"{query}-{number}"))

    with ThreadPoolExecutor(4) as pool:
        for query in ("a", "b", "c", "d"):
            attempts = list(pool.map(task, [query] * 4, range(4)))
            driver = staging_of(database_url)
            driver.join(LoadKey(query, 0))
            assert driver.promote(attempts, OnDuplicate.ERROR).stored == 20


def test_a_load_and_a_stream_cannot_share_an_id(database_url: str) -> None:
    load(database_url, "one", rows(1))
    with pytest.raises(ConfigurationError, match="'one' belongs to a load; choose another"):
        staging_of(database_url).join(LoadKey("one", 3))


@pytest.mark.long
@pytest.mark.parametrize("stride", [3, pytest.param(1, marks=pytest.mark.soak)])
def test_a_load_killed_anywhere_is_done_once_when_run_again(
    store: SqlDelayedMessageStore, database_url: str, stride: int
) -> None:
    script = [sys.executable, "-m", "tests.integration.loading_process", database_url, "2", str(stride)]
    died = int(subprocess.run(script, check=True, capture_output=True, text=True, timeout=250).stdout)
    assert died * stride > 20
    assert store.count() == 30 * (died + 1)
    cleanup(options(database_url))
    assert tables(database_url) == ["sales_delayed_loads"]
    assert {status.state for status in list_loads(options(database_url))} == {LoadState.FINISHED}


WITHOUT_PARTITIONS = "CREATE PUBLICATION a FOR TABLE sales_delayed"
"""So rows are staged in a table without a write-ahead log."""


def test_a_crash_of_the_database_costs_no_staged_rows_where_there_may_be_partitions(
    private_postgresql: PostgreSQL,
) -> None:
    url = private_postgresql.create_database()
    with begun(url) as staging:
        attempts = [staged(staging, rows(100))]
        private_postgresql.kill()
        with pytest.raises(StoreUnavailableError):
            staging.promote(attempts, OnDuplicate.ERROR)
        private_postgresql.start()
        assert staging.promote(attempts, OnDuplicate.ERROR).stored == 100
    with opened(url) as store:
        assert store.count() == 100


def test_a_crash_of_the_database_is_noticed(private_postgresql: PostgreSQL) -> None:
    url = private_postgresql.create_database()
    with opened(url):
        execute(url, WITHOUT_PARTITIONS)
    with begun(url) as staging:
        attempts = [staged(staging, rows(100))]
        private_postgresql.kill()
        with pytest.raises(StoreUnavailableError):
            staging.promote(attempts, OnDuplicate.ERROR)
        private_postgresql.start()
        with pytest.raises(LoadLostError, match="0 rows of the load 'one' are left where 100 were staged"):
            staging.promote(attempts, OnDuplicate.ERROR)
    finished = load(url, "one", rows(100))
    private_postgresql.kill()
    private_postgresql.start()
    assert load(url, "one", rows(100)) == finished
    with opened(url) as store:
        assert store.count() == 100


@pytest.mark.long_runs("inserted")
@pytest.mark.parametrize("partitions", [False, True], ids=["inserted", "partition"])
def test_the_outage_that_cost_staged_rows_is_told(
    start_server: Callable[[Callable[[], Any]], Any], monkeypatch: pytest.MonkeyPatch, partitions: bool
) -> None:
    """End the database as a full disk does; it comes back without the staged rows.

    Where there may be partitions, staged rows have a write-ahead log, and all of them come back.
    """
    if partitions:
        monkeypatch.setattr(
            SqlDelayedMessageStore, "partition_limits", PartitionLimits(fewest_rows=1, smallest_table=0)
        )
    with ExitStack() as stack:
        try:
            disk = stack.enter_context(SmallDisk(megabytes=120))
        except ServerMissingError as error:
            pytest.skip(str(error))
        server: PostgreSQL = start_server(lambda: PostgreSQL({"min_wal_size": "32MB"}, place=disk.path))

        def recover() -> None:
            server.kill()
            disk.free()
            server.start()

        url = server.create_database()
        if not partitions:
            with opened(url):
                execute(url, WITHOUT_PARTITIONS)
        with begun(url) as staging:
            reports = [AttemptReport(staged(staging, rows(3000, body=os.urandom(10_000))))]
            disk.fill()
            recovering = Recovering(staging, recover)
            if partitions:
                assert promote(reports, cast(Staging, recovering), None, OnDuplicate.ERROR).stored == 3000
                return
            with pytest.raises(LoadLostError, match=r"0 rows .* failed before with: .*No space left on device"):
                promote(reports, cast(Staging, recovering), None, OnDuplicate.ERROR)


class Recovering:
    """A staging whose database comes back after its first outage."""

    def __init__(self, staging: Staging, recover: Callable[[], None]) -> None:
        self._staging, self._recover = staging, recover

    def promote(self, *arguments: Any) -> FinishedLoad:
        try:
            return self._staging.promote(*arguments)
        except StoreUnavailableError:
            self._recover()
            raise

    @property
    def after_failure(self) -> str:
        return self._staging.after_failure


@pytest.mark.long
def test_an_attempt_that_still_writes_keeps_nobody_waiting(postgresql_url: str) -> None:
    with opened(postgresql_url) as store, begun(postgresql_url) as staging, store.engine.connect() as zombie:
        (name,) = set(tables(postgresql_url)) - {"sales_delayed_loads"}
        zombie.execute(text(f"LOCK TABLE {name} IN ROW EXCLUSIVE MODE"))
        assert staging.promote([staged(staging, rows(3))], OnDuplicate.ERROR).stored == 3
        assert store.count() == 3
        assert cleanup(options(postgresql_url)).in_use == (name,)
        zombie.rollback()
        assert cleanup(options(postgresql_url)).tables == (name,)


@pytest.mark.long
def test_patience_for_a_table_in_use_is_as_before(mariadb_url: str) -> None:
    own = make_url(mariadb_url).update_query_dict({"init_command": "SET lock_wait_timeout=777"})
    store_options = options(own.render_as_string(hide_password=False))
    patience = text("SELECT @@SESSION.lock_wait_timeout")
    with opened(mariadb_url), begun(mariadb_url), load_database(store_options) as database:
        (name,) = database.staging_names()
        with database.reading() as zombie:
            zombie.execute(text(f"SELECT * FROM {name}"))
            assert not database.drop(name)
            assert not database.empty(name)
        with database.reading() as one, database.reading() as other:
            assert {one.execute(patience).scalar(), other.execute(patience).scalar()} == {777}
        assert database.empty(name)
        assert database.drop(name)
        with database.reading() as one, database.reading() as other:
            assert {one.execute(patience).scalar(), other.execute(patience).scalar()} == {777}


def test_dispatchers_are_woken_when_something_is_due_soon(postgresql_url: str) -> None:
    with opened(postgresql_url) as store:
        heard: list[datetime | None] = []
        woken = threading.Event()

        def wake(at: datetime | None) -> None:
            heard.append(at)
            if at is not None:
                woken.set()

        subscription = store.subscribe(wake)
        assert subscription is not None
        wait_until(lambda: subscription.alive)
        soon = message(store.now(), 20, "soon")
        load(postgresql_url, "later", rows(3))
        load(postgresql_url, "soon", [*rows(3, "n"), soon])
        assert woken.wait(30)
        subscription.close()
        assert [at for at in heard if at] == [soon.due_time]


def test_a_promotion_wakes_within_its_transaction_only(postgresql_url: str) -> None:
    with opened(postgresql_url) as store:
        soon = message(store.now(), 20, "soon")
        store.store(soon)
        with pytest.raises(DuplicateMessageError):
            load(postgresql_url, "one", [soon])
        assert store.count() == 1


@pytest.mark.parametrize(
    ("fixture", "query"),
    [
        ("postgresql_url", {"options": "-c TimeZone=Asia/Kathmandu"}),
        ("mariadb_url", {"init_command": "SET time_zone='+05:45', sql_mode='ANSI_QUOTES,NO_BACKSLASH_ESCAPES'"}),
    ],
    ids=["postgresql", "mariadb"],
)
def test_settings_of_the_session_change_nothing(
    request: pytest.FixtureRequest, fixture: str, query: dict[str, str]
) -> None:
    plain = request.getfixturevalue(fixture)
    url = make_url(plain).update_query_dict(query).render_as_string(hide_password=False)
    load(url, "one", ODD)
    with opened(plain) as store:
        assert everything(store) == {message.message_id: message for message in ODD}
    (status,) = list_loads(options(url))
    assert abs(datetime.now(UTC) - status.began) < timedelta(minutes=10)


@pytest.mark.parametrize("name", ["x" * 50, "50%s %(x)s :colon 'é\"`"])
def test_tables_of_any_name_can_be_loaded(database_url: str, name: str) -> None:
    with opened(database_url, table=name) as store:
        load(database_url, "one", rows(3), table=name)
        assert store.count() == 3
        staging_of(database_url, DEAD, table=name).begin(LoadKey("dead"))
        assert len(tables(database_url)) == 4
        store.remove_infrastructure()
        assert tables(database_url) == []


def test_limits_for_other_work_do_not_stop_a_load(postgresql_url: str) -> None:
    impatient = make_url(postgresql_url).update_query_dict({"options": "-c statement_timeout=300 -c lock_timeout=300"})
    url = impatient.render_as_string(hide_password=False)
    with opened(postgresql_url) as store, ThreadPoolExecutor() as pool:
        store.store(row("m-00001", body=b"first"))
        with store.transaction() as dispatcher:
            dispatcher.fetch_due(DUE, 1)
            replacing = pool.submit(load, url, "one", rows(3), OnDuplicate.REPLACE)
            with pytest.raises(TimeoutError):
                replacing.result(timeout=2)
        assert replacing.result(timeout=60).stored == 3


def test_a_right_that_is_missing_is_named(postgresql: PostgreSQLDatabases, postgresql_url: str) -> None:
    with opened(postgresql_url):
        role = f"reader_{secrets.token_hex(4)}"
        url = postgresql.create_role(role, "a-word", postgresql_url)
        with pytest.raises(StorePermissionError, match="does not allow it"):
            staging_of(url).begin(LoadKey("one"))


def test_stagings_are_removed_even_without_a_registry(store: SqlDelayedMessageStore, database_url: str) -> None:
    with begun(database_url):
        with store.engine.begin() as connection:
            connection.execute(text("DROP TABLE sales_delayed_loads"))
        assert len(cleanup(options(database_url)).tables) == 1
    assert tables(database_url) == []


def test_a_schema_can_be_named(postgresql_url: str) -> None:
    with connected(postgresql_url) as connection:
        connection.execute(text("CREATE SCHEMA apart"))
    with opened(postgresql_url, schema="apart") as store:
        load(postgresql_url, "one", rows(3), schema="apart")
        assert store.count() == 3


def test_autogenerate_leaves_loads_alone(store: SqlDelayedMessageStore, database_url: str) -> None:
    with begun(database_url), store.engine.connect() as connection:
        assert len(tables(database_url)) == 2
        spared = MigrationContext.configure(connection, opts={"include_object": leave_delaystore_alone("sales")})
        assert compare_metadata(spared, MetaData()) == []


def test_removing_the_store_removes_its_loads(store: SqlDelayedMessageStore, database_url: str) -> None:
    load(database_url, "one", rows(3))
    staging_of(database_url, DEAD).begin(LoadKey("dead"))
    store.remove_infrastructure()
    assert tables(database_url) == []
    assert load(database_url, "one", rows(3)).stored == 3


def test_a_password_is_shown_to_nobody(postgresql_url: str) -> None:
    url = "postgresql+psycopg://app:hidden-word@127.0.0.1:9/app"
    staging = staging_of(url)
    assert "hidden-word" not in repr(staging)
    with pytest.raises(StoreUnavailableError) as caught:
        staging.begin(LoadKey("one"))
    assert "hidden-word" not in str(caught.value)


def test_a_path_is_the_same_for_tasks_elsewhere(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path_factory.mktemp("driver"))
    staging = staging_of("sqlite:///app.db")
    staging.begin(LoadKey("one"))
    monkeypatch.chdir(tmp_path_factory.mktemp("task"))
    assert staging.promote([staged(staging, rows(2))], OnDuplicate.ERROR).stored == 2


def test_a_store_in_memory_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="Spark's tasks are other processes; use a database"):
        staging_of("memory://")


def test_a_killed_attempt_leaves_rows_that_are_never_promoted(store: SqlDelayedMessageStore, database_url: str) -> None:
    with begun(database_url) as staging:
        child = os.fork()
        if not child:
            with staging.attempt() as sink:
                sink.write(batch(rows(5)))
                sink.finish()
                os.kill(os.getpid(), signal.SIGKILL)
        os.waitpid(child, 0)
        assert staging.promote([staged(staging, rows(5))], OnDuplicate.ERROR).stored == 5
    assert store.count() == 5
