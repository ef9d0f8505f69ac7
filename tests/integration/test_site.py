"""The documentation site: it builds strictly, by itself, and shows all that it should."""

import importlib
import inspect
import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from website.house import HOUSE
from website.site import CONFIGURATION, build
from website.tree import documents

PUBLIC = (
    "delaystore",
    "delaystore.cascades",
    "delaystore.delivery",
    "delaystore.dispatcher",
    "delaystore.integrations.celery",
    "delaystore.integrations.dramatiq",
    "delaystore.integrations.taskiq",
    "delaystore.operations",
    "delaystore.stores",
    "delaystore.stores.sql",
    "delaystore.telemetry",
    "delaystore.testing",
    "delaystore.transports",
    "delaystore.transports.rabbitmq",
    "delaystore.transports.rabbitmq.native",
    "delaystore.web",
)
FETCHED = re.compile(r'<(?:script|img|iframe)\b[^>]*\bsrc="?(?:https?:)?//|<link\b[^>]*\bhref="?(?:https?:)?//')


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built."""
    folder = tmp_path_factory.mktemp("site")
    assert build(folder) == 0
    return folder / "site"


def menu(entries: list[Any]) -> Iterator[str]:
    for entry in entries:
        for value in entry.values():
            if isinstance(value, str):
                yield value
            else:
                yield from menu(value)


def menu_pages() -> list[str]:
    return list(menu(tomllib.loads(CONFIGURATION.read_text())["project"]["nav"]))


def test_each_page_of_the_menu_exists(site: Path) -> None:
    missing = [page for page in menu_pages() if not (site / page).with_suffix(".html").exists()]
    assert missing == []


def test_each_document_is_in_the_menu_once() -> None:
    pages = menu_pages()
    assert sorted(pages) == sorted(set(pages))
    written = {path.removeprefix("docs/") for path in documents() if path.startswith("docs/")}
    assert written - set(pages) == set(), "website/zensical.toml has the menu"


def test_a_reader_fetches_nothing_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 40
    assert [page.name for page in pages if FETCHED.search(page.read_text())] == []
    assert [
        style.name for style in site.rglob("*.css") if re.search(r"(url\(|@import)\W*http", style.read_text())
    ] == []


def test_the_reference_has_each_public_name(site: Path) -> None:
    shown = "".join(page.read_text() for page in site.glob("reference/*.html"))
    for package in PUBLIC:
        module = importlib.import_module(package)
        for name in set(module.__all__) - {"__version__"}:
            thing = getattr(module, name)
            if inspect.isclass(thing) or inspect.isroutine(thing):
                assert re.search(rf'id="delaystore[\w.]*\.{name}"', shown), f"{package}.{name}"


def test_the_reference_has_each_command_and_setting(site: Path) -> None:
    commands = (site / "reference/commands.html").read_text()
    assert 'id="delaystore-errors-replay"' in commands
    assert "<code>--on-key &lt;reject&#124;keep&#124;replace&#124;debounce&gt;</code>" in commands
    assert "DELAYSTORE_SEND_DELAY" in (site / "reference/variables.html").read_text()
    assert "retry_span" in (site / "reference/settings.html").read_text()


def test_the_glossary_and_the_decisions_are_those_of_the_architecture(site: Path) -> None:
    architecture = (HOUSE / "ARCHITECTURE.md").read_text()
    section = architecture.partition("## Words")[2].partition("## Inside")[0]
    words = re.findall(r"^\| ([a-z ,;-]+) \| [^|]+ \| [^|]*\|$", section, re.MULTILINE)
    words = [word for word in words if word != "word"]
    assert len(words) > 40
    glossary = (site / "glossary.html").read_text()
    assert [word for word in words if f"<td>{word}</td>" not in glossary] == []
    assert "claims live in a transaction" in (site / "design/decisions.html").read_text()


def test_what_documents_link_to_is_shown(site: Path) -> None:
    assert "DelayedDelivery" in (site / "files/examples/fastapi_app.py.html").read_text()
    assert 'href="files/examples/fastapi_app.py.html"' in (site / "asyncio.html").read_text()


def test_the_search_knows_the_pages(site: Path) -> None:
    found = json.loads((site / "search.json").read_text())
    places = {item["location"].partition("#")[0] for item in found["items"]}
    assert {page.replace(".md", ".html") for page in menu_pages()} - places == set()
