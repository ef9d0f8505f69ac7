"""Files that a load means, and their lines: read as they are, or not at all."""

import bz2
import csv
import gzip
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from delaystore.bulk.csv_files import CsvForm, count_csv, csv_form, csv_rows, separator_of
from delaystore.bulk.files import DataFiles, Kind, can_be_checked, check_files, find_files
from delaystore.bulk.json_lines import JsonLine, read_keys, read_line, read_lines
from delaystore.errors import ConfigurationError

HEADER = "id,body\n"
NAMES = ["a.csv", "a.csv.gz", "a.csv.bz2", "a.CSV.zst"]
COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".zst": lambda data: pa.compress(data, codec="zstd", asbytes=True),
}


def fields(line: str) -> dict[str, str | None]:
    found = read_line(line.encode())
    assert found is not None
    assert found.why is None, found.why
    return found.fields


def why(line: bytes) -> str:
    found = read_line(line)
    assert found is not None
    assert found.why is not None, found.fields
    assert not found.fields
    return found.why


def test_values_are_their_text() -> None:
    line = ' {"a": "x\\n\\u00fc\\ud83d\\ude00", "b" : 1.10, "c":1e40,"d":12345678901234567890, "e":true, "f":null}\t'
    assert fields(line) == {
        "a": "x\nü😀",
        "b": "1.10",
        "c": "1e40",
        "d": "12345678901234567890",
        "e": "true",
        "f": None,
    }


def test_objects_and_arrays_stay_as_they_were_written() -> None:
    assert fields('{"a": { "n" : [1, 2.50], "m": "\\u00fc}" } , "b":[ ]}') == {
        "a": '{ "n" : [1, 2.50], "m": "\\u00fc}" }',
        "b": "[ ]",
    }


def test_a_number_may_have_more_digits_than_python_reads() -> None:
    assert fields(f'{{"a":{"9" * 5000}}}') == {"a": "9" * 5000}


def test_an_empty_object_has_no_fields() -> None:
    assert fields("{ }") == {}
    assert fields("\ufeff{}") == {}


def test_the_replacement_character_may_be_written() -> None:
    assert fields('{"a":"\ufffd"}') == {"a": "\ufffd"}


@pytest.mark.parametrize("line", ["", " \t", "\ufeff", "\r"])
def test_a_blank_line_is_none(line: str) -> None:
    assert read_line(line.encode()) is None


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"a":1}{"a":2}', "more behind"),
        ('{"a":1} trailing', "more behind"),
        ('{"a":1},', "more behind"),
        ('{"a":1} {"x"', "more behind"),
        ("{} {}", "more behind"),
        ("[{}]", "no JSON object"),
        ('"text"', "no JSON object"),
        ("7", "no JSON object"),
        ("a,b", "no JSON object"),
        ('{"a":1', "Expecting ',' delimiter"),
        ('{"a":1,}', "Expecting property name"),
        ('{"a" 1}', "Expecting ':' delimiter"),
        ('{"a":}', "Expecting value"),
        ('{"a":', "Expecting value"),
        ("{", "Expecting property name"),
        ("{'a':1}", "Expecting property name"),
        ('{"a":{"b":}}', "Expecting value"),
        ('{"a":"x', "Unterminated string"),
        ('{"a":"x\ty"}', "Invalid control character"),
        ('{"a":1,"b":2,"a":3}', "comes twice"),
        ('{"a":{"b":2,"b":3}}', "comes twice"),
        ('{"a":[NaN]}', "NaN, Infinity, or a number that no float can be"),
        ('{"a":1e999}', "NaN, Infinity, or a number that no float can be"),
        ('{"a":1,"A":2}', "differ in case"),
        ('{"a":"x\\ud800"}', "surrogate"),
        ('{"\\udc00":1}', "surrogate"),
        ('{"a":' + "[" * 100_000, "nested too deeply"),
    ],
)
def test_a_line_in_doubt_is_not_read(line: str, reason: str) -> None:
    found = why(line.encode())
    assert found.startswith("the line is not readable: ")
    assert reason in found
    assert not found.endswith(" at")
    assert "char " not in found  # reasons are counted by their text
    assert read_line(line.encode()) == JsonLine(why=found, raw=line)


