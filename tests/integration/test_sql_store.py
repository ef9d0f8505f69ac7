"""What the SQL store does beyond the contract: neighbours, other people's transactions, wake-ups, the scan mark."""

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import create_engine, event, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from delaystore.errors import ConfigurationError, DuplicateMessageError, StoreUnavailableError
from delaystore.message import UnreadableMessage
from delaystore.settings import TransactionMode
from delaystore.stores import SqlDelayedMessageStore
from delaystore.stores.abc import ManagementOutcome
from tests.dispatching import wait_until
from tests.integration.sql_stores import message, opened
from tests.servers import PostgreSQL


def test_a_batch_in_flight_blocks_none_of_its_neighbours(
    store: SqlDelayedMessageStore, other: SqlDelayedMessageStore
) -> None:
    now = store.now()
    due, neighbour, later = message(now, -1), message(now, 1), message(now, 2)
    store.store_many([due, neighbour, later])
    with store.transaction() as transaction:
        assert transaction.fetch_due(now, 10) == [due]
        assert other.cancel(neighbour.message_id) is ManagementOutcome.DONE
        assert other.reschedule(later.message_id, now + timedelta(hours=1)) is ManagementOutcome.DONE
        other.store(message(now, -2))
        assert other.cancel(due.message_id) is ManagementOutcome.BEING_DISPATCHED
        assert other.reschedule(due.message_id, now) is ManagementOutcome.BEING_DISPATCHED
        transaction.remove(due)
    assert other.count() == 2


def test_two_batches_settle_side_by_side(store: SqlDelayedMessageStore, other: SqlDelayedMessageStore) -> None:
    """Small tables tempt an optimizer to scan, and a scan would wait for the other's locks."""
    now = store.now()
    store.store_many([message(now, -10 + i) for i in range(6)])
    with store.transaction() as one, other.transaction() as two:
        first, second = one.fetch_due(now, 3), two.fetch_due(now, 3)
        assert len({m.message_id for m in [*first, *second]}) == 6
        assert two.remove_many(second[:2]) == 2
        assert two.increment_failure_counts([(second[2], now)]) == 1
        if store.engine.dialect.name != "sqlite":  # there two writers cannot, and need not, write at once
            assert one.remove_many(first) == 3
    if store.engine.dialect.name != "sqlite":
        assert store.count() == 1


@pytest.mark.parametrize("limit", [1, 3, 10])
def test_a_fetch_passes_over_what_others_hold(
    store: SqlDelayedMessageStore, other: SqlDelayedMessageStore, limit: int
) -> None:
    now = store.now()
    store.store_many([message(now, -60 + i, f"{i:02}") for i in range(20)])
    with store.transaction() as one, other.transaction() as two:
        held = one.fetch_due(now, 7)
        found = two.fetch_due(now, limit)
        assert [m.message_id for m in held] == [f"{i:02}" for i in range(7)]
        assert [m.message_id for m in found] == [f"{i:02}" for i in range(7, 7 + limit)]


def test_a_duplicate_leaves_the_callers_transaction_alive(store: SqlDelayedMessageStore) -> None:
    first = message(store.now(), 60)
    store.store(first)
    with Session(store.engine) as session, session.begin():
        enlisted = store.enlist(session)
        with pytest.raises(DuplicateMessageError):
            enlisted.store(first)
        with pytest.raises(DuplicateMessageError):
            enlisted.store_many([message(store.now(), 5), first])
        enlisted.store(message(store.now(), 60))
    assert store.count() == 2


@pytest.mark.parametrize("many", [False, True])
def test_a_message_is_sent_with_the_business_transaction_or_not_at_all(
    store: SqlDelayedMessageStore, many: bool
) -> None:
    with store.engine.begin() as connection:
        connection.execute(text("CREATE TABLE orders (id INTEGER)"))

    def order(session: Session) -> None:
        session.execute(text("INSERT INTO orders VALUES (1)"))
        enlisted, now = store.enlist(session), store.now()
        if many:
            enlisted.store_many([message(now, 60)])
        else:
            enlisted.store(message(now, 60))

    with Session(store.engine) as session:
        order(session)
        session.rollback()
    assert store.count() == 0
    with Session(store.engine) as session, session.begin():
        order(session)
    assert store.count() == 1
    with store.engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM orders")).scalar() == 1


