"""Bulk loads by Spark: exactly once, all or nothing."""

import os
import re
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from sqlalchemy import make_url

from delaystore.bulk.options import write_options
from delaystore.bulk.spark import DelaystoreDataSource, register
from delaystore.bulk.spark._driver_client import DriverClient
from delaystore.bulk.spark._writing import BatchWriter
from delaystore.bulk.staging import LoadKey, open_staging
from delaystore.dispatcher import Dispatcher
from delaystore.errors import (
    ConfigurationError,
    DuplicateMessageError,
    LoadInProgressError,
    MessageDeliveredError,
    RejectedRowsError,
    StorePermissionError,
    StoreUnavailableError,
)
from delaystore.message import DelayedMessage
from delaystore.settings import DelayedDeliverySettings, TransactionMode
from delaystore.stores.records import Ending
from delaystore.stores.sql import SqlDelayedMessageStore
from delaystore.testing import RecordingTransport
from delaystore.transports import SqlQueueTransport, open_transport
from tests.dispatching import running, wait_until
from tests.faults.arrivals import drain
from tests.integration.sql_stores import all_tables, execute, query
from tests.servers import PostgreSQLDatabases
from tests.servers.ports import free_port
from tests.spark.driver import held_back
from tests.spark.frozen import frozen_objects
from tests.spark.gates import opened
from tests.spark.loads import (
    ENDPOINT,
    NOON,
    TABLE,
    checksum_here,
    checksum_there,
    count,
    load,
    refused,
    rows,
    rows_through,
    staged_rows,
    staging_tables,
    waiting,
)

PAST = "-id - 400 * 86400000L"


@pytest.fixture
def url(postgresql_url: str) -> Iterator[str]:
    """A database in which no load leaves a staging, or has it locked, whatever becomes of it."""
    yield postgresql_url
    assert not staging_tables(postgresql_url)
    if f"{TABLE}_loads" in all_tables(postgresql_url):
        assert not query(postgresql_url, f"SELECT load_id FROM {TABLE}_loads WHERE token IS NOT NULL")


def store_of(url: str, mode: TransactionMode = TransactionMode.RECEIVE_ONLY) -> SqlDelayedMessageStore:
    store = SqlDelayedMessageStore(url)
    store.initialize(ENDPOINT, mode)
    store.setup_infrastructure()
    return store


def threads_of(spark: SparkSession) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(2, initializer=register, initargs=(spark,))


@pytest.fixture
def other_session(spark: SparkSession) -> Iterator[SparkSession]:
    """Another session of the same application; afterwards the shared one is this thread's again."""
    other = spark.newSession()
    register(other)
    yield other
    register(spark)


def one_row(spark: SparkSession, **changes: str) -> DataFrame:
    """One message; `changes`: columns by name, as SQL, or "" for none."""
    columns = {
        "message_id": "'m1'",
        "destination": "'billing'",
        "due_time": "timestamp'2027-01-01 12:00:00Z'",
        "body": "'hello'",
        **changes,
    }
    return spark.range(1).selectExpr(*(f"{value} AS {name}" for name, value in columns.items() if value))


def message_of(url: str, message_id: str = "m1") -> DelayedMessage:
    store = store_of(url)
    try:
        found = store.get(message_id)
    finally:
        store.close()
    assert found is not None
    return found


# Columns


def test_all_columns_of_a_message(spark: SparkSession, url: str) -> None:
    headers = "map('tenant', 'acme', 'empty', '') AS HEADERS"
    properties = "named_struct('content_type', 'text/plain', 'priority', 7) AS properties"
    frame = one_row(spark).selectExpr("body AS Body", headers, "due_time", "message_id", properties, "destination")
    load(frame, url)
    assert message_of(url) == DelayedMessage(
        message_id="m1",
        destination="billing",
        due_time=NOON,
        headers={"tenant": "acme", "empty": ""},
        properties={"content_type": "text/plain", "priority": 7},
        body=b"hello",
    )


