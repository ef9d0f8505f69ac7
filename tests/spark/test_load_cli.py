"""`delaystore load`, in the session of all tests; only what is interrupted is a process of its own."""

import csv
import gzip
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from contextlib import closing
from datetime import UTC, datetime, timedelta
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import LongType

import delaystore.registry
from delaystore.bulk.files import find_files
from delaystore.bulk.options import StoreOptions
from delaystore.bulk.request import LoadReport, LoadRequest
from delaystore.bulk.spark import loading
from delaystore.bulk.spark._columns import arrow_column
from delaystore.bulk.spark.loading import Tasks, Watcher, limited_batches, run_watched
from delaystore.bulk.staging import list_loads
from delaystore.delivery import DelayedDelivery
from delaystore.errors import LoadError
from delaystore.message import DelayedMessage
from delaystore.stores import SqlDelayedMessageStore
from tests.conformance.minimal_store import MinimalStore, Storage
from tests.dispatching import wait_until
from tests.integration.cli import PATIENCE, CommandLine, command_line, started
from tests.spark.java import QUICK_JAVA

HEADER = "order_id,send_at,queue,text\n"
SOON = datetime(2027, 3, 1, 8, tzinfo=UTC)
MAP = ["--map", "message_id=order_id", "--map", "due_time=send_at", "--map", "destination=queue", "--map", "body=text"]
MINIMAL = ["--store", "minimal:", "--on-duplicate", "ignore"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "files").mkdir()
    monkeypatch.chdir(tmp_path / "files")
    return tmp_path / "files"


@pytest.fixture
def run(
    spark: SparkSession, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, sqlite_url: str
) -> CommandLine:
    """The command line with a store, in the session that there is."""
    environment = {"DELAYSTORE_STORE": sqlite_url, "DELAYSTORE_ENDPOINT": "sales"}
    monkeypatch.setenv("DELAYSTORE_LOAD_CREATE", "1")
    return command_line(capsys, monkeypatch, environment)


def waiting(url: str) -> dict[str, DelayedMessage]:
    with closing(DelayedDelivery("sales", SqlDelayedMessageStore(url))) as delivery:
        return {message.message_id: message for message in delivery.list(limit=1000).messages}


def csv_of(count: int, start: int = 0) -> str:
    lines = (f"{n},{(SOON + timedelta(hours=n)).isoformat()},billing,hello {n}\n" for n in range(start, start + count))
    return HEADER + "".join(lines)


def test_a_csv_file_is_loaded_once(run: CommandLine, folder: Path, sqlite_url: str) -> None:
    (folder / "reminders.csv").write_bytes(b"\xef\xbb\xbf" + csv_of(50).encode())
    (folder / "more.csv.gz").write_bytes(
        gzip.compress(f'{HEADER}x,{SOON.isoformat()},/queues/q,"two\n""lines"""\n'.encode())
    )
    first = run("load", "*.csv*", *MAP, "--load-id", "2027-03", "--json")
    assert first.code == 0, first.err
    assert first.document["stored"] == 51
    assert (first.document["skipped"], first.document["rejected"]) == (0, 0)
    messages = waiting(sqlite_url)
    assert len(messages) == 51
    assert messages["x"].body == b'two\n"lines"'
    assert messages["7"] == DelayedMessage(
        message_id="7", destination="billing", due_time=SOON + timedelta(hours=7), body=b"hello 7"
    )
    again = run("load", "*.csv*", *MAP, "--load-id", "2027-03")
    assert again.code == 0
    assert again.out.startswith("nothing to do: the load '2027-03' was finished at")
    assert "51 messages" in again.out
    assert len(waiting(sqlite_url)) == 51


@pytest.mark.long
def test_each_example_of_the_help_runs(run: CommandLine, folder: Path) -> None:
    rows = f"message_id,{{due}},destination,body\nr-1,{SOON.isoformat()},billing,hello\n"
    (folder / "reminders.csv").write_text(rows.format(due="due_time"))
    (folder / "reminders").mkdir()
    (folder / "reminders" / "spring.csv").write_text(rows.format(due="send_at"))
    examples = re.findall(r"^  delaystore (load .*)$", run("load", "--help").out, re.MULTILINE)
    assert len(examples) > 1
    for example in examples:
        result = run(*shlex.split(example))
        assert result.code == 0, (example, result.err)


