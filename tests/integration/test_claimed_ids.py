"""Sending under the id of a message that a dispatcher has, in a transaction of the caller's."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from threading import Barrier
from typing import Any

import pytest
from sqlalchemy import create_engine, event, insert

from delaystore.delivery import DelayedDelivery
from delaystore.errors import DuplicateMessageError, MessageBeingDispatchedError, StoreError
from delaystore.message import DelayedMessage, waiting_at_most
from delaystore.stores import SqlDelayedMessageStore
from delaystore.stores.sql.dialects import store_dialect_of
from delaystore.stores.sql.rows import to_row
from tests.integration.sql_stores import message, opened, set_snapshot_isolation

AWHILE = 0.5
DEADLINE = 60


@pytest.fixture
def stores(request: pytest.FixtureRequest) -> Iterator[tuple[str, SqlDelayedMessageStore, SqlDelayedMessageStore]]:
    """A database's URL, and two stores there."""
    url: str = request.getfixturevalue(f"{request.param}_url")
    with opened(url) as store, opened(url) as other:
        yield url, store, other


def send(url: str, store: SqlDelayedMessageStore, isolation: str | None) -> str:
    """Enlisted, once what is not in the way is sent; what was raised, and then what was done in the transaction."""
    engine = create_engine(url, **({} if isolation is None else {"isolation_level": isolation}))
    set_snapshot_isolation(engine, "OFF")  # or the send may fail with a conflict, and is to be repeated: see test_keys
    try:
        with engine.begin() as connection:
            enlisted = DelayedDelivery("sales", store).enlist(connection)
            enlisted.send("q", b"", delay=60, message_id="before")
            try:
                enlisted.send("q", b"again", delay=60, message_id="a")
                said = "stored"
            except (DuplicateMessageError, MessageBeingDispatchedError) as error:
                said = type(error).__name__
            enlisted.send("q", b"", delay=60, message_id="after")
    finally:
        engine.dispose()
    return said


@pytest.mark.parametrize("stores", ["postgresql", "mariadb"], indirect=True)
@pytest.mark.parametrize("isolation", [None, "REPEATABLE READ"])
def test_an_enlisted_send_waits_for_the_dispatcher(
    stores: tuple[str, SqlDelayedMessageStore, SqlDelayedMessageStore], isolation: str | None
) -> None:
    url, store, other = stores
    store.store(message(store.now(), message_id="a"))
    with ThreadPoolExecutor(1) as pool:
        with other.transaction() as dispatcher:
            (claimed,) = dispatcher.fetch_due(other.now(), 1)
            sent = pool.submit(send, url, store, isolation)
            with pytest.raises(TimeoutError):
                sent.result(AWHILE)
            assert dispatcher.remove(claimed)
        assert sent.result(DEADLINE) == "stored"
    assert sorted(each.message_id for each in store.list().messages) == ["a", "after", "before"]


@pytest.mark.long_runs("mariadb")
@pytest.mark.parametrize("stores", ["postgresql", "mariadb", "sqlite"], indirect=True)
def test_an_enlisted_send_tells_what_stays_claimed_from_what_waits(
    stores: tuple[str, SqlDelayedMessageStore, SqlDelayedMessageStore],
) -> None:
    url, store, other = stores
    store.store(message(store.now(), message_id="a"))
    with other.transaction() as dispatcher:
        (claimed,) = dispatcher.fetch_due(other.now(), 1)
        assert send(url, store, None) == "MessageBeingDispatchedError"
        for name in ("before", "after"):
            store.cancel(name)
        assert dispatcher.increment_failure_count(claimed)
    assert send(url, store, None) == "DuplicateMessageError"
    with other.transaction() as dispatcher:  # the sender has left no lock
        assert len(dispatcher.fetch_due(other.now(), 10)) == 1


@pytest.mark.long
def test_a_send_gives_up_after_a_few_seconds(mariadb_url: str) -> None:
    """MySQL's own limit for a lock is 50 s."""
    with opened(mariadb_url) as store, opened(mariadb_url) as other:
        store.store(message(store.now(), message_id="a"))
        with other.transaction() as dispatcher:
            assert dispatcher.fetch_due(other.now(), 1)
            began = time.monotonic()
            with pytest.raises(MessageBeingDispatchedError):
                store.store(message(store.now(), message_id="a"))
            assert time.monotonic() - began < 30


