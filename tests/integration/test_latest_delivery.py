"""Latest deliveries on real databases: stored by every way, kept in every move, and let expire by the dispatcher."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from delaystore.delivery import DelayedDelivery
from delaystore.dispatcher import DispatchReport
from delaystore.dispatcher.dispatcher import Dispatcher
from delaystore.errors import ConfigurationError, InvalidMessageError, StoreSetupError
from delaystore.message import DelayedMessage, KeyRule, OnKey, unmarked
from delaystore.migrations.runner import RunSettings, run
from delaystore.migrations.sources import open_source
from delaystore.migrations.targets import open_target
from delaystore.settings import DelayedDeliverySettings, TransactionMode
from delaystore.stores import SqlDelayedMessageStore
from delaystore.stores.abc import ManagementOutcome
from delaystore.stores.records import Activity, DispatcherRecord
from delaystore.testing import RecordingTransport
from delaystore.transports.sql_queue import SqlQueueTransport
from tests.integration.cli import CommandLine, command_line
from tests.integration.sql_stores import opened
from tests.integration.test_sql_queue import drained

DAY = timedelta(days=1)
HOUR = timedelta(hours=1)
OLD = timedelta(days=2)


def limited(now: datetime, message_id: str, late: timedelta | None = HOUR, **fields: Any) -> DelayedMessage:
    """Due two days ago."""
    due_time = fields.pop("due_time", now - OLD)
    return DelayedMessage(
        message_id=message_id,
        destination=fields.pop("destination", "billing"),
        due_time=due_time,
        body=b"pay",
        not_after=None if late is None else due_time + late,
        **fields,
    )


def limits(store: SqlDelayedMessageStore) -> dict[str, timedelta | None]:
    """How late each message may be."""
    found = store.list(limit=1000).messages
    return {each.message_id: None if each.not_after is None else each.not_after - unmarked(each) for each in found}


def to_version_0005(store: SqlDelayedMessageStore) -> None:
    """Make the tables those of the release before."""
    name = store.table.name
    with store.engine.begin() as connection:
        on_table = "" if store.engine.dialect.name in ("postgresql", "sqlite") else f" ON {name}"
        connection.execute(text(f"DROP INDEX {name}_load{on_table}"))
        for table, column in (
            (name, "not_after"),
            (name, "load_number"),
            (f"{name}_operations", "shift"),
            (f"{name}_operations", "time_zone"),
            (f"{name}_activity", "expired"),
        ):
            connection.execute(text(f"ALTER TABLE {table} DROP COLUMN {column}"))
        connection.execute(text(f"UPDATE {name}_version SET version_num = '0005'"))
    store.close()


@pytest.fixture
def older(store: SqlDelayedMessageStore, database_url: str) -> Iterator[SqlDelayedMessageStore]:
    """A store on tables of version 0005."""
    to_version_0005(store)
    found = SqlDelayedMessageStore(database_url)
    found.initialize("sales", TransactionMode.NONE)
    yield found
    found.close()


@pytest.mark.parametrize("on_expired", ["error-queue", "drop"])
def test_expired_messages_leave_the_store(store: SqlDelayedMessageStore, on_expired: str) -> None:
    now = store.now()
    store.store_many([limited(now, f"m{number}") for number in range(5)])
    store.store_many([limited(now, "plain", None), limited(now, "patient", 3 * DAY)])
    transport = RecordingTransport()
    transport.declare("billing")
    dispatcher = Dispatcher(
        store, transport, DelayedDeliverySettings(on_expired=on_expired), endpoint="sales", name="night shift"
    )
    assert dispatcher.dispatch_due() == DispatchReport(fetched=7, delivered=2, expired=5)
    assert store.count() == 0
    entries = store.changes()
    assert sum(each.count for each in entries) == (5 if on_expired == "drop" else 0)
    assert {(each.action, each.by, each.way) for each in entries} <= {("expire", "night shift", "dispatcher")}
    with transport.receive("error", 10) as moved:
        assert len(moved) == (0 if on_expired == "drop" else 5)
    (activity,) = store.activity(now - HOUR)
    assert (activity.delivered, activity.expired, activity.moved_to_error_queue) == (2, 5, 0)


@pytest.mark.parametrize("on_expired", ["error-queue", "drop"])
def test_they_leave_the_store_exactly_once(store: SqlDelayedMessageStore, database_url: str, on_expired: str) -> None:
    queues = SqlQueueTransport(database_url)
    queues.declare("billing")
    now = store.now()
    store.store_many([limited(now, "late"), limited(now, "plain", None)])
    settings = DelayedDeliverySettings(transaction_mode=TransactionMode.TRANSACTION_SCOPE, on_expired=on_expired)
    assert Dispatcher(store, queues, settings).dispatch_due() == DispatchReport(fetched=2, delivered=1, expired=1)
    assert drained(queues) == ["plain"]
    assert drained(queues, "error") == ([] if on_expired == "drop" else ["late"])
    assert (store.count(), len(store.changes())) == (0, 1 if on_expired == "drop" else 0)
    queues.close()


def test_without_its_entry_no_message_is_dropped(store: SqlDelayedMessageStore) -> None:
    """Both are one transaction: here the table of the audit trail is away for a while."""
    store.store(limited(store.now(), "a"))
    dispatcher = Dispatcher(store, RecordingTransport(), DelayedDeliverySettings(on_expired="drop"), endpoint="sales")
    name = f"{store.table.name}_changes"
    with store.engine.begin() as connection:
        connection.execute(text(f"ALTER TABLE {name} RENAME TO away"))
    with pytest.raises(StoreSetupError):
        dispatcher.dispatch_due()
    assert store.count() == 1
    with store.engine.begin() as connection:
        connection.execute(text(f"ALTER TABLE away RENAME TO {name}"))
    assert dispatcher.dispatch_due() == DispatchReport(fetched=1, expired=1)
    assert (store.count(), [each.message_id for each in store.changes()]) == (0, ["a"])


def test_every_way_to_send_keeps_it(store: SqlDelayedMessageStore) -> None:
    delivery = DelayedDelivery("sales", store)
    at = datetime.now(UTC) + DAY
    delivery.send("billing", b"", at=at, not_after=at + HOUR, message_id="time")
    delivery.send("billing", b"", delay=DAY, max_late=HOUR, message_id="span")
    delivery.send("billing", b"", delay=0, max_late=3600, message_id="soon")
    delivery.send("billing", b"", at=at, max_late=HOUR, message_id="keyed", key="k")
    with store.engine.begin() as connection:
        enlisted = delivery.enlist(connection)
        enlisted.send("billing", b"", delay=DAY, max_late=HOUR, message_id="enlisted")
        enlisted.send("billing", b"", delay=0, max_late=HOUR, message_id="enlisted soon")
        enlisted.send_many([limited(at, "batch"), limited(at, "batch without", None)])
    assert limits(store) == {
        **dict.fromkeys(("time", "span", "soon", "keyed", "enlisted", "enlisted soon", "batch"), HOUR),
        "batch without": None,
    }
    delivery.send("billing", b"", at=at, message_id="in its place", key="k", on_key="replace")
    assert delivery.reschedule("span", delay=0) == delivery.send_now("time") == "done"
    assert (limits(store)["in its place"], limits(store)["span"], limits(store)["time"]) == (None, HOUR, HOUR)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"delay": 60, "not_after": datetime(2020, 1, 1, tzinfo=UTC)}, "is before the due time"),
        ({"delay": 60, "not_after": datetime(2090, 1, 1)}, "has no time zone"),  # noqa: DTZ001 - it is the mistake
        ({"delay": 60, "not_after": "tomorrow"}, "not_after must be a datetime"),
        ({"delay": 60, "not_after": datetime(2090, 1, 1, tzinfo=UTC), "max_late": 1}, "both given"),
        ({"delay": 60, "max_late": 0}, "max_late is 0; it must be more than 0"),
        ({"delay": 60, "max_late": -1}, "it must be more than 0"),
        ({"delay": 60, "max_late": float("nan")}, "must be a timedelta or a number of seconds, not nan"),
        ({"delay": 60, "max_late": True}, "must be a timedelta or a number of seconds"),
        ({"delay": 60, "max_late": 1e12}, "max_late 1000000000000.0 is out of range"),
        ({"delay": 60, "max_late": 2.8e11}, "is out of range"),
        ({"at": datetime(2090, 1, 1), "max_late": 1}, "has no time zone"),  # noqa: DTZ001 - it is the mistake
    ],
)
def test_a_mistake_is_refused(prepared_sqlite_url: str, arguments: dict[str, Any], text: str) -> None:
    with opened(prepared_sqlite_url) as store, pytest.raises(InvalidMessageError, match=text):
        DelayedDelivery("sales", store).send("billing", b"", **arguments)


def test_many_keep_it_in_a_bulk_partition(prepared_postgresql_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from delaystore.stores.sql.bulk_partitions import PartitionLimits

    monkeypatch.setattr(SqlDelayedMessageStore, "partition_limits", PartitionLimits(fewest_rows=100, smallest_table=0))
    with opened(prepared_postgresql_url) as store:
        now = store.now()
        many = [limited(now + 3 * OLD, f"m{number}", HOUR if number % 2 else None) for number in range(1000)]
        assert store.store_many(iter(many)) == 1000
        wanted = {each.message_id: HOUR if each.not_after else None for each in many}
        assert limits(store) == wanted
        # With these keys, too few messages are left for a partition, and its rows are inserted into the table.
        more = [limited(now + 3 * OLD, f"n{number}", HOUR if number % 3 else None) for number in range(95)]
        keyed = [limited(now + 3 * OLD, f"k{number}", key=f"k{number}") for number in range(10)]
        assert store.store_many([*more, *keyed]) == 105
        wanted |= {each.message_id: HOUR if each.not_after else None for each in (*more, *keyed)}
        found = {each.message_id: each for each in store.get_many(list(wanted)).values()}
        assert {name: each.not_after is not None for name, each in found.items()} == {
            name: late is not None for name, late in wanted.items()
        }


def test_a_migration_carries_it(prepared_sqlite_url: str, tmp_path: Path) -> None:
    target_url = f"sqlite:///{tmp_path / 'target.db'}"
    with opened(prepared_sqlite_url) as store:
        now = store.now()
        store.store_many([limited(now + 3 * OLD, "a"), limited(now + 3 * OLD, "b", None)])
    source, target = open_source(prepared_sqlite_url), open_target(target_url, "sales")
    assert run(source, target, "sales", RunSettings()).counts.moved == 2
    source.close()
    target.close()
    with opened(target_url) as there:
        assert limits(there) == {"a": HOUR, "b": None}


def test_tables_of_the_release_before_serve_all_other_messages(older: SqlDelayedMessageStore) -> None:
    now = older.now()
    older.store(limited(now, "a", None))
    older.store_many([limited(now, "b", None), limited(now, "c", None, key="k")])
    assert older.store_keyed(limited(now, "d", None, key="k"), KeyRule(OnKey.REPLACE)) == "d"
    bounded = KeyRule(OnKey.DEBOUNCE, HOUR)
    assert older.store_keyed(limited(now, "e", None, key="k"), bounded) == "e"
    assert limits(older) == dict.fromkeys("abe")
    assert older.reschedule("a", now - HOUR) == "done"
    transport = RecordingTransport()
    transport.declare("billing")
    dispatcher = Dispatcher(older, transport, DelayedDeliverySettings(on_expired="drop"), endpoint="sales")
    assert dispatcher.dispatch_due() == DispatchReport(fetched=3, delivered=3)
    record = DispatcherRecord(dispatcher_id="d", name="n", host="h", pid=1, version="1", since=now, heartbeat=now)
    done = Activity(minute=now.replace(second=0, microsecond=0), delivered=1, expired=1)
    older.heartbeat(record, [done])
    older.heartbeat(record, [done])
    assert sum(each.delivered for each in older.activity(now - HOUR)) == 5
    older.setup_infrastructure()
    assert list(older.defects()) == []
    older.store(limited(now, "f"))
    older.heartbeat(record, [done])
    assert sum(each.expired for each in older.activity(now - HOUR)) == 1
    assert limits(older) == {"f": HOUR}


def test_a_message_that_is_put_off_again_and_again_may_be_as_late_as_before(store: SqlDelayedMessageStore) -> None:
    delivery = DelayedDelivery("sales", store)
    store.store(limited(store.now(), "a", due_time=store.now() + DAY))
    assert [delivery.reschedule("a", by=DAY) for _ in range(3)] == [ManagementOutcome.DONE] * 3
    assert limits(store) == {"a": HOUR}


def test_tables_of_the_release_before_refuse_a_latest_delivery(older: SqlDelayedMessageStore) -> None:
    now = older.now()
    keyed = limited(now, "b", key="k")
    for send in (
        lambda: older.store(limited(now, "a")),
        lambda: older.store(limited(now + OLD + 3 * DAY, "a")),
        lambda: older.store_many([limited(now, "plain", None), limited(now, "a")]),
        lambda: older.store_keyed(keyed, KeyRule(OnKey.REPLACE)),
        lambda: older.store_many([keyed]),
    ):
        with pytest.raises(StoreSetupError, match="delaystore setup"):
            send()
    assert older.count() == 0


@pytest.mark.parametrize("key", [None, "k"])
def test_a_refused_message_leaves_the_transaction_of_the_caller_as_it_is(
    older: SqlDelayedMessageStore, key: str | None
) -> None:
    delivery = DelayedDelivery("sales", older, settings=DelayedDeliverySettings(automatic_setup=False))
    with older.engine.begin() as connection:
        enlisted = delivery.enlist(connection)
        enlisted.send("billing", b"", delay=DAY, message_id="before")
        with pytest.raises(StoreSetupError, match="keeps no latest delivery"):
            enlisted.send("billing", b"", delay=DAY, max_late=HOUR, key=key)
        with pytest.raises(StoreSetupError, match="keeps no latest delivery"):
            enlisted.send_many([limited(older.now(), "plain", None), limited(older.now(), "late", key=key)])
        enlisted.send("billing", b"", delay=DAY, message_id="after", key=key)
    assert sorted(limits(older)) == ["after", "before"]


def test_a_row_that_an_earlier_release_has_rescheduled_has_none(store: SqlDelayedMessageStore) -> None:
    """It knows no latest delivery, which is then before the due time."""
    now = store.now()
    store.store(limited(now, "a"))
    with store.engine.begin() as connection:
        connection.execute(text(f"UPDATE {store.table.name} SET due_time = next_attempt, not_after = due_time"))
        change = store.table.update().values(not_after=now - OLD - HOUR)
        connection.execute(change)
    assert limits(store) == {"a": None}


def test_infinity_is_no_latest_delivery(prepared_postgresql_url: str) -> None:
    with opened(prepared_postgresql_url) as store:
        store.store(limited(store.now(), "a"))
        with store.engine.begin() as connection:
            connection.execute(text(f"UPDATE {store.table.name} SET not_after = 'infinity'"))
        assert limits(store) == {"a": None}
        with store.transaction() as tx:
            assert [each.not_after for each in tx.fetch_due(store.now(), 10)] == [None]
        assert store.reschedule("a", store.now()) == "done"


@pytest.fixture
def commands(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, sqlite_url: str, tmp_path: Path
) -> CommandLine:
    """The command line with a store, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    environment = {"DELAYSTORE_STORE": sqlite_url, "DELAYSTORE_ENDPOINT": "sales", "DELAYSTORE_SEND_CREATE": "1"}
    return command_line(capsys, monkeypatch, environment)