@pytest.mark.long_runs("parquet", "jsonl")
@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_other_files_under_the_id_of_a_finished_load_are_noticed(run: CommandLine, folder: Path, kind: str) -> None:
    rows = [{"message_id": str(n), "due_time": SOON.isoformat(), "body": f"line\nend {n}"} for n in range(4)]

    def write(count: int) -> None:
        path = folder / f"a.{kind}"
        if kind == "parquet":
            parquet.write_table(pa.Table.from_pylist(rows[:count]), path)
        elif kind == "jsonl":
            path.write_text("\n\n".join(map(json.dumps, rows[:count])))
        else:
            with path.open("w", newline="") as file:
                writer = csv.DictWriter(file, list(rows[0]))
                writer.writeheader()
                writer.writerows(rows[:count])

    load = ("load", f"a.{kind}", "--destination", "q", "--load-id", "x")
    write(3)
    assert run(*load).err == ""
    again = run(*load)
    assert (again.out.partition(" at ")[0], again.err) == ("nothing to do: the load 'x' was finished", "")
    write(4)
    other = run(*load)
    assert (other.code, "with 3 messages" in other.out) == (1, True)
    assert other.err == "not loaded: the files have 4 rows now; load other data under another --load-id\n"
    again = run(*load, "--json")
    assert (again.code, again.document["differs"]) == (1, True)


def test_files_without_rows_are_warned_of(run: CommandLine, folder: Path) -> None:
    (folder / "a.csv").write_text(HEADER)
    done = run("load", "a.csv", *MAP, "--load-id", "none")
    assert done.out.startswith("0 messages loaded")
    assert "warning: the load 'none' had no messages, and counts as finished" in done.err


def test_rows_that_cannot_be_messages_stop_the_load_or_are_set_aside(
    run: CommandLine, folder: Path, sqlite_url: str
) -> None:
    bad = f"a,soon,billing,x\nb,{SOON.isoformat()},,x\nc\n,{SOON.isoformat()},billing,x\n"
    (folder / "a.csv").write_text(csv_of(3) + bad)
    tried = run("load", "a.csv", *MAP, "--dry-run")
    assert "the load would fail, because rows cannot be messages (see --rejects-dir); nothing was written" in tried.out
    assert "4 rows would be rejected" in tried.out
    aside = run("load", "a.csv", *MAP, "--dry-run", "--rejects-dir", "rejects")
    assert "a dry run: 3 messages would be loaded; nothing was written" in aside.out
    assert not Path("rejects").exists()
    line = run.refused("load", "a.csv", *MAP)
    assert "4 rows cannot be messages" in line
    for reason in (
        "due_time is not a time in a form that delaystore reads",
        "destination is null",
        "the line is not readable",
        "message_id is null",
    ):
        assert f"1 x {reason}" in line
        assert f"1 x {reason}" in tried.out
    assert waiting(sqlite_url) == {}
    result = run("load", "a.csv", *MAP, "--rejects-dir", "rejects")
    assert result.out.startswith("3 messages loaded in")
    assert "4 rows rejected:" in result.out
    assert "is not recognised" in result.err
    assert set(waiting(sqlite_url)) == {"0", "1", "2"}
    (rejects,) = Path("rejects").glob("sales_*/*")
    assert len(rejects.read_text().splitlines()) == 4
    assert (
        run("load", "a.csv", *MAP, "--rejects-dir", "other", "--on-duplicate", "ignore", "--json").document["skipped"]
        == 3
    )


