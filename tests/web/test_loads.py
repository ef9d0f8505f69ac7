"""Loads on the page and by the API."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from delaystore.delivery import DelayedDelivery
from delaystore.server.web import app
from delaystore.stores import SqlDelayedMessageStore
from tests.integration.loading import load, rows
from tests.web.pages import TOKENS, USERS, Browser, Page, browser, post
from tests.web.test_api import Program
from tests.web.test_pages import until_done

ODD = "spring '<b>%/offers"


@pytest.fixture
def delivery(sqlite_url: str) -> Iterator[DelayedDelivery]:
    """With two loads, one of 30 messages and one of 5."""
    with DelayedDelivery("sales", SqlDelayedMessageStore(sqlite_url)) as delivery:
        delivery.prepare()
        load(sqlite_url, ODD, rows(30, "s"))
        load(sqlite_url, "autumn", rows(5, "a"))
        yield delivery


@pytest.fixture
def here(delivery: DelayedDelivery) -> Browser:
    return browser(app(delivery))


@pytest.fixture
def call(delivery: DelayedDelivery) -> Program:
    bearer = {"Authorization": "Bearer 0123456789abcdef-operate"}
    return Program(browser(app(delivery, users=USERS, tokens=TOKENS), headers=bearer))


def test_the_screen_shows_how_far_each_load_is(delivery: DelayedDelivery, here: Browser) -> None:
    delivery.cancel("a-00000")
    page = Page(here.get("/loads").text)
    assert page.text.index("autumn") < page.text.index(ODD)
    assert [(each["value"], each["max"]) for each in page.all("progress")] == [("1", "5"), ("0", "30")]


def test_a_load_is_paused_resumed_and_cancelled_on_its_screen(delivery: DelayedDelivery, here: Browser) -> None:
    address = "/load?id=autumn"
    assert "5 messages of 5 waiting" in Page(here.get(address).text).text
    paused = post(here, "/loads/pause", address, id="autumn").headers["location"]
    assert "The load autumn is paused." in Page(here.get(paused).text).text
    assert delivery.operations.loads.get("autumn").paused
    resumed = post(here, "/loads/resume", address, id="autumn").headers["location"]
    assert "The load autumn is resumed." in Page(here.get(resumed).text).text
    cancelled = post(here, "/loads/cancel", address, id="autumn").headers["location"]
    assert "5 messages cancelled" in until_done(here, cancelled)
    assert "cancelled" in Page(here.get(address).text).text
    assert delivery.operations.loads.get(ODD).waiting == 30


def test_messages_of_a_load_are_searched(here: Browser) -> None:
    page = Page(here.get("/messages", params={"load": "autumn"}).text)
    assert [name for name in ("a-00004", "s-00004") if name in page.text] == ["a-00004"]


def test_an_unknown_load_is_not_found(here: Browser) -> None:
    answer = here.get("/load?id=winter")
    assert answer.status_code == 404
    assert "There is no load 'winter'" in Page(answer.text).text


@pytest.mark.parametrize("address", ["/messages?load=winter", "/bulk/preview?kind=cancel&load=winter"])
def test_messages_of_an_unknown_load_are_not_found(here: Browser, address: str) -> None:
    answer = here.get(address)
    assert (answer.status_code, "here is no load 'winter'" in Page(answer.text).text) == (404, True)


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/messages?load=winter", None),
        ("POST", "/operations/preview", {}),
        ("POST", "/operations", {"kind": "cancel"}),
        ("POST", "/operations", {"kind": "reschedule", "by": "1d"}),
    ],
)
def test_programs_are_told_of_an_unknown_load(call: Program, method: str, path: str, body: dict[str, str]) -> None:
    given = None if body is None else {**body, "filter": {"load": "winter"}}
    assert "here is no load 'winter'" in call(method, path, status=404, json=given)["detail"]


def test_programs_list_pause_resume_and_cancel_loads(call: Program, delivery: DelayedDelivery) -> None:
    assert [each["load_id"] for each in call("GET", "/loads")["loads"]] == ["autumn", ODD]
    found = call("GET", "/loads/autumn")
    assert (found["state"], found["stored"], found["waiting"], found["delivered"]) == ("waiting", 5, 5, 0)
    until = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    assert call("POST", "/loads/pause", json={"load_id": "autumn", "until": until}) == {"count": 0, "complete": True}
    assert call("GET", "/loads/autumn")["paused"] is True
    assert call("GET", "/overview")["paused_loads"] == ["autumn"]
    assert call("POST", "/loads/resume", json={"load_id": "autumn"}) == {"count": 0, "complete": True}
    assert [each["message_id"] for each in call("GET", "/messages?load=autumn&limit=2")["messages"]] == [
        "a-00000",
        "a-00001",
    ]
    assert call("POST", "/operations/preview", json={"filter": {"load": ODD}})["count"] == 30
    operation = call("POST", "/loads/cancel", status=202, json={"load_id": "autumn"})
    assert operation["wanted"] == {"load": "autumn"}
    for method, path in (("GET", "/loads/winter"), ("POST", "/loads/cancel"), ("POST", "/loads/pause")):
        call(method, path, status=404, json={"load_id": "winter"} if method == "POST" else None)