def test_the_command_line_sends_shows_and_exports_it(commands: CommandLine, sqlite_url: str) -> None:
    assert commands("send", "billing", "--delay", "1d", "--max-late", "90m", "--message-id", "a").code == 0
    at = ("--at", "2090-01-01T00:00Z", "--not-after", "2090-01-01T01:00+00:00")
    assert commands("send", "billing", *at, "--message-id", "b").code == 0
    assert commands("send", "billing", "--delay", "1d", "--message-id", "c").code == 0
    assert commands("show", "b", "--json").document["not_after"] == "2090-01-01T01:00:00+00:00"
    assert "not_after      2090-01-01T01:00:00+00:00" in commands("show", "b").out
    for line, arguments in (
        ("--not-after and --max-late are both given", (*at, "--max-late", "1h")),
        ("--max-late '0' must be more than 0", ("--delay", "1d", "--max-late", "0")),
        ("has no time zone", ("--delay", "1d", "--not-after", "2090-01-01T00:00")),
        ("is before the due time", ("--delay", "1d", "--not-after", "2020-01-01T00:00Z")),
    ):
        assert line in commands.refused("send", "billing", *arguments)
    assert "leave it out" in commands.refused("send", "--file", "x.csv", "--max-late", "1h")
    for kind in ("csv", "jsonl"):
        exported = commands("export", f"out.{kind}")
        assert exported.code == 0, exported
        assert commands("cancel", "--all", "--yes").code == 0
        of_keys = ("--key-column", "key") if kind == "csv" else ()
        stored = commands("send", "--file", f"out.{kind}", *of_keys, "--json")
        assert stored.code == 0, stored
        assert stored.document["stored"] == 3
        with opened(sqlite_url) as store:
            assert limits(store) == {"a": timedelta(minutes=90), "b": HOUR, "c": None}


