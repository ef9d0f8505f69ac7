"""`delaystore send --file`: a small file's rows, all or none, without Spark."""

import gzip
import io
import json
import os
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from pyspark import SparkContext
from sqlalchemy import event, text
from sqlalchemy.pool import Pool

from delaystore.bulk import request
from delaystore.bulk.options import StoreOptions
from delaystore.bulk.staging import FinishedLoad, list_loads
from delaystore.bulk.staging._runs import SqlStaging
from delaystore.cli import _send
from delaystore.delivery import DelayedDelivery
from delaystore.stores import SqlDelayedMessageStore
from tests.dispatching import wait_until
from tests.integration.cli import PATIENCE, CommandLine, command_line, started
from tests.integration.sql_stores import connected, message, opened, query, url_for
from tests.integration.test_documents import blocks, shell
from tests.long import long
from tests.servers import PostgreSQLDatabases

HEADER = "message_id,due_time,body\n"
MAP = ["--map", "message_id=order", "--map", "due_time=send_at", "--map", "body=text"]


@pytest.fixture
def run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, sqlite_url: str, tmp_path: Path
) -> CommandLine:
    """The command line with a store, in a folder of its own."""
    environment = {"DELAYSTORE_STORE": sqlite_url, "DELAYSTORE_ENDPOINT": "sales"}
    environment |= {"DELAYSTORE_SEND_CREATE": "1", "DELAYSTORE_LOAD_CREATE": "1"}
    monkeypatch.chdir(tmp_path)
    return command_line(capsys, monkeypatch, environment)


def csv_of(count: int) -> str:
    return HEADER + "".join(f"{number},2027-03-01T08:00:00+01:00,hello {number}\n" for number in range(count))


def waiting(url: str) -> dict[str, bytes]:
    if not Path(url.removeprefix("sqlite:///")).exists():
        return {}
    with closing(DelayedDelivery("sales", SqlDelayedMessageStore(url))) as delivery:
        return {message.message_id: message.body for message in delivery.list(limit=1000).messages}


def test_a_file_is_sent_once(run: CommandLine, sqlite_url: str) -> None:
    Path("a.csv").write_text(csv_of(3).replace("message_id,due_time,body", "Order,send_at,text"))
    sent = run("send", "billing", "--file", "a.csv", *MAP, "--load-id", "2027-03", "--json")
    assert (sent.code, sent.err, sent.document["stored"]) == (0, "", 3)
    assert waiting(sqlite_url) == {"0": b"hello 0", "1": b"hello 1", "2": b"hello 2"}
    again = run("send", "billing", "--file", "a.csv", *MAP, "--load-id", "2027-03")
    assert again.out.startswith("nothing to do: the load '2027-03' was finished at")
    line = run.refused("send", "billing", "--file", "a.csv", *MAP)
    assert "already waiting" in line
    assert "leave it out, or set --on-duplicate to ignore or replace" in line
    skipping = run("send", "billing", "--file", "a.csv", *MAP, "--on-duplicate", "ignore", "--json")
    assert (skipping.document["stored"], skipping.document["skipped"]) == (0, 3)


def test_a_file_is_sent_by_one_engine(run: CommandLine, sqlite_url: str) -> None:
    """An engine for each step would connect anew, and look at the database's version and settings again."""
    engines: list[object] = []

    def note(connection: object, _record: object) -> None:
        engines.append(connection)

    Path("a.csv").write_text(csv_of(3))
    event.listen(Pool, "first_connect", note)
    try:
        sent = run("send", "billing", "--file", "a.csv", "--rejects-dir", "bad")
    finally:
        event.remove(Pool, "first_connect", note)
    assert sent.out.startswith("3 messages loaded")
    assert len(engines) == 1
    assert len(waiting(sqlite_url)) == 3


@pytest.mark.parametrize("name", ["a.csv.GZ", "a.CSV.gz", "a.Csv.Gz"])
def test_the_ending_of_a_file_counts_in_any_case(run: CommandLine, sqlite_url: str, name: str) -> None:
    Path(name).write_bytes(gzip.compress(csv_of(2).encode()))
    assert run("send", "billing", "--file", name).code == 0
    assert waiting(sqlite_url) == {"0": b"hello 0", "1": b"hello 1"}


def test_a_home_that_is_not_known_is_told_in_one_line(run: CommandLine, sqlite_url: str) -> None:
    Path("a.csv").write_text(csv_of(2))
    line = run.refused("send", "q", "--file", "a.csv", "--rejects-dir", "~no-such-user/x")
    assert "'~no-such-user/x' begins with a home folder that is not known" in line
    assert waiting(sqlite_url) == {}


