"""CSV and JSON lines through Spark: what is read is what is in the files, and what is not is told."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from pyspark.sql import SparkSession

from delaystore.bulk.columns import UNREADABLE
from delaystore.bulk.files import DataFiles, find_files
from delaystore.bulk.spark.loading import read_files
from delaystore.errors import ConfigurationError

HEADER = "message_id,destination,body\n"


class Files:
    """Writes files, and reads them through Spark."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._folder = folder

    def found(self, name: str, text: str | bytes) -> DataFiles:
        path = self._folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return find_files([str(self._folder)])

    def rows(self, files: DataFiles, mapping: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
        frame = read_files(self._spark, files, mapping or {})
        return sorted((row.asDict() for row in frame.collect()), key=lambda row: (row["message_id"] or "", row["body"]))

    def refused(self, name: str, text: str | bytes) -> str:
        with pytest.raises(ConfigurationError) as raised:
            self.rows(self.found(name, text))
        line = str(raised.value)
        assert "\n" not in line
        return line


@pytest.fixture
def files(spark: SparkSession, tmp_path: Path) -> Files:
    return Files(spark, tmp_path / "files")


def test_no_message_of_a_json_line_is_left_out(files: Files) -> None:
    doubtful = {
        '{"message_id":"j1","body":"x"}{"message_id":"j2","body":"x"}': "there is more behind its JSON object",
        '{"message_id":"j3","body":"x"},': "there is more behind its JSON object",
        '{"message_id":"j4","body":"x","body":"y"}': "a key comes twice",
        '{"message_id":"j\\ud800","body":"x"}': "a text holds half a surrogate pair",
        '{"message_id":"j5","body":"f\xfcr"}': "it is not UTF-8",
    }
    good = '{"message_id":"a","body":{"n": 1.10}}\r\n\n \n{"message_id":"b","a.b":"c"}\n'
    found = files.found("a.jsonl", b"\xef\xbb\xbf" + "\n".join([good, *doubtful]).encode("latin-1"))
    first, second, *others = sorted(files.rows(found), key=lambda row: row["message_id"] or "~")
    assert first == {"message_id": "a", "body": '{"n": 1.10}', "a.b": None, UNREADABLE: None}
    assert second == {"message_id": "b", "body": None, "a.b": "c", UNREADABLE: None}
    assert {row["body"].replace("\\xfc", "\xfc"): row[UNREADABLE] for row in others} == {
        line: f"the line is not readable: {reason}" for line, reason in doubtful.items()
    }


def test_folders_are_columns_of_json_lines_and_stay_text(files: Files) -> None:
    files.found("day=01/value=x/a.jsonl", '{"message_id":"a","body":"x","Day":7}\n')
    found = files.found("day=02/value=2027-01-01/a.jsonl", '{"message_id":"b","body":"x"}\nnothing')
    assert [(row["message_id"], row["day"], row["value"], row["body"]) for row in files.rows(found)] == [
        (None, "02", "2027-01-01", "nothing"),
        ("a", "01", "x", "x"),
        ("b", "02", "2027-01-01", "x"),
    ]


def test_folders_are_columns_of_csv_files_and_stay_text(files: Files) -> None:
    files.found("message_id=007/a.csv", 'destination,body\nq,""\n')
    found = files.found("message_id=7/a.csv", "destination,body\nq,x\n")
    assert [(row["message_id"], row["body"]) for row in files.rows(found)] == [("007", ""), ("7", "x")]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[\n {\n  "message_id": "a"\n }\n]\n', "no line is a JSON object (is it one array over several lines? jq -c"),
        (
            '{"body":"f\xfcr"}'.encode("latin-1"),
            "no line can be read as a JSON object; the line is not readable: it is not",
        ),
        ('{"message_id":"a"}\n{"Message_Id":"b"}\n', "keys 'Message_Id' and 'message_id', which differ only in case"),
        ("\n\n", "no rows"),
        ("{}", "no rows"),
    ],
)
def test_json_files_that_are_no_lines_of_messages_are_refused(files: Files, text: str | bytes, says: str) -> None:
    assert says in files.refused("a.json", text)