def test_rows_of_a_file_have_one(commands: CommandLine, sqlite_url: str) -> None:
    rows = ["message_id,due_time,body,max_late", "a,2090-01-01T00:00Z,x,3600", "b,2090-01-01T00:00Z,x,"]
    Path("rows.csv").write_text("\n".join(rows) + "\n")
    assert commands("send", "billing", "--file", "rows.csv").code == 0
    times = [{"message_id": name, "delay": 60, "body": "x", "not_after": time} for name, time in
             (("c", "2090-01-01T00:00:00Z"), ("d", None))]  # fmt: skip
    Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in times))
    assert commands("send", "billing", "--file", "rows.jsonl").code == 0
    with opened(sqlite_url) as store:
        found = {each.message_id: each.not_after for each in store.list().messages}
    limit = datetime(2090, 1, 1, tzinfo=UTC)
    assert found == {"a": limit + HOUR, "b": None, "c": limit, "d": None}


@pytest.mark.parametrize(
    ("column", "cell", "reason"),
    [
        ("max_late", "0", "max_late is 0"),
        ("max_late", "-5", "max_late is negative"),
        ("max_late", "soon", "max_late is not a finite number of seconds"),
        ("max_late", "1e13", "max_late is out of range"),
        ("not_after", "soon", "not_after is not a time in a form that delaystore reads"),
        ("not_after", "2089-01-01T00:00Z", "not_after is before the due time"),
        ("not_after", "2090-01-01T00:00", "not_after has no time zone"),
    ],
)
def test_a_bad_cell_is_rejected(commands: CommandLine, column: str, cell: str, reason: str) -> None:
    Path("rows.csv").write_text(f"message_id,due_time,body,{column}\na,2090-01-01T00:00Z,x,{cell}\n")
    assert f"1 x {reason}" in commands.refused("send", "billing", "--file", "rows.csv")