@pytest.mark.long
def test_what_waits_already_is_an_error_a_skip_or_replaced(run: CommandLine, folder: Path, sqlite_url: str) -> None:
    (folder / "a.csv").write_text(csv_of(2) + csv_of(1).removeprefix(HEADER))
    tried = run("load", "a.csv", *MAP, "--dry-run", "--json").document
    assert tried["would_store"] == 0
    assert tried["obstacles"] == ["a message_id comes twice (see --on-duplicate)"]
    assert tried["duplicates"] == {
        "in_the_files": 1,
        "in_the_files_examples": ["0"],
        "waiting": 0,
        "waiting_examples": [],
    }
    assert not Path(sqlite_url.removeprefix("sqlite:///")).exists()
    assert "message_id '0'" in run.refused("load", "a.csv", *MAP)
    (folder / "a.csv").write_text(csv_of(2))
    assert run("load", "a.csv", *MAP).code == 0
    (folder / "b.csv").write_text(csv_of(3).replace("hello", "bye"))
    assert run("load", "b.csv", *MAP, "--dry-run", "--json").document["duplicates"]["waiting"] == 2
    (folder / "twice.csv").write_text(csv_of(4) + csv_of(1).removeprefix(HEADER))
    ignoring = run("load", "twice.csv", *MAP, "--dry-run", "--on-duplicate", "ignore", "--json").document
    assert (ignoring["would_store"], ignoring["duplicates"]["waiting"]) == (2, 2)
    assert "already waiting" in run.refused("load", "b.csv", *MAP)
    assert len(waiting(sqlite_url)) == 2
    result = run("load", "b.csv", *MAP, "--on-duplicate", "replace")
    assert result.code == 0, result.err
    assert [message.body for message in waiting(sqlite_url).values()] == [b"bye 0", b"bye 1", b"bye 2"]


def test_delays_that_are_none_are_set_aside_as_they_were_written(
    run: CommandLine, folder: Path, sqlite_url: str
) -> None:
    bad = {
        "10 minutes": "delay is not a finite number of seconds, such as 90 or 0.5",
        "Infinity": "delay is not a finite number of seconds, such as 90 or 0.5",
        "NaN": "delay is not a finite number of seconds, such as 90 or 0.5",
        "1e300": "due_time is out of range",
        "-5": "delay is negative",
        "": "delay is null",
    }
    lines = (f"{number},{delay},x\n" for number, delay in enumerate([*bad, "90.5"]))
    (folder / "a.csv").write_text("message_id,delay,body\n" + "".join(lines))
    result = run("load", "a.csv", "--destination", "q", "--rejects-dir", "rejects", "--json")
    assert result.code == 0, result.err
    assert (result.document["stored"], result.document["rejected"]) == (1, 6)
    assert list(waiting(sqlite_url)) == ["6"]
    (rejects,) = Path("rejects").glob("sales_*/*")
    rejected = [json.loads(line) for line in rejects.read_text().splitlines()]
    assert {row["delay"] or "": row["_reason"] for row in rejected} == bad


def test_a_time_in_the_year_1_beside_one_of_today_is_loaded(run: CommandLine, folder: Path, sqlite_url: str) -> None:
    (folder / "a.csv").write_text(f"{csv_of(1)}old,0001-01-02T00:00:00Z,q,x\n")
    result = run("load", "a.csv", *MAP, "--json")
    assert result.code == 0, result.err
    assert set(waiting(sqlite_url)) == {"0", "old"}


