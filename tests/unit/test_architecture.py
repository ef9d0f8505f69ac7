"""ARCHITECTURE.md: what it names is there, what is there it names, and its numbers are about right."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import delaystore

PACKAGE = Path(delaystore.__file__).parent
TEXT = (Path(__file__).parents[2] / "ARCHITECTURE.md").read_text()
NEAR = 0.1
"""By how much a number of lines may be off."""


def table(after: str) -> Iterator[list[str]]:
    """The rows of the first table behind that heading."""
    rows = TEXT.partition(f"\n## {after}\n")[2].partition("\n## ")[0].splitlines()
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows if row.startswith("|")]
    return iter(cells[2:])


def items(after: str) -> Iterator[tuple[str, str]]:
    """What the items of the list behind that heading are about, in bold, and what they say."""
    text = TEXT.partition(f"\n## {after}\n")[2].partition("\n## ")[0]
    return iter(re.findall(r"^- \*\*(.+?)\*\*: ((?:.|\n(?!- ))*)", text, re.MULTILINE))


@cache
def lines_of(package: str) -> int:
    """The lines of a package's modules; "": of the modules beside the packages."""
    modules = (PACKAGE / package).rglob("*.py") if package else PACKAGE.glob("*.py")
    return sum(len(module.read_text().splitlines()) for module in modules)


def number(text: str) -> int:
    return int(text.replace(",", ""))


def packages() -> set[str]:
    return {path.parent.name for path in PACKAGE.glob("*/__init__.py")}


def is_in(path: str, root: Path) -> bool:
    """Whether a path that a row of the map names is somewhere in what the row is about, or in the whole."""
    return (root / path).exists() or (PACKAGE / path).exists() or next(root.rglob(path.rstrip("/")), None) is not None


def test_the_map_names_what_is_there() -> None:
    missing = []
    assert len(list(items("The map"))) > 15
    for where, what in items("The map"):
        about = re.findall(r"`([^`]+)`", where)
        missing += [path for path in about if not (PACKAGE / path).exists()]
        roots = [PACKAGE / path for path in about if path.endswith("/") and (PACKAGE / path).exists()]
        named = re.findall(r"`([\w/]+(?:\.py|/))`", what)
        missing += [f"{path} of {where}" for path in named if not any(is_in(path, root) for root in roots or [PACKAGE])]
    assert not missing


def test_each_package_and_module_of_the_ground_is_in_the_map() -> None:
    named = {path.strip("`/").partition("/")[0] for where, _ in items("The map") for path in where.split(", ")}
    modules = {path.name for path in PACKAGE.glob("*.py")} - {"__init__.py", "__main__.py"}
    assert not (packages() | modules) - named


@pytest.mark.parametrize("row", list(table("Layers")), ids=lambda row: row[0].strip("`/"))
def test_the_numbers_of_lines_are_about_right(row: list[str]) -> None:
    room, lines, _ = row
    assert number(lines) == pytest.approx(lines_of("" if room == "ground" else room.strip("`/")), rel=NEAR)


def test_each_room_is_in_the_table() -> None:
    assert [room.strip("`/") for room, *_ in table("Layers") if room != "ground"] == sorted(
        packages(), key=[room.strip("`/") for room, *_ in table("Layers")].index
    )


def test_the_core_is_that_much_of_the_whole() -> None:
    found = re.search(r"The core is [^:]*: ([\d,]+) of ([\d,]+) lines", TEXT)
    assert found is not None
    core = ("", "stores", "transports", "dispatcher", "delivery")
    assert number(found[1]) == pytest.approx(sum(map(lines_of, core)), rel=NEAR)
    assert number(found[2]) == pytest.approx(lines_of("") + sum(map(lines_of, packages())), rel=NEAR)
