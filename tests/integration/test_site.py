"""The documentation site: it builds strictly, by itself, and shows all that it should."""

import importlib
import inspect
import io
import json
import os
import re
import tomllib
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from PIL import Image
from playwright.sync_api import Browser, Page

from tests.dispatching import wait_until
from tests.servers import ServerMissingError
from tests.web.chromium import NARROW, chromium, opened
from website.house import HOUSE
from website.pictures import PICTURES
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
    "delaystore.server.telemetry",
    "delaystore.testing",
    "delaystore.transports",
    "delaystore.transports.rabbitmq",
    "delaystore.transports.rabbitmq.native",
    "delaystore.server.web",
)
built = pytest.mark.long
"""A test of the site as it is built, which takes half a minute; `make docs` builds it for each change."""
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


@built
def test_each_page_of_the_menu_exists(site: Path) -> None:
    missing = [page for page in menu_pages() if not (site / page).with_suffix(".html").exists()]
    assert missing == []


def test_each_document_is_in_the_menu_once() -> None:
    pages = menu_pages()
    assert sorted(pages) == sorted(set(pages))
    written = {path.removeprefix("docs/") for path in documents() if path.startswith("docs/")}
    assert written - set(pages) == set(), "website/zensical.toml has the menu"


@built
def test_each_page_is_there_as_markdown_and_listed(site: Path) -> None:
    listed = re.findall(r"^- \[[^]]+\]\(([^)]+)\): \S", (site / "llms.txt").read_text(), re.MULTILINE)
    assert listed == menu_pages()
    delivery = (site / "reference/delivery.md").read_text()
    assert "### `cancel(message_id: str | None = None" in delivery
    assert ":::" not in delivery
    assert [page for page in listed if not (site / page).read_text().startswith("# ")] == []


@built
def test_a_reader_fetches_nothing_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert [page.name for page in pages if 'class="mermaid"' in page.read_text()] == []  # whose script is elsewhere
    assert len(pages) > 40
    assert [page.name for page in pages if FETCHED.search(page.read_text())] == []
    assert [
        style.name for style in site.rglob("*.css") if re.search(r"(url\(|@import)\W*http", style.read_text())
    ] == []


@built
def test_each_diagram_is_a_picture(site: Path) -> None:
    for name in PICTURES:
        assert (site / "pictures" / f"{name}.svg").read_text() == (HOUSE / f"docs/pictures/{name}.svg").read_text()
    for page, picture in (("how-to/ingress", "ingress"), ("explanation/native-delays", "cascade")):
        shown = (site / page).with_suffix(".html").read_text()
        assert re.search(rf'<img alt="\w[^"]+" src="\.\./pictures/{picture}\.svg"', shown)


@built
def test_the_reference_has_each_public_name(site: Path) -> None:
    shown = "".join(page.read_text() for page in site.glob("reference/*.html"))
    for package in PUBLIC:
        module = importlib.import_module(package)
        for name in set(module.__all__) - {"__version__"}:
            thing = getattr(module, name)
            if inspect.isclass(thing) or inspect.isroutine(thing):
                assert re.search(rf'id="delaystore[\w.]*\.{name}"', shown), f"{package}.{name}"


@built
def test_the_reference_has_what_is_awaited(site: Path) -> None:
    shown = (site / "reference/delivery.html").read_text()
    for method in ("send", "get", "cancel", "reschedule"):
        assert f'id="delaystore.AsyncDelayedDelivery.{method}"' in shown
        assert f'id="delaystore.delivery.AsyncEnlistedDelivery.{method}"' in shown


@built
def test_the_reference_has_each_command_and_setting(site: Path) -> None:
    commands = (site / "reference/commands.html").read_text()
    assert 'id="delaystore-errors-replay"' in commands
    assert "<code>--on-key &lt;reject&#124;keep&#124;replace&#124;debounce&gt;</code>" in commands
    assert commands.count("<code>--store URL</code>") == 1  # a common option
    assert "<td>A message was lost, duplicated or early</td>" in commands
    assert "DELAYSTORE_SEND_DELAY" in (site / "reference/variables.html").read_text()
    assert "retry_span" in (site / "reference/settings.html").read_text()


