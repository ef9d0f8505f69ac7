"""Lines of files become messages, and are moved once."""

import json
import os
import sqlite3
import sys
import tracemalloc
from base64 import b64encode
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest

from delaystore.errors import ConfigurationError, MigrationError, MigrationLockedError, MissingDependencyError
from delaystore.message import DelayedMessage
from delaystore.migrations.abc import (
    BatchStatus,
    MigrationRow,
    MigrationRun,
    MigrationSource,
    Rejected,
    RunCounts,
    RunParameters,
    RunStatus,
    checksum,
)
from delaystore.migrations.sources import open_source
from delaystore.migrations.sources._file import lines as json_lines
from delaystore.migrations.sources._file import state
from delaystore.migrations.sources._file.lines import file_options, read_lines

DUE = datetime(2034, 5, 6, 7, 8, 9, 123456, UTC)
PLAIN = {"message_id": "m1", "destination": "orders", "due_time": DUE.isoformat(), "body": "hello"}


def url_of(path: Path, **parameters: str) -> str:
    return f"file://{quote(str(path))}?{urlencode(parameters)}".rstrip("?")


def written(path: Path, *lines: Any) -> Path:
    path.write_bytes(b"".join(line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n" for line in lines))
    return path


def read(path: Path, **parameters: str) -> list[Any]:
    """Each line's message; or its number and why it has none."""
    lines = read_lines(file_options(url_of(path, **parameters)))
    return [
        line.message if isinstance(line.message, DelayedMessage) else (line.number, str(line.message)) for line in lines
    ]


def one(tmp_path: Path, record: Any, **parameters: str) -> Any:
    """The message of a line; or why it is none."""
    (message,) = read(written(tmp_path / "dump.jsonl", record), **parameters)
    return message if isinstance(message, DelayedMessage) else message[1]


def due(tmp_path: Path, value: Any, **parameters: str) -> Any:
    found = one(tmp_path, {**PLAIN, "due_time": value}, **parameters)
    return found.due_time if isinstance(found, DelayedMessage) else found


@pytest.fixture
def opened() -> Iterator[Any]:
    sources: list[MigrationSource] = []

    def opened(path: Path, **parameters: str) -> MigrationSource:
        sources.append(open_source(url_of(path, **parameters)))
        return sources[-1]

    yield opened
    for source in sources:
        source.close()


def begun(source: MigrationSource, **parameters: Any) -> MigrationRun:
    run = source.begin(RunParameters(endpoint=parameters.pop("endpoint", "dump"), target="a test", **parameters))
    list(source.prepare(run))
    return source.set_status(run, RunStatus.RUNNING)


def moved(source: MigrationSource, run: MigrationRun, batches: int = 1000) -> list[DelayedMessage]:
    """Move that many batches; what was moved."""
    found = []
    for batch in source.batches(run, BatchStatus.PENDING)[:batches]:
        rows = source.stage(run, batch)
        found += [row.message for row in rows if isinstance(row, MigrationRow)]
        source.complete(run, batch, [row for row in rows if isinstance(row, Rejected)])
    return found


def test_columns_of_our_own_names_need_no_mapping(tmp_path: Path) -> None:
    record = {**PLAIN, "headers": {"a": [1, {"b": None}]}, "properties": {"priority": 3, "timestamp": 1}}
    assert one(tmp_path, record) == DelayedMessage(
        message_id="m1",
        destination="orders",
        due_time=DUE,
        body=b"hello",
        headers={"a": [1, {"b": None}]},
        properties={"priority": 3, "timestamp": datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)},
    )


def test_columns_of_other_names_are_mapped(tmp_path: Path) -> None:
    record = {"Id": 17, "To": {"Queue": "q"}, "a.b": DUE.isoformat(), "x": {"y.z": {"Text": "ü😀"}}, "h": '{"k": "v"}'}
    found = one(
        tmp_path,
        record,
        message_id="Id",
        destination="To.Queue",
        due_time="a.b",
        body="x.y.z.Text",
        headers="h",
        content_type="=text/plain",
        priority="=7",
    )
    assert (found.message_id, found.destination, found.due_time) == ("17", "q", DUE)
    assert (found.body, found.headers) == ("ü😀".encode(), {"k": "v"})
    assert found.properties == {"content_type": "text/plain", "priority": 7}


@pytest.mark.parametrize(
    ("value", "parameters", "expected"),
    [
        ("2034-05-06T07:08:09.123456Z", {}, DUE),
        ("2034-05-06T09:08:09.1234567+02:00", {}, DUE),
        ("2034-05-06 07:08:09.123456", {"timezone": "UTC"}, DUE),
        ("2034-05-06T09:08:09.123456", {"timezone": "Europe/Berlin"}, DUE),
        ("2034-05-06T07:08:09.123456+00:00", {"timezone": "Europe/Berlin"}, DUE),
        (2030512089, {"due_unit": "s"}, DUE.replace(microsecond=0)),
        (2030512089.123456, {"due_unit": "s"}, DUE),
        (2030512089123, {"due_unit": "ms"}, DUE.replace(microsecond=123000)),
        (2030512089123456, {"due_unit": "us"}, DUE),
        (86400000, {"due_unit": "ms"}, datetime(1970, 1, 2, tzinfo=UTC)),
        ("2030512089123", {"due_unit": "ms"}, DUE.replace(microsecond=123000)),
        ("2030512089.123456", {"due_unit": "s"}, DUE),
    ],
)
def test_due_times_come_in_many_forms(
    tmp_path: Path, value: Any, parameters: dict[str, str], expected: datetime
) -> None:
    assert due(tmp_path, value, **parameters) == expected


@pytest.mark.parametrize(
    ("value", "parameters", "reason"),
    [
        ("2034-05-06T07:08:09", {}, "has no time zone; say which with timezone=UTC"),
        ("2034-03-26T02:30:00", {"timezone": "Europe/Berlin"}, "twice or never"),
        ("2034-10-29T02:30:00", {"timezone": "Europe/Berlin"}, "twice or never"),
        ("2030512089", {}, "due_unit=s"),
        ("20340506", {}, "due_unit=s"),
        (2030512089, {}, "due_unit=s"),
        (2030512089123, {}, "due_unit=s"),
        ("1795101512345", {"timezone": "UTC"}, "due_unit=s"),
        ("20340506070809", {"timezone": "UTC"}, "due_unit=s"),
        ("tomorrow", {}, "is not a time in a form"),
        (None, {}, "no due time"),
        (True, {}, "type bool"),
        ([1], {}, "type list"),
        (float("nan"), {"due_unit": "s"}, "NaN is no number"),
        (1e30, {"due_unit": "s"}, "out of range"),
        (10**400, {"due_unit": "s"}, "out of range"),
        ("9999-12-31T23:59:59Z", {}, "out of range"),
        ("0001-01-01T00:00:00+01:00", {}, "out of range"),
    ],
)
def test_due_times_that_could_be_several_or_none_are_refused(
    tmp_path: Path, value: Any, parameters: dict[str, str], reason: str
) -> None:
    assert reason in due(tmp_path, value, **parameters)


def test_a_delay_counts_from_when_it_was_sent(tmp_path: Path) -> None:
    record = {"message_id": "m", "destination": "q", "timestamp": 2030512089, "headers": {"x-delay": 1500}}
    columns = {"sent_time": "timestamp", "delay_ms": "headers.x-delay", "due_unit": "s"}
    found = one(tmp_path, record, **columns)
    assert found.due_time == DUE.replace(microsecond=0) + timedelta(seconds=1.5)
    assert "no number of milliseconds" in one(tmp_path, {**record, "headers": {}}, **columns)
    assert "out of range" in one(tmp_path, {**record, "headers": {"x-delay": 1e300}}, **columns)


PLUGIN = {"sent_time": "timestamp", "delay_ms": "headers.x-delay", "delay_of": "plugin", "due_unit": "s"}


def to_the_plugin(delay: Any, **fields: Any) -> dict[str, Any]:
    """A record of a message that was published with that x-delay; None: without one."""
    headers = {} if delay is None else {"x-delay": delay}
    return {"message_id": "m", "destination": "q", "timestamp": 2030512089, "headers": headers, **fields}


@pytest.mark.parametrize("delay", [4294967295, "4294967295", "+4294967295", 4294967295.0])
def test_what_waits_in_the_plugin_is_a_message_as_it_would_deliver_it(tmp_path: Path, delay: Any) -> None:
    found = one(tmp_path, to_the_plugin(delay), **PLUGIN)
    assert found.due_time == DUE.replace(microsecond=0) + timedelta(milliseconds=4294967295)
    assert found.headers == {"x-delay": -4294967295}


@pytest.mark.long_runs(after=4)
@pytest.mark.parametrize(
    ("delay", "reason"),
    [
        (4294967296, "a delay above 4,294,967,295 ms"),
        ("9" * 5000, "a delay above 4,294,967,295 ms"),
        (7776000000.0, "a delay above 4,294,967,295 ms"),
        (0, "a delay of 0 or less"),
        (-5000, "a delay of 0 or less"),
        ("-5000", "a delay of 0 or less"),
        (None, "no delay"),
        (True, "a delay that is no number"),
        ([5000], "a delay that is no number"),
    ],
)
def test_what_the_plugin_delivered_at_once_does_not_move(tmp_path: Path, opened: Any, delay: Any, reason: str) -> None:
    waits = to_the_plugin(5000, message_id="waits")
    source = opened(written(tmp_path / "dump.jsonl", to_the_plugin(delay), waits), **PLUGIN)
    assert source.waiting("dump", None).count == 1
    warning = f"1 line left out, as the plugin delivered its message at once: 1 with {reason}"
    assert [(one.text, one.fatal, one.messages) for one in source.check("dump")] == [(warning, False, 0)]
    run = begun(source)
    assert [message.message_id for message in moved(source, run)] == ["waits"]
    assert source.counts(run) == RunCounts(prepared=1, moved=1)
    assert [one.text for one in source.check("dump")] == [warning], "it is told when the file is loaded, too"


def test_what_has_been_due_is_told_until_a_cutoff_leaves_it_out(tmp_path: Path, opened: Any) -> None:
    over = to_the_plugin(5000, message_id="over", timestamp=1_700_000_000)
    source = opened(written(tmp_path / "dump.jsonl", over, to_the_plugin(5000, message_id="waits"), b"bad\n"), **PLUGIN)
    warning = "1 message was due by now: the plugin has delivered what it did not lose"
    assert [one.text.startswith(warning) for one in source.check("dump")] == [False, True]
    run = begun(source, cutoff=DUE - timedelta(days=1))
    assert [message.message_id for message in moved(source, run)] == ["waits"]
    assert source.check("dump")[-1].text.startswith(warning)


def test_all_lines_of_a_chunk_may_have_been_delivered(tmp_path: Path, opened: Any) -> None:
    lines = [to_the_plugin(2**32, message_id=f"m{number}") for number in range(600)]
    source = opened(written(tmp_path / "dump.jsonl", *lines), **PLUGIN)
    assert source.counts(begun(source)).prepared == 0
    assert "600 lines left out, as the plugin delivered their messages at once" in source.check("dump")[0].text


def test_delivered_lines_belong_to_the_endpoint_they_name(tmp_path: Path, opened: Any) -> None:
    lines = [to_the_plugin(0, message_id=f"m{n}", owner="sales" if n else "billing") for n in range(3)]
    source = opened(written(tmp_path / "dump.jsonl", *lines), endpoint="owner", **PLUGIN)
    in_the_file = [source.check(name)[0].text for name in ("sales", "billing")]
    assert [text.partition(" ")[0] for text in in_the_file] == ["2", "1"]
    begun(source, endpoint="billing")
    assert [source.check(name)[0].text for name in ("sales", "billing")] == in_the_file


def test_a_column_of_delays_that_no_line_has_hinders(tmp_path: Path, opened: Any) -> None:
    source = opened(written(tmp_path / "dump.jsonl", to_the_plugin(5)), **{**PLUGIN, "delay_ms": "headers.delay"})
    (problem,) = source.check("dump")
    assert (problem.fatal, problem.text) == (True, "no line of 'dump' has a delay in 'headers.delay'")


@pytest.mark.parametrize(
    ("delay", "reason"),
    [("5 s", "the plugin takes no such message"), (5000.5, "has a fraction"), (1e999, "Infinity is no number")],
)
def test_delays_that_the_plugin_refuses_or_reads_in_two_ways_are_rejected(
    tmp_path: Path, delay: Any, reason: str
) -> None:
    assert reason in one(tmp_path, to_the_plugin(delay), **PLUGIN)


@pytest.mark.parametrize(
    ("record", "parameters", "body"),
    [
        ({"body": "é"}, {}, "é".encode()),
        ({"body_base64": b64encode(b"\0\xff").decode()}, {}, b"\0\xff"),
        ({"body": b64encode(b"\0\xff").decode()}, {"body_base64": "body"}, b"\0\xff"),
        ({"body": {"a": ["é", 1.5]}}, {"body_json": "body"}, '{"a":["é",1.5]}'.encode()),
        ({}, {}, b""),
        ({"body": None}, {}, b""),
    ],
)
def test_bodies_are_text_or_base64_or_json(
    tmp_path: Path, record: dict[str, Any], parameters: dict[str, str], body: bytes
) -> None:
    plain = {name: value for name, value in PLAIN.items() if name != "body"}
    assert one(tmp_path, {**plain, **record}, **parameters).body == body


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({"body": {"a": 1}}, "body_json=COLUMN"),
        ({"body": 5}, "is a number, not text"),
        ({"body": "\ud800"}, "surrogate"),
        ({"body_base64": "é"}, "two bodies"),
        ({"body": None, "body_base64": "é"}, "no base64"),
        ({"headers": "{"}, "no JSON"),
        ({"headers": [1]}, "headers are no object"),
        ({"properties": {"delivery_info": {}}}, "unknown property 'delivery_info'"),
        ({"properties": {"priority": 300}}, "from 0 to 255"),
        ({"destination": None}, "no destination (looked for in 'destination')"),
        ({"destination": ""}, "destination is empty"),
        ({"destination": 5}, "type int"),
        ({"message_id": ""}, "message_id is empty"),
        ({"message_id": "x" * 256}, "256 bytes"),
        ({"message_id": [1]}, "list"),
    ],
)
def test_a_line_that_is_no_message_says_why(tmp_path: Path, record: dict[str, Any], reason: str) -> None:
    assert reason in one(tmp_path, {**PLAIN, **record})


