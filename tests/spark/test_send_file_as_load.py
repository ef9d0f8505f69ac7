"""`delaystore send --file` stores what `delaystore load` stores, and rejects what it rejects."""

import json
from contextlib import closing
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from delaystore.delivery import DelayedDelivery
from delaystore.stores import SqlDelayedMessageStore
from tests.integration.cli import CommandLine, Result

MAP = ["--map", "message_id=Order", "--map", "body=text"]
DUE = datetime(2027, 3, 1, 8, 0, 0, 123456, tzinfo=UTC)
LOCAL = [datetime.fromisoformat("2027-03-01T08:00"), datetime.fromisoformat("2027-03-28T02:30")]
CSV = (
    b"\xef\xbb\xbforder,due_time,text,destination,empty\r\n"
    b'1,2027-03-01T08:00:00+01:00,"one\r\ntwo ""three""",,\r\n'
    b'2,2027-03-01T08:00:00Z,"",/queues/q,""\r\n'
    b"3,2027-03-01T08:00:00Z,,q,x\r\n"
    b'"",2027-03-01T08:00:00Z,x,q,x\r\n'
    b"\r\n"
    b"4,soon,x,q,x\r\n"
    b"5,2027-03-01T08:00:00Z,x\r\n"
    b'6,2027-03-01T08:00:00Z,"x, y",q,x,more\r\n'
    b'7,2027-03-01T08:00:00Z,\\", spaced ,x\r\n'
    b"8,2027-03-01T08:00:00.1234567Z, y ,q,\xc3\xbc"
)
EXCEL = (
    "\ufeffOrder\tdue_time\ttext\tprice\r\n"
    '1\t2027-03-01T08:00:00Z\t"one\ntwo ""three"""\t1,50\r\n'
    "2\tsoon\tx; y, z\tü\r\n"
)
LINES = (
    b'{"Order":1,"due_time":"2027-03-01T08:00:00Z","text":{"n": 1.10},"headers":{"a":[1,null]},"n":1e3}\n'
    b"\n  \r\n"
    b'{"Order":"2","due_time":"2027-03-01T08:00:00Z","text":"x","properties":{"priority":3},"n":null}\r'
    b'{"Order":"3","due_time":"2027-03-01T08:00:00Z","text":null}\n'
    b'{"Order":"4","due_time":"2027-03-01T08:00:00Z","text":"a"}{}\n'
    b"nothing\n"
    b'{"Order":"5","due_time":"2027-03-01T08:00:00Z","text":"f\xfcr"}\n'
    b'{"Order":true,"due_time":"2027-03-01T08:00:00Z","text":"\\u00fc"}'
)


def table() -> pa.Table:
    """A column of each kind that headers can hold."""
    columns: dict[str, tuple[Any, pa.DataType]] = {
        "Order": (["1", "2", None], pa.large_string()),
        "due_time": ([DUE, DUE, DUE], pa.timestamp("ms", "Europe/Berlin")),
        "text": ([b"x", b"\xff", b"y"], pa.large_binary()),
        "tiny": ([1, None, 3], pa.int8()),
        "unsigned": ([1, 2**63, 3], pa.uint64()),
        "half": ([1.5, None, 2.5], pa.float32()),
        "double": ([1.1, float("nan"), float("inf")], pa.float64()),
        "price": ([Decimal("1.50"), None, Decimal("-2.25")], pa.decimal128(10, 2)),
        "kind": (["a", "b", "a"], pa.dictionary(pa.int32(), pa.string())),
        "seen": ([DUE, None, DUE], pa.timestamp("us", "UTC")),
        "yes": ([True, False, None], pa.bool_()),
        "list": ([[1, None], [], None], pa.large_list(pa.int16())),
        "struct": ([{"a": "x", "b": None}, None, {"a": None, "b": 2}], pa.struct({"a": pa.string(), "b": pa.int64()})),
        "map": ([[("k", "v")], [], None], pa.map_(pa.string(), pa.string())),
        "raw": ([b"1234", b"5678", None], pa.binary(4)),
        "span": ([timedelta(seconds=1), None, timedelta(0)], pa.duration("us")),
    }
    return pa.table({name: pa.array(values, kind) for name, (values, kind) in columns.items()})


def local_table() -> pa.Table:
    """Local times, and what only JSON bodies can hold."""
    columns: dict[str, tuple[Any, pa.DataType]] = {
        "order": ([1, 2], pa.int32()),
        "due_time": (LOCAL, pa.timestamp("us")),
        "day": ([date(2027, 1, 1), None], pa.date32()),
    }
    return pa.table({name: pa.array(values, kind) for name, (values, kind) in columns.items()})