def test_what_comes_from_standard_input_is_sent(
    run: CommandLine, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def typed(text: str) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))

    typed('{"message_id":"a","destination":"q","delay":60,"body":"x"}\n')
    assert run("send", "--file", "-", "--format", "json").code == 0
    assert waiting(sqlite_url) == {"a": b"x"}
    assert "add --format" in run.refused("send", "q", "--file", "-")
    typed(f'{HEADER}"')
    assert "no CSV in the row that begins at line 2" in run.refused("send", "q", "--file", "-", "--format", "csv")


def test_a_row_that_is_no_message_stops_all_or_is_set_aside(run: CommandLine, sqlite_url: str) -> None:
    Path("a.csv").write_text(f"{csv_of(2)}bad,soon,x\n")
    tried = run("send", "q", "--file", "a.csv", "--dry-run")
    assert tried.code == 1
    assert "the load would fail, because rows cannot be messages (see --rejects-dir); nothing was written" in tried.out
    assert not Path(sqlite_url.removeprefix("sqlite:///")).exists()
    line = run.refused("send", "q", "--file", "a.csv")
    assert "1 row cannot be messages: 1 x due_time is not a time in a form that delaystore reads" in line
    assert "nothing was loaded" in line
    assert waiting(sqlite_url) == {}
    assert list_loads(StoreOptions(store=sqlite_url, endpoint="sales")) == []
    aside = run("send", "q", "--file", "a.csv", "--rejects-dir", "rejects")
    assert "1 row rejected:" in aside.out
    (rejects,) = Path("rejects").glob("sales_*/*")
    assert json.loads(rejects.read_text())["message_id"] == "bad"
    assert set(waiting(sqlite_url)) == {"0", "1"}


def test_a_dry_run_finds_what_waits_and_what_comes_twice(run: CommandLine, sqlite_url: str) -> None:
    Path("a.csv").write_text(csv_of(2))
    assert run("send", "q", "--file", "a.csv", "--dry-run", "--json").document["would_store"] == 2
    assert waiting(sqlite_url) == {}
    assert run("send", "q", "--file", "a.csv").code == 0
    Path("a.csv").write_text(csv_of(4) + csv_of(1).removeprefix(HEADER))
    tried = run("send", "q", "--file", "a.csv", "--dry-run", "--on-duplicate", "ignore", "--json").document
    assert tried["duplicates"] == {
        "in_the_files": 1,
        "in_the_files_examples": ["0"],
        "waiting": 2,
        "waiting_examples": ["0", "1"],
    }
    assert tried["would_store"] == 2


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["q", "x", "--file", "a.csv"], "BODY is of one message, and --file sends many"),
        (["q", "--file", "a.csv", "--delay", "5"], "--delay is of one message"),
        (["q", "--file", "a.csv", "--native"], "--native is of one message"),
        (["q", "x", "--delay", "5", "--map", "body=x"], "--map goes with --file only"),
        (["q", "x", "--delay", "5", "--load-id", "x"], "--load-id goes with --file only"),
        (["q", "x", "--delay", "5", "--on-duplicate", "ignore"], "--on-duplicate goes with --file only"),
        (["--delay", "5"], "no destination is given"),
        (["q", "--file", "none.csv"], "there is no file 'none.csv'"),
        (["q", "--file", "."], "'.' is a folder; name one file, or load all with `delaystore load`"),
        (["q", "--file", "s3a://bucket/a.csv"], "is no file of this computer; `delaystore load` reads it"),
        (["q", "--file", "a.csv.lz4"], "compressed as only Spark knows it"),
        (["q", "--file", "a.txt"], "does not say how it is written"),
        (["q", "--file", "a.csv", "--map", "body=text"], "the files have no column 'text'"),
        (["--file", "a.csv"], "name one destination (string), or set DESTINATION; the columns are"),
        (["q", "--file", ""], "--file is empty; name a file, or - for standard input"),
        (["q", "--file", "a.csv", "--load-id", ""], "--load-id is empty; give it a value, or leave it out"),
        (["", "--file", "a.csv"], "DESTINATION is empty"),
        (["q", "--file", "a.csv", "--map", ""], "--map '' is not of the form NAME=COLUMN"),
        (["q", "--file", "a.csv", "--on-key", "keep"], "--on-key and --max-wait need --key-column; name the"),
        (["q", "--file", "local.csv"], "due_time has no time zone (see --time-zone)"),
        (["q", "--file", "local.csv"], "fix these rows, or name a folder for them with --rejects-dir"),
        (["q", "--file", "delays.csv"], "delay is not a finite number of seconds, such as 90 or 0.5"),
        (["q", "--file", "a.csv", "--store", "memory:"], "memory"),
        (["q", "--file", "a.csv", "--store", "postgresql+psycopg://app:s3cret@127.0.0.1:1/app"], "refused"),
        (["q", "--file", "a.parquet"], "is not a Parquet file"),
        (["q", "--file", "twice.parquet"], "'twice.parquet' has two columns 'body'; rename or drop one"),
        (["q", "--file", "space.csv"], "the columns are message_id (string), ' delay' (string), body (string)"),
        (
            ["q", "--file", "utf16.jsonl"],
            "no line can be read as a JSON object; the line is not readable: it is not UTF-8",
        ),
        (["q", "--file", "pipe.csv"], "'pipe.csv' is a pipe or a device, and a file is read more than once"),
        (["q", "--file", "a.csv", "--dry-run", "--endpoint", "a\nb"], "does not print"),
        (["q", "--file", "a.csv", "--dry-run", "--rejects-dir", "a.txt"], "a.txt, is a file, or in one; name another"),
    ],
)
def test_mistakes_are_one_line(run: CommandLine, sqlite_url: str, arguments: list[str], says: str) -> None:
    Path("a.csv").write_text(csv_of(1))
    os.mkfifo("pipe.csv")
    Path("utf16.jsonl").write_bytes('{"message_id":"a"}\n'.encode("utf-16"))
    Path("space.csv").write_text("message_id, delay,body\n")
    columns = [pa.array([text]) for text in ("a", "2027-03-01T08:00:00Z", "x", "y")]
    parquet.write_table(pa.table(columns, ["message_id", "due_time", "body", "body"]), "twice.parquet")
    Path("local.csv").write_text(f"{HEADER}a,2027-03-01T08:00:00,x\n")
    Path("delays.csv").write_text("message_id,delay,body\na,1h,x\n")
    for name in ("a.txt", "a.csv.lz4", "a.parquet"):
        Path(name).write_text("x")
    line = run.refused("send", *arguments)
    assert says in line
    assert "s3cret" not in line
    assert waiting(sqlite_url) == {}