def test_lines_that_are_no_json_objects_are_told_by_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_lines, "MAX_LINE_BYTES", 200)
    path = written(
        tmp_path / "dump.ndjson",
        b"\xef\xbb\xbf" + json.dumps(PLAIN).encode() + b"\r\n",
        b"\n \n",
        b"{\n",
        b"[1]\n",
        b"\xff\n",
        b"[" * 150 + b"\n",
        b"x" * 1000 + b"\n",
        json.dumps({**PLAIN, "message_id": "last"}).encode(),
    )
    first, *bad, last = read(path)
    assert (first.message_id, last.message_id) == ("m1", "last")
    assert [number for number, _ in bad] == [4, 5, 6, 7, 8]
    reasons = ["must be one JSON object", "no object on one line", "no UTF-8", "no JSON", "more than 200 bytes"]
    assert all(reason in text for reason, (_, text) in zip(reasons, bad, strict=True))


def test_a_line_without_an_id_gets_the_same_at_each_run(tmp_path: Path) -> None:
    lines = [{"destination": "q", "due_time": "1970-01-01T00:00:01Z"}] * 2
    first, again = read(written(tmp_path / "a.jsonl", *lines)), read(written(tmp_path / "b.jsonl", *lines))
    assert [m.message_id for m in first] == [m.message_id for m in again]
    assert len({m.message_id for m in first}) == 2


