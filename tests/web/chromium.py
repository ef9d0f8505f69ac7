"""Debian's Chromium, driven by Playwright; each page is watched for what should not happen."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from tests.servers.programs import find_program

ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
WIDE = {"width": 1280, "height": 900}
NARROW = {"width": 320, "height": 844}
"""As wide as a small telephone, or a page of twice the size: WCAG 2.2, 1.4.10."""
PHONE = {"width": 390, "height": 844}


class Watched:
    """What went wrong on a page: its errors, dialogs, and requests to another host."""

    def __init__(self, page: Page, base: str) -> None:
        self.page = page
        self.wrong: list[str] = []
        host = urlsplit(base).netloc
        page.on("console", lambda message: message.type in ("error", "warning") and self._told(message.text))
        page.on("pageerror", lambda error: self._told(str(error)))
        page.on("dialog", lambda dialog: (self._told(f"a dialog: {dialog.message}"), dialog.dismiss()))
        page.on("request", lambda request: urlsplit(request.url).netloc == host or self._told(request.url))

    def _told(self, what: str) -> None:
        self.wrong.append(what)


@contextmanager
def chromium() -> Iterator[Browser]:
    """The browser; ServerMissingError where it is not installed."""
    program = find_program("chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=ARGUMENTS)
        yield browser
        browser.close()


@contextmanager
def opened(browser: Browser, base: str, *, expected: tuple[str, ...] = (), **options: Any) -> Iterator[Page]:
    """A page of a fresh profile; nothing may go wrong on it but what contains one of `expected`."""
    context = browser.new_context(base_url=base, **{"viewport": WIDE, "locale": "en-GB", **options})
    context.set_default_timeout(15_000)
    page = context.new_page()
    watched = Watched(page, base)
    yield page
    context.close()
    wrong = [each for each in watched.wrong if not any(part in each for part in expected)]
    assert not wrong, wrong


def reduce_colours(picture: Path) -> None:
    """Make a screenshot small: pages have few colours."""
    Image.open(picture).convert("RGB").quantize(128, dither=Image.Dither.NONE).save(picture, optimize=True)


def squeezed(page: Page) -> list[str]:
    """Return the texts that have four lines or more of less than eight letters each."""
    found: list[str] = page.evaluate(
        """() => [...document.querySelectorAll("td, dd, dt, li, p, h1, a.id, .badge")].filter((each) => {
          if (each.matches(".change") || !each.innerText.trim() || !each.checkVisibility()) return false;
          const range = document.createRange();
          range.selectNodeContents(each);
          const tops = new Set([...range.getClientRects()].map((box) => Math.round(box.bottom / 8)));
          return tops.size >= 4 && each.innerText.trim().length / tops.size < 8;
        }).map((each) => `${each.tagName}.${each.className}: ${each.innerText.slice(0, 60)}`)"""
    )
    return found


def overflow(page: Page) -> list[str]:
    """What sticks out of the window at its right side, but for what scrolls by itself."""
    found: list[str] = page.evaluate(
        """() => {
          const width = document.documentElement.clientWidth;
          const out = [...document.querySelectorAll("body *")].filter((each) => {
            const box = each.getBoundingClientRect();
            const hidden = getComputedStyle(each.closest("thead") ?? each).clipPath !== "none";
            const scrolls = each.closest("nav.nav, pre, .skip, .unseen, svg");
            return box.width > 0 && box.right > width + 1 && !hidden && !scrolls;
          });
          if (document.documentElement.scrollWidth > width) out.push(document.documentElement);
          return out.map((each) => `${each.tagName}.${each.className}: ${each.textContent.slice(0, 60)}`);
        }"""
    )
    return found