def test_a_line_of_other_bytes_than_utf_8_is_not_read() -> None:
    line = '{"a":"für"}'.encode("latin-1")
    assert read_line(line) == JsonLine(why="the line is not readable: it is not UTF-8", raw='{"a":"f\\xfcr"}')


def test_each_line_is_a_row_and_blank_ones_are_none() -> None:
    rows = read_lines(pa.array([b'{"b":1,"c":2}', b"", None, b"{}", b"x"]), ["a", "b"])
    nothing = {"a": None, "b": None, "_delaystore_broken_record": None, "_delaystore_why": None}
    unread = "the line is not readable: it is no JSON object"
    assert rows.to_pylist() == [
        [{**nothing, "b": "1"}],
        [],
        [],
        [nothing],
        [{**nothing, "_delaystore_broken_record": "x", "_delaystore_why": unread}],
    ]


def test_keys_are_found_once() -> None:
    found = read_keys(pa.array([b'{"b":1,"a":2}', b"", None, b'{"a":3,"c":0}', b"x", b"x"])).to_pylist()
    assert [[pair["key"] for pair in pairs] for pairs in found] == [["b", "a"], [], [], ["c"], [None], []]
    assert [pair["why"] for pairs in found for pair in pairs if pair["key"] is None] == [
        "the line is not readable: it is no JSON object"
    ]


def written(folder: Path, text: str | bytes, name: str = "a.csv") -> Path:
    path = folder / name
    data = text if isinstance(text, bytes) else text.encode()
    path.write_bytes(COMPRESS.get(path.suffix, bytes)(data))
    return path


def check_csv(path: Path) -> int:
    """How many rows the file has below its header."""
    return count_csv(path, csv_form(path))


def common_form(paths: Sequence[Path]) -> CsvForm | None:
    return check_files(DataFiles(tuple(map(str, paths)), Kind.CSV, local=tuple(paths))).form


def common_end(paths: Sequence[Path]) -> str | None:
    form = common_form(paths)
    assert form is not None
    return form.line_end


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "text",
    [
        "",
        HEADER,
        HEADER + '1,"a ""b"", \nc"\n2,a"b\n3,"a\\"\n4,""\n5',
        HEADER.replace("\n", "\r\n") + '1,"x\ny"\r\n2,z\r\n',
        HEADER + '1,"x\r\ny"\n',
        "\ufeff" + HEADER + '1,"\ufffdü\0"\n',
        HEADER + f'1,"{"y" * 200_000}"\n',
    ],
)
def test_a_csv_file_that_spark_reads_as_it_is_passes(tmp_path: Path, name: str, text: str) -> None:
    limit = csv.field_size_limit()
    check_csv(written(tmp_path, text, name))
    assert csv.field_size_limit() == limit


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("text", "says"),
    [
        (HEADER + '1,"x\n2,y\n3,z\n', "begins at line 2: a quote is not closed"),
        (HEADER + '1,x\n2,"abc"def\n', "begins at line 3: a quote is not closed, or there is text behind"),
        (HEADER + '1,"x\n2,y\n3,"z"\n', "begins at line 2: a quote is not closed, or there is text behind"),
        (HEADER + '1,"a\\"b"\n', "text behind a closing quote (line 2)"),
        (HEADER.encode() + b"1,x\n2,f\xfcr\n", "not UTF-8 (line 3)"),
        (b"\xff\xfea", "is not UTF-16, though it begins so"),
        (HEADER.encode("utf-16-le"), "NUL characters in its header line: it is UTF-16 without a byte order mark"),
        (b"\x89PNG\r\n\x1a\n\0\0", "not UTF-8 (line 1)"),
        (HEADER.replace("\n", "\r\n") + "1,x\n", "(its first row: CR LF, line 2: LF)"),
        (HEADER + "1,x\ry\n", "(its first row: LF, line 2: CR)"),
        (HEADER + "1,x\r\n", "(its first row: LF, line 2: CR LF)"),
    ],
)
def test_a_csv_file_that_spark_would_change_is_refused(tmp_path: Path, name: str, text: str | bytes, says: str) -> None:
    path = written(tmp_path, text, name)
    with pytest.raises(ConfigurationError) as raised:
        check_csv(path)
    assert says in str(raised.value)
    assert repr(str(path)) in str(raised.value)