def test_nservicebus_headers_tell_id_and_properties(tmp_path: Path) -> None:
    """A document of RavenDB's, as NServiceBus stores it."""
    record = {
        "@metadata": {"@id": "TimeoutDatas/7"},
        "Destination": "orders@SRV",
        "SagaId": "11111111-2222-3333-4444-555555555555",
        "State": b64encode(b"\0x").decode(),
        "Time": "2034-05-06T07:08:09.1234560Z",
        "OwningTimeoutManager": "sales",
        "Headers": {"NServiceBus.CorrelationId": "c", "NServiceBus.ReplyToAddress": "r@SRV"},
    }
    columns = {
        "message_id": "@metadata.@id",
        "destination": "Destination",
        "due_time": "Time",
        "body_base64": "State",
        "headers": "Headers",
        "saga_id": "SagaId",
        "endpoint": "OwningTimeoutManager",
        "headers_of": "nservicebus",
    }
    found = one(tmp_path, record, **columns, addresses="msmq")
    assert (found.message_id, found.destination, found.due_time) == ("TimeoutDatas/7", "orders", DUE)
    assert found.properties == {"correlation_id": "c", "reply_to": "r", "delivery_mode": 2}
    assert found.headers["NServiceBus.SagaId"] == record["SagaId"]
    assert one(tmp_path, record, **columns).destination == "orders@SRV"
    assert "not text" in one(tmp_path, {**record, "Headers": {"a": 1}}, **columns)


