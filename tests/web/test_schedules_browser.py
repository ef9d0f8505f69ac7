"""Recurring schedules in a real browser: their form shows the next runs, and they are changed, paused and deleted."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Page, expect

from delaystore import DelayedDelivery, SqlDelayedMessageStore
from delaystore.dispatcher import Dispatcher
from delaystore.testing import RecordingTransport
from tests.integration.sql_stores import opened as opened_store
from tests.long import long
from tests.web.chromium import NARROW, PHONE, opened, overflow, squeezed
from tests.web.scene import EVIL, LONG
from tests.web.served import Served, served
from tests.web.test_loads_browser import tab_to

ODD = f'Grüße/it\'s "{EVIL}"'


@pytest.fixture
def delivery(sqlite_url: str) -> Iterator[DelayedDelivery]:
    """With the schedule `invoices/acme`, and one with quotes and a script in its name."""
    store = SqlDelayedMessageStore(sqlite_url)
    with DelayedDelivery("sales", store) as delivery:
        delivery.prepare()
        store.keep_history(timedelta(days=30))
        for name in ("invoices/acme", ODD):
            delivery.schedules.put(
                name, cron="0 9 * * 1-5", zone="Europe/Berlin", destination="billing", body="Grüße\n".encode()
            )
        yield delivery


@pytest.fixture
def site(sqlite_url: str, delivery: DelayedDelivery) -> Iterator[Served]:
    environment = {"DELAYSTORE_STORE": sqlite_url, "DELAYSTORE_ENDPOINT": "sales"}
    with served("--show-bodies", environment=environment) as page:
        yield page


@pytest.fixture
def page(browser: Browser, site: Served) -> Iterator[Page]:
    with opened(browser, site.url) as page:
        yield page


def test_the_next_runs_are_shown_as_one_types(page: Page, delivery: DelayedDelivery) -> None:
    page.goto("/schedules")
    page.get_by_role("link", name="New schedule").click()
    runs = page.locator("#runs")
    expect(runs).to_contain_text("Write a cron expression or an interval")
    page.get_by_label("Name").fill("reports/weekly")
    page.get_by_label("Destination").fill("reports")
    page.get_by_label("Body").fill("secret")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    cron = page.get_by_label("Cron", exact=False).first
    cron.press_sequentially("0 9 * *", delay=20)
    expect(runs.locator(".notice.bad")).to_contain_text("Cron '0 9 * *' has 4 fields; write five")
    cron.press_sequentially(" 1", delay=20)
    expect(runs.locator("li")).to_have_count(5)
    page.get_by_label("Time zone").fill("Europe/Berl")
    expect(runs.locator(".notice.bad")).to_contain_text("Europe/Berl")
    page.get_by_label("Time zone").fill("Europe/Berlin")
    expect(runs.locator("li").first).to_contain_text("09:00:00 CE")
    assert runs.locator("li .muted").all_inner_texts()[0].startswith("Mon ")
    page.get_by_label("Runs at most").fill("2")
    expect(runs.locator("li")).to_have_count(2)
    assert asked
    assert not [each for each in asked if "secret" in each or "csrf" in each]
    assert len(delivery.schedules.list()) == 2

    page.get_by_label("Headers").fill('{"tenant": "north"}')
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_role("status")).to_contain_text("The schedule reports/weekly is created.")
    state = delivery.schedules.get("reports/weekly")
    assert state is not None
    assert (state.schedule.body, state.schedule.headers, state.remaining) == (b"secret", {"tenant": "north"}, 2)
    assert str(state.schedule.rule) == "0 9 * * 1 Europe/Berlin"


def test_a_slow_answer_does_not_hide_a_later_one(page: Page) -> None:
    page.goto("/schedules/edit")
    held: list[Any] = []
    page.route("**/schedules/preview?*5m*", lambda route: held.append(route))
    page.get_by_label("or every").fill("5m")
    page.wait_for_timeout(500)
    page.get_by_label("or every").fill("")
    page.get_by_label("Cron", exact=False).first.fill("bad")
    expect(page.locator("#runs .notice")).to_contain_text("has 1 fields")
    held[0].continue_()
    page.wait_for_timeout(500)
    expect(page.locator("#runs .notice")).to_contain_text("has 1 fields")


@pytest.mark.parametrize("scripts", [True, long(False)])
@pytest.mark.parametrize("name", ["invoices/acme", ODD])
def test_a_schedule_is_edited_skipped_paused_triggered_and_deleted(
    browser: Browser, site: Served, delivery: DelayedDelivery, name: str, scripts: bool
) -> None:
    schedules = delivery.schedules
    expected = ("status of 400",)  # of the form that is refused
    with opened(browser, site.url, expected=expected, java_script_enabled=scripts) as page:
        page.goto("/schedules")
        page.get_by_role("link", name=name, exact=True).click()
        expect(page.locator("h1")).to_have_text(name)
        before = schedules.upcoming(name, 2)
        page.get_by_role("button", name="Skip").first.click()
        expect(page.get_by_role("status")).to_contain_text("skips the run.")
        assert schedules.upcoming(name, 1) == before[1:]

        page.get_by_role("link", name="Edit").click()
        expect(page.get_by_label("Cron", exact=False).first).to_have_value("0 9 * * 1-5")
        expect(page.get_by_label("Body")).to_have_value("Grüße\n")
        page.get_by_label("Cron", exact=False).first.fill("0 9 * *")
        page.get_by_role("button", name="Save").click()
        expect(page.get_by_role("alert")).to_contain_text("has 4 fields")
        page.get_by_label("Cron", exact=False).first.fill("30 10 * * 1-5")
        if scripts:
            expect(page.locator("#runs li").first).to_contain_text("10:30:00 CE")
        page.get_by_role("button", name="Save").click()
        expect(page.get_by_role("status")).to_contain_text(f"The schedule {name} is changed.")
        state = schedules.get(name)
        assert state is not None
        assert (str(state.schedule.rule), state.schedule.body) == ("30 10 * * 1-5 Europe/Berlin", "Grüße\n".encode())

        page.locator("summary", has_text="Pause").click()
        page.get_by_role("button", name="Pause", exact=True).click()
        expect(page.get_by_role("status")).to_contain_text(f"The schedule {name} is paused.")
        page.get_by_role("button", name="Resume").click()
        expect(page.get_by_role("status")).to_contain_text(f"The schedule {name} is resumed.")
        page.locator("summary", has_text="Trigger").click()
        page.get_by_role("button", name="Trigger", exact=True).click()
        expect(page.get_by_role("status")).to_contain_text("is due now")
        page.get_by_role("link", name="Messages").last.click()
        expect(page.locator("tbody tr")).to_have_count(1)
        page.go_back()
        page.locator("summary", has_text="Delete").click()
        page.get_by_role("button", name="Delete schedule").click()
        expect(page.get_by_role("status")).to_contain_text(f"The schedule {name} is deleted.")
        assert [each.name for each in schedules.list()] == [
            each for each in sorted(("invoices/acme", ODD)) if each != name
        ]


def test_the_last_run_and_its_lateness_are_shown(page: Page, delivery: DelayedDelivery, sqlite_url: str) -> None:
    soon = delivery.operations.now().replace(microsecond=0) + timedelta(seconds=2)
    delivery.schedules.put("soon", every="1d", starts=soon, destination="q", body=b"")
    page.goto("/schedule?name=soon")
    expect(page.get_by_text("No run was due yet.")).to_be_visible()
    page.wait_for_timeout(2_500)
    page.reload()
    expect(page.locator(".badge", has_text="overdue")).to_be_visible()
    with opened_store(sqlite_url) as store:
        assert Dispatcher(store, RecordingTransport()).dispatch_due().delivered == 1
    page.goto("/schedules?prefix=soon")
    expect(page.locator("td[data-label='Last run']")).to_contain_text("delivered")
    page.get_by_role("link", name="soon").click()
    row = page.locator("section", has=page.get_by_role("heading", name="Last runs")).locator("tbody tr")
    expect(row).to_contain_text("late")
    row.get_by_role("link").click()
    expect(page.locator("h1")).to_contain_text("schedule/soon/")


@pytest.mark.parametrize("size", [PHONE, long(NARROW)])
def test_schedules_fit_on_a_phone(browser: Browser, site: Served, delivery: DelayedDelivery, size: Any) -> None:
    name = f"{LONG}/{LONG}"
    delivery.schedules.put(
        name, cron="*/5,7,11,13 0-23/2 1,15,31 1-12/3 1-5", zone="America/North_Dakota/New_Salem", destination=LONG,
        body=b"x" * 10_000, headers={LONG: LONG}, max_late=90, jitter=5, max_runs=1_000_000,
    )  # fmt: skip
    of_it = f"?name={quote(name)}"
    paths = (
        "/schedules",
        f"/schedule{of_it}",
        f"/schedules/edit{of_it}",
        "/schedules/edit",
        f"/schedule?name={quote(ODD)}",
    )
    for options in ({"viewport": size}, {}):
        with opened(browser, site.url, **options) as page:
            for path in paths:
                page.goto(path)
                expect(page.locator("main h1")).to_be_attached()
                assert (overflow(page), squeezed(page)) == ([], []), path
            page.goto(paths[1])
            page.locator("summary", has_text="Delete").click()
            expect(page.get_by_role("button", name="Delete schedule")).to_be_visible()
            assert overflow(page) == []


def test_a_run_is_skipped_by_the_keyboard(page: Page, delivery: DelayedDelivery) -> None:
    before = delivery.schedules.upcoming("invoices/acme", 2)
    page.goto("/schedules")
    tab_to(page, page.get_by_role("link", name="invoices/acme", exact=True))
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("invoices/acme")
    tab_to(page, page.get_by_role("button", name="Skip").first)
    page.keyboard.press("Enter")
    expect(page.get_by_role("status")).to_contain_text("skips the run.")
    assert delivery.schedules.upcoming("invoices/acme", 1) == before[1:]
