"""What the pages show, and what their forms do."""

import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import pytest
from fastapi import FastAPI

from delaystore.delivery import DelayedDelivery
from delaystore.dispatcher import Dispatcher
from delaystore.errors import DuplicateMessageError, StoreUnavailableError
from delaystore.message import PARKED
from delaystore.operations import Operations
from delaystore.server.web import app
from delaystore.server.web.forms import HISTORY
from delaystore.settings import DelayedDeliverySettings
from delaystore.stores import InMemoryDelayedMessageStore, SqlDelayedMessageStore
from delaystore.stores.history import StoreWithHistory
from delaystore.stores.records import Activity, DispatcherRecord
from delaystore.transports import InMemoryTransport
from tests.web.pages import Browser, Page, browser, live, post

EVIL = "<script>alert('x')</script>\"><img src=x onerror=alert(1)>"
HOUR = timedelta(hours=1)


@pytest.fixture
def here(delivery: DelayedDelivery) -> Browser:
    return browser(app(delivery, show_bodies=True))


def until_done(here: Browser, address: str) -> str:
    """The text of an operation's page, once it has ended."""
    for _ in range(100):
        page = here.get(address)
        if "data-refresh" not in page.text:
            return Page(page.text).text
        time.sleep(0.05)
    raise AssertionError(page.text)


def test_the_first_screen_says_how_it_is(delivery: DelayedDelivery, here: Browser) -> None:
    delivery.send("billing", b"x", delay=HOUR)
    page = Page(here.get("/").text)
    assert "Waiting" in page.text
    bars = [each["href"] for each in page.all("a") if "since=" in each["href"]]
    assert len(bars) == 1 + 8 or len(bars) == 1 + 7  # the hour, and the days
    assert "1 message" in Page(here.get(bars[0]).text).text or "billing" in Page(here.get(bars[0]).text).text


def test_whatever_a_message_holds_stays_text(delivery: DelayedDelivery, here: Browser) -> None:
    delivery.send(
        EVIL,
        f'{{"a": "{EVIL[:27]}"}}'.encode(),
        delay=timedelta(minutes=1),
        headers={EVIL: EVIL},
        properties={"type": EVIL, "app_id": EVIL},
        message_id=EVIL,
    )
    store = delivery.operable_store()
    assert isinstance(store, StoreWithHistory)
    store.keep_history(HOUR)
    delivery.send(EVIL, b"x", delay=HOUR, key=EVIL, message_id="1")
    delivery.operations.acting_as(EVIL).cancel_one("1")
    delivery.operations.acting_as(EVIL).limit_rate(EVIL, 5)
    delivery.operations.acting_as(EVIL).begin_cancel(_filter(id_prefix=EVIL))
    operation = delivery.operations.operations()[0].operation_id
    paths: list[tuple[str, dict[str, str]]] = [
        ("/", {}),
        ("/messages", {}),
        ("/messages", {"destination": EVIL, "id_prefix": EVIL, "header": f"{EVIL}={EVIL}"}),
        ("/messages", {"since": EVIL}),
        ("/message", {"id": EVIL}),
        ("/message", {"id": "1"}),
        ("/message", {"id": f"{EVIL}2"}),
        ("/history", {}),
        ("/history", {"key": EVIL}),
        ("/history", {"outcome": EVIL}),
        ("/bulk", {"destination": EVIL, "kind": EVIL}),
        ("/bulk/preview", {"destination": EVIL, "kind": "cancel"}),
        ("/bulk/preview", {"kind": "reschedule", "delay": EVIL}),
        ("/operation", {"id": operation}),
        ("/destinations", {"name": EVIL}),
        ("/changes", {}),
    ]
    for path, query in paths:
        answer = here.get(path, params=query)
        page = Page(answer.text)
        assert answer.status_code in (200, 400, 404), path
        assert all("src" in each for each in page.all("script")), path
        assert [each for each in page.all("img") if each["src"] == "x"] == [], path
        assert "<script>alert" not in answer.text, path
        if path != "/":
            assert "<script>alert" in page.text or EVIL in str(page.elements), (path, query)


