"""Files of rejected rows: those of the winning attempts are kept, and nothing else of the load."""

import json
import pickle
import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import BinaryType, LongType, MapType, StringType, TimestampType

from delaystore.bulk.options import UnknownColumns, WriteOptions
from delaystore.bulk.rejects import RejectFolder, file_name, kept_rejects, rejects_location
from delaystore.bulk.staging.abc import LoadKey
from delaystore.errors import ConfigurationError, LoadError
from delaystore.message import new_message_id
from tests.unit.converting import DUE, convert, instants, not_utf8, rows

LOAD = LoadKey("2026-11-reminders")


def attempt(folder: RejectFolder, *ids: str) -> str | None:
    """An attempt's file, of rows with these ids."""
    file = pickle.loads(pickle.dumps(folder)).file()
    for message_id in ids:
        rejected = convert(rows(message_id=(StringType(), [message_id]), body=(BinaryType(), [None]))).rejected
        assert rejected is not None
        file.write(rejected)
    name: str | None = file.close()
    return name


def kept(folder: Path) -> dict[str, list[str]]:
    """The ids in the load's files, and in no other file below the folder."""
    return {
        str(path.relative_to(folder)): [json.loads(line)["message_id"] for line in path.read_text().splitlines()]
        for path in sorted(folder.rglob("*"))
    }


def names(*ids: Sequence[str], load: str = "2026-11-reminders") -> dict[str, list[str]]:
    return {f"{load}-{number:05}.jsonl": list(found) for number, found in enumerate(ids, start=1)}


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_the_files_of_winning_attempts_are_kept(tmp_path: Path, scheme: str) -> None:
    folder = RejectFolder.of_load(f"{scheme}{tmp_path}/new/rejects", LOAD)
    first, _loser, second, nothing = (
        attempt(folder, "a", "b"), attempt(folder, "a"), attempt(folder, "c"), attempt(folder)
    )  # fmt: skip
    assert nothing is None
    folder.keep([first, nothing, second])
    assert kept(tmp_path / "new/rejects") == names(["a", "b"], ["c"])


def test_a_load_run_again_overwrites_its_own_files_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.jsonl").write_text("")
    for load in (LOAD, LoadKey("2026-11-reminders-00001")):
        folder = RejectFolder.of_load(str(tmp_path), load)
        folder.keep([attempt(folder, "a"), attempt(folder, "b")])
    folder = RejectFolder.of_load(str(tmp_path), LOAD)
    folder.keep([attempt(folder, "c")])
    other = names(["a"], ["b"], load="2026-11-reminders-00001")
    assert kept(tmp_path) == names(["c"]) | other | {"notes.jsonl": []}
    attempt(folder, "d")
    for _ in range(2):
        folder.remove()
        assert kept(tmp_path) == other | {"notes.jsonl": []}


def test_what_waits_is_of_one_run_and_goes_with_a_later_one(tmp_path: Path) -> None:
    killed, slow, third = (RejectFolder.of_load(str(tmp_path), LOAD, run=new_message_id()) for _ in range(3))
    other = RejectFolder.of_load(str(tmp_path), LoadKey("2026-11-reminders.2"), run=new_message_id())
    attempt(killed, "k")
    written = attempt(slow, "s"), attempt(third, "t"), attempt(other, "o")
    slow.remove_pending()
    slow.keep([])
    assert [len(list(path.iterdir())) for path in tmp_path.iterdir()] == [1, 1]
    third.keep([written[1]])
    other.keep([written[2]])
    assert kept(tmp_path) == names(["t"]) | names(["o"], load="2026-11-reminders.2")


def test_the_rows_of_a_load_are_counted_and_no_others(tmp_path: Path) -> None:
    options = WriteOptions(store="sqlite:///app.db", endpoint="sales", rejects=str(tmp_path))
    place = rejects_location(options)
    assert place is not None
    for load in (LOAD, LoadKey("2026-11-reminders-00001")):
        folder = RejectFolder.of_load(place, load)
        folder.keep([attempt(folder, "a", "b"), attempt(folder, "c")])
    (Path(place) / f"{LOAD.load_id}-7.jsonl").write_text("of somebody else")
    found = kept_rejects(LOAD.load_id, options)
    assert found.count == 3
    assert list(found.reasons) == ["body is null"]
    assert kept_rejects("another", options).count == kept_rejects("another", replace(options, rejects=None)).count == 0


def test_long_values_of_kept_rows_are_cut_where_they_are_shown(tmp_path: Path) -> None:
    options = WriteOptions(store="sqlite:///app.db", endpoint="sales", rejects=str(tmp_path))
    (location := Path(rejects_location(options) or "")).mkdir()
    row = {"message_id": "a", "body": "x" * 10_000_000, "reason": "due_time is null"}
    (location / f"{LOAD.load_id}-00001.jsonl").write_text(json.dumps(row))
    (shown,) = kept_rejects(LOAD.load_id, options).reasons["due_time is null"].examples
    assert shown.startswith('{"message_id":"a","body":"xxx')
    assert len(shown) < 100