def test_two_columns_are_refused(commands: CommandLine) -> None:
    Path("rows.csv").write_text("message_id,due_time,body,max_late,not_after\na,2090-01-01T00:00Z,x,1,\n")
    line = commands.refused("send", "billing", "--file", "rows.csv")
    assert "columns not_after and max_late both give the latest delivery; drop one" in line


@pytest.mark.parametrize("on_duplicate", ["ignore", "replace"])
def test_a_load_that_replaces_leaves_no_former_one(commands: CommandLine, sqlite_url: str, on_duplicate: str) -> None:
    Path("first.csv").write_text(
        "message_id,due_time,body,max_late\na,2090-01-01T00:00Z,x,60\nb,2090-01-01T00:00Z,x,\n"
    )
    Path("next.csv").write_text("message_id,due_time,body,max_late\na,2090-01-01T00:00Z,y,\nb,2090-01-01T00:00Z,y,60\n")
    assert commands("send", "billing", "--file", "first.csv").code == 0
    assert commands("send", "billing", "--file", "next.csv", "--on-duplicate", on_duplicate).code == 0
    minute = timedelta(minutes=1)
    with opened(sqlite_url) as store:
        assert limits(store) == ({"a": None, "b": minute} if on_duplicate == "replace" else {"a": minute, "b": None})


def test_a_store_that_keeps_none_refuses_it(prepared_sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SqlDelayedMessageStore, "keeps_not_after", False)
    with opened(prepared_sqlite_url) as store:
        delivery = DelayedDelivery("sales", store)
        with pytest.raises(ConfigurationError, match="keeps no latest delivery"):
            delivery.send("billing", b"", delay=1, max_late=1)
        with pytest.raises(ConfigurationError, match="keeps no latest delivery"):
            delivery.send_many([limited(store.now(), "a")])
        assert delivery.count() == 0


@pytest.mark.parametrize("how", ["one", "file"])
def test_the_command_line_upgrades_tables_of_the_release_before(
    commands: CommandLine, sqlite_url: str, how: str
) -> None:
    with opened(sqlite_url) as store:
        to_version_0005(store)
    Path("rows.csv").write_text("message_id,delay,body,max_late\na,60,x,60\n")
    one = ("--delay", "1m", "--max-late", "1m", "--message-id", "a")
    assert commands("send", "billing", *(one if how == "one" else ("--file", "rows.csv"))).code == 0
    with opened(sqlite_url) as store:
        assert limits(store) == {"a": timedelta(minutes=1)}
