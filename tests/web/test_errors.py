"""The error queue on the page and in the API: looked into, sent again, discarded."""

import time
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest

from delaystore.delivery import DelayedDelivery
from delaystore.operations.failed_message import ErrorFilter
from delaystore.server.web import app
from delaystore.stores import InMemoryDelayedMessageStore
from delaystore.transports import InMemoryTransport, RabbitMQTransport
from tests.web.pages import Browser, Page, browser, post
from tests.web.test_api import Program

EVIL = "<script>alert(1)</script>"


@pytest.fixture
def transport() -> InMemoryTransport:
    return InMemoryTransport()


@pytest.fixture
def failed(transport: InMemoryTransport) -> DelayedDelivery:
    """Of an endpoint whose error queue has 3 messages for `gone` and one for EVIL."""
    delivery = DelayedDelivery("sales", InMemoryDelayedMessageStore(), transport)
    delivery.setup_infrastructure()
    for number in range(3):
        delivery.send("gone", b'{"n": 1}', delay=0, message_id=f"m{number}", headers={"a": EVIL})
    delivery.send(EVIL, b"x", delay=0, message_id=EVIL)
    delivery.check_startable().dispatch_due()
    assert delivery.operations.errors.depth() == 4
    return delivery


@pytest.fixture
def here(failed: DelayedDelivery) -> Browser:
    return browser(app(failed, show_bodies=True))


def forms(page: Page, action: str) -> list[dict[str, str]]:
    """The hidden fields of each form of that action."""
    found: list[dict[str, str]] = []
    within = False
    for tag, attributes in page.elements:
        if tag == "form":
            within = attributes["action"] == action
            if within:
                found.append({})
        elif tag == "input" and within and attributes.get("type") == "hidden":
            found[-1][attributes["name"]] = attributes["value"]
    return found


def submitted(here: Browser, action: str, fields: dict[str, str]) -> str:
    """What the page says of it in the end."""
    answer = here.post(action, data=fields, follow_redirects=False)
    assert answer.status_code == 303, answer.text
    for _ in range(100):
        page = here.get(answer.headers["location"])
        if "data-refresh" not in page.text:
            return Page(page.text).text
        time.sleep(0.05)
    raise AssertionError(page.text)


def test_failed_messages_are_shown_in_groups(here: Browser) -> None:
    answer = here.get("/errors")
    page = Page(answer.text)
    assert "4 messages in queue error" in page.text
    assert "gone" in page.text
    assert EVIL in page.text
    assert EVIL not in answer.text
    (group,) = [each["href"] for each in page.all("a") if "destination=gone" in each["href"]]
    listed = Page(here.get(group).text)
    ids = [each["href"] for each in listed.all("a") if each.get("class") == "id"]
    assert ids == [f"/errors/message?id=m{number}" for number in range(3)]
    one = here.get(ids[0])
    assert '"n": 1' in Page(one.text).text
    assert EVIL not in one.text
    assert here.get("/errors/message?id=other").status_code == 404


def test_a_group_is_sent_again_where_it_was_to_go(
    here: Browser, failed: DelayedDelivery, transport: InMemoryTransport
) -> None:
    fields = next(
        each for each in forms(Page(here.get("/errors").text), "/errors/replay") if each["destination"] == "gone"
    )
    assert "3 messages left" in submitted(here, "/errors/replay", fields)  # there is still no such queue
    transport.declare("gone")
    assert "Done: 3 messages sent again" in submitted(here, "/errors/replay", fields)
    with transport.receive("gone", 9) as received:
        assert [each.message_id for each in received] == ["m0", "m1", "m2"]
        assert received[0].headers == {"a": EVIL}
    assert failed.operations.errors.depth() == 1
    change = failed.operations.changes()[0]
    assert (change.action, change.count) == ("replay", 3)


def test_one_is_sent_elsewhere_and_one_is_discarded(
    here: Browser, failed: DelayedDelivery, transport: InMemoryTransport
) -> None:
    transport.declare("elsewhere")
    (fields,) = forms(Page(here.get("/errors/message?id=m1").text), "/errors/replay")
    assert "1 message sent again" in submitted(here, "/errors/replay", {**fields, "to": "elsewhere"})
    assert transport.depth("elsewhere") == 1
    (fields,) = forms(Page(here.get("/errors/message?id=m2").text), "/errors/discard")
    assert "1 message discarded" in submitted(here, "/errors/discard", fields)
    assert failed.operations.errors.depth() == 2