@pytest.mark.long
def test_only_claimed_ids_are_told_to_be_dispatched(mariadb_url: str) -> None:
    with opened(mariadb_url) as store, opened(mariadb_url) as other:
        names = [f"{number:02}" for number in range(12)]
        store.store_many(message(store.now(), message_id=name) for name in names)
        store.store(message(store.now(), 3600, "waits"))
        with other.transaction() as dispatcher:
            assert len(dispatcher.fetch_due(other.now(), 20)) == 12
            with pytest.raises(MessageBeingDispatchedError) as refused:
                store.store_many(message(store.now(), message_id=name) for name in ["new", *names])
            assert sorted(refused.value.message_ids) == names
            with pytest.raises(DuplicateMessageError) as duplicate:
                store.store_many(message(store.now(), message_id=name) for name in [*names, "waits"])
            assert duplicate.value.message_ids == ("waits",)


def test_limits_of_a_callers_sessions_stay_as_the_caller_sets_them(mariadb_url: str) -> None:
    """Between two calls of the store, on an Engine of the caller's own."""
    engine = create_engine(mariadb_url, pool_size=1, max_overflow=0)
    limits = "@@SESSION.innodb_lock_wait_timeout, @@SESSION.lock_wait_timeout"
    with opened(engine) as store:
        for rows, tables in [(20, 30), (1, 2)]:
            with engine.connect() as connection:
                connection.exec_driver_sql(
                    f"SET SESSION innodb_lock_wait_timeout = {rows}, SESSION lock_wait_timeout = {tables}"
                )
            store.store(message(store.now(), 60, key=f"key {rows}"))
            store.store_many([message(store.now(), 60)])
            store.store(message(store.now(), 60))
            with engine.connect() as connection:
                assert tuple(connection.exec_driver_sql(f"SELECT {limits}").one()) == (rows, tables)
                with store_dialect_of(engine).lock_wait(connection, 5):
                    assert tuple(connection.exec_driver_sql(f"SELECT {limits}").one()) == (min(rows, 5), min(tables, 5))
    engine.dispose()


def test_a_callers_transaction_that_met_a_duplicate_keeps_nobody_from_its_neighbours(mariadb_url: str) -> None:
    """Under REPEATABLE READ, where locks may reach beyond rows."""
    engine = create_engine(mariadb_url, isolation_level="REPEATABLE READ")
    with opened(mariadb_url) as store:
        due = store.now() + timedelta(hours=1)
        store.store_many(message(due, message_id=f"m{number}") for number in range(0, 8, 2))
        with engine.begin() as connection, store.engine.connect() as other:
            enlisted = store.enlist(connection)
            for refused in (["m2"], ["m4", "m5"]):
                with pytest.raises(DuplicateMessageError):
                    enlisted.store_many(message(due, message_id=name) for name in refused)
            with pytest.raises(DuplicateMessageError):
                enlisted.store(message(due, message_id="m4"))
            with store_dialect_of(engine).lock_wait(other, 1):
                for number in (1, 3, 5, 7):
                    other.execute(insert(store.table), to_row(message(due, message_id=f"m{number}")))
    engine.dispose()


def test_a_callers_transaction_marks_duplicates_beside_a_claimed_message(mariadb_url: str) -> None:
    """Under REPEATABLE READ, where an UPDATE that scans a small table waits for each of its rows."""
    engine = create_engine(mariadb_url, isolation_level="REPEATABLE READ")
    names = ["m1", "m2", "m3"]
    with opened(mariadb_url) as store, opened(mariadb_url) as other:
        due = store.now() + timedelta(hours=1)
        store.store_many(message(due, message_id=name) for name in names)
        store.store(message(store.now(), message_id="m0"))
        with other.transaction() as dispatcher, engine.begin() as connection:
            assert [claimed.message_id for claimed in dispatcher.fetch_due(other.now(), 1)] == ["m0"]
            connection.exec_driver_sql("SET SESSION innodb_lock_wait_timeout = 1")
            assert set(store.enlist(connection).get_unclaimed(names)) == set(names)
    engine.dispose()