@pytest.mark.long
def test_what_the_transport_cannot_carry_is_found_before_it_waits(
    run: CommandLine, folder: Path, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = {"message_id": "bad", "due_time": SOON.isoformat(), "destination": "q", "body": "", "headers": {"price": 1.5}}
    (folder / "a.jsonl").write_text(f"{json.dumps(row)}\n{json.dumps({**row, 'message_id': 'good', 'headers': {}})}\n")
    reason = "1 x the transport cannot carry it: header 'price' (float) holds a float"
    assert "2 messages would be loaded" in run("load", "a.jsonl", "--dry-run").out
    monkeypatch.setenv("DELAYSTORE_TRANSPORT", "amqp://127.0.0.1:1")  # nobody is there: it is not asked
    tried = run("load", "a.jsonl", "--dry-run").out
    assert "the load would fail" in tried
    assert reason in tried
    assert reason in run.refused("load", "a.jsonl")
    assert run("load", "a.jsonl", "--rejects-dir", "rejects").code == 0
    assert waiting(sqlite_url).keys() == {"good"}


@pytest.mark.usefixtures("plugged_in")
def test_a_dry_run_for_a_store_that_cannot_list_what_waits(run: CommandLine, folder: Path) -> None:
    (folder / "a.csv").write_text(csv_of(3))
    result = run("load", "a.csv", *MAP, *MINIMAL, "--dry-run")
    assert result.code == 0, result.err
    assert "a dry run: 3 messages would be loaded; nothing was written" in result.out
    assert "cannot list waiting messages" in result.err


@pytest.fixture
def plugged_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody's store, which has no more than it must."""
    plugin = EntryPoint("minimal", "tests.spark.test_load_cli:open_minimal", "delaystore.stores")
    plugins = EntryPoints([*entry_points(group="delaystore.stores"), plugin])
    monkeypatch.setattr(delaystore.registry, "entry_points", lambda group: plugins.select(group=group))


def open_minimal(_: str) -> MinimalStore:
    return MinimalStore(Storage())


def test_json_lines_are_read_as_they_are(run: CommandLine, folder: Path, sqlite_url: str) -> None:
    rows: list[Any] = [
        {
            "id": 1,
            "delay": 3600,
            "headers": {"n": 1, "deep": [None, True]},
            "body": {"a": 1},
            "properties": {"priority": 3},
        },
        {"id": "b", "delay": 7200.5, "headers": None, "body": "plain", "queue": "/queues/other"},
        "no object",
    ]
    (folder / "a [1] b.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    before = datetime.now(UTC)
    result = run(
        "load", "a [1] b.jsonl", "--map", "message_id=ID", "--map", "destination=queue", "--destination", "billing",
        "--rejects-dir", "rejects", "--json",
    )  # fmt: skip
    assert result.code == 0, result.err
    messages = waiting(sqlite_url)
    assert messages["1"].headers == {"n": 1, "deep": [None, True]}
    assert messages["1"].properties == {"priority": 3}
    assert (messages["1"].body, messages["1"].destination) == (b'{"a": 1}', "billing")
    assert (messages["b"].body, messages["b"].destination) == (b"plain", "/queues/other")
    assert messages["1"].due_time - before > timedelta(minutes=59)
    (rejection,) = result.document["rejections"]
    assert "not readable" in rejection["reason"]
    assert "no object" in rejection["examples"][0]


@pytest.mark.long  # test_load_texts.py has folders, tests/unit/test_spark_conversion_ids.py ids
def test_parquet_in_folders_with_ids_from_a_key(
    spark: SparkSession, run: CommandLine, folder: Path, sqlite_url: str
) -> None:
    frame = spark.range(20).select(
        sf.col("id").alias("order"),
        sf.expr("timestamp_ntz '2027-03-28 02:30:00' + make_dt_interval(id - 5)").alias("due_time"),
        (sf.col("id") % 2).alias("part"),
    )
    frame.write.partitionBy("part").parquet(str(folder / "out"))
    options = ["--destination", "q", "--id-columns", "order", "--unknown-columns", "body"]
    assert "ids are derived from --id-columns and --load-id; give both" in run.refused("load", "out", *options)
    assert "set --time-zone, such as" in run.refused("load", "out", *options, "--load-id", "a")
    zone = ["--time-zone", "Europe/Berlin"]  # where the clocks skip that hour on that day
    assert "1 x due_time does not exist" in run.refused("load", "out", *options, "--load-id", "a", *zone)
    assert run("load", "out", *options, "--load-id", "a", *zone, "--rejects-dir", "r").code == 0
    messages = waiting(sqlite_url)
    assert len(messages) == 19
    bodies = {json.loads(message.body)["order"]: message for message in messages.values()}
    assert bodies[0].due_time == datetime(2027, 3, 23, 1, 30, tzinfo=UTC)
    assert bodies[6].due_time == datetime(2027, 3, 29, 0, 30, tzinfo=UTC)
    assert json.loads(bodies[3].body) == {"order": 3, "part": 1}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "no files are given"),
        (["none.csv"], "there is no file 'none.csv'"),
        (["none*.csv"], "there is no file 'none*.csv'"),
        (["a.csv", "b.jsonl"], "several kinds ('a.csv' is csv, 'b.jsonl' is json)"),
        (["c.txt"], "does not say how it is written"),
        (["empty"], "has no files in it"),
        (["nested"], "'nested/2026/b.csv' is in a folder below 'nested'"),
        (["a.csv", "--format", "xml"], "must be one of csv, json, parquet"),
        (["c.txt", "--format", "parquet"], "is not a Parquet file"),
        (["zero.csv"], "no rows"),
        (["a.csv", "d.csv", "--map", "due_time=send_at"], "columns"),
        (["a.csv", "--map", "due=send_at"], "a message has no 'due'"),
        (["a.csv", "--map", "send_at"], "not of the form"),
        (["a.csv", "--map", "body=a", "--map", "Body=b"], "body twice"),
        (["a.csv", "--map", "due_time=nothing"], "no column 'nothing'; they have order_id, send_at, queue, text"),
        (["a.csv"], "no column says when"),
        (["a.csv", "--map", "due_time=send_at"], "no column says where messages go"),
        (["a.csv", "--map", "due_time=send_at", "--destination", "q"], "no column has ids"),
        (["a.csv", *MAP[:-2]], "unknown columns text (string); a message's are"),
        (["a.csv", *MAP, "--time-zone", "Mars"], "'Mars' is unknown"),
        (["a.csv", *MAP, "--on-duplicate", "maybe"], "maybe"),
        (["a.csv", *MAP, "--destination", "q" * 300], "at most 255"),
        (["a.csv", *MAP, "--load-id", "ü"], "printable ASCII"),
        (["a.csv", *MAP, "--conf", "spark"], "KEY=VALUE"),
        (["a.csv", *MAP, "--master", "spark://127.0.0.1:1"], "runs here already"),
        (["a.csv", *MAP, "--store", "memory:"], "memory"),
        (["a.csv", *MAP, "--store", "nonsense://x"], "nonsense"),
        (["a.csv", *MAP, "--store", "postgresql+psycopg://app:s3cret@127.0.0.1:1/app"], "refused"),
        (["a.csv", *MAP, "--rejects-dir", "/proc/none"], "/proc/none"),
    ],
)
def test_mistakes_are_one_line(
    run: CommandLine, folder: Path, sqlite_url: str, arguments: list[str], says: str
) -> None:
    (folder / "a.csv").write_text(csv_of(1))
    (folder / "b.jsonl").write_text("{}")
    (folder / "c.txt").write_text("x")
    (folder / "d.csv").write_text("queue,send_at,order_id,text\nq,x,1,y\n")
    (folder / "zero.csv").write_text("")
    (folder / "empty").mkdir()
    (folder / "nested" / "2026").mkdir(parents=True)
    (folder / "nested" / "2026" / "b.csv").write_text(csv_of(1))
    line = run.refused("load", *arguments)
    assert says in line
    assert "s3cret" not in line
    assert waiting(sqlite_url) == {}


