"""From what people have to messages."""

import csv
import json
from base64 import b64encode
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from celery import Celery
from kombu import Connection
from pyarrow import parquet
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import StringType, StructField, StructType, TimestampNTZType

from delaystore.bulk.columns import UNREADABLE
from delaystore.bulk.spark.pipeline import (
    azure_timeouts,
    celery_tasks,
    due_after,
    nservicebus_messages,
    ravendb_timeouts,
    read_nservicebus_table,
)
from delaystore.errors import ConfigurationError
from tests.integration.legacy_tables import HEADERS, KINDS, PROPERTIES, ROWS, SAGA, make_table
from tests.integration.legacy_tables import Row as TimeoutRow

COLUMNS = ["message_id", "destination", "due_time", "body", "headers", "properties", UNREADABLE]
EARLY = datetime(2027, 3, 14, 2, 30, 0, 123456, tzinfo=UTC)  # a time that New York's clocks skip
RAVEN = {
    "Destination": "orders",
    "SagaId": SAGA,
    "State": b64encode(b"\0body\xff").decode(),
    "Time": "2027-03-14T02:30:00.1234560Z",
    "Headers": HEADERS,
    "OwningTimeoutManager": "My.Sales",
    "@metadata": {"@collection": "TimeoutDatas", "@id": "TimeoutDatas/1-A"},
}
AZURE = {
    "PartitionKey": "2027031402",
    "RowKey": "0d4f7f5a-3e1e-4b7a-9f0e-000000000001",
    "Timestamp": "2026-11-01T00:00:00Z",
    "Destination": "orders@SRV1",
    "SagaId": "00000000-0000-0000-0000-000000000000",
    "State": b64encode(b"\0body\xff").decode(),
    "Time": "2027-03-14T02:30:00.123456Z",
    "Headers": json.dumps({}),
    "OwningTimeoutManager": "My.Sales",
}


def rows_of(frame: DataFrame) -> list[Row]:
    """The rows, with due times as instants, whatever the session's time zone."""
    instant = sf.expr("unix_micros(due_time)").alias("due_time")
    columns = [instant if name == "due_time" else name for name in frame.columns]
    return frame.select(*columns).orderBy("due_time", "message_id").collect()