def test_the_commit_is_told_once_and_a_rollback_of_a_savepoint_is_not_one(store: SqlDelayedMessageStore) -> None:
    told: list[int] = []
    with Session(store.engine) as session:
        with session.begin():
            enlisted = store.enlist(session, on_end=lambda: told.append(store.count()))
            enlisted.store(message(store.now(), 60))
            enlisted.store(message(store.now(), 60))
            with session.begin_nested():
                pass
            assert told == []
        assert told == [2]
        with session.begin():
            session.execute(text("SELECT 1"))
    assert told == [2]


def test_enlisting_in_a_plain_connection(store: SqlDelayedMessageStore) -> None:
    with store.engine.connect() as connection:
        store.enlist(connection).store(message(store.now(), 60))
        connection.rollback()
        store.enlist(connection).store(message(store.now(), 60))
        connection.commit()
    assert store.count() == 1


def test_enlisting_in_something_else_is_refused(store: SqlDelayedMessageStore) -> None:
    with pytest.raises(ConfigurationError, match=r"enlist takes a Connection or Session .* not Engine"):
        store.enlist(store.engine)


def test_enlisting_in_an_async_session(postgresql_url: str) -> None:
    with opened(postgresql_url) as store:

        async def send() -> None:
            engine = create_async_engine(postgresql_url)
            async with AsyncSession(engine) as session, session.begin():
                await session.run_sync(lambda sync: store.enlist(sync).store(message(store.now(), 60)))
            await engine.dispose(close=True)

        asyncio.run(send())
        assert store.count() == 1


def test_claims_inside_somebody_elses_transaction(store: SqlDelayedMessageStore, other: SqlDelayedMessageStore) -> None:
    now = store.now()
    store.store(message(now, -1))
    with Session(store.engine) as session:
        enlisted = store.enlist(session)
        (claimed,) = enlisted.fetch_due(now, 5)
        enlisted.remove(claimed)
        session.rollback()
    assert [m.message_id for m in other.fetch_due(now, 5)] == [claimed.message_id]


@pytest.mark.parametrize("zone", ["UTC", "Australia/Lord_Howe", "America/St_Johns"])
def test_any_session_time_zone_gives_the_same_instants(postgresql_url: str, zone: str) -> None:
    instants = [datetime(2027, 4, 3, 15, 0, 0, 1, UTC), datetime(9999, 12, 29, 23, 59, tzinfo=UTC)]
    with opened(f"{postgresql_url}?options=-c%20timezone%3D{zone}") as store:
        store.store_many([message(instant, 0, str(instant)) for instant in instants])
        store.reschedule(str(instants[0]), instants[0])
        assert [m.due_time for m in store.list().messages] == instants
        assert abs(store.now() - datetime.now(UTC)) < timedelta(minutes=1)
        assert list(store.count_by_due_time(timedelta(days=1))) == [
            instant.replace(hour=0, minute=0, microsecond=0) for instant in instants
        ]


def test_an_engine_of_ones_own_stays_open_and_its_isolation_level_does_not_matter(
    mariadb_url: str, postgresql_url: str
) -> None:
    for url in (mariadb_url, postgresql_url):
        engine = create_engine(url, isolation_level="SERIALIZABLE")
        store = SqlDelayedMessageStore(engine)
        store.initialize("sales", TransactionMode.NONE)
        store.setup_infrastructure()
        now = store.now()
        store.store(message(now, -1))
        with store.transaction() as transaction:
            assert len(transaction.fetch_due(now, 5)) == 1
            store.store(message(now, -1))
        store.close()
        with engine.connect() as connection:
            assert connection.execute(text("SELECT 1")).scalar() == 1
            assert connection.get_isolation_level() == "SERIALIZABLE"
        engine.dispose()