def test_messages_are_filtered_and_come_page_by_page(delivery: DelayedDelivery, here: Browser) -> None:
    now = datetime.now(UTC)
    for number in range(120):
        delivery.send(
            f"queue{number % 2}", b"x", at=now + HOUR + timedelta(seconds=number), headers={"n": number},
            message_id=f"m{number:03}",
        )  # fmt: skip
    address, found = "/messages?destination=queue1", []
    while address:
        page = Page(here.get(address).text)
        found += [each["href"] for each in page.all("a") if each.get("class") == "id"]
        address = next((each["href"] for each in page.all("a") if each.get("rel") == "next"), "")
    assert found == [f"/message?id=m{number:03}" for number in range(1, 120, 2)]
    for query in ({"header": "n=7"}, {"id_prefix": "m007"}, {"header": "n=7", "destination": "queue1"}):
        page = Page(here.get("/messages", params=query).text)
        assert [each["href"] for each in page.all("a") if each.get("class") == "id"] == ["/message?id=m007"]
    assert "No waiting message matches." in here.get("/messages", params={"failing": "yes"}).text


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ({"since": "tomorrow"}, "is not a time in a form that delaystore reads"),
        ({"header": "x"}, "is not of the form NAME=VALUE"),
        ({"after": "x"}, "is not a page's cursor"),
        ({"failing": "perhaps"}, "must be yes or no"),
        ({"since": "2030-01-01T00:00", "until": "2029-01-01T00:00"}, "Nothing is due from"),
    ],
)
def test_what_cannot_be_is_told_above_the_form(here: Browser, query: dict[str, str], said: str) -> None:
    answer = here.get("/messages", params=query)
    assert answer.status_code == 400
    assert said in Page(answer.text).text
    name, value = next(iter(query.items()))
    if name != "after":
        assert name == "failing" or value[:19] in answer.text  # what was typed is still there


def test_a_message_is_shown_whole(delivery: DelayedDelivery, here: Browser) -> None:
    delivery.send("billing", '{"name": "Köln"}'.encode(), delay=HOUR, headers={"a": 1}, message_id="m/1?&")
    text = Page(here.get("/message", params={"id": "m/1?&"}).text).text
    for part in ("billing", "JSON", "Text", "Hex", '"name": "Köln"', "7b 22 6e 61 6d 65"):
        assert part in text
    hidden = browser(app(delivery)).get("/message", params={"id": "m/1?&"}).text
    assert "Köln" not in hidden
    assert "Message bodies are hidden" in hidden
    assert here.get("/message", params={"id": "other"}).status_code == 404


def test_the_life_of_a_delivered_message_is_shown(delivery: DelayedDelivery, here: Browser) -> None:
    message_id = live(delivery)
    shown = here.get("/message", params={"id": message_id}).text
    page = Page(shown)
    facts, _, events = " ".join(page.text.split()).partition(" Life ")
    for part in ("Outcomedelivered", "Late by", "shipping", "Sent", "Attempts2", "Keyinvoice 7", "SHA-256 of the body"):
        assert part in facts, part
    rescheduled, failed, delivered = (events.index(each) for each in ("send-now", "Refused", "delivered2 attempts, "))
    assert rescheduled < events.index("grace") < failed < delivered
    assert "Refused<b>queue is full</b>" in events
    assert "<b>queue" not in shown
    assert "pay me" not in shown  # the history has no bodies
    assert page.all("form") == []  # no button is left
    assert any(each["href"] == "/history?destination=shipping" for each in page.all("a"))


def test_a_message_that_was_sent_again_is_shown_with_its_former_life(delivery: DelayedDelivery, here: Browser) -> None:
    live(delivery)
    delivery.send("billing", b"y", delay=HOUR, message_id="unpaid")
    text = " ".join(Page(here.get("/message", params={"id": "unpaid"}).text).text.split())
    assert "Statewaiting" in text
    assert "Cancel this message" in text
    assert "cancelled0 attempts" in text.partition(" Life ")[2]


def test_a_failed_message_leads_to_the_error_queue(delivery: DelayedDelivery, here: Browser) -> None:
    live(delivery)
    delivery.send("nowhere", b"x", delay=0, message_id="lost")
    transport, store = InMemoryTransport(), delivery.operable_store()
    transport.declare("error")
    assert store is not None
    Dispatcher(store, transport, DelayedDeliverySettings(automatic_setup=False), endpoint="sales").dispatch_due()
    links = [each["href"] for each in Page(here.get("/message", params={"id": "lost"}).text).all("a")]
    assert "/errors/message?id=lost" in links