def test_a_file_that_is_not_compressed_as_it_says_is_refused(tmp_path: Path) -> None:
    for name in ("a.csv.gz", "a.csv.bz2", "a.csv.zst"):
        path = tmp_path / name
        path.write_text(HEADER)
        with pytest.raises(ConfigurationError, match="cannot be read"):
            check_csv(path)
    for name in ("a.csv.gz", "a.csv.zst"):
        path = written(tmp_path, json.dumps([*range(1000)]), name)
        path.write_bytes(path.read_bytes()[:-20])
        with pytest.raises(ConfigurationError, match="cannot be read"):
            check_csv(path)


def test_files_compressed_otherwise_are_not_checked() -> None:
    assert can_be_checked(Path("a.csv.gz"))
    assert can_be_checked(Path("a.csv.zst"))
    assert not can_be_checked(Path("a.csv.lz4"))


def test_files_of_one_load_have_one_line_end(tmp_path: Path) -> None:
    short = written(tmp_path, HEADER + '1,"x\r\ny"\n', "a.csv")
    without = written(tmp_path, "id,body", "b.csv")
    long = written(tmp_path, '"id","bo\ndy"\r\n1,x\r\n', "c.csv")
    assert common_end([without, short]) == "\n"
    assert common_end([long, written(tmp_path, '"id","bo\ndy"', "d.csv")]) == "\r\n"
    assert common_end([without]) is None
    with pytest.raises(ConfigurationError, match="different line ends"):
        common_end([short, without, long])