def microseconds(instant: datetime) -> int:
    return (instant - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def readable(rows: list[Row]) -> list[Row]:
    return [row for row in rows if row[UNREADABLE] is None]


def reasons(rows: list[Row]) -> list[str]:
    return sorted(row[UNREADABLE] for row in rows if row[UNREADABLE] is not None)


def check_timeouts(rows: list[Row]) -> None:
    """All of the rows of legacy_tables, each as `delaystore migrate` would move it; bad ones with their reason."""
    kind = KINDS["nservicebus-sql"]["postgresql"]
    good = {row.message(kind).message_id: row.message(kind) for row in ROWS if row.reason is None}
    assert {row.message_id for row in readable(rows)} == set(good)
    for row in readable(rows):
        message = good[row.message_id]
        assert (row.destination, bytes(row.body)) == (message.destination, message.body)
        assert row.due_time == microseconds(message.due_time)
        assert json.loads(row.headers or "{}") == message.headers
        assert json.loads(row.properties) == message.properties
    assert [reason.partition(":")[0] for reason in reasons(rows)] == [
        "it has no destination",
        "the text of its headers is no JSON",
    ]


def test_a_table_of_timeouts_by_jdbc(spark: SparkSession, postgresql_url: str) -> None:
    make_table(postgresql_url, KINDS["nservicebus-sql"]["postgresql"], ROWS)
    url = urlsplit(postgresql_url)
    messages = read_nservicebus_table(
        spark,
        f"jdbc:postgresql://{url.hostname}:{url.port}{url.path}",
        "My.Sales",
        user=url.username or "",
        password=url.password or "",
        driver="org.postgresql.Driver",
    )
    assert messages.columns == COLUMNS
    check_timeouts(rows_of(messages))


def timeout(row: TimeoutRow) -> dict[str, Any]:
    headers = row.headers if isinstance(row.headers, str) else json.dumps(row.headers or {})
    return {
        "ID": row.row_id,
        "Destination": row.destination,
        "SagaId": row.saga,
        "State": row.body,
        "Time": row.due_time.replace(tzinfo=None),
        "Headers": headers,
        "PersistenceVersion": "6.0.0.0",
    }


@pytest.mark.parametrize("time_zone", [None, UTC])
def test_files_of_timeouts_with_typed_columns(spark: SparkSession, tmp_path: Path, time_zone: Any) -> None:
    table = pa.Table.from_pylist([timeout(row) for row in ROWS])
    time = pc.assume_timezone(table["Time"], "UTC") if time_zone else table["Time"]
    parquet.write_table(table.set_column(4, "Time", time), tmp_path / "timeouts.parquet")
    check_timeouts(rows_of(nservicebus_messages(spark.read.parquet(str(tmp_path)))))


@pytest.mark.parametrize("encode", [lambda body: b64encode(body).decode(), lambda body: "0x" + body.hex()])
def test_files_of_timeouts_as_text(spark: SparkSession, tmp_path: Path, encode: Any) -> None:
    with (tmp_path / "timeouts.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, timeout(ROWS[0]))
        writer.writeheader()
        for row in map(timeout, ROWS):
            writer.writerow({**row, "State": encode(row["State"] or b""), "Time": f"{row['Time']}.0000000"})
    check_timeouts(rows_of(nservicebus_messages(spark.read.csv(str(tmp_path), header=True, escape='"'))))


def test_rows_without_the_columns_of_timeouts_are_refused(spark: SparkSession) -> None:
    with pytest.raises(ConfigurationError, match="no column SagaId, State, Headers; they have Id, Time, Destination"):
        nservicebus_messages(spark.createDataFrame([("a", "b", "c")], "Id string, Time string, Destination string"))


def test_a_machine_is_left_out_of_an_address_of_msmq(spark: SparkSession) -> None:
    rows = [("1", "orders@SRV1", None, bytearray(b"x"), "2027-01-01T00:00:00", "{}")]
    frame = spark.createDataFrame(
        rows, "Id string, Destination string, SagaId string, State binary, Time string, Headers string"
    )
    (row,) = rows_of(nservicebus_messages(frame, addresses="msmq"))
    assert row.destination == "orders"
    with pytest.raises(ConfigurationError, match="addresses='x' is unknown"):
        nservicebus_messages(frame, addresses="x")


def check_raven(row: Row) -> None:
    assert (row.message_id, row.destination) == (HEADERS["NServiceBus.MessageId"], "orders")
    assert bytes(row.body) == b"\0body\xff"
    assert row.due_time == microseconds(EARLY)
    assert json.loads(row.headers) == {**HEADERS, "NServiceBus.SagaId": SAGA}
    assert json.loads(row.properties) == PROPERTIES


def test_an_export_of_ravendb_a_document_a_line(spark: SparkSession, tmp_path: Path) -> None:
    other = {**RAVEN, "OwningTimeoutManager": "Other"}
    lines = [json.dumps(RAVEN), "", json.dumps(other), '{"broken', "[7]"]
    (tmp_path / "timeouts.jsonl").write_text("\n".join(lines))
    rows = rows_of(ravendb_timeouts(spark, str(tmp_path / "*.jsonl"), endpoint="My.Sales"))
    (row,) = readable(rows)
    check_raven(row)
    assert [reason.partition(":")[0] for reason in reasons(rows)] == [
        "it is JSON, but no object",
        "it is no JSON",
    ]
    assert [bytes(row.body) for row in rows if row[UNREADABLE]] == [b'{"broken', b"7"]
    assert len(readable(rows_of(ravendb_timeouts(spark, str(tmp_path))))) == 2


@pytest.mark.parametrize("page", [lambda rows: {"Results": rows, "TotalResults": 1}, lambda rows: rows])
def test_an_answer_of_ravendb(spark: SparkSession, tmp_path: Path, page: Any) -> None:
    (tmp_path / "answer.json").write_text(json.dumps(page([RAVEN]), indent=2))
    (row,) = rows_of(ravendb_timeouts(spark, str(tmp_path / "answer.json"), whole_files=True))
    check_raven(row)


def test_an_export_of_azure_tables(spark: SparkSession, tmp_path: Path) -> None:
    bad = {**AZURE, "Time": "soon", "RowKey": "2"}
    (tmp_path / "entities.json").write_text(json.dumps({"items": [AZURE, bad], "nextMarker": {}}))
    rows = rows_of(azure_timeouts(spark, str(tmp_path), addresses="msmq", whole_files=True))
    (row,) = readable(rows)
    assert (row.message_id, row.destination, row.due_time) == (AZURE["RowKey"], "orders", microseconds(EARLY))
    assert row.headers is None
    (refused,) = reasons(rows)
    assert "'soon' is not a time in a form that delaystore reads" in refused


def sent_by_celery(app: Celery) -> dict[str, Any]:
    """What Celery writes for a task with an ETA, as a transport such as Redis would hold it."""
    with Connection("memory://") as connection:
        app.send_task("shop.remind", (7, "ü"), {"x": [1]}, eta=EARLY, task_id="task-1", connection=connection)
        with connection.channel() as channel:
            raw = channel._get("celery")
    return dict(raw)


def test_raw_messages_of_celery(spark: SparkSession, tmp_path: Path) -> None:
    raw = sent_by_celery(Celery(set_as_current=False))
    (tmp_path / "tasks.jsonl").write_text(json.dumps(raw))
    (row,) = rows_of(celery_tasks(spark, str(tmp_path), queue="celery"))
    assert (row.message_id, row.destination, row.due_time) == ("task-1", "celery", microseconds(EARLY))
    args, kwargs, _ = json.loads(row.body)
    assert (args, kwargs) == ([7, "ü"], {"x": [1]})
    assert json.loads(row.headers) == raw["headers"]
    properties = json.loads(row.properties)
    assert properties["correlation_id"] == "task-1"
    assert (properties["content_type"], properties["content_encoding"]) == ("application/json", "utf-8")


def test_what_celery_inspect_prints(spark: SparkSession, tmp_path: Path) -> None:
    request = {
        "id": "task-1",
        "name": "shop.remind",
        "args": [7],
        "kwargs": {"x": 1},
        "type": "shop.remind",
        "hostname": "celery@a",
        "time_start": None,
        "acknowledged": False,
        "delivery_info": {"exchange": "", "routing_key": "reminders", "priority": 0, "redelivered": None},
        "worker_pid": None,
    }
    task = {"eta": EARLY.isoformat(), "priority": 6, "request": request}
    local = {**task, "eta": "2027-03-14T08:15:00.123456", "request": {**request, "id": "task-2"}}
    (tmp_path / "scheduled.json").write_text(json.dumps({"celery@a": [task], "celery@b": [local], "celery@c": []}))
    rows = rows_of(celery_tasks(spark, str(tmp_path)))
    (row,) = readable(rows)
    assert (row.message_id, row.destination, row.due_time) == ("task-1", "reminders", microseconds(EARLY))
    assert json.loads(row.body)[:2] == [[7], {"x": 1}]
    assert json.loads(row.headers)["task"] == "shop.remind"
    assert ["has no time zone" in reason for reason in reasons(rows)] == [True]
    rows = rows_of(celery_tasks(spark, str(tmp_path), queue="/exchanges/e/k", time_zone="Asia/Kathmandu"))
    assert [(row.destination, row.due_time) for row in rows] == [("/exchanges/e/k", microseconds(EARLY))] * 2


def test_a_broken_record_of_celery_is_rejected_alone(spark: SparkSession, tmp_path: Path) -> None:
    good = {"headers": {"id": "good", "eta": EARLY.isoformat()}, "body": "x"}
    where = [7, {"routing_key": "k", "exchange": 7}, {"routing_key": "k", "exchange": "\ud800"}, {"routing_key": "q"}]
    records = [{**good, "properties": 7}, *({**good, "properties": {"delivery_info": info}} for info in where)]
    (tmp_path / "tasks.jsonl").write_text("\n".join(json.dumps(record) for record in records))
    rows = rows_of(celery_tasks(spark, str(tmp_path)))
    assert [row.destination for row in readable(rows)] == ["q"]
    no_address = "its delivery_info has an exchange or a routing_key that no address can hold"
    no_objects = ["its field delivery_info is no object", "its field properties is no object"]
    half = "it holds half a character: a surrogate, \\ud800 to \\udfff, without its pair"
    assert reasons(rows) == [half, no_address, *no_objects]


EVENTS = [
    ("17", EARLY, False, 12.5),
    ("a/b", EARLY, None, None),
    ("18", EARLY, True, 1.0),
    (None, EARLY, False, 2.0),
    ("19", None, False, 3.0),
]


@pytest.fixture
def events(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(EVENTS, "order_id string, `created.at` timestamp, cancelled boolean, amount double")


def test_three_days_after_an_order_was_created_unless_it_was_cancelled(events: DataFrame) -> None:
    messages = due_after(
        events,
        "created.at",
        timedelta(days=3),
        unless=sf.col("cancelled"),
        destination="reminders",
        key="order_id",
        body=["order_id", "amount"],
    )
    later = microseconds(EARLY + timedelta(days=3))
    assert [tuple(row) for row in rows_of(messages)] == [
        ("reminders/19", "reminders", None, '{"order_id":"19","amount":3.0}'),
        (None, "reminders", later, '{"order_id":null,"amount":2.0}'),
        ("reminders/17", "reminders", later, '{"order_id":"17","amount":12.5}'),
        ("reminders/a%2Fb", "reminders", later, '{"order_id":"a/b","amount":null}'),
    ]


def test_a_rule_of_its_own_name_and_a_condition_in_sql(events: DataFrame) -> None:
    messages = due_after(
        events,
        "created.at",
        -timedelta(hours=1, microseconds=1),
        unless="cancelled or amount is null",
        destination=sf.concat(sf.lit("queue-"), sf.col("order_id")),
        key=["order_id", "amount"],
        rule="warn",
        body=sf.lit("hello"),
        headers=sf.create_map(sf.lit("kind"), sf.lit("warning")),
    )
    found = [row for row in rows_of(messages) if row.message_id and row.due_time]
    earlier = microseconds(EARLY - timedelta(hours=1, microseconds=1))
    assert [tuple(row) for row in found] == [("warn/17/12.5", "queue-17", earlier, "hello", {"kind": "warning"})]


def test_times_without_a_zone_are_counted_on_the_calendar(spark: SparkSession) -> None:
    schema = StructType([StructField("id", StringType()), StructField("at", TimestampNTZType())])
    events = spark.createDataFrame([("1", datetime.fromisoformat("2027-03-13T02:30"))], schema)
    (row,) = due_after(events, "at", timedelta(days=1, microseconds=-1), destination="q", key="id").collect()
    assert row.due_time == datetime.fromisoformat("2027-03-14T02:29:59.999999")


def test_no_two_rules_make_one_id(spark: SparkSession) -> None:
    events = spark.createDataFrame([(EARLY, "b", "c", "b/c")], "at timestamp, b string, c string, both string")
    rules = [("/exchanges/a", ["b", "c"]), ("/exchanges/a/b", ["c"]), ("/exchanges/a", ["both"]), ("b", ["c"])]
    found = [due_after(events, "at", timedelta(days=1), destination=rule, key=key) for rule, key in rules]
    ids = [frame.select("message_id").collect()[0].message_id for frame in found]
    assert len(set(ids)) == len(rules)
    assert ids[-1] == "b/c"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"time": "nothing"}, "no column 'nothing'; they have order_id"),
        ({"time": "amount"}, "'amount' is a double, not a timestamp"),
        ({"key": "nothing"}, "no column 'nothing'"),
        ({"key": []}, "key is empty"),
        ({"body": ["nothing"]}, "no column 'nothing'"),
        ({"destination": None}, "rule is missing"),
    ],
)
def test_a_rule_that_cannot_be_followed_is_refused(events: DataFrame, arguments: dict[str, Any], says: str) -> None:
    given = {"time": "created.at", "destination": "q", "key": "order_id", **arguments}
    if given["destination"] is None:
        given["destination"] = sf.lit("q")
    with pytest.raises(ConfigurationError, match=says):
        due_after(events, given.pop("time"), timedelta(days=1), **given)


@pytest.mark.long
def test_the_writer_rejects_what_could_not_be_read_for_that_reason(
    spark: SparkSession, tmp_path: Path, sqlite_url: str
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "timeouts.jsonl").write_text(f'{json.dumps(RAVEN)}\n{{"broken')
    messages = ravendb_timeouts(spark, str(tmp_path / "in"))
    options = {"store": sqlite_url, "endpoint": "sales", "rejects": str(tmp_path / "rejects"), "loadId": "a"}
    messages.write.format("delaystore").options(**options).mode("append").save()
    (line,) = next((tmp_path / "rejects").glob("sales_*/a-00001.jsonl")).read_text().splitlines()
    assert json.loads(line)["_reason"].startswith("it is no JSON: ")
    waiting = spark.read.format("delaystore").option("store", sqlite_url).option("endpoint", "sales").load()
    assert [row.message_id for row in waiting.collect()] == [HEADERS["NServiceBus.MessageId"]]