def test_a_cancelled_message_is_known_without_a_history(delivery: DelayedDelivery, here: Browser) -> None:
    delivery.send("billing", b"x", delay=HOUR, message_id="a")
    delivery.operations.acting_as("grace").cancel_one("a")
    text = " ".join(Page(here.get("/message", params={"id": "a"}).text).text.split())
    assert "The history has no entry of it, so it is unknown how it left the store." in text
    assert "grace" in text


def test_an_id_that_is_searched_leads_to_its_life(delivery: DelayedDelivery, here: Browser) -> None:
    message_id = live(delivery)
    delivery.send("billing", b"x", delay=HOUR, message_id="waits")
    for query in (
        {"id_prefix": "unpaid", "destination": "", "failing": ""}, {"id_prefix": message_id},
    ):  # fmt: skip
        answer = here.get("/messages", params=query, follow_redirects=False)
        assert (answer.status_code, answer.headers["location"]) == (303, f"/message?id={query['id_prefix']}")
    for query in ({"id_prefix": "unp"}, {"id_prefix": "unpaid", "destination": "other"}):
        answer = here.get("/messages", params=query, follow_redirects=False)
        assert "No waiting message matches." in answer.text
    for found in ("unpaid", message_id, "waits"):
        answer = here.get("/history", params={"message_id": found, "key": ""}, follow_redirects=False)
        assert (answer.status_code, answer.headers["location"]) == (303, f"/message?id={found}")
    assert "No entry of the history matches." in here.get("/history", params={"message_id": "other"}).text
    answer = here.get("/history", params={"message_id": "unpaid", "outcome": "cancelled"}, follow_redirects=False)
    assert answer.status_code == 200


def test_the_history_is_filtered_and_comes_page_by_page(delivery: DelayedDelivery, here: Browser) -> None:
    assert 'set history = "30d"' in Page(here.get("/history").text).text
    message_id = live(delivery)

    def found(**query: str) -> list[str]:
        page = Page(here.get("/history", params=query).text)
        return [each["href"].removeprefix("/message?id=") for each in page.all("a") if each.get("class") == "id"]

    assert found() == [message_id, "unpaid"]
    assert found(outcome="cancelled") == found(destination="billing") == found(key="invoice 8") == ["unpaid"]
    assert found(since="2099-01-01T00:00") == found(until="2001-01-01T00:00") == []
    assert found(since="2001-01-01T00:00", until="2099-01-01T00:00", destination="shipping") == [message_id]
    told = Page(here.get("/history").text).text
    assert "makes no entries" not in told
    assert "The history reaches back to" in told
    assert ", and has about 2 entries. Entries are kept for 30 d." in told
    store = delivery.operable_store()
    assert store is not None
    now = store.now()
    record = DispatcherRecord(dispatcher_id="d", name="n", host="h", pid=1, version="0.1.9", since=now, heartbeat=now)
    store.heartbeat(record)
    assert "dispatcher n (release 0.1.9) makes no entries" in Page(here.get("/history").text).text
    for number in range(60):
        delivery.send("many", b"x", delay=HOUR, message_id=f"m{number:02}")
        delivery.operations.cancel_one(f"m{number:02}")
    first = Page(here.get("/history?destination=many&outcome=cancelled&since=2001-01-01T00:00").text)
    (older,) = (each["href"] for each in first.all("a") if each.get("rel") == "next")
    rest = Page(here.get(older).text)
    shown = [each["href"][-3:] for page in (first, rest) for each in page.all("a") if each.get("class") == "id"]
    assert shown == [f"m{number:02}" for number in range(59, -1, -1)]


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ({"since": "tomorrow"}, "is not a time in a form that delaystore reads"),
        ({"outcome": "lost"}, "Outcome 'lost' is unknown; use one of delivered, handed-over"),
        ({"after": "x"}, "is not a page's cursor"),
        ({"key": "x" * 300}, "has 300 bytes; at most 255 are allowed"),
        ({"destination": "a\nb"}, "control character"),
        ({"since": "2027-02-01T00:00", "until": "2027-01-01T00:00"}, "the second time must be later"),
    ],
)
def test_a_wrong_search_of_the_history_is_told(here: Browser, query: dict[str, str], said: str) -> None:
    answer = here.get("/history", params=query)
    assert answer.status_code == 400
    assert said in Page(answer.text).text
    assert [each["name"] for each in Page(answer.text).all("input")] == [*HISTORY[:-1]]