@pytest.mark.parametrize(("action", "done"), [("replay", "sent again"), ("discard", "discarded")])
def test_no_more_of_a_group_are_changed_than_were_shown(
    here: Browser, failed: DelayedDelivery, transport: InMemoryTransport, action: str, done: str
) -> None:
    (fields, _) = forms(Page(here.get("/errors").text), f"/errors/{action}")
    failed.send("gone", b"later", delay=0, message_id="later")
    failed.check_startable().dispatch_due()
    transport.declare("gone")
    assert f"Done: 3 messages {done}" in submitted(here, f"/errors/{action}", fields)
    (left,) = failed.operations.errors.messages(ErrorFilter(destination="gone")).messages
    assert left.message_id == "later"
    page = f"/errors/messages?{urlencode({name: fields[name] for name in ('destination', 'kind', 'reason')})}"
    (everything,) = forms(Page(here.get(page).text), f"/errors/{action}")
    assert f"Done: 1 message {done}" in submitted(here, f"/errors/{action}", everything)


def test_without_a_transport_the_page_says_what_it_lacks() -> None:
    with DelayedDelivery("sales", InMemoryDelayedMessageStore()) as delivery:
        here = browser(app(delivery))
        assert "The error queue needs a transport" in here.get("/errors").text
        Program(here)("GET", "/errors", status=400)


def test_an_error_queue_that_nobody_has_made_is_told() -> None:
    with DelayedDelivery("sales", InMemoryDelayedMessageStore(), InMemoryTransport()) as delivery:
        delivery.check_startable()
        delivery.stop()
        here = browser(app(DelayedDelivery("sales", delivery._store, InMemoryTransport())))
        assert "no message has failed permanently" in here.get("/errors").text
        assert Program(here)("GET", "/errors") == {"groups": [], "depth": 0, "examined": 0}


def test_programs_see_and_repair(here: Browser, failed: DelayedDelivery, transport: InMemoryTransport) -> None:
    call = Program(here)
    found = call("GET", "/errors")
    assert [(each["destination"], each["count"]) for each in found["groups"]] == [("gone", 3), (EVIL, 1)]
    page = call("GET", "/errors/messages?destination=gone&limit=2")
    assert [each["message_id"] for each in page["messages"]] == ["m0", "m1"]
    assert page["next_skip"] == 2
    assert call("GET", "/errors/messages/m0")["body"] == '{"n": 1}'
    call("GET", "/errors/messages/m9", status=404)
    transport.declare("gone")
    job = call("POST", "/errors/replay", json={"filter": {"destination": "gone"}, "limit": 2}, status=202)
    while job["running"]:
        job = call("GET", f"/jobs/{job['job_id']}")
    assert job["result"] == "2 messages sent again"
    job = call("POST", "/errors/discard", json={"filter": {"all": True}}, status=202)
    while job["running"]:
        job = call("GET", f"/jobs/{job['job_id']}")
    assert job["done"] == 2
    assert failed.operations.errors.depth() == 0
    call("POST", "/errors/discard", json={"filter": {"colour": "red"}}, status=422)
    call("GET", "/jobs/unknown", status=404)


@pytest.mark.parametrize("given", [{}, {"filter": None}, {"filter": {}}, {"filter": {"destination": None}},
    {"filter": {"since": ""}}, {"filter": {"all": "yes"}}, {"filter": {"all": True, "kind": "Unroutable"}},
    {"filter": {"all": True}, "limit": None}])  # fmt: skip
def test_a_filter_that_says_nothing_changes_nothing(
    here: Browser, failed: DelayedDelivery, given: dict[str, Any]
) -> None:
    call = Program(here)
    for path in ("/errors/discard", "/errors/replay"):
        call("POST", path, json=given, status=422)
    assert failed.operations.errors.depth() == 4


def test_a_form_without_a_filter_changes_nothing(here: Browser, failed: DelayedDelivery) -> None:
    for path in ("/errors/discard", "/errors/replay"):
        answer = post(here, path, "/errors")
        assert answer.status_code == 400
        assert "give either a filter, or all=yes" in Page(answer.text).text
    assert failed.operations.errors.depth() == 4


def test_addresses_say_which_group_they_mean(here: Browser) -> None:
    for each in Page(here.get("/errors").text).all("a"):
        if each["href"].startswith("/errors/messages"):
            assert {name for name, _ in parse_qsl(urlsplit(each["href"]).query)} == {"destination", "kind", "reason"}


@pytest.mark.parametrize("path", ["/errors/messages", "/api/v1/errors/messages"])
def test_an_error_queue_that_is_not_there_yet_is_empty(rabbitmq_url: str, path: str) -> None:
    with DelayedDelivery("sales", InMemoryDelayedMessageStore(), RabbitMQTransport(rabbitmq_url)) as delivery:
        here = browser(app(delivery))
        assert here.get(path).status_code == 200
        assert (
            here.get(f"{path.removesuffix('s')}?id=m1" if path.startswith("/errors") else f"{path}/m1").status_code
            == 404
        )