def test_without_spark_or_java_the_line_says_what_to_install(
    run: CommandLine, folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (folder / "a.csv").write_text(csv_of(1))
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "pyspark", None)
        assert "run pip install '.[spark]'" in run.refused("load", "a.csv", *MAP)
    with monkeypatch.context() as patch:
        patch.setenv("PATH", str(tmp_path))
        patch.delenv("JAVA_HOME", raising=False)
        assert "Spark needs Java, and there is none" in run.refused("load", "a.csv", *MAP)
        patch.setenv("JAVA_HOME", str(tmp_path))
        assert "no bin/java" in run.refused("load", "a.csv", *MAP)
    for version, says in (('java version "1.8.0_392"', "is Java 8"), ('openjdk version "11.0.2"', "is Java 11")):
        java = tmp_path / "bin" / "java"
        java.parent.mkdir(exist_ok=True)
        java.write_text(f"#!/bin/sh\necho '{version}' >&2\n")
        java.chmod(0o755)
        monkeypatch.setenv("JAVA_HOME", str(tmp_path))
        assert says in run.refused("load", "a.csv", *MAP)


def test_a_cleanup_says_what_it_removed(run: CommandLine, sqlite_url: str) -> None:
    assert "no SQLite file" in run.refused("load", "--cleanup")
    assert run("setup").code == 0
    assert run("load", "--cleanup").out == "nothing to remove\n"
    program = (
        "import os\n"
        "from delaystore.bulk.options import WriteOptions\n"
        "from delaystore.bulk.staging import LoadKey, LoadOwner, open_staging\n"
        f"options = WriteOptions(store={sqlite_url!r}, endpoint='sales')\n"
        "open_staging(options, 600, LoadOwner.of(os.getpid())).begin(LoadKey('died'))\n"
        "os._exit(9)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=False)
    result = run("load", "--cleanup")
    assert "forgotten: the load 'died', which was never finished" in result.out
    assert "dropped: the table" in result.out
    assert run("load", "--cleanup", "--json").document == {"loads": [], "tables": [], "held": []}


@pytest.mark.long
def test_an_interrupted_load_leaves_nothing(folder: Path, sqlite_url: str, tmp_path: Path) -> None:
    rows = "".join(f"{n},2027-01-01T00:00:00Z,q,x\n" for n in range(600_000))
    (folder / "a.csv").write_text(HEADER + rows)
    environment = {
        "DELAYSTORE_STORE": sqlite_url,
        "DELAYSTORE_ENDPOINT": "sales",
        "SPARK_LOCAL_DIRS": str(tmp_path),
        "SPARK_SUBMIT_OPTS": QUICK_JAVA,
    }
    process = started(["load", "a.csv", *MAP, "--create", "--load-id", "a", "--master", "local[1]"], environment)
    try:
        wait_for_running_load(sqlite_url)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=4 * PATIENCE)
    finally:
        process.kill()
    assert (process.returncode, err) == (130, "stopped; nothing was loaded\n")
    assert waiting(sqlite_url) == {}
    assert list_loads(StoreOptions(store=sqlite_url, endpoint="sales")) == []