def test_latest_deliveries_and_expired_messages_are_shown(delivery: DelayedDelivery, here: Browser) -> None:
    store = delivery.operable_store()
    assert store is not None
    delivery.send("billing", b"x", delay=HOUR, max_late=60, message_id="a")
    delivery.send("billing", b"x", delay=HOUR, message_id="b")
    assert "Latest delivery" in Page(here.get("/message", params={"id": "a"}).text).text
    assert "Latest delivery" not in Page(here.get("/message", params={"id": "b"}).text).text
    assert "Expired" not in Page(here.get("/").text).text
    now = store.now()
    dispatcher = DispatcherRecord(dispatcher_id="d", name="n", host="h", pid=1, version="1", since=now, heartbeat=now)
    store.heartbeat(dispatcher, [Activity(minute=now.replace(second=0, microsecond=0), expired=4711)])
    shown = Page(browser(app(delivery)).get("/").text).text
    assert "Expired in the last hour" in shown
    assert "4,711" in shown


def test_a_next_attempt_is_shown_where_it_is_another_time_than_the_due_time(
    delivery: DelayedDelivery, here: Browser
) -> None:
    delivery.send("billing", b"x", delay=HOUR, message_id="again")
    with pytest.raises(DuplicateMessageError):
        delivery.send("billing", b"x", delay=HOUR, message_id="again")
    assert "Next attempt" not in Page(here.get("/message", params={"id": "again"}).text).text
    delivery.send("paused", b"x", delay=0, message_id="parked")
    assert post(here, "/destinations/pause", "/destinations", name="paused").status_code == 303
    assert "Next attempt" in Page(here.get("/message", params={"id": "parked"}).text).text


def test_one_message_is_rescheduled_sent_and_cancelled(delivery: DelayedDelivery, here: Browser) -> None:
    message_id = delivery.send("billing", b"x", delay=HOUR)
    page = f"/message?id={message_id}"
    answer = post(here, "/message/reschedule", page, id=message_id, at="2030-05-06T07:08")
    assert answer.status_code == 303
    assert "has a new due time" in here.get(answer.headers["location"]).text
    assert "has a new due time" not in here.get(answer.headers["location"]).text  # told once
    message = delivery.get(message_id)
    assert message is not None
    assert message.due_time == datetime(2030, 5, 6, 7, 8, tzinfo=UTC)
    assert post(here, "/message/reschedule", page, id=message_id, delay="soon").status_code == 400
    assert post(here, "/message/send-now", page, id=message_id).status_code == 303
    message = delivery.get(message_id)
    assert message is not None
    assert message.due_time < datetime.now(UTC) + timedelta(minutes=1)
    assert post(here, "/message/cancel", page, id=message_id).headers["location"] == "/messages"
    assert delivery.get(message_id) is None
    assert [each.action for each in delivery.operations.changes()] == ["cancel", "send-now", "reschedule"]


def test_whoever_has_a_message_may_be_a_dispatcher_or_another_request(postgresql_url: str) -> None:
    """A double click on Cancel may find the row that the first one is just deleting."""
    store = SqlDelayedMessageStore(postgresql_url)
    with DelayedDelivery("sales", store) as delivery:
        delivery.setup_infrastructure()
        delivery.send("billing", b"x", delay=0, message_id="m")
        here = browser(app(delivery))
        with store.transaction() as bound:
            bound.fetch_due(bound.now(), 1)
            answer = post(here, "/message/cancel", id="m")
            said = Page(here.get(answer.headers["location"]).text).text
            refused = here.request("DELETE", "/api/v1/messages/m")
        for text in (said, refused.json()["detail"]):
            assert "Nothing was changed, because a dispatcher is sending message m, or another request" in text
        assert refused.status_code == 409
        assert delivery.get("m") is not None