@pytest.mark.parametrize(
    ("header", "separator"),
    [
        ("id;body", ";"),
        ("id\tbody,text\tmore", "\t"),
        ("id|body|text", "|"),
        ("id,body", ","),
        ("id;body;due,time", ";"),
        ('id,"a;b;c;d"', ","),
        ('"id";"body, or text"', ";"),
        ("id body", ","),
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-be"])
def test_the_separator_and_the_encoding_are_found(tmp_path: Path, header: str, separator: str, encoding: str) -> None:
    bom = "\ufeff" if encoding == "utf-16-be" else ""
    text = f'{bom}{header}\r\n1{separator}"ü\n{separator}"\r\n'
    path = written(tmp_path, text.encode(encoding))
    form = csv_form(path)
    assert (form.separator, form.encoding) == (separator, "UTF-16" if "16" in encoding else "UTF-8")
    assert form.header[0].removesuffix(" body") == "id"
    (((line, fields, row),),) = csv_rows(path, form)
    assert (line, fields, row) == (2, ["1", f"ü\n{separator}"], f'1{separator}"ü\n{separator}"\r\n')


def test_a_separator_is_named_or_written() -> None:
    assert [separator_of(given) for given in ("tab", "Comma", "SEMICOLON", "pipe", "^")] == ["\t", ",", ";", "|", "^"]
    for given in ("", ",,", '"', "\n", "\0"):
        with pytest.raises(ConfigurationError, match="the option separator must be one character, or one of comma"):
            separator_of(given)


def test_a_wrong_separator_is_told_before_the_line_ends(tmp_path: Path) -> None:
    path = written(tmp_path, 'id;body\r\n1;"x\ny"\r\n')
    with pytest.raises(ConfigurationError, match=r"its header line is one column, 'id;body', with the separator ','"):
        csv_form(path, ",")


def test_files_of_one_load_are_written_alike(tmp_path: Path) -> None:
    semicolons, commas = written(tmp_path, "id;body\n1;x\n"), written(tmp_path, HEADER + "1,x\n", "b.csv")
    wide, empty = written(tmp_path, "id;body\n".encode("utf-16"), "c.csv"), written(tmp_path, "", "d.csv")
    form = common_form([empty, semicolons])
    assert form is not None
    assert form.separator == ";"
    for other in (commas, wide):
        with pytest.raises(ConfigurationError, match="the files are written differently"):
            common_form([semicolons, other])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def made(folder: Path, names: Sequence[str]) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("text\n")


def refused(*given: str) -> str:
    with pytest.raises(ConfigurationError) as raised:
        find_files(given)
    return str(raised.value)


def of_spark(folder: Path, files: DataFiles) -> list[str]:
    """The paths for Spark, relative to `folder`."""
    return [path.removeprefix(f"file:{folder}/") for path in files.paths]


@pytest.mark.parametrize("nested", ["in/2026/b.csv", "in/day=1/more/b.csv", "in/2026/day=1/b.csv"])
def test_a_file_that_spark_would_not_look_for_is_refused(folder: Path, nested: str) -> None:
    made(folder, ["in/a.csv", nested])
    line = refused("in")
    assert repr(nested) in line
    assert "'in/**/*.csv'" in line
    assert of_spark(folder, find_files(["in/**/*.csv"])) == sorted(["in/a.csv", nested])


@pytest.mark.parametrize("other", ["in/a.csv", "in/hour=1/b.csv", "in/day=1/hour=1/b.csv"])
def test_folders_of_different_columns_are_refused(folder: Path, other: str) -> None:
    made(folder, ["in/day=1/a.csv", other])
    assert "of different columns" in refused("in")


def test_folders_of_the_same_columns_are_one_table(folder: Path) -> None:
    made(folder, ["in/day=1/hour=1/a.csv", "in/day=2/hour=1/b.csv", "in/_SUCCESS"])
    found = find_files(["in"])
    assert (of_spark(folder, found), found.size) == (["in"], 10)


def test_what_spark_leaves_out_is_not_looked_at(folder: Path) -> None:
    made(folder, ["in/a.csv", "in/_SUCCESS", "in/.a.csv.crc", "in/_temporary/0/b.csv", "in/.day=1/b.csv"])
    assert find_files(["in"]).size == 5


@pytest.mark.parametrize("given", [["in", "in/a.csv"], ["in/*", "in"], ["in/a.csv", "other/../in"]])
def test_a_file_that_spark_would_read_twice_is_refused(folder: Path, given: list[str]) -> None:
    made(folder, ["in/a.csv", "other/a.csv"])
    assert "named twice" in refused(*given)


def test_a_file_named_twice_alike_is_read_once(folder: Path) -> None:
    made(folder, ["in/a.csv"])
    assert of_spark(folder, find_files(["in/a.csv", str(folder / "in" / "a.csv"), "in/*"])) == ["in/a.csv"]


def test_files_of_folders_are_listed_and_those_elsewhere_told(folder: Path) -> None:
    made(folder, ["in/day=1/a.csv", "in/day=2/b.csv", "in/_SUCCESS", "c.csv"])
    found = find_files(["in", "c.csv"])
    assert found.local == (Path("in/day=1/a.csv"), Path("in/day=2/b.csv"), Path("c.csv"))
    assert not found.elsewhere
    found = find_files(["c.csv", "s3a://bucket/d.csv"])
    assert found.local == (Path("c.csv"),)
    assert found.elsewhere


@pytest.mark.parametrize(("path", "given"), [("a:b.csv", "a:b.csv"), ("d:e/a.csv", "d:e/a.csv"), ("in/a:b.csv", "in")])
def test_a_colon_in_a_path_is_refused(folder: Path, path: str, given: str) -> None:
    made(folder, [path])
    assert "has a colon in its path, which Spark cannot read" in refused(given)


def test_an_ending_that_spark_takes_for_no_compression_is_refused(folder: Path) -> None:
    made(folder, ["a.csv.GZ", "b.csv.gz"])
    assert "'a.csv.GZ' ends with .GZ, which Spark does not know as a compression; rename it to .gz" in refused(
        "a.csv.GZ"
    )
    assert find_files(["b.csv.gz"]).kind == "csv"