@pytest.mark.long
def test_an_insert_goes_by_a_shorter_limit_of_the_callers(mariadb_url: str) -> None:
    engine = create_engine(mariadb_url)
    with opened(mariadb_url) as store, opened(mariadb_url) as other:
        store.store(message(store.now(), message_id="a"))
        tries: list[str] = []

        @event.listens_for(engine, "before_cursor_execute")
        def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
            if "INSERT INTO" in statement:
                tries.append(statement)

        with other.transaction() as dispatcher, engine.begin() as connection:
            assert dispatcher.fetch_due(other.now(), 1)
            connection.exec_driver_sql("SET SESSION innodb_lock_wait_timeout = 1")
            with pytest.raises(MessageBeingDispatchedError):
                store.enlist(connection).store(message(store.now(), message_id="a"))
            assert connection.exec_driver_sql("SELECT @@SESSION.innodb_lock_wait_timeout").scalar() == 1
        assert len(tries) > 1  # one that waits for 5 s uses up all patience
    engine.dispose()


@pytest.mark.parametrize("stores", ["postgresql", "mariadb", "sqlite"], indirect=True)
def test_storing_waits_for_a_dispatcher_no_longer_than_its_caller_allows(
    stores: tuple[str, SqlDelayedMessageStore, SqlDelayedMessageStore],
) -> None:
    _, store, other = stores
    now = store.now()
    store.store(message(now, message_id="a"))
    with other.transaction() as dispatcher:
        assert dispatcher.fetch_due(other.now(), 1)
        began = time.monotonic()
        with waiting_at_most(0.2), pytest.raises(MessageBeingDispatchedError):
            store.store_many([message(now, message_id=name) for name in ("b", "a")])
        assert time.monotonic() - began < 3, "MariaDB's shortest wait is a second"


@pytest.mark.parametrize("stores", ["postgresql", "mariadb"], indirect=True)
def test_what_a_transaction_relies_on_is_locked_until_that_ends(
    stores: tuple[str, SqlDelayedMessageStore, SqlDelayedMessageStore],
) -> None:
    url, store, other = stores
    repeated = message(store.now(), message_id="a")
    store.store(repeated)
    engine = create_engine(url)
    with ThreadPoolExecutor(1) as pool:
        with engine.begin() as connection:
            enlisted = store.enlist(connection)
            for _ in range(2):
                with pytest.raises(DuplicateMessageError):
                    enlisted.store(repeated)
            with other.transaction() as dispatcher:
                assert not dispatcher.fetch_due(other.now(), 1)
            sent = pool.submit(other.store, repeated)
            with pytest.raises(TimeoutError):
                sent.result(AWHILE)
        with pytest.raises(DuplicateMessageError):
            sent.result(DEADLINE)
    engine.dispose()
    with other.transaction() as dispatcher:
        (found,) = dispatcher.fetch_due(other.now(), 1)
    assert found.due_time == repeated.due_time - 3 * timedelta.resolution


@pytest.mark.parametrize("stores", ["postgresql", "mariadb"], indirect=True)
def test_two_transactions_that_rely_on_the_same_messages_in_another_order_both_end(
    stores: tuple[str, SqlDelayedMessageStore, SqlDelayedMessageStore],
) -> None:
    """One of them may hear that a message is in use; neither waits for ever, and nothing is lost."""
    url, store, _ = stores
    messages = [message(store.now(), message_id=name) for name in ("a", "b")]
    store.store_many(messages)
    barrier = Barrier(2)

    def rely(order: list[DelayedMessage]) -> list[str]:
        heard = []
        engine = create_engine(url)
        with suppress(StoreError), engine.begin() as connection:
            enlisted = store.enlist(connection)
            for each in order:
                try:
                    enlisted.store(each)
                except DuplicateMessageError:
                    heard.append(each.message_id)
                if each is order[0]:
                    barrier.wait(DEADLINE)
        engine.dispose()
        return heard

    with ThreadPoolExecutor(2) as pool:
        heard = [pool.submit(rely, order) for order in (messages, messages[::-1])]
        assert all(each.result(DEADLINE) for each in heard)
    assert store.count() == 2