def test_a_key_that_waits_is_told_with_the_option_as_it_is_typed(run: CommandLine, sqlite_url: str) -> None:
    Path("a.csv").write_text("message_id,delay,body,order\na,60,x,17\n")
    assert run("send", "q", "--delay", "60", "--key", "17", "--message-id", "first").code == 0
    line = run.refused("send", "q", "--file", "a.csv", "--key-column", "order")
    assert "the message 'first' already waits with the key '17'; use --on-key keep, replace or debounce" in line
    assert waiting(sqlite_url) == {"first": b""}


def test_many_rows_are_for_spark(run: CommandLine, sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request, "FEW_ROWS", 2)
    monkeypatch.setattr(_send, "MOST", 3)
    Path("a.csv").write_text(csv_of(3))
    assert "note: 3 rows; `delaystore load`" in run("send", "q", "--file", "a.csv").err
    Path("a.csv").write_text(csv_of(4))
    assert "'a.csv' has 4 rows, and --file takes up to 3" in run.refused("send", "q", "--file", "a.csv")
    assert len(waiting(sqlite_url)) == 3


def test_without_pyarrow_the_line_says_what_to_install(run: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("a.csv").write_text(csv_of(1))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert "run pip install '.[parquet]'" in run.refused("send", "q", "--file", "a.csv")


def test_an_interrupt_leaves_nothing(run: CommandLine, sqlite_url: str) -> None:
    Path("a.csv").write_text(csv_of(400_000))
    process = started(["send", "q", "--file", "a.csv", "--load-id", "a"], run.environment)
    options = StoreOptions(store=sqlite_url, endpoint="sales")
    try:
        wait_until(lambda: os.path.exists(sqlite_url.removeprefix("sqlite:///")) and list_loads(options))
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    assert (process.returncode, out) == (130, "")
    assert err.endswith("stopped; nothing was loaded\n")
    assert waiting(sqlite_url) == {}
    assert list_loads(options) == []


WAITING = {
    "postgresql": "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock'",
    "mariadb": "SELECT id FROM information_schema.processlist WHERE info LIKE 'INSERT INTO %' AND time_ms > 500",
}


@pytest.mark.parametrize(
    ("kind", "number", "rule"),
    [
        ("postgresql", signal.SIGINT, ["--on-duplicate", "replace", "--unknown-columns", "headers"]),
        ("postgresql", signal.SIGTERM, ["--key-column", "k", "--on-key", "replace"]),
        long("mariadb", signal.SIGINT, ["--on-duplicate", "replace", "--unknown-columns", "headers"]),
    ],
)
def test_a_signal_ends_the_wait_for_a_locked_row(
    run: CommandLine, request: pytest.FixtureRequest, kind: str, number: signal.Signals, rule: list[str]
) -> None:
    url = url_for(request, kind)
    Path("a.csv").write_text("message_id,delay,body,k\nfirst,60,new,\na,60,new,key\n")
    with opened(url) as store, connected(url) as holder:
        store.store(message(store.now(), 3600, "a", key="key"))
        holder.execute(text("SELECT * FROM sales_delayed WHERE message_id = 'a' FOR UPDATE"))
        process = started(["send", "q", "--file", "a.csv", *rule], {**run.environment, "DELAYSTORE_STORE": url})
        try:
            wait_until(lambda: bool(query(url, WAITING[kind])) or process.poll() is not None)
            process.send_signal(number)
            out, err = process.communicate(timeout=30)
        finally:
            process.kill()
        assert (process.returncode, out, err) == (128 + number, "", "stopped; nothing was loaded\n")
        holder.rollback()
        assert list_loads(StoreOptions(store=url, endpoint="sales")) == []
        assert [each.body for each in store.list().messages] == [b"pay"]


def test_a_stop_after_the_commit_comes_too_late(
    run: CommandLine, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    promote = SqlStaging.promote

    def stopped(*arguments: Any) -> FinishedLoad:
        finished = promote(*arguments)
        os.kill(os.getpid(), signal.SIGINT)
        return finished

    monkeypatch.setattr(SqlStaging, "promote", stopped)
    Path("a.csv").write_text(csv_of(3))
    sent = run("send", "billing", "--file", "a.csv", "--load-id", "L")
    assert (sent.code, sent.err) == (0, "too late to stop: the messages were stored meanwhile\n")
    assert sent.out.startswith("3 messages loaded")
    assert len(waiting(sqlite_url)) == 3


def test_an_interrupt_while_waiting_for_standard_input_ends_it(run: CommandLine, tmp_path: Path) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()
    environment = {**run.environment, "TMPDIR": str(folder)}
    process = started(["send", "q", "--file", "-", "--format", "csv"], environment, stdin=subprocess.PIPE)
    try:
        wait_until(lambda: list(folder.glob("*/standard-input")))
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 130
        _, err = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    assert err == "stopped\n"
    assert list(folder.iterdir()) == []


@pytest.mark.usefixtures("run")
def test_the_commands_of_the_document_run(sqlite_url: str, tmp_path: Path) -> None:
    _, commands, of_excel, _ = blocks("docs/how-to/load-files.md", "bash")
    done = shell(commands + of_excel, tmp_path)
    assert done.returncode == 0, done.stderr
    expected = {"19": b"pay me", "20": b"happy new year", "21": b"pay me"}
    assert waiting(sqlite_url) == expected | dict.fromkeys(("22", "23", "24"), b"good morning")


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Java that Spark takes, and that does not start; a Spark of other tests in this process is out of sight."""
    for name in ("_active_spark_context", "_gateway", "_jvm"):
        monkeypatch.setattr(SparkContext, name, None)
    program = tmp_path / "java" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text('#!/bin/sh\ntest "$1" = -version && echo \'openjdk version "17.0.1"\' >&2 && exit\nexit 1\n')
    program.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))


@pytest.mark.usefixtures("java")
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["a.csv", "--map", "body=text"], "the files have no column 'text'; they have message_id, due_time, body"),
        (["a.csv"], "no column says where messages go"),
        (
            ["a.csv", "b.csv", "--destination", "q"],
            "the CSV files have different columns (b.csv); load them separately",
        ),
        (["open.csv", "--destination", "q"], "a quote is not closed"),
        (["a.jsonl", "--destination", "q"], "no column says when messages are due"),
        (["a.parquet", "--destination", "q"], "unknown columns other (bigint)"),
        (["no.parquet", "--destination", "q"], "is not a Parquet file"),
        (["twice.parquet", "--destination", "q"], "'twice.parquet' has two columns 'body'; rename or drop one"),
        (["pipe.csv", "--destination", "q"], "'pipe.csv' is a pipe or a device, and a file is read more than once"),
        (["a.csv", "--destination", "q", "--dry-run", "--id-columns", "x", "--load-id", "a"], "the id column x is"),
        (["a.csv", "--destination", "q", "--endpoint", "a\nb", "--dry-run"], "does not print"),
        (["a.csv", "--destination", "q", "--table", "t" * 300, "--dry-run"], "use a shorter name"),
        (["a.csv", "--destination", "q", "--rejects-dir", "b.csv"], "b.csv, is a file, or in one; name another"),
        (["a.csv", "--destination", "q", "--rejects-dir", "b.csv/x", "--dry-run"], "b.csv/x, is a file, or in one"),
        (["a.csv", "--destination", "q", "--rejects-dir", "/proc/x"], "cannot be made; name another"),
        (["a.csv", "--destination", "q", "--schema", "nope"], "a SQLite file has no schemas, so leave it out"),
        (["a.csv", "--destination", "q"], "Spark does not start"),
        (["day=1", "--destination", "q"], "Spark does not start"),
    ],
)
def test_a_load_finds_mistakes_before_spark_starts(run: CommandLine, arguments: list[str], says: str) -> None:
    Path("a.csv").write_text(csv_of(1))
    Path("b.csv").write_text("due_time,message_id,body\n")
    Path("open.csv").write_text(f'{HEADER}a,"')
    Path("a.jsonl").write_text('{"message_id":"a","body":"x"}\n')
    Path("day=1").mkdir()
    Path("day=1", "a.csv").write_text("message_id\nx\n")
    Path("no.parquet").write_text("x")
    table = {"message_id": ["a"], "due_time": ["2027-03-01T08:00:00Z"], "body": ["x"], "other": [1]}
    parquet.write_table(pa.table(table), "a.parquet")
    parquet.write_table(pa.table(table).rename_columns(["message_id", "due_time", "body", "body"]), "twice.parquet")
    os.mkfifo("pipe.csv")
    result = run("load", *arguments)
    assert result.code == 2
    *notes, line = result.err.splitlines()
    assert says in line
    few = "note: 1 row: `delaystore send --file a.csv`, with the same options, does this in seconds, without Spark"
    assert notes == ([few] if arguments[0] == "a.csv" and "does not start" in says else [])


@pytest.mark.usefixtures("java")
def test_a_load_reports_how_csv_files_are_written(run: CommandLine) -> None:
    Path("a.csv").write_text(csv_of(1).replace(",", "\t"), encoding="utf-16")
    tried = run("load", "a.csv", "--destination", "q")
    assert tried.err.startswith("note: CSV with the separator '\\t' (tab), UTF-16\n")
    assert "Spark does not start" in tried.err
    line = run.refused("load", "a.csv", "--destination", "q", "--separator", "comma")
    assert "its header line is one column, 'message_id\\tdue_time\\tbody', with the separator ','" in line
    Path("a.xlsx").write_text("x")
    line = run.refused("load", "a.xlsx", "--destination", "q")
    assert "'a.xlsx' is a workbook of Excel, which Spark does not read; send it with `delaystore send --file`" in line


def test_an_interrupt_after_the_commit_leaves_the_rejects(
    run: CommandLine, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody knows then whether the messages are stored; here they are."""
    promote = SqlStaging.promote

    def interrupted(*arguments: Any) -> None:
        promote(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(SqlStaging, "promote", interrupted)
    Path("a.csv").write_text(csv_of(3) + "4,never,bad\n")
    sending = ("send", "billing", "--file", "a.csv", "--load-id", "L", "--rejects-dir", "bad")
    assert run(*sending).code == 130
    assert len(waiting(sqlite_url)) == 3
    (rejected,) = Path("bad").rglob("*.jsonl")
    assert "never" in rejected.read_text()
    assert run(*sending).out.startswith("nothing to do")


@pytest.mark.usefixtures("java")
def test_a_load_finds_tables_that_it_may_not_make_before_spark_starts(
    run: CommandLine, postgresql: PostgreSQLDatabases, postgresql_url: str
) -> None:
    Path("a.csv").write_text(csv_of(1))
    guest = postgresql.create_role("load_guest", "s3cret", postgresql_url)
    line = run.refused("load", "a.csv", "--destination", "q", "--store", guest)
    assert "permission denied" in line
    assert "s3cret" not in line