@pytest.mark.long
@pytest.mark.parametrize(
    ("end", "said"),
    [
        (
            "killed",
            "Spark's Java ended: it was killed (SIGKILL), as the kernel does where memory runs out; free memory",
        ),
        ("memory", "OutOfMemoryError"),
    ],
)
def test_the_end_of_java_is_one_line_with_its_cause(
    folder: Path, sqlite_url: str, tmp_path: Path, end: str, said: str
) -> None:
    rows = 600_000 if end == "killed" else 400
    body = b"x" if end == "killed" else os.urandom(2**20)
    table = pa.table(
        {"message_id": [str(n) for n in range(rows)], "due_time": pa.array([SOON] * rows), "body": [body] * rows}
    )
    parquet.write_table(table, folder / "a.parquet", use_dictionary=end == "killed", row_group_size=rows)
    environment = {
        "DELAYSTORE_STORE": sqlite_url,
        "DELAYSTORE_ENDPOINT": "sales",
        "SPARK_LOCAL_DIRS": str(tmp_path),
        "SPARK_SUBMIT_OPTS": QUICK_JAVA,
    }
    memory = ["--conf", "spark.driver.memory=500m"]
    ends = ["--destination", "q", "--create", "--load-id", "a", "--master", "local[1]", *memory]
    process = started(["load", "a.parquet", *ends], environment)
    try:
        if end == "killed":
            wait_for_running_load(sqlite_url)
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            (java,) = [pid for pid in children if "java" in Path(f"/proc/{pid}/comm").read_text()]
            os.kill(int(java), signal.SIGKILL)
        _, err = process.communicate(timeout=4 * PATIENCE)
    finally:
        process.kill()
    assert process.returncode == 2
    (line,) = err.splitlines()
    assert said in line
    assert "--conf spark.driver.memory=" in line