def test_many_are_changed_after_a_preview(delivery: DelayedDelivery, here: Browser) -> None:
    for number in range(30):
        delivery.send(f"queue{number % 3}", b"x", delay=HOUR)
    preview = "/bulk/preview?kind=cancel&destination=queue1"
    page = Page(here.get(preview).text)
    assert "10 messages" in page.text
    assert "including messages stored after" in page.text
    assert delivery.count() == 30
    delivery.send("queue1", b"x", delay=HOUR)
    fields = {each["name"]: each["value"] for each in page.all("input") if each.get("type") == "hidden"}
    answer = here.post("/bulk/begin", data=fields, follow_redirects=False)
    assert answer.status_code == 303
    assert "11 messages cancelled" in until_done(here, answer.headers["location"])
    assert (
        "when you confirm is changed" not in here.get(preview).text
    )  # nothing matches any more, so there is no button
    assert delivery.count() == 20
    preview = "/bulk/preview?kind=reschedule&destination=queue2&at=2031-01-01T00:00&delay="
    fields = {
        each["name"]: each["value"]
        for each in Page(here.get(preview).text).all("input")
        if each.get("type") == "hidden"
    }
    answer = here.post("/bulk/begin", data=fields, follow_redirects=False)
    assert "10 messages rescheduled" in until_done(here, answer.headers["location"])
    assert delivery.operations.preview(_filter(since=datetime(2031, 1, 1, tzinfo=UTC))).count == 10


def test_due_times_are_moved_after_a_preview_that_shows_both(delivery: DelayedDelivery, here: Browser) -> None:
    due = datetime(2031, 3, 29, 8, tzinfo=UTC)
    for number in range(10):
        delivery.send("queue1", b"x", at=due + timedelta(seconds=number), message_id=f"m{number}")
    asked = "kind=reschedule&destination=queue1&by=1d&time_zone=Europe/Berlin"
    page = Page(here.get(f"/bulk/preview?{asked}").text)
    assert "by 1 day in Europe/Berlin, for each message" in page.text
    for shown in ("2031-03-29 08:00:00 UTC, then 2031-03-30 07:00:00 UTC", "New due time", "2031-03-30 07:00:04 UTC"):
        assert shown in " ".join(page.text.split())
    fields = {each["name"]: each["value"] for each in page.all("input") if each.get("type") == "hidden"}
    answer = here.post("/bulk/begin", data=fields, follow_redirects=False)
    done = until_done(here, answer.headers["location"])
    assert "10 messages rescheduled" in done
    assert "by 1 day in Europe/Berlin" in done
    assert "Reschedule by 1 day in Europe/Berlin: destination queue1" in Page(here.get("/bulk").text).text
    assert post(here, "/message/reschedule", "/message?id=m0", id="m0", by="-2h").status_code == 303
    message = delivery.get("m0")
    assert message is not None
    assert message.due_time == due + timedelta(hours=21)
    for wrong in ({"by": "0"}, {"by": "1d", "delay": "1d"}, {"time_zone": "UTC", "delay": "1d"}, {"by": "x"},
                  {"by": "1d", "time_zone": "Mars"}):  # fmt: skip
        assert post(here, "/message/reschedule", "/message?id=m0", id="m0", **wrong).status_code == 400
        assert here.get("/bulk/preview", params={"kind": "reschedule", **wrong}).status_code == 400


def test_all_messages_are_changed_only_by_a_form_that_says_so(delivery: DelayedDelivery, here: Browser) -> None:
    delivery.send("queue1", b"x", delay=HOUR)
    answer = post(here, "/bulk/begin", kind="cancel", destination="")
    assert (answer.status_code, delivery.count()) == (400, 1)
    page = Page(here.get("/bulk/preview?kind=cancel").text)
    fields = {each["name"]: each["value"] for each in page.all("input") if each.get("type") == "hidden"}
    answer = here.post("/bulk/begin", data=fields, follow_redirects=False)
    assert "1 message cancelled" in until_done(here, answer.headers["location"])


@pytest.mark.parametrize("due", [{"delay": "2h"}, {"at": "2031-01-01T00:00"}, {"by": "2h"}])
def test_a_cancel_with_a_new_due_time_is_refused(delivery: DelayedDelivery, here: Browser, due: dict[str, str]) -> None:
    delivery.send("queue1", b"x", delay=HOUR)
    asked = {"kind": "cancel", "destination": "queue1", **due}
    for answer in (here.get("/bulk/preview", params=asked), post(here, "/bulk/begin", **asked)):
        assert answer.status_code == 400
        assert "ancelled messages get no new due time: choose Reschedule, or leave" in Page(answer.text).text
    assert not delivery.operations.operations()
    assert delivery.count() == 1