@pytest.fixture
def run(
    spark: SparkSession, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> CommandLine:
    monkeypatch.chdir(tmp_path)
    for name, value in {"ENDPOINT": "sales", "SEND_CREATE": "1", "LOAD_CREATE": "1"}.items():
        monkeypatch.setenv(f"DELAYSTORE_{name}", value)
    return CommandLine(capsys, {})


def both(run: CommandLine, file: str, *options: str) -> tuple[Result, Result]:
    """The file by both commands, each into a store and a folder of its own."""
    loaded = run("load", file, "--destination", "all", *options, "--store", url("load"), "--rejects-dir", "load")
    sent = run("send", "all", "--file", file, *options, "--store", url("send"), "--rejects-dir", "send")
    return loaded, sent


def url(store: str) -> str:
    """Spark's workers are in another folder than this test."""
    return f"sqlite:///{Path(store).absolute()}.db"


def stored(store: str) -> list[Any]:
    with closing(DelayedDelivery("sales", SqlDelayedMessageStore(url(store)))) as delivery:
        return sorted(delivery.list(limit=1000).messages, key=lambda message: message.message_id)


def rejected(folder: str) -> list[dict[str, Any]]:
    """Without the lines' numbers, which Spark does not know."""
    lines = [line for path in Path(folder).glob("*/*") for line in path.read_text().splitlines()]
    rows = [json.loads(line) for line in sorted(lines)]
    return [{name: value for name, value in row.items() if name != "_line"} for row in rows]


@pytest.mark.long_runs("semicolons", "json lines", "parquet of local times")
@pytest.mark.parametrize(
    ("name", "content", "options", "good", "bad"),
    [
        ("a.csv", CSV, [*MAP, "--unknown-columns", "headers"], 4, 5),
        ("a.csv", EXCEL.encode("utf-16-le"), [*MAP, "--unknown-columns", "headers"], 1, 1),
        ("a.csv", EXCEL.replace("\t", ";").encode(), [*MAP, "--unknown-columns", "ignore"], 1, 1),
        ("a.jsonl", LINES, [*MAP, "--unknown-columns", "headers"], 3, 4),
        ("a.parquet", table(), [*MAP, "--unknown-columns", "headers"], 2, 1),
        (
            "a.parquet",
            local_table(),
            ["--unknown-columns", "body", "--id-columns", "ORDER", "--load-id", "x", "--time-zone", "Europe/Berlin"],
            1,
            1,
        ),
    ],
    ids=["csv", "csv of excel", "semicolons", "json lines", "parquet", "parquet of local times"],
)
def test_both_store_and_reject_the_same(
    run: CommandLine, name: str, content: bytes | pa.Table, options: list[str], good: int, bad: int
) -> None:
    if isinstance(content, bytes):
        Path(name).write_bytes(content)
    else:
        parquet.write_table(content, name)
    loaded, sent = both(run, name, *options)
    assert (loaded.code, sent.code) == (0, 0), (loaded.err, sent.err)
    assert stored("send") == stored("load")
    assert rejected("send") == rejected("load")
    assert (len(stored("send")), len(rejected("send"))) == (good, bad)


def test_old_times_of_spark_are_instants_to_both(run: CommandLine, spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(2).select(
        sf.col("id").cast("string").alias("message_id"),
        sf.expr("timestamp '2027-03-01 08:00:00 UTC'").alias("due_time"),
        sf.lit("x").alias("body"),
    )
    spark.conf.set("spark.sql.parquet.outputTimestampType", "INT96")
    try:
        frame.coalesce(1).write.parquet(str(tmp_path / "old"))
    finally:
        spark.conf.unset("spark.sql.parquet.outputTimestampType")
    (file,) = map(str, Path("old").glob("*.parquet"))
    loaded, sent = both(run, file)
    assert (loaded.code, sent.code) == (0, 0), (loaded.err, sent.err)
    assert stored("send") == stored("load")
    assert [message.due_time for message in stored("send")] == [datetime(2027, 3, 1, 8, tzinfo=UTC)] * 2


@pytest.mark.parametrize(
    ("name", "content", "options"),
    [
        ("a.csv", b"message_id,body\n1,x\n", []),
        ("a.csv", b"message_id,body,due_time\n1,x,2027-03-01T08:00:00Z\n", ["--map", "due_time=at"]),
        ("a.csv", b"message_id,body,due_time,Body\n1,x,2027-03-01T08:00:00Z,x\n", []),
        ("a.csv", b'message_id,body\n1,"x\n', []),
        ("a.csv", b"", []),
        ("a.csv", b"message_id:body\n", []),
        ("a.csv", b"message_id;body\n", ["--separator", "comma"]),
        ("a.jsonl", b"[\n]\n", []),
        ("a.jsonl", b'{"a":1}\n{"A":1}\n', []),
        ("a.parquet", b"PAR", []),
        ("a.parquet", local_table(), ["--load-id", "x", "--id-columns", "order", "--unknown-columns", "body"]),
    ],
)
def test_both_refuse_in_the_same_words(
    run: CommandLine, name: str, content: bytes | pa.Table, options: list[str]
) -> None:
    if isinstance(content, bytes):
        Path(name).write_bytes(content)
    else:
        parquet.write_table(content, name)
    loaded, sent = both(run, name, *options)
    assert (loaded.code, sent.code) == (2, 2)
    assert sent.err == loaded.err


FAR = [datetime(year, 12, 29, 12, tzinfo=UTC) for year in (1700, 1969, 2027, 2261, 2300, 3000, 9998)]
TIMES: dict[str, tuple[pa.DataType, dict[str, Any]]] = {
    "INT96": (pa.timestamp("us", "UTC"), {"use_deprecated_int96_timestamps": True, "store_schema": False}),
    "microseconds": (pa.timestamp("us", "UTC"), {}),
    "milliseconds": (pa.timestamp("ms", "UTC"), {}),
    "seconds": (pa.timestamp("s", "Europe/Berlin"), {}),
    "local microseconds": (pa.timestamp("us"), {}),
    "local milliseconds": (pa.timestamp("ms"), {}),
    "nanoseconds": (pa.timestamp("ns", "UTC"), {}),
}


@pytest.mark.long_runs(after=2)
@pytest.mark.parametrize("times", TIMES)
def test_far_times_are_the_same_to_load_send_and_migrate(run: CommandLine, times: str) -> None:
    kind, options = TIMES[times]
    due = [at for at in FAR if kind.unit != "ns" or 1700 <= at.year < 2262]
    zone = ["--time-zone", "UTC"] if kind.tz is None else []
    given = [at.replace(tzinfo=None) if kind.tz is None else at for at in due]
    columns = {"message_id": [f"{at.year}" for at in due], "due_time": pa.array(given, kind), "body": ["x"] * len(due)}
    parquet.write_table(pa.table(columns), "a.parquet", **options)
    loaded, sent = both(run, "a.parquet", *zone)
    setup = run("setup", "--store", url("migrate"))
    source = f"file://{Path('a.parquet').absolute()}?destination==all" + ("&timezone=UTC" if zone else "")
    migrated = run("migrate", "run", "--from", source, "--to", url("migrate"), "--endpoint", "sales", "--yes")
    assert (sent.code, setup.code, migrated.code) == (0, 0, 0), (sent.err, migrated.err)
    expected = {str(at.year): at for at in due}
    assert {each.message_id: each.due_time for each in stored("send")} == expected
    assert {each.message_id: each.due_time for each in stored("migrate")} == expected
    if kind.unit != "ns":  # which Spark does not read
        assert loaded.code == 0, loaded.err
        assert {each.message_id: each.due_time for each in stored("load")} == expected


@pytest.mark.long_runs(after=2)
@pytest.mark.parametrize("unit", ["s", "ms", "us"])
@pytest.mark.parametrize("zone", ["UTC", None])
def test_a_time_beyond_all_years_is_rejected_by_send_and_migrate(run: CommandLine, unit: str, zone: str | None) -> None:
    """Java's Long.MAX_VALUE, a common "never", did not fit into microseconds, and was sent at once."""
    most = (2**63 - 1) // (1000 if unit == "s" else 1)  # Parquet has no seconds
    never = pa.array([most, -most, 4_000_000_000], pa.int64()).cast(pa.timestamp(unit, zone))
    columns = {"message_id": ["never", "ever", "good"], "due_time": never, "body": ["x"] * 3}
    parquet.write_table(pa.table(columns), "a.parquet")
    options = [] if zone else ["--time-zone", "UTC"]
    sent = run("send", "all", "--file", "a.parquet", *options, "--store", url("send"), "--rejects-dir", "send")
    assert sent.code == 0, sent.err
    assert [each.message_id for each in stored("send")] == ["good"]
    assert "2 x due_time is out of range" in sent.out
    assert run("setup", "--store", url("migrate")).code == 0
    source = f"file://{Path('a.parquet').absolute()}?destination==all&timezone=UTC"
    run("migrate", "run", "--from", source, "--to", url("migrate"), "--endpoint", "sales", "--yes", "--allow-rejected")
    assert [each.message_id for each in stored("migrate")] == ["good"]