def test_a_latest_delivery_is_a_time_or_counted_from_the_due_time(spark: SparkSession, url: str) -> None:
    hour = timedelta(hours=1)
    load(one_row(spark, not_after="timestamp'2027-01-01 13:00:00Z'"), url)
    assert message_of(url).not_after == NOON + hour
    load(one_row(spark, message_id="'m2'", max_late="90"), url)
    assert message_of(url, "m2").not_after == NOON + timedelta(seconds=90)
    load(one_row(spark, message_id="'m3'", max_late="interval 1 hour"), url)
    assert message_of(url, "m3").not_after == NOON + hour
    load(one_row(spark, message_id="'m4'", max_late="CAST(NULL AS INT)"), url)
    assert message_of(url, "m4").not_after is None
    read = spark.read.format("delaystore").options(store=url, endpoint=ENDPOINT).load()
    micros = {row[0]: row[1] for row in read.selectExpr("message_id", "unix_micros(not_after)").collect()}
    noon = int(NOON.timestamp()) * 1_000_000
    assert micros == {"m1": noon + 3_600_000_000, "m2": noon + 90_000_000, "m3": noon + 3_600_000_000, "m4": None}


def test_both_sides_have_the_same_rows_and_the_dispatcher_delivers_them(spark: SparkSession, url: str) -> None:
    frame = rows(spark, 20_000, due=PAST)
    load(frame, url)
    assert checksum_there(url) == checksum_here(frame)
    store, transport = store_of(url, TransactionMode.TRANSACTION_SCOPE), SqlQueueTransport(url)
    for queue in ("billing", "shipping", "mail"):
        transport.declare(queue)
    with running(
        Dispatcher(store, transport, DelayedDeliverySettings(transaction_mode=TransactionMode.TRANSACTION_SCOPE))
    ):
        wait_until(lambda: store.count() == 0, "all to be dispatched")
    arrived = sum((drain(transport, queue) for queue in ("billing", "shipping", "mail")), Counter[str]())
    assert arrived == Counter(f"m{number}" for number in range(20_000))
    transport.close()
    store.close()


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_a_million_rows_arrive_at_rabbitmq(spark: SparkSession, url: str, rabbitmq_url: str) -> None:
    frame = rows(spark, 1_000_000, parts=8, due=PAST)
    load(frame, url, loadId="million")
    assert checksum_there(url) == checksum_here(frame)
    store, transport = store_of(url), open_transport(rabbitmq_url)
    for queue in ("billing", "shipping", "mail"):
        transport.declare(queue)
    load(frame, url, loadId="million")
    with running(Dispatcher(store, transport)):
        for _ in range(40):  # each wait is of 30 s
            try:
                wait_until(lambda: store.count() == 0)
                break
            except AssertionError:
                continue
    arrived = sum((drain(transport, queue) for queue in ("billing", "shipping", "mail")), Counter[str]())
    assert arrived == Counter(f"m{number}" for number in range(1_000_000))
    load(frame, url, loadId="million")
    assert count(url) == 0
    transport.close()
    store.close()


@pytest.mark.long
def test_ids_are_derived_from_the_load_and_the_key(spark: SparkSession, url: str, mariadb_url: str) -> None:
    frame = rows(spark, 50).selectExpr("message_id AS customer", "destination", "due_time", "body")
    for place in (url, mariadb_url):
        load(frame.repartition(3), place, loadId="november", idColumns="customer")
    assert waiting(url) == waiting(mariadb_url)
    assert len(set(waiting(url))) == 50
    load(frame, url, loadId="december", idColumns="customer")
    assert len(set(waiting(url))) == 100


def test_a_column_of_keys(spark: SparkSession, url: str) -> None:
    """Of 50 rows with five keys and none, those that are due last wait."""
    frame = rows(spark, 50).withColumn("order", sf.expr("nullif(cast(hash(message_id) % 6 as string), '0')"))
    load(frame, url, keyColumn="order", onKey="replace")
    store = store_of(url)
    keys = Counter(message.key for message in store.list(limit=100).messages)
    assert len(keys) > 2
    assert all(number == 1 for key, number in keys.items() if key is not None)
    assert keys[None] == frame.where("order IS NULL").count()
    store.close()


def test_a_delay_counts_from_the_load(spark: SparkSession, url: str) -> None:
    before = datetime.now(UTC)
    load(one_row(spark, due_time="", delay="90.5"), url)
    assert before <= message_of(url).due_time - timedelta(seconds=90.5) <= datetime.now(UTC)


