"""Files as Excel and other programs write them, sent by `delaystore send --file`; and rejected rows, sent again."""

import gzip
import json
import zipfile
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import openpyxl
import pyarrow as pa
import pytest

from delaystore.bulk.files import check_files, count_rows, find_file, find_files
from delaystore.bulk.request import LoadRequest, check_columns
from delaystore.errors import ConfigurationError
from tests.integration.cli import CommandLine, command_line
from tests.integration.test_send_file import waiting

FIELDS = ["message_id", "due_time", "body"]
DUE = "2030-07-01T08:00:00Z"


@pytest.fixture
def run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, sqlite_url: str, tmp_path: Path
) -> CommandLine:
    """The command line with a store, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    environment = {"DELAYSTORE_STORE": sqlite_url, "DELAYSTORE_ENDPOINT": "sales", "DELAYSTORE_SEND_CREATE": "1"}
    return command_line(capsys, monkeypatch, environment)


def workbook(name: str, *rows: list[Any], sheet: str = "Letters", first: bool = True) -> None:
    """A file of two sheets; `rows` are in the sheet of that name, which is the first one or the second."""
    book = openpyxl.Workbook()
    book.remove(book.worksheets[0])
    for title in (sheet, "Empty") if first else ("Empty", sheet):
        made = book.create_sheet(title)
        for row in rows if title == sheet else []:
            made.append(row)
    book.save(name)


def rejected(folder: str = "bad") -> list[dict[str, Any]]:
    return [json.loads(line) for path in Path(folder).glob("sales_*/*") for line in path.read_text().splitlines()]


EXCEL_CSV = f'message_id;due_time;body\r\na;{DUE};"Dear Ada,\nhello"\r\nb;{DUE};1,50\r\n'


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.csv", EXCEL_CSV.encode("utf-8-sig")),
        ("a.csv", EXCEL_CSV.replace(";", "\t").encode("utf-16")),
        ("a.CSV.GZ", gzip.compress(EXCEL_CSV.encode())),
        ("a.csv.zst", pa.compress(EXCEL_CSV.encode(), codec="zstd", asbytes=True)),
    ],
    ids=["csv", "unicode text", "gz", "zst"],
)
def test_a_csv_file_of_excel_is_sent(run: CommandLine, sqlite_url: str, name: str, data: bytes) -> None:
    Path(name).write_bytes(data)
    sent = run("send", "q", "--file", name)
    assert sent.code == 0, sent.err
    assert sent.err.startswith("note: CSV with the separator ")
    assert waiting(sqlite_url) == {"a": b"Dear Ada,\nhello", "b": b"1,50"}


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("line", ["sep=;", '"SEP=;"'])
def test_the_first_line_can_name_the_separator(run: CommandLine, sqlite_url: str, encoding: str, line: str) -> None:
    text = f"{line}\r\nmessage_id;due_time;body,x,y,z\r\na;{DUE};x\r\nb;01.07.2030;y\r\n"
    Path("a.csv").write_bytes(text.encode(encoding))
    sent = run("send", "q", "--file", "a.csv", "--map", "body=body,x,y,z", "--rejects-dir", "bad")
    assert sent.err.startswith("note: CSV with the separator ';' (semicolon), named in the first line, UTF-")
    assert waiting(sqlite_url) == {"a": b"x"}
    assert [each["_line"] for each in rejected()] == [4]
    Path("a.csv").write_bytes(text.replace(";y", ';"y').encode(encoding))
    assert "is no CSV in the row that begins at line 4" in run("send", "q", "--file", "a.csv").err
    Path("a.csv").write_bytes(text.encode(encoding))
    of_spark = LoadRequest(check_files(find_files(["a.csv"])), {"store": sqlite_url, "endpoint": "sales"}, {})
    with pytest.raises(ConfigurationError, match="which Spark reads as the header line"):
        check_columns(of_spark)
    Path("a.csv").write_bytes(f"{line}\r\n".encode(encoding))
    assert "the files have no rows" in run("send", "q", "--file", "a.csv").err


def test_the_separator_can_be_named(run: CommandLine, sqlite_url: str) -> None:
    Path("a.csv").write_text(f"message_id^due_time^body\na^{DUE}^x\n")
    line = run.refused("send", "q", "--file", "a.csv")
    assert "its header line is one column, 'message_id^due_time^body', with the separator ','" in line
    assert "name another separator with --separator" in line
    assert run("send", "q", "--file", "a.csv", "--separator", "^").code == 0
    assert waiting(sqlite_url) == {"a": b"x"}
    assert "--separator goes with --file only" in run.refused("send", "q", "x", "--delay", "5", "--separator", ";")


def test_rejected_rows_are_corrected_and_sent_again(run: CommandLine, sqlite_url: str) -> None:
    Path("a.csv").write_text(f'message_id,due_time,body,colour\na,{DUE},"x\ny",red\nb,01.07.2030,y,blue\n')
    sent = run("send", "q", "--file", "a.csv", "--unknown-columns", "headers", "--rejects-dir", "bad")
    assert '"colour":"blue","_line":4}' in sent.out
    (row,) = rejected()
    assert row.pop("_reason").startswith("due_time is not a time")
    assert row == {"message_id": "b", "due_time": "01.07.2030", "body": "y", "colour": "blue", "_line": 4}
    (path,) = Path("bad").glob("*/*")
    Path("fixed.jsonl").write_text(path.read_text().replace("01.07.2030", DUE))
    again = run("send", "q", "--file", "fixed.jsonl", "--unknown-columns", "headers")
    assert again.code == 0, again.err
    assert run("show", "b", "--json").document["headers"] == {"colour": "blue"}


def test_rejected_rows_are_sent_again_by_the_same_command(run: CommandLine, sqlite_url: str) -> None:
    mapped = ("--map", "message_id=No.", "--map", "due_time=When", "--unknown-columns", "headers")
    Path("a.csv").write_text(f"No.,When,body,colour\na,{DUE},x,red\nb,01.07.2030,y,blue\n")
    assert run("send", "q", "--file", "a.csv", *mapped, "--rejects-dir", "bad").code == 0
    (path,) = Path("bad").glob("*/*")
    Path("fixed.jsonl").write_text(path.read_text().replace("01.07.2030", DUE))
    again = run("send", "q", "--file", "fixed.jsonl", *mapped)
    assert again.code == 0, again.err
    assert waiting(sqlite_url) == {"a": b"x", "b": b"y"}
    assert "no column 'Why'" in run.refused("send", "q", "--file", "fixed.jsonl", "--map", "not_after=Why")


def test_a_preview_says_that_the_load_would_fail(run: CommandLine, sqlite_url: str) -> None:
    assert run("send", "q", "--message-id", "c", "--delay", "1h", "--create").code == 0
    Path("a.csv").write_text(f"message_id,due_time,body\na,{DUE},x\na,{DUE},x\nb,soon,x\nc,{DUE},x\n")
    assert (
        "the load would fail, because rows cannot be messages" in run("send", "q", "--file", "a.csv", "--preview").out
    )
    tried = run("send", "q", "--file", "a.csv", "--dry-run").out
    assert "1 row with a message_id that came before (such as a)\n" in tried
    assert "1 message_id waiting in the store already (such as c)\n" in tried


def test_a_rejected_line_of_json_is_named_by_its_number(run: CommandLine, sqlite_url: str) -> None:
    good = json.dumps({"message_id": "a", "due_time": DUE, "body": "x"})
    Path("a.jsonl").write_text(f"{good}\n\nnothing\n{good.replace(DUE, 'soon')}\n")
    assert run("send", "q", "--file", "a.jsonl", "--rejects-dir", "bad").code == 0
    assert waiting(sqlite_url) == {"a": b"x"}
    assert [(row["_line"], row["body"]) for row in rejected()] == [(3, "nothing"), (4, "x")]


def test_a_row_whose_id_came_before_is_rejected_alone(run: CommandLine, sqlite_url: str) -> None:
    lines = [f"{number % 12_000},{DUE},row {number}" for number in range(12_002)]
    Path("a.csv").write_text("\n".join([",".join(FIELDS), *lines]))
    assert "'0'" in run.refused("send", "q", "--file", "a.csv")
    assert waiting(sqlite_url) == {}
    tried = run("send", "q", "--file", "a.csv", "--rejects-dir", "bad", "--dry-run", "--json").document
    assert (tried["would_store"], tried["rejected"], tried["obstacles"]) == (12_000, 2, [])
    sent = run("send", "q", "--file", "a.csv", "--rejects-dir", "bad", "--load-id", "l", "--json").document
    assert (sent["stored"], sent["rejected"]) == (12_000, 2)
    assert [each["reason"] for each in sent["rejections"]] == ["message_id is twice in the load"]
    reasons = [f"message_id is twice in the load; first at line {line}" for line in (2, 3)]
    assert [row["_reason"] for row in rejected()] == reasons
    assert [row["_line"] for row in rejected()] == [12_002, 12_003]
    assert run("show", "0", "--body").out == "row 0"
    again = run("send", "q", "--file", "a.csv", "--rejects-dir", "bad", "--load-id", "l", "--json").document
    assert (again["rejected"], again["differs"]) == (2, False)
    assert [each["reason"] for each in again["rejections"]] == ["message_id is twice in the load"]


def test_unknown_columns_are_left_out(run: CommandLine, sqlite_url: str) -> None:
    Path("a.csv").write_text(f"message_id,due_time,body,reason\na,{DUE},x,why\n")
    assert "or to ignore" in run.refused("send", "q", "--file", "a.csv")
    assert run("send", "q", "--file", "a.csv", "--unknown-columns", "ignore").code == 0
    assert run("show", "a", "--json").document["headers"] == {}


def test_a_workbook_is_sent(run: CommandLine, sqlite_url: str) -> None:
    """Numbers as cells show them, times as local times, and lines as Excel counts them."""
    workbook(
        "a.xlsx",
        ["message_id", "due_time", "tz", "body", "price", "count", "ok", "wait", "day", "none"],
        [17, datetime(2030, 7, 1, 8), "Europe/Berlin", "a\nb", 1.5, 3, True, timedelta(hours=30), date(2030, 1, 2)],  # noqa: DTZ001 - a local time
        [],
        [18, datetime(2030, 3, 31, 2, 30), "Europe/Berlin", "skipped"],  # noqa: DTZ001
        [19, date(2030, 7, 1), None, "at midnight"],
    )
    options = ["--zone-column", "tz", "--time-zone", "UTC", "--unknown-columns", "headers", "--rejects-dir", "bad"]
    sent = run("send", "q", "--file", "a.xlsx", *options, "--json")
    assert sent.code == 0, sent.err
    assert waiting(sqlite_url) == {"17": b"a\nb", "19": b"at midnight"}
    shown = run("show", "17", "--json").document
    assert shown["due_time"] == "2030-07-01T06:00:00+00:00"
    assert shown["headers"] == {"price": "1.5", "count": "3", "ok": "true", "wait": "108000", "day": "2030-01-02"}
    assert run("show", "19", "--json").document["due_time"] == "2030-07-01T00:00:00+00:00"
    (row,) = rejected()
    assert (row["message_id"], row["_line"]) == ("18", 4)
    assert row["_reason"].startswith("due_time does not exist")


def test_an_empty_workbook_has_no_rows(run: CommandLine) -> None:
    workbook("a.xlsx")
    assert count_rows(find_file("a.xlsx")) == 0
    assert "the files have no rows" in run.refused("send", "q", "--file", "a.xlsx")


def test_a_sheet_can_be_named(run: CommandLine, sqlite_url: str) -> None:
    workbook("a.xlsx", FIELDS, ["a", DUE, "x"], first=False)
    assert "the files have no rows" in run.refused("send", "q", "--file", "a.xlsx")
    assert run("send", "q", "--file", "a.xlsx", "--sheet", "Letters").code == 0
    assert waiting(sqlite_url) == {"a": b"x"}
    line = run.refused("send", "q", "--file", "a.xlsx", "--sheet", "letters")
    assert "'a.xlsx' has no sheet 'letters'; it has 'Empty', 'Letters'" in line


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("text.xlsx", [], "'text.xlsx' is no workbook of Excel (invalid Zip archive"),
        ("other.xlsx", [], "'other.xlsx' is no workbook of Excel (File not found"),
        ("short.xlsx", [], "'short.xlsx' is no workbook of Excel"),
        ("empty.xlsx", [], "'empty.xlsx' is no workbook of Excel"),
        (
            "twice.xlsx",
            [],
            "the header line has two columns body, which are read as Body2 and body3; rename or drop one",
        ),
        ("empty.csv", ["--separator", "xx"], "--separator must be one character, or one of comma, semicolon, tab"),
        ("empty.csv", [], "the files have no rows"),
        ("empty.csv", ["--sheet", "x"], "--sheet goes with xlsx files only; leave it out"),
        ("good.xlsx", ["--separator", ";"], "--separator goes with csv files only; leave it out"),
        ("binary.csv", [], "'binary.csv' is not UTF-8 (line 1)"),
        ("wide.csv", [], "'wide.csv' has NUL characters in its header line"),
        ("short.csv.gz", [], "the file 'short.csv.gz' cannot be read: Compressed file ended before"),
        ("short.csv.zst", [], "the file 'short.csv.zst' cannot be read: Truncated compressed stream"),
        ("short.jsonl.gz", [], "the file 'short.jsonl.gz' cannot be read: Compressed file ended before"),
        ("nul.csv", [], "message_id contains a NUL character"),
        (
            "twice.csv",
            [],
            "the header line has two columns body, which are read as Body2 and body3; rename or drop one",
        ),
    ],
)
def test_bad_files_are_one_line(run: CommandLine, sqlite_url: str, name: str, options: list[str], says: str) -> None:
    workbook("good.xlsx", FIELDS, ["a", DUE, "x"])
    workbook("twice.xlsx", ["message_id", "due_time", "Body", "body"], ["a", DUE, "x", "y"])
    with zipfile.ZipFile("other.xlsx", "w") as other:
        other.writestr("a.txt", "x")
    text = "".join(f"{number},{DUE},x{number * 7919}\n" for number in range(1000)).encode()
    for file, data in {
        "text.xlsx": b"message_id,due_time,body\n",
        "short.xlsx": Path("good.xlsx").read_bytes()[:-200],
        "empty.xlsx": b"",
        "empty.csv": b"",
        "binary.csv": b"\x89PNG\r\n\x1a\n",
        "wide.csv": "message_id;due_time\n".encode("utf-16-le"),
        "short.csv.gz": gzip.compress(b"message_id,due_time,body\n" + text)[:-100],
        "short.csv.zst": pa.compress(b"message_id,due_time,body\n" + text, codec="zstd", asbytes=True)[:-100],
        "short.jsonl.gz": gzip.compress(b'{"message_id":"a"}\n' * 1000)[:-10],
        "nul.csv": f"message_id,due_time,body\na\0,{DUE},x\n".encode(),
        "twice.csv": f"message_id,due_time,Body,body\na,{DUE},x,y\n".encode(),
    }.items():
        Path(file).write_bytes(data)
    assert says in run.refused("send", "q", "--file", name, *options)
    assert waiting(sqlite_url) == {}


def test_a_body_of_json_is_checked_and_sent_as_it_is_written(run: CommandLine, sqlite_url: str) -> None:
    text = '{"price": 1.10, "name": "für"}'
    assert run("send", "q", "--delay", "60", "--message-id", "a", "--json-body", text).code == 0
    assert waiting(sqlite_url) == {"a": text.encode()}
    assert run("show", "a", "--json").document["properties"] == {"content_type": "application/json"}
    named = ["--json-body", "null", "--property", "content_type=application/cloudevents+json"]
    assert run("send", "q", "--delay", "60", "--message-id", "b", *named).code == 0
    properties = run("show", "b", "--json").document["properties"]
    assert properties == {"content_type": "application/cloudevents+json"}
    for wrong in ("", "{", '{"a": 1, "a": 2}', "NaN"):
        assert "--json-body " in run.refused("send", "q", "--delay", "60", "--json-body", wrong)
    assert "the body is given twice" in run.refused("send", "q", "x", "--delay", "60", "--json-body", "1")
    assert "--json-body is of one message" in run.refused("send", "q", "--file", "a.csv", "--json-body", "1")