def test_a_row_that_cannot_be_decoded_harms_itself_alone(store: SqlDelayedMessageStore) -> None:
    now = store.now()
    store.store_many([message(now, -3, "a"), message(now, -2, "bad"), message(now, -1, "c")])
    with store.engine.begin() as connection:
        bad = b"bad" if store.engine.dialect.name in ("mysql", "mariadb") else "bad"
        connection.execute(text("UPDATE sales_delayed SET headers = '{nonsense' WHERE message_id = :id"), {"id": bad})
    with store.transaction() as transaction:
        first, unreadable, last = transaction.fetch_due(now, 10)
        assert (first.message_id, last.message_id) == ("a", "c")
        assert isinstance(unreadable, UnreadableMessage)
        assert unreadable.headers["delaystore.raw-headers"] == "{nonsense"
        assert "cannot be decoded" in unreadable.reason
        assert transaction.remove(unreadable)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("destination", "d" * 300),
        ("destination", ""),
        ("destination", "a\nb"),
        ("headers", "[1]"),
        ("headers", '{"a":{"$bytes":"*"}}'),
        ("properties", '{"colour":"red"}'),
        ("failure_count", -1),
    ],
)
def test_any_row_that_is_no_message_is_unreadable_alone(store: SqlDelayedMessageStore, column: str, value: Any) -> None:
    now = store.now()
    store.store_many([message(now, -2), message(now, -1)])
    with store.engine.begin() as connection:
        first = "(SELECT message_id FROM (SELECT min(message_id) AS message_id FROM sales_delayed) AS ids)"
        connection.execute(
            text(f"UPDATE sales_delayed SET {column} = :value WHERE message_id = {first}"), {"value": value}
        )
    assert sum(isinstance(m, UnreadableMessage) for m in store.list().messages) == 1
    with store.transaction() as transaction:
        batch = transaction.fetch_due(now, 10)
        assert sum(isinstance(m, UnreadableMessage) for m in batch) == 1
        assert transaction.remove_many(batch) == 2


@pytest.mark.parametrize(("column", "value"), [("due_time", "infinity"), ("next_attempt", "-infinity")])
def test_postgresql_takes_no_time_that_python_has_not(postgresql_url: str, column: str, value: str) -> None:
    with opened(postgresql_url) as store:
        store.store(message(store.now(), -1))
        with pytest.raises(IntegrityError), store.engine.begin() as connection:
            connection.execute(text(f"UPDATE sales_delayed SET {column} = '{value}'"))


@pytest.mark.parametrize(("column", "value"), [("due_time", "soon"), ("next_attempt", "2027-01-01"), ("body", "text")])
def test_sqlite_takes_no_text_for_a_time_or_body(sqlite_url: str, column: str, value: str) -> None:
    with opened(sqlite_url) as store:
        store.store(message(store.now(), -1))
        with pytest.raises(IntegrityError), store.engine.begin() as connection:
            connection.execute(text(f"UPDATE sales_delayed SET {column} = '{value}'"))


def test_what_was_sent_inside_a_savepoint_is_undone_with_it(store: SqlDelayedMessageStore) -> None:
    with Session(store.engine) as session, session.begin():
        enlisted = store.enlist(session)
        enlisted.store(message(store.now(), 60, "kept"))
        nested = session.begin_nested()
        enlisted.store(message(store.now(), 60, "undone"))
        nested.rollback()
        enlisted.store(message(store.now(), 60, "kept too"))
    assert sorted(m.message_id for m in store.list().messages) == ["kept", "kept too"]


def test_what_an_undone_batch_had_removed_is_free_at_once(store: SqlDelayedMessageStore) -> None:
    now = store.now()
    store.store(message(now, -1, "a"))
    with pytest.raises(ZeroDivisionError), store.transaction() as transaction:
        transaction.remove_many(transaction.fetch_due(now, 5))
        1 / 0  # noqa: B018 - any error does
    assert store.cancel("a") is ManagementOutcome.DONE


def test_a_lease_ends_by_itself_where_claims_are_leases(sqlite_url: str) -> None:
    with opened(sqlite_url, lease=timedelta(seconds=0.3)) as store:
        now = store.now()
        store.store(message(now, -1))
        (claimed,) = store.fetch_due(now, 1)
        assert store.fetch_due(now, 1) == []
        wanted = store.next()
        assert wanted is not None
        assert wanted > now
        with opened(sqlite_url) as taker:
            found = wait_until(lambda: taker.fetch_due(taker.now(), 1))
            assert [m.message_id for m in found] == [claimed.message_id]
            assert store.remove(claimed) is False
            assert taker.remove(claimed) is True