def test_unknown_columns_become_headers_or_the_body(spark: SparkSession, url: str) -> None:
    load(one_row(spark, tenant="'acme'", rank="3"), url, unknownColumns="headers")
    assert message_of(url).headers == {"tenant": "acme", "rank": 3}
    load(one_row(spark, message_id="'m2'", body="", tenant="'acme'"), url, unknownColumns="body")
    assert message_of(url, "m2").body == b'{"tenant":"acme"}'


@pytest.mark.long_runs(after=1)
@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
def test_databases_of_other_encodings_and_settings_give_the_same(
    spark: SparkSession, postgresql: PostgreSQLDatabases, encoding: str
) -> None:
    url = postgresql.create_database(encoding, {"datestyle": "German, DMY", "bytea_output": "escape"})
    load(one_row(spark, message_id="'é'", destination="'Büro'"), url)
    found = message_of(url, "é")
    assert (found.destination, found.due_time, found.body) == ("Büro", NOON, b"hello")
    read = spark.read.format("delaystore").options(store=url, endpoint=ENDPOINT).load()
    columns = read.selectExpr("message_id", "destination", "unix_micros(due_time)", "body").first()
    assert columns == ("é", "Büro", int(NOON.timestamp() * 10**6), b"hello")
    postgresql.drop_database(url)


@pytest.mark.long_runs(after=4)
@pytest.mark.parametrize(
    ("changes", "options", "word"),
    [
        ({"message_id": ""}, {}, "message_id"),
        ({"destination": ""}, {}, "destination"),
        ({"due_time": ""}, {}, "due_time"),
        ({"body": ""}, {}, "body"),
        ({"tenant": "'acme'"}, {}, "tenant"),
        ({"body": "7"}, {}, "body"),
        ({"due_time": "7"}, {}, "due_time"),
        ({"delay": "7"}, {}, "delay"),
        ({"due_time": "timestamp_ntz'2027-01-01 12:00:00'"}, {}, "the option timeZone"),
        ({}, {"onDuplicate": "perhaps"}, "onDuplicate"),
        ({}, {"onDuplicat": "error"}, "onduplicat is unknown"),
        ({}, {"timeZone": "Mars/Olympus"}, "time zone 'Mars/Olympus' is unknown"),
        ({}, {"endpoint": ""}, "endpoint"),
        ({}, {"store": "memory://"}, "memory"),
        ({}, {"transport": "memory://x?y=z"}, "memory://NAME"),
    ],
)
def test_what_cannot_work_is_said_before_anything_is_done(
    spark: SparkSession, url: str, changes: dict[str, str], options: dict[str, str], word: str
) -> None:
    with refused(ConfigurationError, word):
        load(one_row(spark, **changes), url, **options)
    assert not all_tables(url)


def test_overwriting_is_refused(spark: SparkSession, url: str) -> None:
    with refused(ConfigurationError, "append"):
        one_row(spark).write.format("delaystore").option("store", url).option("endpoint", ENDPOINT).mode(
            "overwrite"
        ).save()
    assert not all_tables(url)


@pytest.mark.long
def test_a_table_of_messages_is_refused(spark: SparkSession, url: str) -> None:
    writer = rows(spark, 5).write.format("delaystore").options(store=url, endpoint=ENDPOINT).mode("append")
    with refused(ConfigurationError, 'write with .mode("append").save()'):
        writer.saveAsTable("messages")
    with refused(ConfigurationError, 'write with .mode("append").save()'):
        rows(spark, 5).writeTo("messages").using("delaystore").options(store=url, endpoint=ENDPOINT).create()
    assert not spark.catalog.tableExists("messages")
    assert not all_tables(url)
    writer.save()
    assert count(url) == 5


def test_a_temporary_view_takes_messages(spark: SparkSession, url: str) -> None:
    columns = "message_id string, destination string, due_time timestamp, body string"
    spark.sql(
        f"CREATE TEMPORARY VIEW outgoing ({columns}) USING delaystore OPTIONS (store '{url}', endpoint '{ENDPOINT}')"
    )
    try:
        spark.sql("INSERT INTO outgoing VALUES ('m1', 'billing', timestamp'2027-01-01 12:00:00Z', 'hello')")
    finally:
        spark.catalog.dropTempView("outgoing")
    assert message_of(url).body == b"hello"