def test_a_celery_message_is_mapped_by_its_parts(tmp_path: Path) -> None:
    record = {
        "body": b64encode(b"[[1], {}, {}]").decode(),
        "content-encoding": "utf-8",
        "content-type": "application/json",
        "headers": {"task": "add", "id": "t-1", "eta": "2034-05-06T07:08:09.123456+00:00", "timelimit": [None, None]},
        "properties": {"correlation_id": "t-1", "delivery_info": {"routing_key": "celery"}, "priority": 0},
    }
    found = one(
        tmp_path,
        record,
        message_id="headers.id",
        due_time="headers.eta",
        destination="properties.delivery_info.routing_key",
        body_base64="body",
        content_type="content-type",
        content_encoding="content-encoding",
        correlation_id="properties.correlation_id",
        priority="properties.priority",
    )
    assert (found.message_id, found.destination, found.due_time) == ("t-1", "celery", DUE)
    assert found.body == b"[[1], {}, {}]"
    assert found.headers == record["headers"]
    assert found.properties == {
        "content_type": "application/json",
        "content_encoding": "utf-8",
        "correlation_id": "t-1",
        "priority": 0,
    }


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("file://host/x.jsonl", "three slashes"),
        ("file:///", "three slashes"),
        ("file:///tmp/x.csv", r"\.jsonl"),
        ("file:///tmp/x.jsonl?colour=Red", "unknown parameter 'colour'"),
        ("file:///tmp/x.jsonl?due_time=", "empty"),
        ("file:///tmp/x.jsonl?due_time=a&due_time=b", "twice"),
        ("file:///tmp/x.jsonl?due_time", "pairs"),
        ("file:///tmp/x.jsonl?due_unit=h", "due_unit='h'"),
        ("file:///tmp/x.jsonl?timezone=Mars/Crater", "timezone='Mars/Crater'"),
        ("file:///tmp/x.jsonl?timezone=../../etc", "timezone="),
        ("file:///tmp/x.jsonl?headers_of=kafka", "headers_of='kafka'"),
        ("file:///tmp/x.jsonl?addresses=msmq", "add headers_of=nservicebus"),
        ("file:///tmp/x.jsonl?delay_of=kafka&sent_time=a&delay_ms=b", "delay_of='kafka'"),
        ("file:///tmp/x.jsonl?delay_of=plugin&delay_ms=b", "add sent_time=COLUMN"),
        ("file:///tmp/x.jsonl?delay_of=plugin&sent_time=a&delay_ms=b&headers_of=nservicebus", "leave headers_of"),
        ("file:///no/such/folder/x.jsonl", "does not exist"),
    ],
)
def test_a_url_that_cannot_work_is_refused(url: str, reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        open_source(url)


def test_a_missing_file_is_told(tmp_path: Path, opened: Any) -> None:
    source = opened(tmp_path / "none.jsonl")
    with pytest.raises(ConfigurationError, match="there is no file"):
        source.check("none")


def test_a_preview_reads_the_file_and_leaves_nothing(tmp_path: Path, opened: Any) -> None:
    lines = [
        {**PLAIN, "message_id": f"m{i}", "due_time": 2_000_000_000 + i, "destination": f"q{i % 2}"} for i in range(9)
    ]
    source = opened(written(tmp_path / "dump.jsonl", *lines, b"nonsense\n"), due_unit="s")
    at = datetime.fromtimestamp(2_000_000_003, UTC)
    found = source.waiting("dump", at)
    assert (found.count, found.staying, found.destinations) == (6, 3, {"q0": 3, "q1": 3})
    assert (found.earliest, found.latest) == (at, at + timedelta(seconds=5))
    assert source.late("dump", at) == 5
    (problem,) = source.check("dump")
    assert (problem.fatal, problem.messages) == (True, 1)
    assert "line 10: it is no JSON" in problem.text
    assert source.endpoints() == ["dump"]
    assert source.run("dump") is None
    assert os.listdir(tmp_path) == ["dump.jsonl"]


def test_a_file_without_any_message_stops_the_run(tmp_path: Path, opened: Any) -> None:
    source = opened(written(tmp_path / "dump.jsonl", PLAIN), due_time="Wrong")
    (problem,) = source.check("dump")
    assert problem.fatal
    assert "line 1: it has no due time (looked for in 'Wrong')" in problem.text


def test_lines_are_moved_once_and_the_file_stays_as_it_is(tmp_path: Path, opened: Any) -> None:
    lines = [{**PLAIN, "message_id": f"m{i}", "headers": {"n": i}} for i in range(1200)]
    path = written(tmp_path / "dump é 50%41?#.jsonl", *lines, b"nonsense\n", {**lines[0], "body": "another"})
    before, expected = sha256(path.read_bytes()).digest(), read(path)[:1200]
    source = opened(path)
    with source.lock("dump", "this test"):
        run = begun(source, batch_size=500)
        assert {m.message_id: m for m in moved(source, run)} == {m.message_id: m for m in expected}
        source.set_status(run, RunStatus.COMPLETED)
    assert source.counts(run).moved == 1200
    assert source.moved_checksum(run) == checksum((m.message_id, m.destination, m.due_time) for m in expected)
    assert [(r.row_id, r.reason.split(":")[0]) for r in source.rejections(run, 9)] == [
        ("line 1201", "it is no JSON"),
        ("line 1202", "its message_id 'm0' is that of line 1"),
    ]
    assert sha256(path.read_bytes()).digest() == before
    source.clean_up(run)
    assert source.waiting("dump", None).count == 0
    again = begun(source)
    assert source.counts(again).prepared == 0


def test_a_second_process_goes_on_where_the_first_stopped(tmp_path: Path, opened: Any) -> None:
    path = written(tmp_path / "dump.jsonl", *({**PLAIN, "message_id": f"m{i}"} for i in range(30)))
    first, second = opened(path), opened(path)
    run = begun(first, batch_size=10)
    ids = [m.message_id for m in moved(first, run, batches=1)]
    path.unlink()  # all of it is loaded
    with second.lock("dump", "this test"):
        found = second.run("dump")
        assert second.check("dump") == []
    assert found == run
    ids += [m.message_id for m in moved(second, found)]
    assert sorted(ids) == sorted(f"m{i}" for i in range(30))


def test_a_phased_run_takes_the_rest_from_what_was_loaded(tmp_path: Path, opened: Any) -> None:
    lines = [{**PLAIN, "message_id": f"m{i}", "due_time": 2_000_000_000 + i} for i in range(10)]
    source = opened(written(tmp_path / "dump.jsonl", *lines, b"nonsense\n"), due_unit="s")
    far = begun(source, cutoff=datetime.fromtimestamp(2_000_000_006, UTC))
    assert len(moved(source, far)) == 4
    assert source.counts(far).rejected == 1
    source.set_status(far, RunStatus.COMPLETED)
    assert source.waiting("dump", None).count == 6
    assert len(moved(source, begun(source))) == 6


def test_what_has_not_moved_goes_back(tmp_path: Path, opened: Any) -> None:
    source = opened(written(tmp_path / "dump.jsonl", *({**PLAIN, "message_id": f"m{i}"} for i in range(30))))
    run = begun(source, batch_size=10)
    moved(source, run, batches=1)
    assert sum(source.give_back(run, rejected=True)) == 20
    source.set_status(run, RunStatus.ABORTED)
    assert source.waiting("dump", None).count == 20


def test_lines_belong_to_the_endpoint_they_name(tmp_path: Path, opened: Any) -> None:
    lines = [{**PLAIN, "message_id": f"m{i}", "Owner": "sales" if i % 3 else "billing"} for i in range(9)]
    source = opened(written(tmp_path / "dump.jsonl", *lines), endpoint="Owner")
    assert source.endpoints() == ["billing", "sales"]
    assert source.waiting("sales", None).count == 6
    assert len(moved(source, begun(source, endpoint="sales"))) == 6
    assert len(moved(source, begun(source, endpoint="billing"))) == 3


def test_a_file_that_changed_is_not_mixed_with_what_was_loaded(tmp_path: Path, opened: Any) -> None:
    path = written(tmp_path / "dump.jsonl", PLAIN)
    source = opened(path)
    source.set_status(begun(source), RunStatus.ABORTED)
    os.utime(path, ns=(1, 1))
    assert source.check("dump") == []
    with path.open("a") as stream:
        stream.write(json.dumps({**PLAIN, "message_id": "new"}))
    assert "has changed" in source.check("dump")[0].text
    with pytest.raises(MigrationError, match="has changed"):
        source.begin(RunParameters(endpoint="dump", target="t"))


def test_a_file_is_not_read_in_two_ways(tmp_path: Path, opened: Any) -> None:
    path = written(tmp_path / "dump.jsonl", {**PLAIN, "Other": 5})
    source = opened(path)
    source.set_status(begun(source), RunStatus.ABORTED)
    source = opened(path, due_time="Other")
    assert "other columns or parameters" in source.check("dump")[0].text


def test_loading_that_stops_in_the_middle_has_loaded_nothing(
    tmp_path: Path, opened: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path / "dump.jsonl", *({**PLAIN, "message_id": f"m{i}"} for i in range(1200)))
    source = opened(path)
    chunks = iter([None])

    def stop_at_the_second(connection: Any, rows: list[Any], at: datetime) -> list[Any]:
        next(chunks)
        return rows

    with monkeypatch.context() as patched:
        patched.setattr(state, "_without_duplicates", stop_at_the_second)
        with pytest.raises(StopIteration):
            begun(source)
    with closing(sqlite3.connect(f"{path}.migration.sqlite")) as database:
        assert database.execute("SELECT count(*) FROM messages").fetchone() == (0,)
    assert source.run("dump") is None
    assert len(moved(source, begun(source))) == 1200


def test_a_file_that_is_being_written_is_not_loaded(
    tmp_path: Path, opened: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path / "dump.jsonl", PLAIN)
    source = opened(path)

    def write_meanwhile(connection: Any, rows: list[Any], at: datetime) -> list[Any]:
        written(path, PLAIN, {**PLAIN, "message_id": "m2"})
        return rows

    with monkeypatch.context() as patched:
        patched.setattr(state, "_without_duplicates", write_meanwhile)
        with pytest.raises(MigrationError, match="changed while it was read"):
            begun(source)
    assert len(moved(source, begun(source))) == 2


def test_who_may_not_read_the_file_may_not_read_its_state(tmp_path: Path, opened: Any) -> None:
    path = written(tmp_path / "dump.jsonl", PLAIN)
    path.chmod(0o440)
    begun(opened(path))
    assert Path(f"{path}.migration.sqlite").stat().st_mode & 0o777 == 0o640


def test_a_second_run_is_told_who_is_at_it(tmp_path: Path, opened: Any) -> None:
    path = written(tmp_path / "dump.jsonl", PLAIN)
    with (
        opened(path).lock("dump", "somebody on host1"),
        pytest.raises(MigrationLockedError, match="somebody on host1"),
        opened(path).lock("dump", "me"),
    ):
        pytest.fail("two had the lock")


@pytest.mark.long
def test_memory_does_not_grow_with_the_file(tmp_path: Path, opened: Any) -> None:
    path = tmp_path / "dump.jsonl"
    with path.open("w") as stream:
        for i in range(5_000):
            stream.write(json.dumps({**PLAIN, "message_id": f"m{i}", "body": "x" * 4000}) + "\n")
    source = opened(path)
    tracemalloc.start()
    try:
        assert source.waiting("dump", None).count == 5_000
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
        tracemalloc.reset_peak()
        source.begin(RunParameters(endpoint="dump", target="t"))
        assert tracemalloc.get_traced_memory()[1] < 12_000_000
    finally:
        tracemalloc.stop()


def test_a_parquet_file_is_read_by_its_columns(tmp_path: Path, opened: Any) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = 700
    table = pyarrow.table(
        {
            "id": pyarrow.array([f"m{i}" for i in range(rows)]),
            "SendAt": pyarrow.array([DUE] * rows, pyarrow.timestamp("us", tz="UTC")),
            "naive": pyarrow.array([2030512089_123456789] * rows, pyarrow.timestamp("ns")),
            "far": pyarrow.array([0, 10**18, *([0] * (rows - 2))], pyarrow.timestamp("us", tz="UTC")),
            "queue": pyarrow.array(["q"] * rows),
            "payload": pyarrow.array([b"\0\xff"] * rows),
            "headers": pyarrow.array([[("a", "b")]] * rows, pyarrow.map_(pyarrow.string(), pyarrow.string())),
            "nested": pyarrow.array([{"reply": "r"}] * rows),
        }
    )
    path = tmp_path / "dump.parquet"
    parquet.write_table(table, path, row_group_size=300)
    columns = {"message_id": "id", "destination": "queue", "body": "payload", "reply_to": "nested.reply"}
    found = read(path, due_time="SendAt", **columns)
    assert [m.message_id for m in found] == [f"m{i}" for i in range(rows)]
    assert found[0] == DelayedMessage(
        message_id="m0",
        destination="q",
        due_time=DUE,
        body=b"\0\xff",
        headers={"a": "b"},
        properties={"reply_to": "r"},
    )
    assert read(path, due_time="naive", timezone="UTC", **columns)[5].due_time == DUE
    assert "no time zone" in read(path, due_time="naive", **columns)[0][1]
    odd = read(path, due_time="far", **columns)
    assert odd[1][0] == 2
    assert isinstance(odd[2], DelayedMessage)
    source = opened(path, due_time="SendAt", **columns)
    assert len(moved(source, begun(source))) == rows


def test_a_parquet_value_is_a_body_in_strict_json(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    late = datetime(9999, 12, 31, 23, 59, 59)  # noqa: DTZ001 - a time without a zone
    values: list[tuple[str, Any, Any, str]] = [
        ("bytes", b"\0\xff", pa.binary(), '"AP8="'),
        ("instant", DUE, pa.timestamp("us", "Europe/Berlin"), '"2034-05-06T07:08:09.123456+00:00"'),
        ("local", late, pa.timestamp("us"), '"9999-12-31T23:59:59"'),
        ("ns", 2030512089_123456789, pa.timestamp("ns", "UTC"), '"2034-05-06T07:08:09.123456+00:00"'),
        ("date", DUE.date(), pa.date32(), '"2034-05-06"'),
        ("time", 3_000_000_001, pa.time64("ns"), '"00:00:03"'),
        ("duration", 1_500_000_001, pa.duration("ns"), "1.5"),
        ("decimal", Decimal("1.10"), pa.decimal128(9, 2), "1.10"),
        ("nan", float("nan"), pa.float64(), '"NaN"'),
        ("infinity", float("-inf"), pa.float32(), '"-Infinity"'),
        ("named", [(b"\0", [float("inf")])], pa.map_(pa.binary(), pa.list_(pa.float64())), '{"AA==":["Infinity"]}'),
        ("numbered", [(7, [DUE])], pa.map_(pa.int64(), pa.list_(pa.timestamp("ns", "UTC"))),
         '{"7":["2034-05-06T07:08:09.123456+00:00"]}'),
        ("null", None, pa.string(), "null"),
    ]  # fmt: skip
    body = pa.StructArray.from_arrays(
        [pa.array([value], kind) for _, value, kind, _ in values], names=[name for name, *_ in values]
    )
    structs = pa.array([[({"a": 1}, 2)]], pa.map_(pa.struct([("a", pa.int64())]), pa.int64()))
    path = tmp_path / "dump.parquet"
    due_times = pa.array([DUE], pa.timestamp("us", "UTC"))
    columns = {"destination": pa.array(["q"]), "due_time": due_times, "value": body, "unnamed": structs}
    parquet.write_table(pa.table(columns), path)
    (found,) = read(path, body_json="value")
    assert found.body.decode() == "{" + ",".join(f'"{name}":{text}' for name, _, _, text in values) + "}"
    json.loads(found.body, parse_constant=lambda constant: pytest.fail(f"{constant} is no JSON"))
    ((_, reason),) = read(path, body_json="unnamed")
    assert "it holds what cannot be read" in reason


def test_what_is_no_parquet_file_is_told(tmp_path: Path, opened: Any) -> None:
    pytest.importorskip("pyarrow")
    with pytest.raises(ConfigurationError, match="no Parquet file"):
        opened(written(tmp_path / "dump.parquet", PLAIN)).check("dump")


def test_parquet_without_pyarrow_names_the_extra(tmp_path: Path, opened: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingDependencyError, match=r"'\.\[parquet\]'"):
        opened(written(tmp_path / "dump.parquet", PLAIN)).check("dump")
