"""Diagrams of the documents: drawn as committed, described in words, and shown with alternative texts."""

import json
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from pathlib import Path

import pytest

from website.colours import DARK, LIGHT
from website.house import HOUSE
from website.pictures import PICTURES, write_pictures
from website.plots import MEASURED, PLOTS, write_plots
from website.plots.axes import DRAWN_BY
from website.plots.measured import read

FOLDER = HOUSE / "docs" / "pictures"
SVG = "{http://www.w3.org/2000/svg}"
SHOWN = re.compile(r'!\[([^\]]*)\]\(([^)]*pictures/[^)]+)\)|<img\b[^>]*\bsrc="([^"]*pictures/[^"]+)"[^>]*>')
SHORTEST_ALT, SHORTEST_TEXT = 20, 100


def pages() -> list[Path]:
    return [HOUSE / "README.md", *sorted((HOUSE / "docs").rglob("*.md"))]


def test_committed_diagrams_are_as_drawn(tmp_path: Path) -> None:
    for drawn in write_pictures(tmp_path):
        assert (FOLDER / drawn.name).read_bytes() == drawn.read_bytes(), f"{drawn.name}: run `make pictures`"


@pytest.fixture(scope="module")
def plots(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """The plots, drawn from the committed figures, by the names of their files."""
    return {path.name: path for path in write_plots(tmp_path_factory.mktemp("plots"))}


@pytest.mark.parametrize("name", sorted(PLOTS))
def test_committed_plots_are_as_drawn(plots: Mapping[str, Path], name: str) -> None:
    drawn, committed = plots[f"plot-{name}.svg"].read_text(), (FOLDER / f"plot-{name}.svg").read_text()
    if DRAWN_BY not in committed:
        pytest.skip(f"another release than {DRAWN_BY} has drawn it")
    assert committed == drawn, "run `make pictures`"


def test_each_file_of_figures_has_a_plot_and_its_conditions() -> None:
    files = {path.stem: json.loads(path.read_text()) for path in MEASURED.glob("*.json")}
    assert files.keys() == PLOTS.keys()
    for name, document in files.items():
        assert document["figure"] == name
        assert document["quick"] is False
        assert document["series"]
        assert document["source"]
        assert re.fullmatch(r"\d{4}-\d\d(-\d\d)?", document["date"])
        assert document["conditions"].keys() >= {"delaystore", "postgresql", "rabbitmq", "machine"}


def test_a_plot_says_its_conditions(plots: Mapping[str, Path]) -> None:
    for name, path in plots.items():
        caption = read(MEASURED / f"{name.removeprefix('plot-').removesuffix('.svg')}.json").caption
        assert caption in path.read_text()
        assert caption.startswith("delaystore ")


def test_a_plot_is_drawn_of_every_round(tmp_path: Path) -> None:
    """As `python -m benchmarks.record` writes them: several rounds, and a sample of lateness."""
    rounds = {
        "dispatch": [{"name": "ours", "points": [{"waiting": 0, "body_bytes": 200, "rounds": [1, 2, 3]}]}],
        "lateness": [{"name": "ours", "rounds": [[1.0, 2.0, 3.0], [1.0, 2.5, 4.0]], "sample": [0.0, 1.0, 2.0, 3.0]}],
        "throughput": [{"task": "send", "name": "delaystore", "rounds": [1000, 1100, 900]}],
        "memory": [{"name": "idle", "points": [{"waiting": 0, "rounds": [80.0, 81.0]}]}],
        "stalls": [{"name": "a fault", "rounds": [1.5, 0.5], "aim": None, "lost": 0, "remark": ""}],
    }
    conditions = json.loads((MEASURED / "dispatch.json").read_text())["conditions"]
    for name, series in rounds.items():
        document = {"figure": name, "source": "measured", "date": "2026-11-29", "quick": False}
        (tmp_path / f"{name}.json").write_text(json.dumps({**document, "conditions": conditions, "series": series}))
    for drawn in write_plots(tmp_path, tmp_path):
        assert "2026-11-29" in drawn.read_text()
    assert {path.stem for path in tmp_path.glob("plot-*.svg")} == {f"plot-{name}" for name in rounds}


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
