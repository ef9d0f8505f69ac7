"""The page in a real browser, on PostgreSQL, RabbitMQ and a dispatcher: each screen, each action."""

import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from playwright.sync_api import Browser, Error, Page, expect

from tests.conftest import ENVIRONMENT
from tests.dispatching import wait_until
from tests.integration.cascades import channel_to, ready
from tests.integration.cli import started
from tests.long import long
from tests.servers import PostgreSQLDatabases, RabbitMQVhosts
from tests.web.chromium import NARROW, PHONE, opened, overflow, reduce_colours, squeezed
from tests.web.scene import (
    CASCADE,
    EVIL,
    LONG,
    LONG_IDS,
    fill,
    fill_with_loads,
    fill_with_long_names,
    make_cascade,
    make_queues,
    reminding,
)
from tests.web.served import Served, served

USERS = "ada:operate:lovelace grace:read:hopper"
ADA = {"http_credentials": {"username": "ada", "password": "lovelace"}}
GRACE = {"http_credentials": {"username": "grace", "password": "hopper"}}
PICTURES: dict[str, tuple[str, dict[str, Any]]] = {
    "web-overview": ("/", {"viewport": {"width": 1280, "height": 1130}}),
    "web-overview-dark": ("/", {"viewport": {"width": 1280, "height": 1130}, "color_scheme": "dark"}),
    "web-overview-narrow": ("/", {"viewport": {"width": 390, "height": 1000}}),
    "web-messages": ("/messages?destination=billing", {"viewport": {"width": 1280, "height": 760}}),
    "web-message": ("/message?id=order-40001-reminder", {"viewport": {"width": 1280, "height": 1000}}),
    "web-life": ("/message?id=invoice-7-reminder", {"viewport": {"width": 1280, "height": 700}}),
    "web-bulk": ("/bulk/preview?kind=cancel&destination=shipping", {"viewport": {"width": 1280, "height": 660}}),
    "web-loads": ("/loads", {"viewport": {"width": 1280, "height": 440}}),
    "web-errors": ("/errors", {"viewport": {"width": 1280, "height": 480}}),
    "web-destinations": ("/destinations", {"viewport": {"width": 1280, "height": 640}}),
}
ORDER = b'{"order": 40001, "customer": "Ada Lovelace", "lines": [{"sku": "A-7", "n": 2}]}'
SCREENS = (
    "/",
    "/messages",
    "/history",
    "/loads",
    "/schedules",
    "/bulk",
    "/errors",
    "/destinations",
    "/cascade",
    "/changes",
)


class Shop:
    """The servers, the dispatcher and the page of these tests. `store`, `broker`: URLs."""

    def __init__(self, store: str, broker: str, page: Served) -> None:
        self.store = store
        self.broker = broker
        self.url = page.url


@pytest.fixture(scope="module")
def shop(postgresql: PostgreSQLDatabases, rabbitmq: RabbitMQVhosts) -> Iterator[Shop]:
    store, broker = postgresql.create_database(), rabbitmq.create_vhost()
    assert rabbitmq.management_url is not None
    environment = {
        "DELAYSTORE_STORE": store,
        "DELAYSTORE_ENDPOINT": "sales",
        "DELAYSTORE_TRANSPORT": broker,
        "DELAYSTORE_WEB_USERS": USERS,
        "DELAYSTORE_MANAGEMENT": rabbitmq.management_url,
        "DELAYSTORE_WEB_MANAGEMENT": rabbitmq.management_url,
    }
    fill(store)
    make_queues(broker)
    make_cascade(broker)
    dispatcher = started(["dispatch", "--name", "worker-1", "--number-of-retries", "5"], environment)
    try:
        with served("--show-bodies", "--cascade", CASCADE, environment=environment) as page:
            yield Shop(store, broker, page)
    finally:
        dispatcher.terminate()
        try:
            dispatcher.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            dispatcher.kill()
            dispatcher.communicate()
        postgresql.drop_database(store)
        rabbitmq.delete_vhost(broker)