def test_what_a_killed_process_began_is_resumed_or_ended(delivery: DelayedDelivery, here: Browser) -> None:
    delivery.send("billing", b"x", delay=HOUR)
    for way, said in (("resume", "Done: 1 message cancelled"), ("abandon", "Ended early: 0 messages changed")):
        operation = delivery.operations.begin_cancel(_filter(destination="billing"))  # nobody runs it
        page = f"/operation?id={operation.operation_id}"
        assert "Not running in this process" in here.get(page).text
        assert post(here, f"/operation/{way}", page, id=operation.operation_id).status_code == 303
        assert said in until_done(here, page)
    assert here.get("/operation?id=unknown").status_code == 404


def test_destinations_are_paused_limited_and_resumed(delivery: DelayedDelivery, here: Browser) -> None:
    delivery.send("billing", b"x", delay=0)
    assert post(here, "/destinations/pause", "/destinations", name="billing").status_code == 303
    text = Page(here.get("/destinations").text).text
    assert "billing is paused. 1 message parked." in text
    parked = delivery.list(destination="billing").messages[0]
    assert parked.next_attempt == PARKED
    assert "paused" in Page(here.get("/messages", params={"paused": "yes"}).text).text
    assert post(here, "/destinations/limit", "/destinations", name="billing", max_rate="12.5").status_code == 303
    assert "at most 12.5/s" in Page(here.get("/destinations").text).text
    assert post(here, "/destinations/limit", "/destinations", name="billing", max_rate="fast").status_code == 400
    assert post(here, "/destinations/limit", "/destinations", name="billing", max_rate="").status_code == 303
    assert post(here, "/destinations/resume", "/destinations", name="billing").status_code == 303
    assert "billing is resumed. 1 message shown again." in Page(here.get("/destinations").text).text
    assert not delivery.list(destination="billing").messages[0].is_parked
    text = Page(here.get("/changes").text).text
    for action in ("pause", "limit", "resume"):
        assert action in text


