"""Diagrams of the documents: drawn as committed, described in words, and shown with alternative texts."""

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from website.colours import DARK, LIGHT
from website.house import HOUSE
from website.pictures import PICTURES, write_pictures

FOLDER = HOUSE / "docs" / "pictures"
SVG = "{http://www.w3.org/2000/svg}"
SHOWN = re.compile(r'!\[([^\]]*)\]\(([^)]*pictures/[^)]+)\)|<img\b[^>]*\bsrc="([^"]*pictures/[^"]+)"[^>]*>')
SHORTEST_ALT, SHORTEST_TEXT = 20, 100


def pages() -> list[Path]:
    return [HOUSE / "README.md", *sorted((HOUSE / "docs").rglob("*.md"))]


def test_committed_diagrams_are_as_drawn(tmp_path: Path) -> None:
    for drawn in write_pictures(tmp_path):
        assert (FOLDER / drawn.name).read_bytes() == drawn.read_bytes(), f"{drawn.name}: run `make pictures`"


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.svg")), ids=lambda path: path.stem)
def test_a_picture_says_what_it_shows_and_has_both_schemes(path: Path) -> None:
    root = ElementTree.parse(path).getroot()
    title, text = root.find(f"{SVG}title"), root.find(f"{SVG}desc")
    assert title is not None
    assert text is not None
    assert len(title.text or "") >= SHORTEST_ALT
    assert len(text.text or "") >= SHORTEST_TEXT
    assert root.get("role") == "img"
    assert [root.get("aria-labelledby")] == [f"{title.get('id')} {text.get('id')}"]
    style = path.read_text()
    assert LIGHT["paper"] in style
    assert DARK["paper"] in style
    assert "prefers-color-scheme: dark" in style
    assert path.stat().st_size < 60_000


def test_each_diagram_of_the_drawing_code_has_its_own_title() -> None:
    titles = [picture.title for picture in PICTURES.values()]
    assert len(set(titles)) == len(titles)


def test_each_shown_picture_exists_and_has_an_alternative_text() -> None:
    wrong = []
    for page in pages():
        for found in SHOWN.finditer(page.read_text()):
            named = re.search(r'\balt="([^"]*)"', found[0])
            alt = found[1] if found[2] else named[1] if named else ""
            if len(alt) < SHORTEST_ALT or not (page.parent / (found[2] or found[3])).exists():
                wrong.append(f"{page.relative_to(HOUSE)}: {found[0]}")
    assert wrong == []


def test_no_page_draws_by_a_script_of_others() -> None:
    assert [str(page.relative_to(HOUSE)) for page in pages() if "```mermaid" in page.read_text()] == []