@pytest.fixture
def page(browser: Browser, shop: Shop) -> Iterator[Page]:
    """As ada, who may change things."""
    with opened(browser, shop.url, **ADA) as page:
        yield page


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Where screenshots go: DELAYSTORE_PICTURES, or the test's own folder."""
    folder = Path(ENVIRONMENT.get("DELAYSTORE_PICTURES") or tmp_path)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def depth(shop: Shop, queue: str) -> int:
    with channel_to(shop.broker) as channel:
        return ready(channel, queue)


@contextmanager
def refusing(port: int) -> Iterator[None]:
    """A server there that answers 503 to everything."""

    class Refusing(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_error(503)

    with ThreadingHTTPServer(("127.0.0.1", port), Refusing) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield
        server.shutdown()
        thread.join()


def tile(page: Page, name: str) -> str:
    return page.locator(".tile", has_text=name).locator("dd").inner_text()


@pytest.mark.long
def test_the_documents_have_their_pictures(browser: Browser, shop: Shop, pictures: Path) -> None:
    """`make screenshots` puts them where the documents have them."""
    fill_with_loads(shop.store)
    with reminding(shop.store) as delivery:
        operations = delivery.operations.acting_as("ada")
        wait_until(lambda: operations.loads.get("invoices-march").waiting == 0)
        operations.pause("mail.newsletter")
        operations.limit_rate("reminders", 50)
        for number in range(7):
            delivery.send("gone", b"x", delay=0, message_id=f"picture-{number}")
            delivery.send(f"gone.{number % 2}", b"x", delay=0, message_id=f"picture-0{number}")
        delivery.send("full", ORDER, delay=0, message_id="order-40001-reminder", headers={"tenant": "north"})
        wait_until(lambda: (found := delivery.get("order-40001-reminder")) is not None and len(found.failures) > 1)
        wait_until(lambda: not any(delivery.get(f"picture-0{number}") for number in range(7)))
        delivery.send("reminders", ORDER, delay=timedelta(days=3), message_id="invoice-7-reminder", key="invoice 7")
        operations.reschedule_one("invoice-7-reminder", delay=timedelta(days=2))
        operations.acting_as("grace").send_now("invoice-7-reminder")
        wait_until(lambda: delivery.get("invoice-7-reminder") is None)
        for name, (path, options) in PICTURES.items():
            with opened(browser, shop.url, **ADA, **options) as page:
                page.goto(path)
                page.screenshot(path=pictures / f"{name}.png")
                reduce_colours(pictures / f"{name}.png")
                assert (pictures / f"{name}.png").stat().st_size < 150_000
        delivery.cancel("order-40001-reminder")
        operations.resume("mail.newsletter")
        operations.limit_rate("reminders", None)


@pytest.mark.long  # pictures take seconds, and every test here looks at a screen
@pytest.mark.parametrize("look", ["light", "dark", "phone", "narrow"])
def test_each_screen_fits_and_is_pictured(browser: Browser, shop: Shop, pictures: Path, look: str) -> None:
    options = {
        **ADA,
        "color_scheme": "dark" if look == "dark" else "light",
        **{each: {"viewport": size} for each, size in (("phone", PHONE), ("narrow", NARROW))}.get(look, {}),
    }
    fill_with_long_names(shop.store)
    with reminding(shop.store) as delivery:
        delivery.send("full", b"x", delay=0, message_id="refused-1")
        delivery.send("gone", b"x", delay=0, message_id=f"lost-{look}")
        wait_until(lambda: (found := delivery.get("refused-1")) is not None and found.failures)
        wait_until(lambda: delivery.get(f"lost-{look}") is None)
    with opened(browser, shop.url, **options) as page:
        more = (
            *("/message?id=order-40001", "/message?id=refused-1", f"/message?id={LONG_IDS[0]}"),
            *("/bulk/preview?kind=cancel&destination=billing", "/bulk/preview?kind=reschedule&at=2099-01-01T00:00:00"),
            *(f"/history?destination={LONG}", f"/message?id=lost-{look}"),
            *(f"/messages?destination={LONG}", "/errors/messages?destination=gone", f"/load?id={LONG}"),
        )
        for path in (*SCREENS, *more):
            page.goto(path)
            expect(page.locator("main h1")).to_be_attached()
            assert not overflow(page), path
            assert not squeezed(page), path
            name = re.sub(r"\W+", "-", path.partition("&")[0].strip("/")) or "overview"
            page.screenshot(path=pictures / f"{name}-{look}.png", full_page=True)
    with reminding(shop.store) as delivery:
        delivery.cancel("refused-1")


@pytest.mark.long
def test_the_first_screen_refreshes_itself(page: Page, shop: Shop) -> None:
    page.goto("/")
    before = int(tile(page, "Waiting").replace(",", ""))
    with reminding(shop.store) as delivery:
        for _ in range(100):
            delivery.send("billing", b"x", delay=timedelta(days=2))
    # some of the others may fall due meanwhile
    wait_until(lambda: int(tile(page, "Waiting").replace(",", "")) > before + 50)
    expect(page.locator("td", has_text="worker-1").first).to_be_visible(timeout=30_000)
    page.locator("#by-day summary").click()
    expect(page.locator(".days li").first).to_be_visible()
    time.sleep(4.5)  # it is drawn anew meanwhile
    expect(page.locator(".days li").first).to_be_visible()


@pytest.mark.long
def test_the_first_screen_says_that_nobody_answers_and_recovers(browser: Browser, tmp_path: Path) -> None:
    environment = {"DELAYSTORE_STORE": f"sqlite:///{tmp_path / 'app.db'}", "DELAYSTORE_ENDPOINT": "sales"}
    fill(environment["DELAYSTORE_STORE"])
    with served(environment=environment) as first:
        port = int(first.url.rpartition(":")[2])
        with opened(browser, first.url, expected=("Failed to load resource", "net::ERR", "EventSource")) as page:
            page.goto("/")
            away = page.get_by_role("alert").filter(has_text="does not answer")
            expect(page.locator(".tile").first).to_be_visible()
            expect(away).not_to_be_visible()
            first.stop()
            expect(away).to_be_visible(timeout=30_000)
            with refusing(port):  # as a proxy does while what is behind it starts
                page.wait_for_event("response", lambda answer: answer.status == 503, timeout=30_000)
            with served("--port", str(port), environment=environment):
                expect(away).not_to_be_visible(timeout=30_000)


@pytest.mark.parametrize(
    ("options", "summer", "winter", "about"),
    [
        ({"timezone_id": "Europe/Berlin"}, "2099-07-01 14:00:00", "2099-01-01 13:00:00", "times are in Europe/Berlin"),
        ({"timezone_id": "UTC"}, "2099-07-01 12:00:00 UTC", "2099-01-01 12:00:00 UTC", "all times are UTC"),
        (
            {"timezone_id": "Europe/Berlin", "java_script_enabled": False},
            *("2099-07-01 12:00:00 UTC", "2099-01-01 12:00:00 UTC", "all times are UTC"),
        ),
    ],
    ids=["Berlin", "UTC", "without scripts"],
)
def test_times_are_shown_in_the_reader_s_zone_and_utc_when_pointed_at(
    browser: Browser, shop: Shop, options: dict[str, Any], summer: str, winter: str, about: str
) -> None:
    with reminding(shop.store) as delivery, opened(browser, shop.url, **ADA, **options) as page:
        for month, shown in ((7, summer), (1, winter)):
            due = datetime(2099, month, 1, 12, tzinfo=UTC)
            message_id = f"web-zone-{month}"
            delivery.send("billing", b"x", at=due, message_id=message_id)
            page.goto(f"/message?id={message_id}")
            time = page.locator(".facts time").first
            expect(time).to_have_text(shown)
            expect(time).to_have_attribute("title", f"{due:%Y-%m-%d} 12:00:00 UTC")
            expect(time).to_have_attribute("datetime", f"{due:%Y-%m-%d}T12:00:00Z")
            delivery.cancel(message_id)
        expect(page.locator("footer")).to_contain_text(about)
        page.goto("/messages")
        assert page.locator("label", has=page.locator("[type=datetime-local]")).all_inner_texts() == [
            "Due from UTC",
            "Due before UTC",
        ]


@pytest.mark.long
def test_times_stay_in_the_reader_s_zone_when_the_first_screen_is_refreshed(browser: Browser, shop: Shop) -> None:
    with opened(browser, shop.url, timezone_id="Asia/Kolkata", **ADA) as page:
        page.goto("/")
        page.evaluate("document.querySelector('.tile').dataset.old = 'yes'")
        with reminding(shop.store) as delivery:
            delivery.send("billing", b"x", delay=timedelta(days=2))
        expect(page.locator(".tile[data-old]")).to_have_count(0, timeout=30_000)
        shown = [*page.locator("td time").all_inner_texts(), page.locator("svg.bars title").first.text_content() or ""]
        assert len(shown) > 1
        assert not [each for each in shown if "UTC" in each]
        assert shown[-1].endswith(":30")  # an hour of UTC, five and a half hours later


def test_a_bar_leads_to_its_messages(page: Page) -> None:
    page.goto("/")
    bar = page.locator("svg.bars a").nth(5)
    told = bar.locator("title").text_content() or ""
    count = int(re.findall(r"[\d,]+", told)[0])
    bar.locator(".hit").click()
    expect(page).to_have_url(re.compile(r"/messages\?since="))
    expect(page.locator("tbody tr")).to_have_count(min(count, 50))


def test_messages_are_found_by_a_form_and_turned_page_by_page(page: Page) -> None:
    page.goto("/messages")
    expect(page.locator("tbody tr")).to_have_count(50)
    first = page.locator("tbody a.id").first.inner_text()
    page.get_by_role("link", name="Next page").click()
    expect(page.locator("tbody a.id").first).not_to_have_text(first)
    page.get_by_label("Destination").fill("shipping")
    page.get_by_label("Header").fill("tenant=north")
    page.get_by_label("Due before").fill("2099-01-01T00:00:00")
    page.get_by_role("button", name="Show").click()
    expect(page.locator(".list-head")).to_contain_text("destination shipping")
    expect(page.locator("tbody td[data-label=Destination]").first).to_have_text("shipping")
    page.get_by_label("Id begins with").fill("order-40001")
    page.get_by_label("Destination").fill("")
    page.get_by_label("Header").fill("")
    page.get_by_role("button", name="Show").click()
    page.get_by_role("link", name="order-40001").click()
    expect(page.locator("pre").first).to_contain_text('"customer": "Ada Lovelace"')
    page.locator("summary", has_text="Hex").click()
    expect(page.locator("pre:visible")).to_contain_text("7b 22 6f 72")


def test_one_message_is_rescheduled_sent_now_and_cancelled(page: Page, shop: Shop) -> None:
    with reminding(shop.store) as delivery:
        for name in ("one", "two"):
            delivery.send("billing", b"x", delay=timedelta(days=3), message_id=f"web-{name}")
        page.goto("/message?id=web-one")
        page.locator("summary", has_text="Reschedule").click()
        page.get_by_label("After").fill("2h30m")
        page.get_by_role("button", name="Reschedule", exact=True).click()
        expect(page.get_by_role("status")).to_have_text("Message web-one has a new due time.")
        expect(page.locator(".facts")).to_contain_text(re.compile("in 2 h (29|30) min"))
        before = depth(shop, "billing")
        page.get_by_role("button", name="Send now").click()
        wait_until(lambda: delivery.get("web-one") is None)
        wait_until(lambda: depth(shop, "billing") == before + 1)
        page.goto("/message?id=web-two")
        page.locator("summary", has_text="Cancel").click()
        page.get_by_role("button", name="Cancel this message").click()
        expect(page.get_by_role("status")).to_have_text("Message web-two is cancelled.")
        assert delivery.get("web-two") is None
    page.goto("/changes")
    row = page.locator("tbody tr").first
    expect(row).to_contain_text("ada")
    expect(row).to_contain_text("cancel")
    expect(row).to_contain_text("web-two")


def test_failures_are_shown_with_their_reasons(page: Page, shop: Shop) -> None:
    with reminding(shop.store) as delivery:
        delivery.send("full", b"x", delay=0, message_id="web-refused")
        wait_until(lambda: (found := delivery.get("web-refused")) is not None and found.failures)
        page.goto("/messages?failing=yes")
        expect(page.locator("tbody tr", has_text="web-refused")).to_contain_text("failure")
        page.get_by_role("link", name="web-refused").click()
        expect(page.locator("section", has_text="Failed attempts")).to_contain_text("Refused")
        delivery.cancel("web-refused")


@pytest.mark.parametrize("scripts", [True, long(False)])
def test_a_delivered_message_is_found_with_its_whole_life(browser: Browser, shop: Shop, scripts: bool) -> None:
    name = f"web-life-{scripts}"
    with reminding(shop.store) as delivery, opened(browser, shop.url, java_script_enabled=scripts, **ADA) as page:
        delivery.send("billing", b"pay me", delay=timedelta(days=3), message_id=name, key="invoice 7")
        page.goto(f"/message?id={name}")
        page.get_by_role("button", name="Send now").click()
        wait_until(lambda: delivery.get(name) is None)
        page.get_by_label("Id begins with").fill(name)
        page.get_by_role("button", name="Show").click()
        expect(page.locator("h1")).to_have_text(name)
        expect(page.locator(".facts div", has_text="Outcome")).to_contain_text("delivered")
        expect(page.locator(".facts div", has_text="Late by")).to_contain_text("s")
        events = page.locator("section", has_text="Life").locator("tbody tr")
        expect(events).to_have_count(2)
        expect(events.first).to_contain_text("send-now")
        expect(events.first).to_contain_text("ada")
        expect(events.last).to_contain_text("1 attempt")
        page.get_by_role("link", name="History").first.click()
        page.get_by_label("Key").fill("invoice 7")
        page.get_by_label("Outcome").select_option("delivered")
        page.get_by_role("button", name="Show").click()
        expect(page.locator("tbody td[data-label=Destination]").first).to_have_text("billing")
        page.get_by_role("link", name=name).click()
        expect(page.locator("h1")).to_have_text(name)
        page.goto("/history")
        page.get_by_label("Message id").fill("web-never-sent")
        page.get_by_role("button", name="Show").click()
        expect(page.locator(".empty")).to_have_text("No entry of the history matches.")


@pytest.mark.long  # test_pages.py has it without a browser
@pytest.mark.parametrize("scripts", [True, False])
def test_many_are_previewed_confirmed_and_changed(browser: Browser, shop: Shop, scripts: bool) -> None:
    header = {"batch": f"scripts-{scripts}"}
    with reminding(shop.store) as delivery:
        for _ in range(40):
            delivery.send("shipping", b"x", delay=timedelta(days=5), headers=header)
        with opened(browser, shop.url, **ADA, java_script_enabled=scripts) as page:
            page.goto("/bulk")
            page.get_by_label("Header").fill(f"batch=scripts-{scripts}")
            page.get_by_label("Reschedule: set").check()
            page.get_by_label("After").fill("9d")
            page.get_by_role("button", name="Preview").click()
            expect(page.locator(".big")).to_have_text("40 messages")
            expect(page.locator("tbody tr")).to_have_count(5)
            page.get_by_role("button", name="Reschedule all of them").click()
            expect(page.locator(".big")).to_have_text("Done: 40 messages rescheduled", timeout=20_000)
            page.get_by_role("link", name="Bulk").first.click()
            page.get_by_label("Header").fill(f"batch=scripts-{scripts}")
            page.get_by_role("button", name="Preview").click()
            page.get_by_role("button", name="Cancel all of them").click()
            expect(page.locator(".big")).to_have_text("Done: 40 messages cancelled", timeout=20_000)


@pytest.mark.long  # test_pages.py has it without a browser
def test_failed_messages_are_replayed_and_discarded(page: Page, shop: Shop) -> None:
    with reminding(shop.store) as delivery:
        for number in range(3):
            delivery.send("late", b"x", delay=0, message_id=f"web-late-{number}")
            delivery.send("never", b"x", delay=0, message_id=f"web-never-{number}")
        wait_until(lambda: not any(delivery.get(f"web-{kind}-2") for kind in ("late", "never")))
    wait_until(lambda: depth(shop, "error") >= 6)
    page.goto("/errors")
    group = page.locator("tbody tr", has_text="late")
    expect(group.locator("td").first).to_have_text("3")
    group.locator("td a").first.click()
    page.get_by_role("link", name="web-late-1").click()
    expect(page.locator(".card").first).to_contain_text("Unroutable")
    with channel_to(shop.broker) as channel:
        channel.queue_declare("late", durable=True)
    page.goto("/errors")
    group = page.locator("tbody tr", has_text="late")
    group.locator("summary", has_text="Replay").click()
    group.get_by_role("button", name="Replay", exact=True).click()
    expect(page.locator(".big")).to_have_text("Done: 3 messages sent again", timeout=30_000)
    assert depth(shop, "late") == 3
    page.goto("/errors")
    group = page.locator("tbody tr", has_text="never")
    group.locator("summary", has_text="Discard").click()
    group.get_by_role("button", name="Discard", exact=True).click()
    expect(page.locator(".big")).to_have_text("Done: 3 messages discarded", timeout=30_000)


def test_a_destination_is_paused_limited_and_resumed(page: Page, shop: Shop) -> None:
    with channel_to(shop.broker) as channel:
        channel.queue_declare("halted", durable=True)
    with reminding(shop.store) as delivery:
        delivery.send("halted", b"x", delay=timedelta(seconds=2), message_id="web-halted")
        page.goto("/destinations")
        page.locator("summary", has_text="Another destination").click()
        page.locator("details.more").get_by_label("Destination").fill("halted")
        page.get_by_role("button", name="Pause destination").click()
        row = page.locator("tbody tr", has_text="halted")
        expect(row).to_contain_text("paused")
        wait_until(lambda: (found := delivery.get("web-halted")) is not None and found.is_parked)
        page.goto("/messages?paused=yes")
        expect(page.locator("tbody tr", has_text="web-halted")).to_contain_text("paused")
        page.goto("/destinations")
        row.locator("summary").click()
        row.get_by_label("At most").fill("25")
        row.get_by_role("button", name="Limit").click()
        expect(row).to_contain_text("at most 25/s")
        row.locator("summary").click()
        row.get_by_role("button", name="Resume").click()
        wait_until(lambda: depth(shop, "halted") == 1)


def test_the_cascade_is_drawn(page: Page) -> None:
    page.goto("/cascade")
    expect(page.locator(".levels li")).to_have_count(14)
    assert page.locator(".levels rect.bar").count() > 3


def test_a_form_without_its_token_changes_nothing(browser: Browser, shop: Shop) -> None:
    with (
        reminding(shop.store) as delivery,
        opened(browser, shop.url, expected=("status of 403",), **ADA) as page,
    ):
        delivery.send("billing", b"x", delay=timedelta(days=3), message_id="web-kept")
        page.goto("/message?id=web-kept")
        page.evaluate("document.querySelectorAll('[name=csrf]').forEach((each) => (each.value = 'guessed'))")
        page.get_by_role("button", name="Send now").click()
        expect(page.locator("h1")).to_have_text("Not allowed")
        expect(page.locator("main")).to_contain_text("Nothing was changed")
        found = delivery.get("web-kept")
        assert found is not None
        assert found.failure_count == 0
        delivery.cancel("web-kept")


def test_another_site_s_page_changes_nothing(browser: Browser, shop: Shop) -> None:
    """Even with the login that the browser remembers."""
    with reminding(shop.store) as delivery:
        delivery.send("billing", b"x", delay=timedelta(days=3), message_id="web-forged")
        context = browser.new_context(**ADA)
        page = context.new_page()
        page.goto(f"{shop.url}/message?id=web-forged")
        token = page.locator("[name=csrf]").first.get_attribute("value")
        other = {"body": "<h1>elsewhere</h1>", "content_type": "text/html"}
        page.route("http://elsewhere.test/", lambda route: route.fulfill(**other))
        page.goto("http://elsewhere.test/")
        page.evaluate(
            """([url, token]) => {
              const form = document.createElement("form");
              form.method = "post";
              form.action = url + "/message/cancel";
              form.innerHTML = `<input name="id" value="web-forged"><input name="csrf" value="${token}">`;
              document.body.append(form);
              form.submit();
            }""",
            [shop.url, token],
        )
        expect(page.locator("main")).to_contain_text("another site's page asked for it")
        context.close()
        assert delivery.get("web-forged") is not None
        delivery.cancel("web-forged")


def test_who_may_look_sees_no_buttons_and_changes_nothing(browser: Browser, shop: Shop) -> None:
    with opened(browser, shop.url, expected=("status of 403",), **GRACE) as page:
        for path in (*SCREENS, "/message?id=order-40002", "/bulk/preview?kind=cancel&destination=billing"):
            page.goto(path)
            assert page.locator("form[method=post]").count() == 0, path
        expect(page.locator(".who")).to_have_text(re.compile("grace.*read-only"))
        form = '{method: "POST", body: new URLSearchParams({id: "1"})}'
        status = page.evaluate(f'async () => (await fetch("message/cancel", {form})).status')
        assert status == 403


def test_whoever_has_no_password_sees_nothing(browser: Browser, shop: Shop) -> None:
    wrong = {"http_credentials": {"username": "ada", "password": "hopper"}}
    for options in ({}, wrong):
        with opened(browser, shop.url, expected=("status of 401",), **options) as page:
            with suppress(Error):  # nobody answers the question for a password
                page.goto("/")
            assert page.locator("nav, .tile").count() == 0


def test_scripts_in_messages_stay_text(page: Page, shop: Shop) -> None:
    with reminding(shop.store) as delivery:
        delivery.send(
            EVIL, f"<h1>{EVIL}</h1>".encode(), delay=timedelta(hours=3), headers={EVIL: EVIL}, message_id=EVIL
        )
        page.goto("/messages")
        page.get_by_label("Destination").fill(EVIL)
        page.get_by_role("button", name="Show").click()
        page.get_by_role("link", name=EVIL).click()
        expect(page.locator("h1")).to_have_text(EVIL)
        expect(page.locator("pre").first).to_have_text(f"<h1>{EVIL}</h1>")
        for path in ("/", "/destinations", "/changes"):
            page.goto(path)
        delivery.cancel(EVIL)


def test_everything_is_reached_by_the_keyboard(page: Page, shop: Shop) -> None:
    with reminding(shop.store) as delivery:
        delivery.send("billing", b"x", delay=timedelta(days=3), message_id="web-keys")
        page.goto("/message?id=web-keys")
        page.keyboard.press("Tab")
        expect(page.locator(".skip")).to_be_focused()
        page.keyboard.press("Enter")
        expect(page.locator("main")).to_be_focused()
        for _ in range(10):
            page.keyboard.press("Tab")
            if page.locator("summary", has_text="Cancel").evaluate("each => each === document.activeElement"):
                break
        page.keyboard.press("Enter")
        expect(page.get_by_role("button", name="Cancel this message")).to_be_visible()
        page.keyboard.press("Escape")
        expect(page.get_by_role("button", name="Cancel this message")).not_to_be_visible()
        page.keyboard.press("Enter")
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        expect(page.get_by_role("status")).to_have_text("Message web-keys is cancelled.")
        assert delivery.get("web-keys") is None