@built
def test_the_glossary_and_the_decisions_are_pages(site: Path) -> None:
    words = re.findall(
        r"^\| ([a-z ,;-]+) \| [^|]+ \| [^|]*\|$", (HOUSE / "docs/reference/glossary.md").read_text(), re.MULTILINE
    )
    words = [word for word in words if word != "word"]
    assert len(words) > 40
    glossary = (site / "reference/glossary.html").read_text()
    assert [word for word in words if f"<td>{word}</td>" not in glossary] == []
    assert "A claim is a row lock of an open transaction" in (site / "design/decisions.html").read_text()


@built
def test_what_documents_link_to_is_shown(site: Path) -> None:
    assert "DelayedDelivery" in (site / "files/examples/fastapi_app.py.html").read_text()
    assert 'href="../files/examples/fastapi_app.py.html"' in (site / "how-to/asyncio.html").read_text()


@built
def test_the_search_knows_the_pages(site: Path) -> None:
    found = json.loads((site / "search.json").read_text())
    places = {item["location"].partition("#")[0] for item in found["items"]}
    assert {page.replace(".md", ".html") for page in menu_pages()} - places == set()


OUTSIDE = """() => {
  const groups = [...document.querySelectorAll("svg g")];
  const boxes = groups.map((each) => [...each.querySelectorAll("rect, path, circle, text")]);
  const all = [document.querySelector("svg .paper"), ...document.querySelectorAll("svg text")];
  return [all, ...boxes].flatMap(([shape, ...others]) => {
    const room = shape.getBBox();
    return others.filter((each) => each.tagName === "text").filter((each) => {
      const taken = each.getBBox();
      return taken.x < room.x || taken.x + taken.width > room.x + room.width
        || taken.y < room.y || taken.y + taken.height > room.y + room.height;
    }).map((each) => each.textContent);
  });
}"""
"""Texts that stick out of the box that they are in, or of the picture."""
DARKEST = 128


def looks_dark(page: Page) -> bool:
    """Whether the page's diagram is drawn on a dark background."""
    picture = page.locator('img[src$="ingress.svg"]').screenshot()
    red, green, blue = Image.open(io.BytesIO(picture)).convert("RGB").getpixel((12, 12))  # type: ignore[misc]
    return max(red, green, blue) < DARKEST


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing."""


@pytest.fixture
def address(site: Path) -> Iterator[str]:
    """Where the site is served."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site))) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


@built
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_reader_finds_what_is_searched_for(browser: Browser, address: str, scheme: str) -> None:
    with opened(browser, address, color_scheme=scheme) as page:
        page.goto("index.html")
        page.wait_for_load_state("networkidle")
        page.keyboard.press("/")
        page.get_by_placeholder("Search").wait_for()
        page.keyboard.type("debounce", delay=20)
        page.get_by_text(re.compile(r"^[1-9]\d* results?$")).wait_for()
        page.keyboard.press("Enter")
        page.wait_for_url(re.compile("keys|reference"))


@built
@pytest.mark.parametrize("system", ["light", "dark"])
def test_a_diagram_is_light_or_dark_as_the_reader_chooses(browser: Browser, address: str, system: str) -> None:
    """By the system at first, then by the page's own switch, whatever the system prefers."""
    with opened(browser, address, color_scheme=system) as page:
        page.goto("how-to/ingress.html")
        page.wait_for_load_state("networkidle")
        assert looks_dark(page) == (system == "dark")
        page.locator("label.md-header__button[for^=__palette]:visible").click()
        wait_until(lambda: looks_dark(page) == (system == "light"), "the diagram follows the switch")


@pytest.mark.parametrize("name", sorted(PICTURES))
def test_the_texts_of_a_diagram_fit_into_their_boxes(browser: Browser, name: str) -> None:
    with opened(browser, "http://localhost/") as page:
        page.set_content(PICTURES[name].svg())
        assert page.evaluate(OUTSIDE) == []


@built
@pytest.mark.parametrize(
    "name",
    [
        "index",
        "benchmarks",
        "tutorials/first-message",
        "how-to/keys",
        "reference/glossary",
        "reference/delivery",
        "reference/commands",
    ],
)
def test_a_page_fits_a_telephone(browser: Browser, address: str, name: str) -> None:
    """What is too wide, a table or a program, scrolls by itself."""
    with opened(browser, address, viewport=NARROW) as page:
        page.goto(f"{name}.html")
        page.wait_for_load_state("networkidle")
        assert page.evaluate("document.documentElement.scrollWidth") <= NARROW["width"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium, for all tests here."""
    try:
        with chromium() as found:
            yield found
    except ServerMissingError as error:
        if os.environ.get("CI") == "true":
            pytest.fail(str(error))
        pytest.skip(str(error))
