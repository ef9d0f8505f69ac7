"""The history on real databases: dispatched messages, loads, callers' transactions, upgrades, partitions and rights."""

import asyncio
import sqlite3
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from secrets import token_hex
from threading import Barrier
from typing import Any, Final

import psycopg
import pymysql
import pytest
from sqlalchemy import Connection, create_engine, event, inspect, make_url, text

from delaystore import AsyncDelayedDelivery, AsyncSqlDelayedMessageStore, DelayedDelivery, DelayedDeliverySettings
from delaystore.dispatcher import Dispatcher
from delaystore.errors import ConfigurationError, StorePermissionError, StoreSetupError
from delaystore.filters import MessageFilter
from delaystore.message import DelayedMessage, KeyRule, OnKey, made_at, new_message_id
from delaystore.settings import TransactionMode
from delaystore.stores import InMemoryDelayedMessageStore, SqlDelayedMessageStore
from delaystore.stores.abc import ManagementOutcome
from delaystore.stores.history import HistoryEntry, HistoryFilter
from delaystore.stores.records import Ending
from delaystore.stores.sql.bulk_partitions import PartitionLimits
from delaystore.testing import RecordingTransport, SettableClock
from delaystore.transports.abc import Outcome, OutcomeKind
from delaystore.transports.sql_queue import SqlQueueTransport
from tests.dispatching import running, wait_until
from tests.integration.cli import CommandLine
from tests.integration.loading import load, rows
from tests.integration.sql_stores import connected, execute, message, opened, query, url_for
from tests.servers import PostgreSQLDatabases

pytestmark = pytest.mark.long_runs("partitions", "mariadb")

DAY: Final = timedelta(days=1)
HOUR: Final = timedelta(hours=1)
KEPT: Final = DelayedDeliverySettings(history="30d", number_of_retries=0)
REPLACE: Final = KeyRule(OnKey.REPLACE)