def test_messages_behind_and_before_the_scan_mark_are_found(store: SqlDelayedMessageStore) -> None:
    now = store.now()
    store.store_many([message(now, -100 + i / 100, f"{i:04}") for i in range(1000)])
    fetched: list[str] = []
    while batch := fetch_and_remove(store, now, 100):
        fetched += batch
        if len(fetched) == 500:
            with opened(store.engine.url.render_as_string(hide_password=False)) as elsewhere:
                elsewhere.store(message(now, -200, "late"))
    wait_until(lambda: fetched.extend(fetch_and_remove(store, now, 100)) or len(fetched) == 1001)
    assert sorted(fetched) == sorted([*(f"{i:04}" for i in range(1000)), "late"])


def test_what_a_rolled_back_batch_let_go_is_found_at_once(store: SqlDelayedMessageStore) -> None:
    now = store.now()
    store.store_many([message(now, -100 + i, f"{i:02}") for i in range(20)])
    with pytest.raises(ZeroDivisionError), store.transaction() as transaction:
        transaction.fetch_due(now, 5)
        1 / 0  # noqa: B018 - any error does
    assert fetch_and_remove(store, now, 20) == [f"{i:02}" for i in range(20)]


class Heard:
    """Wake-ups, as they come."""

    def __init__(self) -> None:
        self.due_times: list[datetime | None] = []

    def __call__(self, due_time: datetime | None) -> None:
        self.due_times.append(due_time)


@pytest.fixture
def heard(postgresql_url: str) -> Iterator[tuple[SqlDelayedMessageStore, Heard]]:
    with opened(postgresql_url) as store:
        heard = Heard()
        subscription = store.subscribe(heard)
        assert subscription is not None
        wait_until(lambda: subscription.alive)
        heard.due_times.clear()
        yield store, heard
        subscription.close()
        subscription.close()


def test_a_message_due_soon_wakes_and_one_due_late_does_not(heard: tuple[SqlDelayedMessageStore, Heard]) -> None:
    store, ears = heard
    now = store.now()
    store.store(message(now, 3600))
    store.store_many([message(now, 3600), message(now, 7200)])
    soon = message(now, 30)
    store.store(soon)
    wait_until(lambda: ears.due_times == [soon.due_time])
    store.store_many([message(now, 50), message(now, 40), message(now, 3600)])
    wait_until(lambda: ears.due_times == [soon.due_time, now + timedelta(seconds=40)])
    store.reschedule(soon.message_id, now + timedelta(seconds=5))
    wait_until(lambda: ears.due_times[2:] == [now + timedelta(seconds=5)])


def test_an_enlisted_message_wakes_at_the_commit_whenever_it_is_due(
    heard: tuple[SqlDelayedMessageStore, Heard],
) -> None:
    store, ears = heard
    with store.engine.begin() as connection:
        enlisted = store.enlist(connection)
        enlisted.store(message(store.now(), 3600))
        enlisted.store(message(store.now(), 3600))
        assert ears.due_times == []
    wait_until(lambda: ears.due_times == [None])


def test_a_send_after_a_savepoint_was_undone_wakes_all_the_same(heard: tuple[SqlDelayedMessageStore, Heard]) -> None:
    store, ears = heard
    with Session(store.engine) as session, session.begin():
        enlisted = store.enlist(session)
        nested = session.begin_nested()
        enlisted.store(message(store.now(), 3600))
        nested.rollback()
        enlisted.store(message(store.now(), 3600))
    wait_until(lambda: ears.due_times == [None])


def test_a_listener_whose_connection_is_cut_comes_back(heard: tuple[SqlDelayedMessageStore, Heard]) -> None:
    store, ears = heard
    with store.engine.begin() as connection:
        cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'"
        assert connection.execute(text(cut)).scalar() is True
    wait_until(lambda: ears.due_times == [None, None])  # lost, and found again
    store.store(message(store.now(), 10))
    wait_until(lambda: len(ears.due_times) == 3)