def test_csv_fields_are_read_by_rfc_4180(files: Files) -> None:
    rows = files.rows(files.found("a.csv", HEADER + 'a,"","a\\"\nb,,""\nc,q,\nd,q,"x ""y""\r\n, z"\ne,"q"\n'))
    assert [tuple(row.values()) for row in rows if row["message_id"] != "e"] == [
        ("a", None, "a\\", None),
        ("b", None, "", None),
        ("c", "q", None, None),
        ("d", "q", 'x "y"\r\n, z', None),
    ]
    assert rows[-1][UNREADABLE] == "the line is not readable, or has other columns"


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_line_ends_in_quotes_stay_as_they_are(files: Files, end: str) -> None:
    body = "one\r\ntwo\nthree\r\n"
    found = files.found("a.csv", f'message_id,destination,body{end}a,q,"{body}"{end}b,q,x{end}')
    assert [row["body"] for row in files.rows(found)] == [body, "x"]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-8-sig"])
@pytest.mark.parametrize("separator", [";", "\t"])
def test_csv_files_of_excel_are_read(files: Files, encoding: str, separator: str) -> None:
    """The byte order mark, the encoding and the separator are no part of a name or a value."""
    rows = [["message_id", "destination", "body"], ["a", "q", '"one\ntwo, ""three"""'], ["b", "q", "1,50 €"]]
    text = ("\ufeff" if encoding == "utf-16-be" else "") + "".join(f"{separator.join(row)}\r\n" for row in rows)
    read = files.rows(files.found("a.csv", text.encode(encoding)))
    assert [row["body"] for row in read] == ['one\ntwo, "three"', "1,50 €"]
    assert [row["message_id"] for row in read] == ["a", "b"]


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.parquet"])
def test_rows_of_several_files_have_their_file(files: Files, spark: SparkSession, name: str, tmp_path: Path) -> None:
    content: dict[str, bytes] = {}
    for number in ("1", "2"):
        row = {"message_id": number, "destination": "q", "body": "x", "_line": "9", "_file": "old", "_reason": "old"}
        if name == "a.csv":
            content[number] = f"{','.join(row)}\n{','.join(row.values())}\n".encode()
        elif name == "a.jsonl":
            content[number] = json.dumps(row).encode()
        else:
            parquet.write_table(pa.table({key: [value] for key, value in row.items()}), tmp_path / "one")
            content[number] = (tmp_path / "one").read_bytes()
    for number, data in content.items():
        found = files.found(f"{number}-{name}", data)
    read = files.rows(found)
    assert [Path(row["_file"]).name for row in read] == [f"1-{name}", f"2-{name}"]
    assert {"_line", "_reason"}.isdisjoint(read[0])


def test_csv_files_that_spark_would_change_are_refused(files: Files) -> None:
    assert "begins at line 2: a quote is not closed" in files.refused("day=1/a.csv", HEADER + 'a,q,"x\nb,q,y\n')
    assert "not UTF-8 (line 2)" in files.refused("day=1/a.csv", HEADER.encode() + b"a,q,f\xfcr\n")


def test_a_first_line_that_names_the_separator_is_refused(files: Files) -> None:
    text = "sep=;\n" + HEADER.replace(",", ";") + "a;q;x\n"
    assert "which Spark reads as the header line" in files.refused("a.csv", text)
    found = replace(find_files([str(files.found("a.csv", text).local[0])]), local=(), elsewhere=True)
    with pytest.raises(ConfigurationError, match="which Spark reads as the header line"):
        files.rows(found)


def test_rows_of_csv_files_elsewhere_are_not_read_if_they_may_not_be_utf_8(files: Files) -> None:
    found = files.found("a.csv", HEADER.encode() + b"a,q,f\xfcr\nb,q,x\n,,\n")
    reasons = {row["message_id"]: row[UNREADABLE] for row in files.rows(replace(found, local=(), elsewhere=True))}
    assert reasons == {"a": "the line is not UTF-8, or holds U+FFFD", "b": None, None: None}
    found = files.found("a.csv", HEADER + "a,q,\ufffd\n")
    assert [row["body"] for row in files.rows(found) if row[UNREADABLE] is None] == ["\ufffd"]