@pytest.mark.long
def test_large_rows_come_in_small_batches(spark: SparkSession, tmp_path: Path) -> None:
    """Else Spark puts 4,096 rows of Parquet, and 10,000 for Python, into Java's memory at once."""
    large = tmp_path / "large.parquet"
    parquet.write_table(pa.table({"body": [os.urandom(2**20)] * 60}), large, use_dictionary=False)
    names = ["spark.sql.execution.arrow.maxRecordsPerBatch", "spark.sql.parquet.columnarReaderBatchSize"]
    before = [spark.conf.get(name) for name in names]

    def size_of_batch(values: pa.Array) -> pa.Array:
        return pa.array([len(values)] * len(values), pa.int64())

    with limited_batches(spark, find_files([str(large)], None)):
        frame = spark.read.parquet(str(large))
        rows = frame.select(arrow_column(size_of_batch, frame["body"], LongType()).alias("size")).collect()
        assert spark.conf.get(names[1]) == "15"
    assert len(rows) == 60
    assert max(row.size for row in rows) <= 16
    assert [spark.conf.get(name) for name in names] == before


def test_a_stop_that_comes_too_late_says_what_was_loaded(
    run: CommandLine, folder: Path, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = loading.load

    def finished_and_stopped(spark: SparkSession, request: LoadRequest, watcher: Watcher) -> LoadReport:
        load(spark, request, watcher)
        os.kill(os.getpid(), signal.SIGINT)
        raise LoadError("Spark failed: the job was cancelled")

    (folder / "a.csv").write_text(f"{csv_of(3)}bad,soon,billing,x\n")
    monkeypatch.setattr(loading, "load", finished_and_stopped)
    result = run("load", "a.csv", *MAP, "--rejects-dir", "rejects")
    assert result.code == 0, result.err
    assert result.err.startswith("too late to stop: the load was finished meanwhile\n")
    assert "is not recognised" in result.err
    assert result.out.startswith(
        "3 messages loaded\n1 row rejected:\n  1 x due_time is not a time in a form that delaystore reads"
    )
    assert len(waiting(sqlite_url)) == 3


@pytest.mark.usefixtures("plugged_in")
@pytest.mark.parametrize(
    ("options", "says"),
    [
        ([], "stopped; nothing was loaded\n"),
        (MINIMAL, "stopped; what was stored until then stays\n"),
        (["--dry-run"], "stopped; a dry run writes nothing\n"),
    ],
)
def test_a_stop_ends_the_search_for_columns(
    run: CommandLine, folder: Path, sqlite_url: str, monkeypatch: pytest.MonkeyPatch, options: list[str], says: str
) -> None:
    searched = []

    def search_for_long(spark: SparkSession, *_: object) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        searched.append("begun")
        spark.range(1).selectExpr("java_method('java.lang.Thread', 'sleep', 30000L)").collect()
        searched.append("ended by itself")

    (folder / "a.csv").write_text(csv_of(1))
    monkeypatch.setattr(loading, "read_files", search_for_long)
    result = run("load", "a.csv", *MAP, *options)
    assert (result.code, result.err) == (130, says)
    assert searched == ["begun"]


def test_a_load_goes_on_when_nobody_can_watch_it(spark: SparkSession) -> None:
    watched = threading.Event()

    class Failing:
        def watch(self, tasks: Tasks) -> bool:
            watched.set()
            raise ConnectionError(f"Java has gone, {tasks}")

    assert run_watched(spark, lambda: watched.wait(PATIENCE), Failing())


def wait_for_running_load(url: str) -> None:
    options = StoreOptions(store=url, endpoint="sales")
    file = url.removeprefix("sqlite:///")
    wait_until(lambda: os.path.exists(file) and list_loads(options), "the load", 4 * PATIENCE)