@pytest.fixture(params=["sqlite", "postgresql", "partitions", "mariadb"])
def database_url(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """An empty database of each kind; PostgreSQL also with a bulk partition for each load."""
    if request.param == "partitions":
        limits = PartitionLimits(fewest_rows=1, smallest_table=0)
        monkeypatch.setattr(SqlDelayedMessageStore, "partition_limits", limits)
    return url_for(request, "postgresql" if request.param == "partitions" else request.param)


def entries(store: SqlDelayedMessageStore, **wanted: Any) -> dict[str, HistoryEntry]:
    found = store.history(HistoryFilter(**wanted), limit=1000).entries
    by_id = {each.message_id: each for each in found}
    assert len(by_id) == len(found)
    return by_id


def endings(store: SqlDelayedMessageStore, **wanted: Any) -> dict[str, Ending]:
    return {name: each.ending for name, each in entries(store, **wanted).items()}


def a_dispatcher(store: SqlDelayedMessageStore, transport: Any, **settings: Any) -> Dispatcher:
    return Dispatcher(
        store, transport, DelayedDeliverySettings(**{"history": "30d", "number_of_retries": 0, **settings})
    )


class BreakDownError(Exception):
    """An error that ends a transaction in these tests."""


def unroutable() -> RecordingTransport:
    """A transport whose broker has no queue "nowhere", and refuses messages for "full"."""
    return RecordingTransport(
        {
            "nowhere": Outcome(OutcomeKind.UNROUTABLE, "no queue takes it"),
            "full": Outcome(OutcomeKind.REFUSED, "nacked"),
        }
    )


def test_dispatched_messages_have_entries(store: SqlDelayedMessageStore) -> None:
    now = store.now()
    expired = message(now, -60, "expired")
    store.store_many(
        [
            message(now, -5, "sent"),
            message(now, -4, "refused", destination="full"),
            message(now, -3, "unroutable", destination="nowhere"),
            DelayedMessage(**{**_fields(expired), "not_after": expired.due_time}),
            message(now, 3600, "waiting"),
        ]
    )
    report = a_dispatcher(store, unroutable()).dispatch_due()
    assert (report.delivered, report.moved_to_error_queue, report.expired) == (1, 2, 1)
    found = entries(store)
    assert {name: (each.ending, each.attempts) for name, each in found.items()} == {
        "sent": (Ending.DELIVERED, 1),
        "refused": (Ending.FAILED, 1),
        "unroutable": (Ending.FAILED, 1),
        "expired": (Ending.EXPIRED, 0),
    }
    assert all(each.by is None and each.body_hash == sha256(b"pay").hexdigest() for each in found.values())
    sent = found["sent"]
    assert sent.late is not None
    assert timedelta(seconds=5) <= sent.late < timedelta(seconds=60)
    assert sent.due_time == now - timedelta(seconds=5)


def _fields(message: DelayedMessage) -> dict[str, Any]:
    return {name: getattr(message, name) for name in ("message_id", "destination", "due_time", "body")}


def test_dropped_messages_have_entries(store: SqlDelayedMessageStore) -> None:
    expired = message(store.now(), -60, "expired")
    store.store(DelayedMessage(**{**_fields(expired), "not_after": expired.due_time}))
    assert a_dispatcher(store, RecordingTransport(), on_expired="drop").dispatch_due().expired == 1
    assert endings(store) == {"expired": Ending.EXPIRED}


def test_a_message_that_could_not_be_deleted_at_first_keeps_its_ending(
    store: SqlDelayedMessageStore, database_url: str
) -> None:
    store.keep_history(DAY)
    store.store(message(store.now(), -1, "nowhere", destination="nowhere"))
    transport, broken = unroutable(), create_engine(database_url)

    def fail(_connection: Connection) -> None:
        if len(transport.attempts) == 2:  # the message itself, and its copy for the error queue
            raise BreakDownError

    event.listen(broken, "commit", fail)
    failing = SqlDelayedMessageStore(broken)
    dispatcher = Dispatcher(failing, transport, KEPT, endpoint="sales")
    with pytest.raises(BreakDownError):
        dispatcher.dispatch_due()
    event.remove(broken, "commit", fail)
    assert entries(store) == {}
    dispatcher.dispatch_due()
    assert len(transport.attempts) == 2
    (entry,) = entries(store).values()
    assert (entry.ending, entry.attempts) == (Ending.FAILED, 1)
    failing.close()
    broken.dispose()


def test_exactly_once_the_entry_is_in_the_transaction(store: SqlDelayedMessageStore, database_url: str) -> None:
    queues = SqlQueueTransport(database_url)
    queues.declare("billing")
    store.store(message(store.now(), -1, "a"))
    settings = DelayedDeliverySettings(transaction_mode=TransactionMode.TRANSACTION_SCOPE, history=3600)
    assert Dispatcher(store, queues, settings).dispatch_due().delivered == 1
    assert endings(store) == {"a": Ending.DELIVERED}
    queues.close()


def test_a_running_dispatcher_begins_the_history_before_its_first_pass(store: SqlDelayedMessageStore) -> None:
    transport = RecordingTransport()
    transport.declare("billing")
    store.store_many([message(store.now(), -1, f"m{number}") for number in range(300)])
    with running(a_dispatcher(store, transport)):
        wait_until(lambda: len(entries(store)) == 300)
    assert store.count() == 0


def test_dispatchers_that_start_at_the_same_time(store: SqlDelayedMessageStore, database_url: str) -> None:
    with ExitStack() as stack, ThreadPoolExecutor(4) as threads:
        stores = [stack.enter_context(opened(database_url)) for _ in range(4)]
        gate = Barrier(4)

        def begin(each: SqlDelayedMessageStore) -> None:
            each.history_status()
            gate.wait()
            each.keep_history(DAY)

        list(threads.map(begin, stores))
    assert store.history_status().kept == DAY


def test_a_dispatcher_without_the_setting_leaves_the_history_on_and_zero_ends_it(
    store: SqlDelayedMessageStore, database_url: str
) -> None:
    transport = RecordingTransport()
    transport.declare("billing")
    store.keep_history(DAY)
    now = store.now()
    store.store(message(now, -1, "first"))
    with opened(database_url) as plain:
        a_dispatcher(plain, transport, history=None).dispatch_due()
    assert endings(store) == {"first": Ending.DELIVERED}
    store.store(message(now, -1, "second"))
    with opened(database_url) as ending:
        a_dispatcher(ending, transport, history=0).dispatch_due()
    assert endings(store) == {"first": Ending.DELIVERED}
    assert store.history_status().kept is None


@pytest.mark.parametrize("value", ["30 d", "1e3d", -1, 30, timedelta(days=5000), "M", True])
def test_a_time_that_no_history_is_kept_for_is_refused(value: Any) -> None:
    if value == "30 d":
        assert DelayedDeliverySettings(history=value).history == 30 * DAY
        return
    with pytest.raises(ConfigurationError, match="history"):
        DelayedDeliverySettings(history=value)


@pytest.mark.parametrize("kind", ["sql", "memory"])
def test_deleted_entries_do_not_come_back_with_a_longer_time(sqlite_url: str, kind: str) -> None:
    clock = SettableClock()
    store = SqlDelayedMessageStore(sqlite_url, clock=clock) if kind == "sql" else InMemoryDelayedMessageStore(clock)
    store.initialize("sales", TransactionMode.NONE)
    store.setup_infrastructure()
    store.keep_history(HOUR)
    clock.advance(DAY)
    store.keep_history(30 * DAY)
    assert store.history_status().since == clock.now() - HOUR
    clock.advance(DAY)
    store.keep_history(HOUR)
    assert store.history_status().since == clock.now() - HOUR
    store.close()


def test_loads_and_their_numbers(store: SqlDelayedMessageStore, database_url: str) -> None:
    store.keep_history(DAY)
    at = store.now() - HOUR
    loaded = [DelayedMessage(**{**_fields(each), "due_time": at}) for each in rows(30, "s")]
    load(database_url, "spring", loaded[:20])
    load(database_url, "autumn", loaded[20:])
    transport = RecordingTransport()
    transport.declare(loaded[0].destination)
    with DelayedDelivery("sales", SqlDelayedMessageStore(database_url)) as delivery:
        operations = delivery.operations.acting_as("ada")
        operations.loads.cancel("spring")
    assert a_dispatcher(store, transport).dispatch_due().delivered == 10
    found = entries(store)
    assert {(each.load, each.ending, each.by) for each in found.values()} == {
        ("spring", Ending.CANCELLED, "ada"),
        ("autumn", Ending.DELIVERED, None),
    }
    assert len(found) == 30


def test_cancels_by_filter(store: SqlDelayedMessageStore, database_url: str) -> None:
    store.keep_history(DAY)
    store.store_many([message(store.now(), 3600, f"m{number:04}") for number in range(2500)])
    with DelayedDelivery("sales", SqlDelayedMessageStore(database_url)) as delivery:
        ended = delivery.operations.acting_as("ada").cancel(MessageFilter(id_prefix="m1"))
    assert ended.changed == 1000
    found = store.history(HistoryFilter(ending=Ending.CANCELLED), limit=2000).entries
    assert {each.message_id for each in found} == {f"m{number}" for number in range(1000, 2000)}
    assert {each.by for each in found} == {"ada"}


def test_a_row_that_holds_no_message_has_an_entry(store: SqlDelayedMessageStore) -> None:
    store.store(message(store.now(), -1, "a"))
    with store.engine.begin() as connection:
        connection.execute(text("UPDATE sales_delayed SET headers = 'no JSON'"))
    a_dispatcher(store, RecordingTransport()).dispatch_due()
    assert endings(store) == {"a": Ending.FAILED}


def test_old_entries_are_deleted_after_a_run_of_cron(
    store: SqlDelayedMessageStore, database_url: str, run: CommandLine
) -> None:
    store.keep_history(DAY)
    store.store_many([message(store.now(), -1, "old"), message(store.now(), -1, "young", destination="young")])
    with store.transaction() as transaction:
        due = {each.message_id: each for each in transaction.fetch_due(store.now(), 5)}
        transaction.remove_ended([due["old"]], Ending.DELIVERED, store.now() - 2 * DAY)
        transaction.remove_ended([due["young"]], Ending.DELIVERED, store.now() - HOUR)
    dispatched = run("dispatch", "--once", "--store", database_url, "--transport", database_url, "--endpoint", "sales")
    assert dispatched.code == 0, dispatched.err
    assert list(entries(store)) == ["young"]


def test_a_rare_entry_is_found_behind_many_others(store: SqlDelayedMessageStore) -> None:
    store.keep_history(DAY)
    now = store.now()
    store.store(message(now, -1, "needle", destination="rare"))
    store.cancel("needle")
    store.store_many([message(now, -1) for _ in range(45_000)])
    a_dispatcher(store, transport := RecordingTransport(), batch_size=5000)
    transport.declare("billing")
    assert a_dispatcher(store, transport).dispatch_due().delivered == 45_000
    page = store.history(HistoryFilter(destination="rare"))
    pages = 1
    while not page.entries and page.next_key is not None:
        page = store.history(HistoryFilter(destination="rare"), after=page.next_key)
        pages += 1
    assert [each.message_id for each in page.entries] == ["needle"]
    assert pages == 3
    assert page.next_key is None
    everything = [*(page := store.history(HistoryFilter(), limit=20_000)).entries]
    while page.next_key is not None:
        page = store.history(HistoryFilter(), after=page.next_key, limit=20_000)
        everything += page.entries
    assert len({each.message_id for each in everything}) == len(everything) == 45_001


def test_the_life_of_a_message(store: SqlDelayedMessageStore, database_url: str) -> None:
    with DelayedDelivery("sales", SqlDelayedMessageStore(database_url), settings=KEPT) as delivery:
        store.keep_history(DAY)
        sent = delivery.send("billing", b"pay", delay=3600)
        operations = delivery.operations.acting_as("ada")
        operations.reschedule_one(sent, at=store.now() + DAY)
        life = operations.life(sent)
        assert life.message is not None
        assert [each.action for each in life.changes] == ["reschedule"]
        assert not life.entries
        operations.cancel_one(sent)
        life = operations.life(sent)
        assert life.message is None
        assert life.is_known
        assert life.sent is not None
        assert abs(life.sent - store.now()) < HOUR
        assert [each.action for each in life.changes] == ["cancel", "reschedule"]
        assert [(each.ending, each.by) for each in life.entries] == [(Ending.CANCELLED, "ada")]
        assert list(delivery.history(sent)) == list(life.entries)
        assert not operations.life("unknown").is_known
        assert not delivery.history(key="unknown")


def test_when_an_id_was_made() -> None:
    made = made_at(new_message_id())
    assert made is not None
    assert abs(made - datetime.now(UTC)) < timedelta(seconds=5)
    for other in (
        "ffffffff-ffff-7fff-bfff-ffffffffffff",
        "invoice-7",
        "017F22E2-79B0-7CC3-98C4-DC0C0C07398F",
        "3f333df6-90a4-4fda-8dd3-9485d27cee36",
    ):
        assert made_at(other) is None


# Callers' transactions.


def own_connection(url: str) -> Any:
    """A connection of the driver's own."""
    parsed = make_url(url)
    if parsed.get_backend_name() == "sqlite":
        return sqlite3.connect(str(parsed.database))
    if parsed.get_backend_name() == "postgresql":
        return psycopg.connect(parsed.set(drivername="postgresql").render_as_string(hide_password=False))
    names = {"host": parsed.host, "port": parsed.port, "user": parsed.username, "database": parsed.database}
    return pymysql.connect(password=parsed.password or "", **names)  # type: ignore[call-overload]


def test_entries_are_in_the_callers_transaction(store: SqlDelayedMessageStore, database_url: str) -> None:
    store.keep_history(DAY)
    now = store.now()
    store.store_many([message(now, 60, "a"), message(now, 60, "b")])
    store.store_keyed(message(now, 60, "c", key="k"), REPLACE)
    with (
        DelayedDelivery("sales", SqlDelayedMessageStore(database_url)) as delivery,
        closing(own_connection(database_url)) as own,
    ):
        for end in (own.rollback, own.commit):
            own.cursor().execute("UPDATE sales_delayed SET failure_count = 0 WHERE message_id = 'none'")  # begins
            enlisted = delivery.enlist(own)
            assert enlisted.cancel("a") is ManagementOutcome.DONE
            enlisted.send("billing", b"new", delay=60, message_id="d", key="k", on_key="replace")
            assert entries(store) == {}
            end()
    assert endings(store) == {"a": Ending.CANCELLED, "c": Ending.REPLACED}


@pytest.mark.parametrize("seconds", [60, 3600])
def test_a_message_that_another_transaction_was_storing_has_an_entry_when_it_is_replaced(
    store: SqlDelayedMessageStore, database_url: str, seconds: int
) -> None:
    store.keep_history(DAY)
    with (
        DelayedDelivery("sales", SqlDelayedMessageStore(database_url)) as delivery,
        closing(own_connection(database_url)) as own,
        ThreadPoolExecutor(1) as threads,
    ):
        own.cursor().execute("UPDATE sales_delayed SET failure_count = 0 WHERE message_id = 'none'")  # begins
        delivery.enlist(own).send("billing", b"", delay=seconds, message_id="a", key="k")
        placed = threads.submit(store.store_keyed, message(store.now(), seconds, "b", key="k"), REPLACE)
        time.sleep(0.3)  # so that it waits for the key
        assert not placed.done()
        own.commit()
        assert placed.result() == "b"
    assert endings(store) == {"a": Ending.REPLACED}


def test_a_send_is_made_again_if_the_message_that_took_its_key_has_left(
    postgresql_store: SqlDelayedMessageStore, prepared_postgresql_url: str
) -> None:
    store = postgresql_store
    store.keep_history(DAY)
    with (
        DelayedDelivery("sales", SqlDelayedMessageStore(prepared_postgresql_url)) as delivery,
        opened(prepared_postgresql_url) as sender,
        closing(own_connection(prepared_postgresql_url)) as own,
        ThreadPoolExecutor(1) as threads,
    ):
        sender.store_keyed(message(store.now(), 3600, "other", key="other"), REPLACE)  # it asks for the setting
        delivery.enlist(own).send("billing", b"", delay=3600, message_id="a", key="k")

        def cancel(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
            if "WHERE" in statement and not statement.startswith("WITH") and store.get("a") is not None:
                store.cancel("a")

        event.listen(sender.engine, "before_cursor_execute", cancel)
        placed = threads.submit(sender.store_keyed, message(store.now(), 3600, "b", key="k"), REPLACE)
        time.sleep(0.3)  # so that it waits for the key
        own.commit()
        assert placed.result() == "b"
        event.remove(sender.engine, "before_cursor_execute", cancel)
    assert endings(store) == {"a": Ending.CANCELLED}


def test_each_of_many_messages_that_replace_one_another_waits_or_has_an_entry(
    store: SqlDelayedMessageStore, database_url: str
) -> None:
    store.keep_history(DAY)
    with ExitStack() as stack, ThreadPoolExecutor(4) as threads:
        stores = [stack.enter_context(opened(database_url)) for _ in range(4)]
        gate = Barrier(4)

        def send(sender: int) -> None:
            gate.wait()
            for number in range(40):
                new = message(store.now(), 3600 * (1 + number % 2), f"{sender}-{number}", key=f"k{number // 2 % 5}")
                stores[sender].store_keyed(new, REPLACE)

        list(threads.map(send, range(4)))
    waiting = {each.message_id for each in store.list(limit=1000).messages}
    replaced = endings(store)
    assert len(waiting) == 5
    assert set(replaced.values()) == {Ending.REPLACED}
    assert sorted([*waiting, *replaced]) == sorted(f"{sender}-{number}" for sender in range(4) for number in range(40))


@pytest.mark.parametrize("own", ["0", "3s", "1min"])
def test_a_replacement_leaves_the_callers_limit_for_locks(
    postgresql_store: SqlDelayedMessageStore, prepared_postgresql_url: str, own: str
) -> None:
    postgresql_store.keep_history(DAY)
    with (
        DelayedDelivery("sales", SqlDelayedMessageStore(prepared_postgresql_url)) as delivery,
        closing(own_connection(prepared_postgresql_url)) as connection,
    ):
        connection.execute(f"SET lock_timeout = '{own}'")
        enlisted = delivery.enlist(connection)
        for number in range(2):
            enlisted.send("billing", b"", delay=60, message_id=f"m{number}", key="k", on_key="replace")
            assert connection.execute("SHOW lock_timeout").fetchone() == (own,)
        connection.commit()
    assert endings(postgresql_store) == {"m0": Ending.REPLACED}


@pytest.mark.parametrize("driver", ["psycopg", "asyncpg", "aiosqlite", "aiomysql", "asyncmy"])
def test_a_history_on_an_event_loop(request: pytest.FixtureRequest, driver: str) -> None:
    kind = {"aiosqlite": "sqlite_url"}.get(driver, "mariadb_url" if "my" in driver else "postgresql_url")
    url = make_url(request.getfixturevalue(kind))
    url = url.set(drivername=f"{url.get_backend_name()}+{driver}")

    async def program() -> dict[str, Ending]:
        async with AsyncDelayedDelivery("sales", AsyncSqlDelayedMessageStore(url)) as delivery:
            await delivery.send("billing", b"1", delay=60, message_id="a")
            await delivery.send("billing", b"2", delay=60, message_id="b", key="k", on_key="replace")
            with opened(request.getfixturevalue(kind)) as blocking:
                blocking.keep_history(DAY)
            await asyncio.sleep(0)
            deadline = time.monotonic() + 20
            while time.monotonic() < deadline:  # the store asks again some seconds after its first removal
                await delivery.send("billing", b"3", delay=60, message_id="c", key="k", on_key="replace")
                if await delivery.history("c"):
                    break
                await asyncio.sleep(0.5)
            await delivery.cancel("a")
            found = (await delivery.operations.history(HistoryFilter(message_id="a"))).entries
            life = await delivery.operations.life("a")
            assert list(life.entries) == list(found)
            return {each.message_id: each.ending for each in found}

    assert asyncio.run(program()) == {"a": Ending.CANCELLED}


# Tables of an earlier release.


def to_version_0006(store: SqlDelayedMessageStore) -> None:
    """Make the tables those of the release before."""
    name = store.table.name
    on_table = "" if store.engine.dialect.name in ("postgresql", "sqlite") else f" ON {name}_changes"
    with store.engine.begin() as connection:
        for statement in (
            f"DROP INDEX {name}_changes_id{on_table}",
            f"DROP TABLE {name}_schedules",
            f"DROP TABLE {name}_history",
            f"DROP TABLE {name}_settings",
            f"UPDATE {name}_version SET version_num = '0006'",
        ):
            connection.execute(text(statement))
    store.close()


def test_tables_of_an_earlier_release(store: SqlDelayedMessageStore, database_url: str) -> None:
    to_version_0006(store)
    older = SqlDelayedMessageStore(database_url)
    older.initialize("sales", TransactionMode.NONE)
    transport = RecordingTransport()
    transport.declare("billing")
    now = older.now()
    older.store_many([message(now, -1, name) for name in "abc"])
    older.store_keyed(message(now, 60, "d", key="k"), REPLACE)
    older.store_keyed(message(now, 60, "e", key="k"), REPLACE)
    assert older.cancel("a") is ManagementOutcome.DONE
    for refused in (lambda: older.keep_history(DAY), lambda: older.history(HistoryFilter())):
        with pytest.raises(StoreSetupError, match="without a history; run `delaystore setup`"):
            refused()
    assert older.history_status().kept is None
    assert older.forget_history() == 0
    dispatcher = a_dispatcher(older, transport)
    assert dispatcher.dispatch_due().delivered == 2  # and keeps no history
    older.store(message(now, -1, "later"))
    older.setup_infrastructure()
    assert older.defects() == []
    a_dispatcher(older, transport).dispatch_due()
    assert endings(older) == {"later": Ending.DELIVERED}
    older.close()


def test_the_parts_of_the_history_are_repaired(store: SqlDelayedMessageStore) -> None:
    name = store.table.name
    on_table = "" if store.engine.dialect.name in ("postgresql", "sqlite") else f" ON {name}_history"
    with store.engine.begin() as connection:
        connection.execute(text(f"DROP INDEX {name}_history_id{on_table}"))
        connection.execute(text(f"DROP TABLE {name}_settings"))
    assert len(store.defects()) == 2
    assert store.repair(lambda _: None) == []
    assert store.defects() == []


def test_removing_the_tables_removes_the_history(store: SqlDelayedMessageStore) -> None:
    store.keep_history(DAY)
    store.remove_infrastructure()
    assert inspect(store.engine).get_table_names() == []


# PostgreSQL's partitions and roles.

PARTITIONS: Final = (
    "SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid "
    "WHERE i.inhparent = 'sales_delayed_history'::regclass ORDER BY 1"
)


def partitions(url: str) -> list[str]:
    return [row[0].removeprefix("sales_delayed_history_") for row in query(url, PARTITIONS)]


def stamps(*times: datetime) -> list[str]:
    return [f"{time:%Y%m%d%H%M}" for time in times]


@pytest.fixture
def postgresql_store(prepared_postgresql_url: str) -> Iterator[SqlDelayedMessageStore]:
    with opened(prepared_postgresql_url) as store:
        yield store


@pytest.mark.parametrize(
    ("kept", "span"),
    [
        (timedelta(minutes=10), timedelta(minutes=1)),
        (timedelta(days=1), HOUR),
        (timedelta(days=30), DAY),
        (timedelta(days=365), timedelta(days=7)),
    ],
)
def test_partitions_are_made_ahead(
    postgresql_store: SqlDelayedMessageStore, prepared_postgresql_url: str, kept: timedelta, span: timedelta
) -> None:
    store, url = postgresql_store, prepared_postgresql_url
    monday = datetime(1970, 1, 5, tzinfo=UTC)
    before = store.now()
    store.keep_history(kept)
    made = partitions(url)
    first = before - (before - monday) % span
    assert made[-1] == "default"
    assert made[:3] == stamps(first, first + span, first + 2 * span) or span == timedelta(minutes=1)
    assert 3 <= len(made) - 1 <= 5
    store.clean_up()
    assert partitions(url)[: len(made) - 1] == made[:-1]
    store.store(message(store.now(), -1, "a"))
    with store.transaction() as transaction:
        transaction.remove_many(transaction.fetch_due(store.now(), 5))
    assert query(url, "SELECT count(*) FROM sales_delayed_history_default") == [(0,)]
    assert endings(store) == {"a": Ending.DELIVERED}


def test_old_partitions_are_dropped_whole(
    postgresql_store: SqlDelayedMessageStore, prepared_postgresql_url: str
) -> None:
    store, url = postgresql_store, prepared_postgresql_url
    store.keep_history(30 * DAY)
    today = store.now().replace(hour=0, minute=0, second=0, microsecond=0)
    for days in (40, 31, 29):
        begin, end = today - days * DAY, today - (days - 1) * DAY
        execute(
            url,
            f"CREATE TABLE sales_delayed_history_{begin:%Y%m%d%H%M} PARTITION OF sales_delayed_history "
            f"FOR VALUES FROM ('{begin.isoformat()}') TO ('{end.isoformat()}')",
        )
    for hours, name in ((948, "oldest"), (724, "old"), (684, "young"), (1440, "in the default partition")):
        at = (today - hours * HOUR).isoformat()
        execute(
            url,
            "INSERT INTO sales_delayed_history (message_id, destination, due_time, ended_at, attempts, ending) "
            f"VALUES ('{name}', 'billing', '{at}', '{at}', 1, 'delivered')",
        )
    store.clean_up()
    kept = [name for name in partitions(url) if name < f"{today:%Y%m%d%H%M}"]
    assert kept == stamps(today - 29 * DAY)
    while store.forget_history():
        pass
    assert endings(store) == {"young": Ending.DELIVERED}


def test_another_time_to_keep_takes_partitions_of_another_length_behind_the_present_ones(
    postgresql_store: SqlDelayedMessageStore, prepared_postgresql_url: str
) -> None:
    store, url = postgresql_store, prepared_postgresql_url
    store.keep_history(30 * DAY)
    days = partitions(url)[:-1]
    store.keep_history(timedelta(minutes=10))
    store.clean_up()
    assert partitions(url)[:-1] == days  # they end later than the next minutes
    store.keep_history(365 * DAY)
    weeks = partitions(url)[len(days) : -1]
    assert weeks[0] > days[-1]
    store.store(message(store.now(), -1, "a"))
    with store.transaction() as transaction:
        transaction.remove_many(transaction.fetch_due(store.now(), 5))
    assert endings(store) == {"a": Ending.DELIVERED}


def test_entries_in_the_default_partition_do_not_stop_the_next_ones(
    postgresql_store: SqlDelayedMessageStore, prepared_postgresql_url: str
) -> None:
    """As where no dispatcher has run for days, and only operators have cancelled messages."""
    store, url = postgresql_store, prepared_postgresql_url
    store.keep_history(DAY)
    for name in partitions(url)[:-1]:
        execute(url, f"DROP TABLE sales_delayed_history_{name}")
    store.store(message(store.now(), 60, "a"))
    assert store.cancel("a") is ManagementOutcome.DONE
    assert query(url, "SELECT count(*) FROM sales_delayed_history_default") == [(1,)]
    store.clean_up()
    made = partitions(url)[:-1]
    assert made[0] > f"{store.now():%Y%m%d%H%M}"
    assert len(made) >= 2
    assert endings(store) == {"a": Ending.CANCELLED}


def test_a_locked_history_is_left_alone(postgresql_store: SqlDelayedMessageStore, prepared_postgresql_url: str) -> None:
    store, url = postgresql_store, prepared_postgresql_url
    with connected(url) as connection:
        connection.execute(text("LOCK TABLE sales_delayed_history IN ACCESS SHARE MODE"))
        connection.execute(text("LOCK TABLE sales_delayed_history_default IN ACCESS SHARE MODE"))
        began = time.monotonic()
        store.keep_history(DAY)
        assert time.monotonic() - began < 5
    store.clean_up()
    assert len(partitions(url)) >= 4


def test_a_role_that_does_not_own_the_history_uses_the_default_partition(
    postgresql: PostgreSQLDatabases, postgresql_url: str
) -> None:
    dispatching, sending = (f"history_{name}_{token_hex(4)}" for name in ("dispatcher", "sender"))
    urls = {role: postgresql.create_role(role, "secret", postgresql_url) for role in (dispatching, sending)}
    with opened(postgresql_url) as owner:
        to_version_0006(owner)
        execute(postgresql_url, f"GRANT SELECT, INSERT, UPDATE, DELETE ON sales_delayed TO {dispatching}")
        execute(postgresql_url, f"GRANT SELECT, INSERT, UPDATE ON sales_delayed TO {sending}")
        execute(postgresql_url, f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {dispatching}, {sending}")
        owner.setup_infrastructure()
        now = owner.now()
        with opened(urls[dispatching]) as store:
            store.keep_history(DAY)
            store.clean_up()
            assert partitions(postgresql_url) == ["default"]
            store.store_many([message(now, -1, "a"), message(now, 60, "b")])
            with store.transaction() as transaction:
                transaction.remove_many(transaction.fetch_due(now, 5))
            assert store.cancel("b") is ManagementOutcome.DONE
            assert store.forget_history() == 0
        with opened(urls[sending]) as store:
            store.store_keyed(message(now, 60, "c", key="k"), REPLACE)
            store.store_keyed(message(now, 60, "d", key="k"), REPLACE)
        assert endings(owner) == {"a": Ending.DELIVERED, "b": Ending.CANCELLED, "c": Ending.REPLACED}


def test_a_role_without_rights_on_the_new_tables_removes_messages_as_before(
    postgresql: PostgreSQLDatabases, postgresql_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    role = f"history_stranger_{token_hex(4)}"
    url = postgresql.create_role(role, "secret", postgresql_url)
    with opened(postgresql_url) as owner:
        owner.keep_history(DAY)
        execute(postgresql_url, f"GRANT SELECT, INSERT, UPDATE, DELETE ON sales_delayed TO {role}")
        execute(postgresql_url, f"GRANT SELECT ON sales_delayed_version, sales_delayed_shelves TO {role}")
        owner.store_many([message(owner.now(), 60, "a"), message(owner.now(), 60, "b")])
        store = SqlDelayedMessageStore(url)
        store.initialize("sales", TransactionMode.NONE)
        assert store.cancel("a") is ManagementOutcome.DONE
        assert endings(owner) == {}
        assert "may not read sales_delayed_settings; grant SELECT on that table" in caplog.text
        execute(postgresql_url, f"GRANT SELECT ON sales_delayed_settings TO {role}")
        other = SqlDelayedMessageStore(url)
        other.initialize("sales", TransactionMode.NONE)
        with pytest.raises(StorePermissionError, match="sales_delayed_history"):
            other.cancel("b")
        assert owner.get("b") is not None
        execute(postgresql_url, f"GRANT ALL ON sales_delayed_dispatchers, sales_delayed_destinations TO {role}")
        owner.store(message(owner.now(), -1, "c"))
        transport = RecordingTransport()
        for given in ("1d", None):
            dispatcher = Dispatcher(other, transport, DelayedDeliverySettings(history=given, number_of_retries=0))
            with pytest.raises(StorePermissionError, match="sales_delayed_history"):
                dispatcher.dispatch_due()
        assert not transport.sent
        with DelayedDelivery("sales", other) as delivery, closing(own_connection(url)) as own:
            with pytest.raises(StorePermissionError, match="sales_delayed_history"):
                delivery.enlist(own).send("billing", b"", delay=60, key="k", on_key="replace")
            own.execute("SELECT 1")
        store.close()
        other.close()