# Exactly once


def test_a_finished_load_is_not_loaded_again(spark: SparkSession, url: str) -> None:
    load(rows(spark, 100), url, loadId="once")
    load(rows(spark, 100), url, loadId="once", onDuplicate="error")
    assert count(url) == 100
    execute(url, f"DELETE FROM {TABLE}")  # as a dispatcher does
    load(rows(spark, 100), url, loadId="once")
    assert count(url) == 0
    load(rows(spark, 100), url, loadId="another")
    assert count(url) == 100


@pytest.mark.long
def test_a_load_that_stores_nothing_says_why(spark: SparkSession, url: str, caplog: pytest.LogCaptureFixture) -> None:
    load(rows(spark, 20000, parts=2), url, loadId="once")
    assert not caplog.messages
    load(rows(spark, 20000, parts=3), url, loadId="once")
    (told,) = caplog.messages
    assert re.fullmatch(r"the load 'once' was finished at \S+, with 20000 messages; nothing was stored now", told)
    caplog.clear()
    load(rows(spark, 30), url, loadId="once")
    (told,) = caplog.messages
    assert (
        "20000 messages; nothing was stored now, though there are 30 rows: load other data under another load" in told
    )
    caplog.clear()
    load(rows(spark, 0), url, loadId="empty")
    load(rows(spark, 0), url)
    assert [told.partition(":")[0] for told in caplog.messages] == [
        "the load 'empty' had no messages",
        "the load had no messages, and nothing was stored",
    ]


@pytest.mark.long
def test_a_load_whose_messages_are_dispatched_at_once_is_not_loaded_again(spark: SparkSession, url: str) -> None:
    store, transport = store_of(url), RecordingTransport()
    with running(Dispatcher(store, transport)):
        load(rows(spark, 300, due=PAST), url, loadId="due")
        assert len(transport.wait_for_sent(300)) == 300
        load(rows(spark, 300, due=PAST), url, loadId="due")
        wait_until(lambda: store.count() == 0)
    assert len(transport.sent) == 300
    store.close()


@pytest.mark.long
def test_a_load_without_rows_is_finished_as_well(spark: SparkSession, url: str) -> None:
    load(rows(spark, 0), url, loadId="empty")
    load(spark.createDataFrame([], rows(spark, 1).schema), url, loadId="no partitions")
    assert count(url) == 0
    finished = query(url, f"SELECT load_id, stored FROM {TABLE}_loads WHERE finished_at IS NOT NULL ORDER BY load_id")
    assert [tuple(row) for row in finished] == [("empty", 0), ("no partitions", 0)]


def test_partitions_without_rows_do_no_harm(spark: SparkSession, url: str) -> None:
    load(rows(spark, 3, parts=3).where("message_id = 'm1'"), url)
    assert waiting(url) == ["m1"]


def test_what_a_worker_has_imported_is_left_out_of_the_collections_after_its_tasks(
    spark: SparkSession, url: str, tmp_path: Path
) -> None:
    """Spark's daemon collects all garbage after each task, and went over a hundred thousand objects of modules."""
    load(rows(spark, 10, parts=2), url)
    assert max(frozen_objects(spark, tmp_path)) > 10_000


def test_nothing_is_visible_before_everything_is(spark: SparkSession, url: str) -> None:
    """The first task waits for the test, longer than the lease; others have staged theirs meanwhile."""
    store = store_of(url)
    gate = free_port()
    frame = rows_through(spark, 1000, 2, 0, held_back(gate))
    outlived = f"SELECT 1 FROM {TABLE}_loads WHERE load_id = 'held' AND began < now() - interval '8 seconds'"
    with threads_of(spark) as threads:
        loading = threads.submit(load, frame, url, loadId="held", leaseSeconds="6")
        try:
            wait_until(lambda: staged_rows(url) >= 500, "another task to stage")
            assert store.count() == 0
            assert store.next() is None
            with refused(LoadInProgressError, "'held'", "in progress"):
                load(rows(spark, 10), url, loadId="held")
            wait_until(lambda: query(url, outlived), "more time than the lease has")
            load(rows(spark, 10, start=5000), url)  # would remove what is abandoned
        finally:
            with opened(gate):
                loading.result(120)
    assert store.count() == 1010
    store.close()