def test_a_listener_that_hears_nothing_is_not_alive(postgresql_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As behind pgbouncer, which takes a LISTEN and delivers nothing."""
    from delaystore.stores.sql import _listener as listener

    monkeypatch.setattr(listener, "PING_TIMEOUT", 0.2)
    monkeypatch.setattr(listener, "PING_EVERY", 0.2)
    with opened(postgresql_url) as store:
        subscription = listener.PostgreSqlListener(store.engine, "a", lambda _: None)
        wait_until(lambda: subscription.alive)
        subscription._channel = "b"  # it goes on listening to "a"
        wait_until(lambda: not subscription.alive)
        subscription.close()


def test_a_wake_up_in_the_packet_of_a_proof_is_heard(postgresql_url: str) -> None:
    """What one transaction notifies comes in one packet: here the listener's proof, and a wake-up behind it."""
    heard = Heard()
    with opened(postgresql_url) as store:

        @event.listens_for(store.engine, "after_cursor_execute")
        def add_a_wake_up(_: Any, cursor: Any, statement: str, parameters: Any, *__: Any) -> None:
            if "pg_notify" in statement:
                channel, _ = parameters.values()
                cursor.execute("SELECT pg_notify(%s, 'a wake-up')", (channel,))

        subscription = store.subscribe(heard)
        assert subscription is not None
        with closing(subscription):
            wait_until(lambda: heard.due_times == [None, None])  # the wake-up, and that the listener is alive


def test_a_restart_of_the_database_goes_unseen_by_the_next_send(private_postgresql: PostgreSQL) -> None:
    with opened(private_postgresql.create_database()) as store:
        store.store(message(store.now(), 60))
        private_postgresql.kill()
        with pytest.raises(StoreUnavailableError):
            store.count()
        private_postgresql.start()
        time.sleep(1.1)  # longer than a pooled connection is trusted
        store.store(message(store.now(), 60))
        assert store.count() == 2


def test_a_store_serves_many_threads(store: SqlDelayedMessageStore) -> None:
    now = store.now()

    def send() -> None:
        for _ in range(20):
            store.store(message(now, 60))

    threads = [threading.Thread(target=send) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.count() == 160


def test_pages_cost_the_same_however_far_in(postgresql_url: str) -> None:
    with opened(postgresql_url) as store:
        now = store.now()
        store.store_many([message(now, i // 1000) for i in range(20_000)])
        with store.engine.connect() as connection:
            connection.execute(text("ANALYZE sales_delayed"))
            plan = "\n".join(
                connection.execute(
                    text(
                        "EXPLAIN SELECT * FROM sales_delayed WHERE (next_attempt, message_id) > (now(), 'x') "
                        "ORDER BY next_attempt, message_id LIMIT 100"
                    )
                ).scalars()
            )
        assert "Index Scan using sales_delayed_due" in plan
        assert "Sort" not in plan


def fetch_and_remove(store: SqlDelayedMessageStore, at: datetime, limit: int) -> list[str]:
    with store.transaction() as transaction:
        batch = transaction.fetch_due(at, limit)
        transaction.remove_many(batch)
        return [m.message_id for m in batch]


def test_one_clock_is_never_ahead_and_another_never_behind_however_long_an_answer_takes(
    store: SqlDelayedMessageStore, other: SqlDelayedMessageStore
) -> None:
    if store.engine.dialect.name == "sqlite":
        pytest.skip("SQLite has no clock of its own")
    event.listen(store.engine, "after_cursor_execute", lambda *_: time.sleep(0.2))
    store.now()
    store.latest_now()
    other.now()
    for _ in range(10):
        exact = other.now()
        assert store.now() < exact, "it is behind by an answer"
        assert store.latest_now() >= exact


SENDING = """
import sys
from delaystore import DelayedDelivery, SqlDelayedMessageStore
with DelayedDelivery("sales", SqlDelayedMessageStore(sys.argv[1])) as delivery:
    delivery.send("billing", b"x", delay=60)
print(*{name.split(".")[2] for name in sys.modules if name.startswith("sqlalchemy.dialects.")})
"""


def test_a_program_loads_what_its_own_database_needs(sqlite_url: str) -> None:
    with opened(sqlite_url) as store:
        store.setup_infrastructure()
    done = subprocess.run([sys.executable, "-c", SENDING, sqlite_url], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) <= {"sqlite", "_typing"}
