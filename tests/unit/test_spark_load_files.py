"""Which files a load means: all of those in a folder, or an error that says which would be left out."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from delaystore.bulk.files import DataFiles, find_files
from delaystore.errors import ConfigurationError


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
    assert "'a.csv.GZ' ends with .GZ, which Spark takes for no compression; rename it to .gz" in refused("a.csv.GZ")
    assert find_files(["b.csv.gz"]).kind == "csv"