@pytest.mark.long
def test_two_loads_at_once_while_a_dispatcher_runs(spark: SparkSession, url: str) -> None:
    store, transport = store_of(url), RecordingTransport()
    loads = [(rows(spark, 3000, start=start, due=PAST), str(start)) for start in (0, 3000)]
    with (
        running(Dispatcher(store, transport)),
        threads_of(spark) as threads,
    ):
        for done in [threads.submit(load, frame, url, loadId=name) for frame, name in loads]:
            done.result(120)
        transport.wait_for_sent(6000)
        wait_until(lambda: store.count() == 0)
    assert Counter(message.message_id for message in transport.sent) == Counter(f"m{n}" for n in range(6000))
    store.close()


@pytest.mark.long  # tests/integration/test_spark_staging.py has it without Spark
def test_one_load_by_two_threads_is_loaded_once(spark: SparkSession, url: str) -> None:
    frame = rows(spark, 500)

    def attempt(_: int) -> None:
        try:
            load(frame, url, loadId="both")
        except Exception:
            with refused(LoadInProgressError):
                raise

    with threads_of(spark) as threads:
        list(threads.map(attempt, range(2)))
    assert checksum_there(url) == checksum_here(frame)


def test_a_load_wakes_a_sleeping_dispatcher(spark: SparkSession, url: str) -> None:
    """It sleeps for a minute where it listens, and nobody else tells it."""
    store, transport = store_of(url), RecordingTransport()
    with running(Dispatcher(store, transport)):
        wait_until(lambda: query(url, "SELECT 1 FROM pg_stat_activity WHERE query LIKE 'LISTEN%'"), "LISTEN")
        load(rows(spark, 10, due=PAST), url)
        transport.wait_for_sent(10)
    store.close()


# Duplicates


def test_duplicates_are_an_error_that_names_them(spark: SparkSession, url: str) -> None:
    load(rows(spark, 5), url)
    with refused(DuplicateMessageError, "'m3'", "'m4'"):
        load(rows(spark, 5, start=3), url, loadId="overlapping")
    assert waiting(url) == [f"m{n}" for n in range(5)]
    with refused(DuplicateMessageError, "'m9'"):
        load(rows(spark, 1, start=9).unionAll(rows(spark, 1, start=9)), url)
    execute(url, f"DELETE FROM {TABLE} WHERE message_id IN ('m3', 'm4')")
    load(rows(spark, 5, start=3), url, loadId="overlapping")
    assert count(url) == 8


@pytest.mark.long  # tests/integration/test_spark_staging.py has it without Spark
def test_duplicates_may_be_ignored(spark: SparkSession, url: str) -> None:
    load(one_row(spark, message_id="'m3'"), url)
    load(rows(spark, 5).unionAll(rows(spark, 2)), url, onDuplicate="ignore", loadId="i")
    assert waiting(url) == [f"m{n}" for n in range(5)]
    assert message_of(url, "m3").body == b"hello"
    assert tuple(query(url, f"SELECT stored, skipped FROM {TABLE}_loads WHERE load_id = 'i'")[0]) == (4, 3)


@pytest.mark.long
def test_duplicates_may_replace_what_waits(spark: SparkSession, url: str) -> None:
    load(one_row(spark, message_id="'m3'"), url)
    load(rows(spark, 5), url, onDuplicate="replace")
    assert waiting(url) == [f"m{n}" for n in range(5)]
    assert message_of(url, "m3").body == "ééé3".encode()
    with closing(store_of(url)) as store:
        (entry,) = store.changes()
    assert (entry.action, entry.way, entry.count) == ("replace", "load", 1)
    with refused(DuplicateMessageError, "'m9'"):
        load(rows(spark, 1, start=9).unionAll(rows(spark, 1, start=9)), url, onDuplicate="replace")