def test_a_load_without_rejected_rows_keeps_nothing(tmp_path: Path) -> None:
    folder = RejectFolder.of_load(str(tmp_path), LOAD)
    folder.keep([attempt(folder, "a")])
    folder.keep([None])
    assert kept(tmp_path) == {}


def test_a_load_that_fails_keeps_what_it_had_kept_before(tmp_path: Path) -> None:
    folder = RejectFolder.of_load(str(tmp_path), LOAD)
    folder.keep([attempt(folder, "a")])
    attempt(folder, "b")
    for _ in range(2):
        folder.remove_pending()
        assert kept(tmp_path) == names(["a"])


def test_an_attempt_that_fails_leaves_no_file(tmp_path: Path) -> None:
    folder = RejectFolder.of_load(str(tmp_path), LOAD)
    rejected = convert(rows(body=(BinaryType(), [None]))).rejected
    with pytest.raises(ZeroDivisionError), folder.file() as file:
        file.write(rejected)
        raise ZeroDivisionError
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    """As where each machine has a folder of its own by this name."""
    folder = RejectFolder.of_load(str(tmp_path), LOAD)
    with pytest.raises(LoadError, match="name a folder or URI that all machines share"):
        folder.keep(["elsewhere.jsonl"])


def test_a_folder_that_cannot_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="cannot be made; name another"):
        RejectFolder.of_load(str(tmp_path / "file" / "rejects"), LOAD)
    with pytest.raises(ConfigurationError, match="unknown://host/rejects cannot be used") as caught:
        RejectFolder.of_load("unknown://me:secret@host/rejects", LOAD)
    assert "secret" not in str(caught.value)
    assert "secret" not in repr(RejectFolder("s3://me:secret@host/rejects", "load"))


def test_a_folder_that_is_gone_is_an_error(tmp_path: Path) -> None:
    folder = RejectFolder.of_load(str(tmp_path / "rejects"), LOAD)
    (tmp_path / "rejects").rmdir()
    (tmp_path / "rejects").write_text("")
    with pytest.raises(LoadError, match="cannot be used: "):
        attempt(folder, "a")


def test_a_row_is_written_whole(tmp_path: Path) -> None:
    columns = rows(
        message_id=(StringType(), not_utf8(b"\xff")),
        due_time=(TimestampType(), instants([2**62])),
        body=(BinaryType(), [b"\xff\x00"]),
        headers=(MapType(StringType(), LongType()), [[("a", 1), ("b", None)]]),
        seen=(TimestampType(), [datetime(2026, 11, 30, 8, tzinfo=UTC)]),
        reason=(StringType(), ["mine"]),
        text=(StringType(), ["ä\n" * 1000]),
        nothing=(StringType(), [None]),
    )
    folder = RejectFolder.of_load(str(tmp_path), LOAD)
    file = folder.file()
    rejected = convert(columns, unknown_columns=UnknownColumns.HEADERS).rejected
    assert rejected is not None
    file.write(rejected)
    folder.keep([file.close()])
    (line,) = (tmp_path / "2026-11-reminders-00001.jsonl").read_text().splitlines()
    assert json.loads(line) == {
        "message_id": "\N{REPLACEMENT CHARACTER}",
        "destination": "sales",
        "due_time": f"{2**62} microseconds after 1970",
        "body": "/wA=",
        "headers": {"a": 1, "b": None},
        "seen": "2026-11-30T08:00:00+00:00",
        "reason": "mine",
        "text": "ä\n" * 1000,
        "nothing": None,
        "_reason": "message_id is not UTF-8",
    }
    assert DUE.isoformat() not in line


def test_every_endpoint_of_every_store_has_its_own_folder() -> None:
    def place(store: str = "postgresql://me:secret@host/app", endpoint: str = "sales", **more: Any) -> str | None:
        return rejects_location(WriteOptions(store=store, endpoint=endpoint, rejects="s3://bucket/rejects/", **more))

    assert rejects_location(WriteOptions(store="sqlite:///app.db", endpoint="sales")) is None
    assert place() == place("postgresql://you@host/app?sslmode=require")
    others = [
        place(endpoint="billing"),
        place(endpoint="a/b"),
        place(schema="x"),
        place(table="x"),
        place("mysql://host/app"),
    ]
    assert len({place(), *others}) == 6
    for found in (place(), *others):
        assert found is not None
        assert re.fullmatch(r"s3://bucket/rejects/[A-Za-z0-9.-]+_[0-9a-f]{8}", found)


def test_every_load_has_its_own_name() -> None:
    keys = [LoadKey(name) for name in ("a", "a/b", "a:b", "..", "x" * 255, "x" * 254, " ", "q.1")]
    keys += [LoadKey("q", 1), LoadKey("q", 11), LoadKey("q1", 1), LoadKey("q")]
    found = [file_name(key) for key in keys]
    assert len(set(found)) == len(keys)
    assert found[0] == "a"
    for name in found:
        assert name == Path(name).name
        assert len(name) < 100
        assert name[0] not in "._-"
