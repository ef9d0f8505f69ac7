"""Loads in a real browser: see how far they are, pause, resume, move and cancel them."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from delaystore import DelayedDelivery, MessageFilter, SqlDelayedMessageStore
from delaystore.dispatcher import Dispatcher
from delaystore.testing import RecordingTransport
from tests.integration.loading import DUE, load, rows
from tests.integration.sql_stores import opened as opened_store
from tests.long import long
from tests.web.chromium import NARROW, PHONE, opened, overflow, squeezed
from tests.web.scene import EVIL, LONG
from tests.web.served import Served, served

WEEK = timedelta(days=7)


@pytest.fixture
def delivery(sqlite_url: str) -> Iterator[DelayedDelivery]:
    """With the loads `spring` of 30 messages, `autumn` of 20, and one with a script in its name."""
    with DelayedDelivery("sales", SqlDelayedMessageStore(sqlite_url)) as delivery:
        delivery.prepare()
        for load_id, count in (("spring", 30), ("autumn", 20), (EVIL, 3)):
            load(sqlite_url, load_id, rows(count, load_id[0]))
        yield delivery


@pytest.fixture
def site(sqlite_url: str, delivery: DelayedDelivery) -> Iterator[Served]:
    with served(environment={"DELAYSTORE_STORE": sqlite_url, "DELAYSTORE_ENDPOINT": "sales"}) as page:
        yield page


@pytest.fixture
def page(browser: Browser, site: Served) -> Iterator[Page]:
    with opened(browser, site.url) as page:
        yield page


@pytest.mark.parametrize("scripts", [True, long(False)])
def test_a_load_is_paused_resumed_moved_and_cancelled(
    browser: Browser, site: Served, delivery: DelayedDelivery, scripts: bool
) -> None:
    loads = delivery.operations.loads
    with opened(browser, site.url, java_script_enabled=scripts) as page:
        page.goto("/loads")
        page.get_by_role("link", name="spring", exact=True).click()
        expect(page.locator(".big")).to_have_text("waiting 30 messages of 30 waiting")
        page.locator("summary", has_text="Pause").click()
        page.get_by_role("button", name="Pause", exact=True).click()
        expect(page.get_by_role("status")).to_contain_text("The load spring is paused.")
        assert (loads.get("spring").paused, loads.get("autumn").paused) == (True, False)
        page.get_by_role("button", name="Resume").click()
        expect(page.get_by_role("status")).to_contain_text("The load spring is resumed.")
        assert not loads.get("spring").paused

        page.get_by_role("link", name="Reschedule").click()
        expect(page.get_by_label("Load")).to_have_value("spring")
        expect(page.get_by_label("Reschedule: set")).to_be_checked()
        page.get_by_label("or later by").fill("7d")
        page.get_by_label("Days in time zone").fill("Europe/Berlin")
        page.get_by_role("button", name="Preview").click()
        expect(page.locator(".big")).to_have_text("30 messages")
        page.get_by_role("button", name="Reschedule all of them").click()
        expect(page.locator(".big")).to_have_text("Done: 30 messages rescheduled", timeout=20_000)
        assert (loads.get("spring").first_due, loads.get("autumn").first_due) == (DUE + WEEK, DUE)

        page.goto("/load?id=spring")
        page.locator("summary", has_text="Cancel").click()
        page.get_by_role("button", name="Cancel load").click()
        expect(page.locator(".big")).to_have_text("Done: 30 messages cancelled", timeout=20_000)
        page.goto("/load?id=spring")
        expect(page.locator(".badge")).to_have_text("cancelled")
        assert page.locator("main .actions").get_by_role("button").count() == 0
    assert (loads.get("spring").waiting, loads.get("autumn").waiting) == (0, 20)


def test_the_screens_show_how_far_a_load_is(page: Page, delivery: DelayedDelivery, sqlite_url: str) -> None:
    operations = delivery.operations
    operations.cancel(MessageFilter(load="spring", id_prefix="s-0000"))
    operations.reschedule(MessageFilter(load="spring", id_prefix="s-0001"), delay=0)
    with opened_store(sqlite_url) as store:
        dispatched = Dispatcher(store, RecordingTransport()).dispatch_due().delivered
    assert dispatched == 10
    page.goto("/loads")
    line = page.locator("tbody tr", has_text="spring")
    expect(line.locator("td[data-label=Waiting]")).to_have_text("10")
    expect(line.locator("progress")).to_have_js_property("value", 20)
    line.get_by_role("link").click()
    facts = page.locator(".facts")
    for name, number in (("Stored", "30 messages"), ("Delivered", "10"), ("Cancelled", "10")):
        expect(facts.locator("div", has=page.get_by_text(name, exact=True)).locator("dd")).to_have_text(number)
    page.get_by_role("link", name="Messages").last.click()
    expect(page.locator("tbody tr")).to_have_count(10)


@pytest.mark.parametrize("size", [PHONE, long(NARROW)])
def test_loads_fit_on_a_phone(
    browser: Browser, site: Served, delivery: DelayedDelivery, sqlite_url: str, size: Any
) -> None:
    load(sqlite_url, LONG, rows(3, "l"))
    delivery.operations.loads.pause(LONG, until=delivery.operations.now() + WEEK)
    with opened(browser, site.url, viewport=size) as page:
        for path in ("/loads", f"/load?id={LONG}", f"/load?id={quote(EVIL)}", f"/bulk?load={LONG}&kind=reschedule"):
            page.goto(path)
            expect(page.locator("main h1")).to_be_attached()
            assert (overflow(page), squeezed(page)) == ([], []), path
        page.goto("/loads")
        page.get_by_role("link", name=EVIL).click()  # a script in its name stays text
        expect(page.locator("h1")).to_have_text(EVIL)
        page.goto("/load?id=spring")
        page.locator("summary", has_text="Pause").click()
        expect(page.get_by_label("Until")).to_be_visible()
        assert overflow(page) == []


def test_a_load_is_paused_by_the_keyboard(page: Page, delivery: DelayedDelivery) -> None:
    page.goto("/loads")
    tab_to(page, page.get_by_role("link", name="spring", exact=True))
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("spring")
    tab_to(page, page.locator("summary", has_text="Pause"))
    page.keyboard.press("Enter")
    button = page.get_by_role("button", name="Pause", exact=True)
    expect(button).to_be_visible()
    page.keyboard.press("Escape")
    expect(button).not_to_be_visible()
    page.keyboard.press("Enter")
    tab_to(page, button)
    page.keyboard.press("Enter")
    expect(page.get_by_role("status")).to_contain_text("The load spring is paused.")
    assert delivery.operations.loads.get("spring").paused


def tab_to(page: Page, wanted: Locator) -> None:
    """Press Tab until `wanted` has the focus."""
    for _ in range(40):
        page.keyboard.press("Tab")
        if wanted.evaluate("each => each === document.activeElement"):
            return
    raise AssertionError(f"Tab does not reach {wanted}")