@pytest.mark.long
def test_messages_that_were_delivered_may_be_skipped(spark: SparkSession, url: str) -> None:
    with refused(ConfigurationError, "the option ifDelivered needs a history"):
        load(rows(spark, 5), url, ifDelivered="skip")
    load(rows(spark, 5), url, loadId="first")
    with closing(store_of(url)) as store:
        store.keep_history(timedelta(days=30))
        with store.transaction() as bound:
            delivered = bound.fetch_due(NOON + timedelta(days=1), 2)
            bound.remove_ended(delivered, Ending.DELIVERED, bound.now())
    gone = {each.message_id for each in delivered}
    with refused(MessageDeliveredError, *(repr(each) for each in gone)):
        load(rows(spark, 6), url, onDuplicate="ignore", ifDelivered="error", loadId="second")
    load(rows(spark, 6), url, onDuplicate="ignore", ifDelivered="skip", loadId="second")
    assert waiting(url) == sorted({f"m{n}" for n in range(6)} - gone)
    assert tuple(query(url, f"SELECT stored, skipped FROM {TABLE}_loads WHERE load_id = 'second'")[0]) == (1, 5)
    load(rows(spark, 6), url, onDuplicate="ignore", loadId="third")
    assert count(url) == 6


# Rows that cannot be messages

LARGEST = 1000
BAD = {  # by the exact reason
    "due_time is null": {"due_time": "cast(null AS timestamp)"},
    "due_time is out of range": {"due_time": "timestamp_micros(-9000000000000000000)"},
    "destination is empty": {"destination": "''"},
    "destination is null": {"destination": "cast(null AS string)"},
    "message_id is null": {"message_id": "cast(null AS string)"},
    "message_id is empty": {"message_id": "''"},
    "body is null": {"body": "cast(null AS binary)"},
    f"body has more than {LARGEST} bytes": {"body": "cast(repeat('x', 2000) AS binary)"},
    "headers is not a JSON object, or holds a tag (a name with $) that does not fit": {"headers": "'[1, 2]'"},
    "property priority is out of range or not a whole number": {"properties": '\'{"priority": "high"}\''},
}


def bad_row(spark: SparkSession, changes: dict[str, str]) -> DataFrame:
    every = {"body": "cast('hello' AS binary)", "headers": "'{}'", "properties": "'{}'"}
    return one_row(spark, **{**every, **changes})


@pytest.mark.long_runs(after=1)  # tests/unit/test_spark_conversion.py has the reasons
@pytest.mark.parametrize("reason", BAD)
def test_a_row_that_cannot_be_a_message(spark: SparkSession, url: str, reason: str) -> None:
    with refused(RejectedRowsError, f"1 row cannot be messages: 1 x {reason} (such as", "; nothing was loaded: "):
        load(bad_row(spark, BAD[reason]), url, maxBodyBytes=LARGEST)
    assert count(url) == 0


def mixed(spark: SparkSession) -> DataFrame:
    good = rows(spark, 100).selectExpr("*", "'{}' AS headers", "'{}' AS properties")
    for changes in BAD.values():
        row = bad_row(spark, changes).select(*good.columns)
        good = good.unionByName(row)
    return good


@pytest.mark.long
def test_bad_rows_are_counted_by_reason_and_nothing_is_loaded(spark: SparkSession, url: str) -> None:
    counted = [f"1 x {reason} (such as " for reason in BAD]
    with refused(RejectedRowsError, f"{len(BAD)} rows cannot be messages: ", *counted):
        load(mixed(spark), url, maxBodyBytes=LARGEST, loadId="mended")
    assert count(url) == 0
    load(rows(spark, 100), url, loadId="mended")
    assert count(url) == 100