def test_a_destination_is_not_said_to_be_paused_before_the_store_says_so(
    here: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("delaystore.server.web._changes._MOMENT", 0.1)
    asked, pause = threading.Event(), InMemoryDelayedMessageStore.pause

    def hanging(*arguments: Any, **named: Any) -> None:
        assert asked.wait(30)
        pause(*arguments, **named)

    monkeypatch.setattr(InMemoryDelayedMessageStore, "pause", hanging)
    assert post(here, "/destinations/pause", name="billing").status_code == 303
    text = Page(here.get("/destinations").text).text
    asked.set()
    assert "Pausing billing is in progress" in text
    assert "billing is paused" not in text


def test_what_destinations_show_is_asked_for_at_once(
    delivery: DelayedDelivery, here: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One after the other, a store that hangs would be waited for more than once."""
    asked, count = threading.Event(), InMemoryDelayedMessageStore.count_by_destination

    def waiting(*arguments: Any, **named: Any) -> Any:
        assert asked.wait(30)
        return count(*arguments, **named)

    monkeypatch.setattr(InMemoryDelayedMessageStore, "count_by_destination", waiting)
    monkeypatch.setattr(Operations, "destinations", lambda _: asked.set() or ())
    delivery.send("billing", b"x", delay=HOUR)
    text = Page(here.get("/destinations").text).text
    asked.set()
    assert "billing" in text
    assert "still being counted" not in text


@pytest.mark.parametrize("make", ["fastapi", "starlette", "nested"])
def test_every_address_is_under_the_prefix(delivery: DelayedDelivery, make: str) -> None:
    message_id = delivery.send("billing", b"x", delay=HOUR)
    host: Any = FastAPI()
    prefix = "/delays"
    if make == "nested":
        inner = FastAPI()
        inner.mount("/delays", app(delivery))
        host.mount("/ops", inner)
        prefix = "/ops/delays"
    else:
        host.mount("/delays", app(delivery))
    here = browser(host)
    for path in ("/", "/messages", f"/message?id={message_id}", "/bulk", "/destinations", "/changes", "/nothing"):
        page = Page(here.get(prefix + path).text)
        addresses = [
            each[name]
            for _, each in page.elements
            for name in ("href", "src", "action", "data-events")
            if name in each and not each[name].startswith("#")
        ]
        assert addresses
        assert all(each.startswith(f"{prefix}/") for each in addresses), (path, addresses)
    assert here.get(f"{prefix}/static/delaystore.js").status_code == 200
    missing = Page(here.get(f"{prefix}/static/missing.js").text)
    assert [each["href"] for each in missing.all("a")] == ["#content", f"{prefix}/"]
    assert all(each["src"].startswith(f"{prefix}/static/delaystore.js") for each in missing.all("script"))
    answer = post(here, f"{prefix}/message/cancel", f"{prefix}/message?id={message_id}", id=message_id)
    assert answer.headers["location"] == f"{prefix}/messages"
    assert f"Path={prefix}" in answer.headers["set-cookie"]


@pytest.mark.parametrize("prefix", ["/задержки", "/a b", "/{tenant}/delays"])
def test_a_prefix_may_have_any_characters(delivery: DelayedDelivery, prefix: str) -> None:
    host = FastAPI()
    host.mount(prefix, app(delivery))
    here = browser(host)
    address = quote(prefix.replace("{tenant}", "a?b#c"))
    links = Page(here.get(f"{address}/").text).all("a")
    assert {"href": f"{address}/messages"} in links
    assert post(here, f"{address}/destinations/pause", f"{address}/destinations", name="q").status_code == 303
    assert here.get(f"{address}/changes").status_code == 200


class Down(InMemoryDelayedMessageStore):
    """A store that can be down."""

    down = False

    def __getattribute__(self, name: str) -> Any:
        asks = ("search", "get", "now", "status", "count_between", "destinations", "changes", "operations")
        if name in asks and type(self).down:
            raise StoreUnavailableError("the database cannot be reached: connection refused")
        return super().__getattribute__(name)


def test_a_store_that_is_down_is_told_on_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    with DelayedDelivery("sales", Down()) as delivery:
        here = browser(app(delivery))
        monkeypatch.setattr(Down, "down", True)
        for path in ("/", "/messages", "/message?id=1", "/bulk", "/destinations", "/changes", "/api/v1/messages"):
            answer = here.get(path)
            assert answer.status_code == 503, path
            assert "connection refused" in answer.text
            assert "Traceback" not in answer.text
        monkeypatch.setattr(Down, "down", False)
        assert here.get("/messages").status_code == 200


def test_a_form_that_is_too_large_is_refused(here: Browser) -> None:
    assert post(here, "/message/cancel", id="x" * 200_000).status_code == 413


@pytest.mark.parametrize("content_type", ["text/plain", "multipart/form-data; boundary=x", "application/json"])
def test_a_form_of_another_kind_is_no_form_of_ours(here: Browser, content_type: str) -> None:
    token = Page(here.get("/destinations").text).csrf
    answer = here.post("/message/cancel", content=f"id=1&csrf={token}", headers={"Content-Type": content_type})
    assert answer.status_code == 403


def _filter(**given: Any) -> Any:
    from delaystore.filters import MessageFilter

    return MessageFilter(**given)


@pytest.mark.parametrize(("depth", "is_json"), [(20, True), (900, False)])
def test_a_body_that_would_become_a_huge_page_is_shown_as_it_is(
    delivery: DelayedDelivery, depth: int, is_json: bool
) -> None:
    body = "[" * depth + ",".join("1" * ((64_000 - 2 * depth) // 2 if not is_json else 100)) + "]" * depth
    delivery.send("billing", body.encode(), delay=timedelta(hours=1), message_id="nested")
    answer = browser(app(delivery, show_bodies=True)).get("/message", params={"id": "nested"})
    assert answer.status_code == 200
    assert len(answer.content) < 1_000_000
    assert body in answer.text
    assert (">JSON<" in answer.text) is is_json


def test_a_body_with_a_name_twice_is_shown_as_it_is(delivery: DelayedDelivery) -> None:
    delivery.send("billing", b'{"a":1,"a":2}', delay=timedelta(hours=1), message_id="twice")
    page = browser(app(delivery, show_bodies=True)).get("/message", params={"id": "twice"}).text
    assert "{&#34;a&#34;:1,&#34;a&#34;:2}" in page
    assert "&#34;a&#34;: 2" not in page