@pytest.mark.long  # test_load_cli.py sets rows aside by the command
def test_bad_rows_are_written_to_a_folder_and_the_rest_loads(
    spark: SparkSession, url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    frame = mixed(spark)
    load(frame, url, maxBodyBytes=LARGEST, rejects=str(tmp_path / "rejects"), loadId="mixed")
    (told,) = caplog.messages
    assert told.startswith(f"{len(BAD)} rows cannot be messages: 1 x ")
    assert f"they are in {tmp_path / 'rejects'}" in told
    caplog.clear()
    (folder,) = (tmp_path / "rejects").iterdir()
    assert waiting(url) == sorted(f"m{n}" for n in range(100))
    rejected = spark.read.json(str(folder))
    assert rejected.count() == len(BAD)
    assert Counter(row["_reason"] for row in rejected.select("_reason").collect()) == Counter(BAD.keys())
    assert sorted(rejected.columns) == sorted([*frame.columns, "_reason"])
    files = sorted(path.name for path in folder.iterdir())
    assert all(name.startswith("mixed-") for name in files)
    load(frame, url, maxBodyBytes=LARGEST, rejects=str(tmp_path / "rejects"), loadId="mixed")
    assert sorted(path.name for path in folder.iterdir()) == files
    (told,) = caplog.messages
    assert told.endswith("with 100 messages; nothing was stored now")  # the rejected rows are there again, too


@pytest.mark.long
def test_a_load_that_fails_leaves_no_rejects(spark: SparkSession, url: str, tmp_path: Path) -> None:
    load(rows(spark, 1), url)
    with refused(DuplicateMessageError, "'m0'"):
        load(mixed(spark), url, maxBodyBytes=LARGEST, rejects=str(tmp_path / "rejects"))
    failing = mixed(spark).selectExpr("*").where("assert_true(message_id IS NULL OR message_id <> 'm77') IS NULL")
    with pytest.raises(Exception, match="is not true"):
        load(failing, url, maxBodyBytes=LARGEST, rejects=str(tmp_path / "rejects"), onDuplicate="ignore")
    assert not [path for path in (tmp_path / "rejects").rglob("*") if path.is_file()]
    assert waiting(url) == ["m0"]


# Time zones


@pytest.mark.long_runs(after=1)  # a further time zone
@pytest.mark.parametrize("session_zone", ["Asia/Kathmandu", "America/St_Johns"])
def test_instants_do_not_depend_on_the_sessions_time_zone(
    other_session: SparkSession, url: str, session_zone: str
) -> None:
    other_session.conf.set("spark.sql.session.timeZone", session_zone)
    load(one_row(other_session, due_time="timestamp'2027-06-01 12:00:00.123456+02:00'"), url)
    assert message_of(url).due_time == datetime(2027, 6, 1, 10, 0, 0, 123456, tzinfo=UTC)


@pytest.mark.long  # tests/unit/test_spark_conversion_times.py has local times without Spark
def test_local_times_mean_what_the_option_says(spark: SparkSession, url: str) -> None:
    load(one_row(spark, due_time="timestamp_ntz'2027-06-01 12:00:00'"), url, timeZone="Europe/Berlin")
    assert message_of(url).due_time == datetime(2027, 6, 1, 10, tzinfo=UTC)


@pytest.mark.long  # tests/unit/test_spark_conversion_times.py has local times without Spark
def test_an_hour_that_does_not_exist_is_rejected(spark: SparkSession, url: str) -> None:
    with refused(RejectedRowsError, "due_time"):
        load(one_row(spark, due_time="timestamp_ntz'2027-03-28 02:30:00'"), url, timeZone="Europe/Berlin")


@pytest.mark.long  # tests/unit/test_spark_conversion_times.py has local times without Spark
@pytest.mark.parametrize(("choice", "hour"), [("earliest", 0), ("latest", 1)])
def test_an_hour_that_exists_twice(spark: SparkSession, url: str, choice: str, hour: int) -> None:
    frame = one_row(spark, due_time="timestamp_ntz'2027-10-31 02:30:00'")
    with refused(RejectedRowsError, "due_time"):
        load(frame, url, timeZone="Europe/Berlin")
    load(frame, url, timeZone="Europe/Berlin", ambiguousTime=choice)
    assert message_of(url).due_time == datetime(2027, 10, 31, hour, 30, tzinfo=UTC)


# Failures


def test_a_failing_task_leaves_nothing_behind(spark: SparkSession, url: str) -> None:
    failing = rows(spark, 5000).where("assert_true(message_id <> 'm4999') IS NULL")
    with pytest.raises(Exception, match="is not true"):
        load(failing, url, loadId="fails")
    assert count(url) == 0
    load(rows(spark, 5000), url, loadId="fails")
    assert count(url) == 5000


def test_a_load_that_fails_before_its_tasks_can_be_run_again_at_once(spark: SparkSession, url: str) -> None:
    """Stages before the last one run outside of what Spark calls a write: it never says that they failed."""
    failing = rows(spark, 100).where("assert_true(message_id <> 'm99') IS NULL").repartition(2, "message_id")
    with pytest.raises(Exception, match="is not true"):
        load(failing, url, loadId="fails")
    load(rows(spark, 100), url, loadId="fails")
    assert count(url) == 100


def test_without_a_driver_service_tasks_keep_the_lease(other_session: SparkSession, url: str) -> None:
    other_session.dataSource.register(DelaystoreDataSource)
    load(rows(other_session, 100), url, loadId="by hand")
    assert count(url) == 100


def test_a_driver_service_that_has_gone_leaves_nothing_begun(spark: SparkSession, url: str) -> None:
    options = write_options({"store": url, "endpoint": ENDPOINT, "loadId": "kept"})
    with pytest.raises(ConfigurationError, match="has stopped"):
        BatchWriter(rows(spark, 1).schema, options, DriverClient(free_port(), os.getpid(), b"gone"))
    load(rows(spark, 10), url, loadId="kept")
    assert count(url) == 10


def test_a_store_that_is_not_there_or_refuses(spark: SparkSession, url: str, postgresql: PostgreSQLDatabases) -> None:
    nowhere = make_url(url).set(port=free_port()).render_as_string(hide_password=False)
    with refused(StoreUnavailableError):
        load(one_row(spark), nowhere)
    role = postgresql.create_role("visitor", "Toy-pa55word", url)
    with refused(StorePermissionError):
        load(one_row(spark), role)
    assert not all_tables(url)


@pytest.mark.long
def test_a_role_that_may_not_make_tables(spark: SparkSession, url: str, postgresql: PostgreSQLDatabases) -> None:
    load(rows(spark, 10), url)
    role = postgresql.create_role("clerk", "Toy-pa55word", url)
    execute(url, "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO clerk")
    with refused(StorePermissionError):
        load(rows(spark, 10, start=10), role, loadId="again")
    load(rows(spark, 10, start=10), url, loadId="again")
    assert count(url) == 20


def test_a_load_that_died_is_found_and_removed_by_another(spark: SparkSession, url: str) -> None:
    left = open_staging(write_options({"store": url, "endpoint": ENDPOINT, "leaseSeconds": "1"}), 1)
    left.begin(LoadKey("left"))
    assert len(staging_tables(url)) == 1
    wait_until(lambda: query(url, f"SELECT 1 FROM {TABLE}_loads WHERE lease_until < now()"), "the lease to end")
    load(rows(spark, 10), url, loadId="next")
    assert not staging_tables(url)


# Other stores


@pytest.mark.long
@pytest.mark.parametrize("kind", ["mariadb", "sqlite"])
def test_other_databases_give_the_same(spark: SparkSession, request: pytest.FixtureRequest, kind: str) -> None:
    place = request.getfixturevalue(f"{kind}_url")
    frame = rows(spark, 2000, parts=3)
    load(frame, place, loadId="first")
    load(frame, place, loadId="first")
    store = store_of(place)
    found = {(m.message_id, m.destination, m.due_time, m.body) for m in everything(store)}
    assert found == expected(frame)
    with refused(DuplicateMessageError, "'m1999'"):
        load(rows(spark, 2, start=1999), place, loadId="second")
    with refused(RejectedRowsError, "destination"):
        load(one_row(spark, destination="''"), place)
    load(rows(spark, 2, start=1999), place, onDuplicate="ignore", loadId="second")
    load(one_row(spark), place, onDuplicate="replace")
    assert store.count() == 2001
    assert message_of(place).body == b"hello"
    assert not staging_tables(place)
    store.close()


def everything(store: SqlDelayedMessageStore) -> Iterator[DelayedMessage]:
    page = store.list(limit=1000)
    while True:
        yield from page.messages
        if page.next_key is None:
            return
        page = store.list(limit=1000, after=page.next_key)


def expected(frame: DataFrame) -> set[tuple[Any, ...]]:
    micros = frame.selectExpr("message_id", "destination", "unix_micros(due_time) AS due", "body").collect()
    start = datetime(1970, 1, 1, tzinfo=UTC)
    return {(r.message_id, r.destination, start + timedelta(microseconds=r.due), bytes(r.body)) for r in micros}


def test_threads_of_loads_end(spark: SparkSession, url: str) -> None:
    load(rows(spark, 10), url)
    wait_until(lambda: not [thread for thread in threading.enumerate() if "lease" in thread.name])
