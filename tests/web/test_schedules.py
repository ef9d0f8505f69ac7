"""Recurring schedules by the API and on the page."""

from base64 import b64encode
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from html import unescape
from typing import Any
from urllib.parse import quote, urlencode

import httpx
import pytest
from sqlalchemy import create_engine, inspect

from delaystore.delivery import DelayedDelivery
from delaystore.dispatcher import Dispatcher
from delaystore.server.web import app
from delaystore.settings import DelayedDeliverySettings
from delaystore.stores import InMemoryDelayedMessageStore, SqlDelayedMessageStore
from delaystore.stores.records import Way
from delaystore.testing import SettableClock
from delaystore.transports import InMemoryTransport
from tests.web.pages import TOKENS, USERS, Browser, Page, browser, new_delivery, post
from tests.web.test_api import Program

EVIL = "<script>alert('x')</script>\"><img src=x onerror=alert(1)>"
NAMES = ("invoices/acme", "Grüße/Köln", 'it\'s "quoted"', EVIL, "a/pause", "a/upcoming", "50% off?#")
BERLIN = {"zone": "Europe/Berlin"}
MONDAYS = {**BERLIN, "cron": "0 9 * * 1", "destination": "reports", "body": "weekly"}


@pytest.fixture(params=["memory", "sqlite"])
def delivery(request: pytest.FixtureRequest, delivery: DelayedDelivery, sqlite_url: str) -> Iterator[DelayedDelivery]:
    if request.param == "memory":
        yield delivery
        return
    with DelayedDelivery("sales", SqlDelayedMessageStore(sqlite_url)) as stored:
        stored.prepare()
        yield stored


@pytest.fixture
def call(delivery: DelayedDelivery) -> Program:
    bearer = {"Authorization": "Bearer 0123456789abcdef-operate"}
    return Program(browser(app(delivery, users=USERS, tokens=TOKENS, show_bodies=True), headers=bearer))


def at(name: str, action: str = "") -> str:
    return f"/schedules/{quote(name, safe='')}{action}"


@pytest.mark.parametrize("name", NAMES)
def test_a_schedule_of_any_name_is_put_read_changed_and_deleted(
    call: Program, delivery: DelayedDelivery, name: str
) -> None:
    assert call("PUT", at(name), json=MONDAYS, status=201) == {"name": name, "result": "created"}
    assert call("PUT", at(name), json=MONDAYS) == {"name": name, "result": "unchanged"}
    assert call("PUT", at(name), json={**MONDAYS, "jitter": "30s"}) == {"name": name, "result": "changed"}
    found = call.here.get(f"/api/v1{at(name)}").json()
    assert found.items() >= {**MONDAYS, "name": name, "jitter": 30.0, "paused": False, "changed_by": "robot"}.items()
    times = call("GET", at(name, "/upcoming?count=2"))
    assert times["zone"] == "Europe/Berlin"
    assert [each["local"][11:16] for each in times["times"]] == ["09:00", "09:00"]
    assert times["times"][0]["utc"] == found["next_time"]
    assert call("POST", at(name, "/pause"), json={}) == {"name": name, "changed": True}
    assert call("POST", at(name, "/pause"), json={}) == {"name": name, "changed": False}
    assert delivery.schedules.list()[0].paused
    assert call("POST", at(name, "/resume"), json={}) == {"name": name, "changed": True}
    assert call("POST", at(name, "/skip"), json={"at": times["times"][0]["utc"]}) == {"name": name, "changed": True}
    assert call("GET", at(name, "/upcoming?count=1"))["times"] == times["times"][1:]
    message_id = call("POST", at(name, "/trigger"), json={}, status=201)["message_id"]
    message = delivery.get(message_id)
    assert message is not None
    assert (message.body, message.headers["delaystore.schedule"]) == (b"weekly", name)
    month = {"since": "2026-06-01T00:00:00Z", "until": "2026-06-30T00:00:00Z"}
    assert call("POST", at(name, "/backfill"), json=month) == {"count": 5}
    call.here.request("DELETE", f"/api/v1{at(name)}").raise_for_status()
    assert delivery.schedules.list() == []
    assert delivery.message_ids("schedule/") == [message_id]
    changes = delivery.operations.changes()
    assert {(each.by, each.way) for each in changes} == {("robot", "api")}
    actions = ["delete", "backfill", "trigger", "skip", "resume", "pause", "put", "put"]
    assert [each.action for each in changes] == actions
    assert changes[0].about == f"schedule {name}"


def test_upcoming_may_be_the_end_of_a_name(call: Program, delivery: DelayedDelivery) -> None:
    delivery.schedules.put("a", cron="@daily", destination="q", body=b"")
    delivery.schedules.put("a/upcoming", cron="@hourly", destination="q", body=b"")
    assert call.here.get("/api/v1/schedules/a%2Fupcoming").json()["name"] == "a/upcoming"
    assert call("GET", "/schedules/a/upcoming")["zone"] == "UTC"
    assert call("GET", "/schedules/a/upcoming/upcoming")["times"][0]["utc"].endswith("00:00+00:00")


def test_schedules_are_listed_page_by_page(call: Program, delivery: DelayedDelivery) -> None:
    for number in range(5):
        delivery.schedules.put(f"invoices/{number}", cron="@daily", destination="billing", json={"n": number})
    delivery.schedules.put("ping", every=300, destination="probes", body=b"\xff")
    first = call("GET", "/schedules?prefix=invoices/&limit=3")
    rest = call("GET", "/schedules", params={"prefix": "invoices/", "limit": 2, "after": first["next"]})
    assert [each["name"] for page in (first, rest) for each in page["schedules"]] == [f"invoices/{n}" for n in range(5)]
    assert rest["next"] is None
    ping = call("GET", "/schedules/ping")
    assert (ping["every"], ping["body_base64"], "body" in ping) == (300, b64encode(b"\xff").decode(), False)
    assert call("GET", "/schedules/invoices/0")["properties"] == {"content_type": "application/json"}
    hidden = Program(browser(app(delivery)))
    assert not {"body", "body_base64"} & {*hidden("GET", "/schedules/ping"), *hidden("GET", "/schedules/invoices/1")}
    call("GET", "/schedules?limit=0", status=400)
    call("GET", "/schedules?name=ping", status=400)


def test_schedules_below_a_prefix_are_applied(call: Program, delivery: DelayedDelivery) -> None:
    for name in ("a/1", "a/2", "b"):
        delivery.schedules.put(name, cron="@daily", destination="q", body=b"")
    wanted = [{"name": "a/2", "cron": "@hourly", "destination": "q", "body": ""},
              {"name": "a/3", "every": "5m", "destination": "q", "json": {"n": 1}}]  # fmt: skip
    request = {"prefix": "a/", "schedules": wanted, "dry_run": True}
    result = {"created": ["a/3"], "changed": ["a/2"], "deleted": ["a/1"], "unchanged": 0}
    assert call("POST", "/schedules/apply", json=request) == result
    assert [each.name for each in delivery.schedules.list()] == ["a/1", "a/2", "b"]
    assert call("POST", "/schedules/apply", json={**request, "dry_run": False}) == result
    assert [each.name for each in delivery.schedules.list()] == ["a/2", "a/3", "b"]
    for wrong, status, said in (
        ([{**wanted[0], "name": "c"}], 400, "does not begin with the prefix"),
        ([wanted[0], {**wanted[1], "crom": "x"}], 400, "The schedule 'a/3' is invalid: 'crom' is not one of"),
        ([{"name": "a/2", "cron": "@hourly"}], 400, "The schedule 'a/2' is invalid: it needs a destination"),
        ([{"cron": "@hourly", "destination": "q", "body": ""}], 400, "name must be a text"),
        ([wanted[0], wanted[0]], 400, "occurs twice"),
        (["a/2"], 400, "Schedules must be"),
    ):
        answer = call.here.post("/api/v1/schedules/apply", json={"prefix": "a/", "schedules": wrong})
        assert (answer.status_code, said in answer.json()["detail"]) == (status, True), answer.text
    assert len(delivery.schedules.list()) == 3


def test_a_preview_shows_times_in_utc_and_the_zone_and_writes_nothing(call: Program, delivery: DelayedDelivery) -> None:
    document = {"name": "a", "destination": "q", "body": "", **BERLIN, "cron": "30 2 * * *"}
    rule = {**document, "starts": "2031-03-29T00:00:00+01:00"}
    found = call("POST", "/schedules/preview", json=rule)
    assert found["zone"] == "Europe/Berlin"
    assert found["times"][:2] == [
        {"utc": "2031-03-29T01:30:00+00:00", "local": "2031-03-29T02:30:00+01:00"},
        {"utc": "2031-03-30T01:00:00+00:00", "local": "2031-03-30T03:00:00+02:00"},
    ]
    assert len(found["times"]) == 5
    assert len(call("POST", "/schedules/preview", json={**rule, "max_runs": 2})["times"]) == 2
    assert call("POST", "/schedules/preview", json={**rule, "ends": "2031-03-29T00:00:00Z"})["times"] == []
    assert call("GET", "/schedules") == {"schedules": [], "next": None}
    said = call("POST", "/schedules/preview", json={**document, "cron": "0 9"}, status=400)["detail"]
    assert said.startswith("The schedule 'a' is invalid: cron '0 9' has 2 fields")


@pytest.mark.parametrize(
    ("given", "status", "said"),
    [
        ({"cron": "0 9 31 2 *"}, 400, "never matches a date"),
        ({"cron": "0 9 * *"}, 400, "has 4 fields"),
        ({"cron": "61 * * * *"}, 400, "wrong minute '61'"),
        ({"zone": "Mars/Olympus"}, 400, "Mars/Olympus"),
        ({"every": "5m"}, 400, "exactly one of them"),
        ({"starts": "tomorrow"}, 400, "starts 'tomorrow' is not a time"),
        ({"starts": "2031-01-01T00:00:00"}, 400, "starts"),
        ({"catch_up": "some"}, 400, "catch_up must be one of last, none, all"),
        ({"max_runs": 0}, 400, "max_runs must be a whole number from 1"),
        ({"max_runs": "two"}, 400, "Max_runs must be a whole number"),
        ({"body_base64": "%"}, 400, "give one of body and body_base64"),
        ({"crom": "x"}, 400, "Unknown field 'crom'"),
        ({"name": "other"}, 400, "Unknown field 'name'"),
        ({"zone": None}, 422, "Zone is null"),
        ({"destination": ""}, 400, "destination"),
    ],
)
def test_a_mistake_is_told_in_one_sentence(
    call: Program, delivery: DelayedDelivery, given: dict[str, Any], status: int, said: str
) -> None:
    answer = call.here.request("PUT", "/api/v1/schedules/reports", json={**MONDAYS, **given})
    assert (answer.status_code, said in answer.json()["detail"]) == (status, True), answer.text
    assert "\n" not in answer.json()["detail"]
    assert delivery.schedules.list() == []


def test_what_cannot_be_asked_of_a_schedule_is_told(call: Program, delivery: DelayedDelivery) -> None:
    hour = {"since": "2026-01-01T00:00:00Z", "until": "2026-01-01T01:00:00Z"}
    for method, action, body in (
        ("GET", "", None), ("GET", "/upcoming", None), ("DELETE", "", None), ("POST", "/pause", {}),
        ("POST", "/resume", {}), ("POST", "/trigger", {}), ("POST", "/backfill", hour),
        ("POST", "/skip", {"at": "2031-01-01T00:00:00Z"}),
    ):  # fmt: skip
        said = call(method, at("nowhere/at all", action), status=404, json=body)["detail"]
        assert said.startswith("There is no schedule 'nowhere/at all'"), said
    call("PUT", "/schedules/reports", json=MONDAYS, status=201)
    for action, body, said in (
        ("/skip", {"at": "2031-01-01T00:00:00Z"}, "has no future occurrence at"),
        ("/skip", {"at": "2031-01-01T00:00:00"}, "offset"),
        ("/backfill", {**hour, "until": "2999-01-01T00:00:00Z"}, "in the future"),
        ("/backfill", {"since": hour["until"], "until": hour["since"]}, "must not be before since"),
        ("/pause", {"until": "2031-01-01T00:00:00Z"}, "takes no fields"),
    ):
        assert said in call.here.post(f"/api/v1{at('reports', action)}", json=body).json()["detail"], action
    for name in (" reports", "line\nbreak", "x" * 201):
        answer = call.here.request("PUT", f"/api/v1{at(name)}", json=MONDAYS)
        assert (answer.status_code, "name" in answer.json()["detail"]) == (400, True), answer.text
    call("GET", "/schedules/reports/upcoming?count=1001", status=400)


def test_an_occurrence_that_is_being_sent_is_not_skipped() -> None:
    soon = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=60)
    with new_delivery() as delivery, delivery.operable_store().transaction() as claiming:
        delivery.schedules.put("soon", every="1d", starts=soon, destination="q", body=b"")
        assert len(claiming.fetch_due(soon + timedelta(seconds=1), 1)) == 1
        said = Program(browser(app(delivery)))(
            "POST", "/schedules/soon/skip", json={"at": soon.isoformat()}, status=409
        )
        assert said["detail"] == "Nothing was changed, because a dispatcher is sending this occurrence of 'soon'."


@pytest.mark.parametrize("url", ["sqlite_url", "postgresql_url"])
def test_an_odd_name_prefix_or_start_is_no_fault(request: pytest.FixtureRequest, url: str) -> None:
    with DelayedDelivery("sales", SqlDelayedMessageStore(request.getfixturevalue(url))) as delivery:
        delivery.prepare()
        call = Program(browser(app(delivery)))
        for name in ("a%b_c", "A%B_C", "axbyc"):
            early = {"cron": "@daily", "zone": "Asia/Tokyo", "starts": "0001-01-02T00:00:00Z"}
            call("PUT", at(name), json={**early, "destination": "q", "body": ""}, status=201)
        assert [each["name"] for each in call("GET", "/schedules?prefix=a%25b_")["schedules"]] == ["a%b_c"]
        for path, status in (
            ("/schedules?prefix=%00", 200), ("/schedules?prefix=%ed%a0%80", 200), ("/schedules?after=%00", 400),
            (f"/schedules?prefix={'x' * 5000}", 200), ("/schedules/%ff", 404), ("/schedules/%00", 400),
        ):  # fmt: skip
            assert call.here.get(f"/api/v1{path}").status_code == status, path
        call("POST", "/schedules/apply", json={"prefix": "\0", "schedules": []}, status=400)
        assert len(call("GET", "/schedules")["schedules"]) == 3


def test_a_reader_changes_no_schedule(delivery: DelayedDelivery) -> None:
    delivery.schedules.put("a", cron="@daily", destination="q", body=b"")
    page = app(delivery, users=USERS, tokens=TOKENS)
    reader = Program(browser(page, headers={"Authorization": "Bearer 0123456789abcdef-read"}))
    assert reader("GET", "/schedules/a")["cron"] == "@daily"
    reader("PUT", "/schedules/a", json=MONDAYS, status=403)
    reader("DELETE", "/schedules/a", status=403)
    for action in ("pause", "resume", "trigger", "skip", "backfill"):
        reader("POST", f"/schedules/a/{action}", json={}, status=403)
    assert delivery.schedules.list()[0].version == 1


# The page.


@pytest.fixture
def here(delivery: DelayedDelivery) -> Browser:
    return browser(app(delivery, users=USERS, show_bodies=True), user="ada")


def put(here: Browser, **fields: str) -> httpx.Response:
    """Send the form of a schedule; a name that exists is edited."""
    address = "/schedules/edit"
    return post(here, "/schedules/put", address, **{"version": "", "destination": "q", "body": "", **fields})


def show(here: Browser, name: str) -> Page:
    return Page(here.get("/schedule", params={"name": name}).text)


@pytest.mark.parametrize("name", NAMES)
def test_a_schedule_of_any_name_is_created_on_the_page(here: Browser, delivery: DelayedDelivery, name: str) -> None:
    form = {"name": name, "destination": "reports", "cron": "0 9 * * 1", "zone": "Europe/Berlin", "body": "Grüße\r\n2"}
    more = {"headers": '{"tenant": "<b>"}', "max_late": "10m", "both_days": "yes", "starts": "2031-01-01T00:00"}
    answer = put(here, **form, **more, catch_up="all", if_waiting="skip", max_runs="3")
    assert answer.status_code == 303, answer.text
    shown = Page(here.get(answer.headers["location"]).text)
    assert f"The schedule {name} is created." in shown.text
    assert "Mon 2031-01-06 09:00:00 CET" in shown.text
    (state,) = delivery.schedules.list()
    schedule = state.schedule
    assert (schedule.name, schedule.body, schedule.headers) == (name, "Grüße\n2".encode(), {"tenant": "<b>"})
    assert (schedule.catch_up, schedule.if_waiting, schedule.max_runs) == ("all", "skip", 3)
    assert (schedule.max_late, schedule.starts) == (timedelta(minutes=10), datetime(2031, 1, 1, tzinfo=UTC))
    assert str(schedule.rule) == "0 9 * * 1 Europe/Berlin (both days)"
    for path in ("/schedules", answer.headers["location"], f"/schedules/edit?{urlencode({'name': name})}"):
        found = here.get(path)
        assert "<script>alert" not in found.text, path
        page = Page(found.text)
        assert [each for each in page.all("img") if each["src"] == "x"] == []
        assert name in page.text or name in str(page.elements)
    (change,) = delivery.operations.changes()
    assert (change.by, change.way, change.action, change.about) == ("ada", "web", "put", f"schedule {name}")


def test_a_schedule_is_paused_resumed_skipped_triggered_and_deleted(here: Browser, delivery: DelayedDelivery) -> None:
    delivery.schedules.put("a/b", cron="0 9 * * *", zone="Asia/Kolkata", destination="q", body=b"x")
    address = "/schedule?name=a%2Fb"

    def act(action: str, **more: str) -> str:
        answer = post(here, f"/schedules/{action}", address, name="a/b", **more)
        return Page(here.get(answer.headers["location"]).text).text

    before = delivery.schedules.upcoming("a/b", 11)
    page = Page(here.get(address).text)
    times = [each["value"] for each in page.all("input") if each.get("name") == "at"]
    assert [datetime.fromisoformat(each) for each in times] == before[:10]
    assert "09:00:00 IST" in page.text
    assert "The schedule a/b skips the run." in act("skip", at=times[0])
    assert delivery.schedules.upcoming("a/b", 10) == before[1:]
    assert "The schedule a/b is paused." in (shown := act("pause"))
    assert "The schedule is paused. After you resume it" in shown
    assert "The schedule a/b is paused." in act("pause")
    assert "paused" in Page(here.get("/schedules").text).text
    assert "The schedule a/b is resumed." in act("resume")
    assert "has one more run, which is due now" in act("trigger")
    assert len(delivery.message_ids("schedule/a/b/")) == 1
    assert "The schedule a/b is deleted." in act("delete")
    assert delivery.schedules.list() == []
    actions = [(each.action, each.by) for each in delivery.operations.changes()][:5]
    assert actions == [(each, "ada") for each in ("delete", "trigger", "resume", "pause", "skip")]
    assert post(here, "/schedules/delete", "/schedules/edit", name="a/b").status_code == 303
    assert post(here, "/schedules/pause", "/schedules/edit", name="a/b").status_code == 404
    assert "There is no schedule 'a/b'" in here.get(address).text.replace("&#39;", "'")
    assert here.get("/schedules/edit?name=a%2Fb").status_code == 404


def test_schedules_are_searched_and_come_page_by_page(here: Browser, delivery: DelayedDelivery) -> None:
    for number in range(120):
        delivery.schedules.put(f"t{number % 2}/{number:03}", cron="@daily", destination="q", body=b"")
    address, found = "/schedules?prefix=t1/", []
    while address:
        page = Page(here.get(address).text)
        found += [each["href"] for each in page.all("a") if each.get("class") == "id"]
        address = next((each["href"] for each in page.all("a") if each.get("rel") == "next"), "")
    assert found == [f"/schedule?name=t1%2F{number:03}" for number in range(1, 120, 2)]
    assert "No schedule matches." in Page(here.get("/schedules?prefix=t2").text).text


def test_an_edit_keeps_what_the_form_does_not_show(here: Browser, delivery: DelayedDelivery) -> None:
    odd = {"raw": b"\x00\xff", "at": datetime(2031, 1, 1, tzinfo=UTC), "n": 1}
    crlf = b'{"a":\r\n1}'
    delivery.schedules.put("odd", every="90s", destination="q", body=b"\xff\xfe", headers=odd, max_late=0.25)
    delivery.schedules.put("crlf", every="1d", at="09:00", zone="Europe/Berlin", destination="q", body=crlf)
    hidden = browser(app(delivery, users=USERS), user="ada")
    for client, name in ((here, "odd"), (here, "crlf"), (hidden, "crlf")):
        before = delivery.schedules.get(name)
        assert before is not None
        fields = form_of(client, name)
        assert (fields["body"] == "") is (client is hidden or name == "odd")
        answer = put(client, **fields)
        assert "is unchanged" in Page(client.get(answer.headers["location"]).text).text
        assert put(client, **{**fields, "jitter": "5"}).status_code == 303
        after = delivery.schedules.get(name)
        assert after is not None
        assert after.schedule == replace(before.schedule, jitter=timedelta(seconds=5))
        delivery.schedules.put_schedule(before.schedule)
    fields = form_of(hidden, "crlf")
    assert put(hidden, **{**fields, "body": "new"}).status_code == 303
    state = delivery.schedules.get("crlf")
    assert state is not None
    assert state.schedule.body == b"new"


def form_of(here: Browser, name: str) -> dict[str, str]:
    """The fields of a schedule's form as a browser would send them."""
    text = here.get("/schedules/edit", params={"name": name}).text
    page = Page(text)
    fields = {
        each["name"]: each["value"]
        for each in page.all("input")
        if each["name"] != "csrf" and (each.get("type") != "checkbox" or "checked" in each)
    }
    body = unescape(text.partition("<textarea")[2].partition(">")[2].partition("</textarea>")[0])
    return {**fields, "body": body.removeprefix("\n")}


def test_a_form_of_another_state_changes_nothing(here: Browser, delivery: DelayedDelivery) -> None:
    delivery.schedules_as(Way.API, "grace").put("a", cron="@daily", destination="q", body=b"")
    fields = form_of(here, "a")
    again = put(here, name="a", cron="@hourly")
    assert (again.status_code, "The schedule 'a' exists already" in Page(again.text).text) == (400, True)
    delivery.schedules_as(Way.API, "grace").put("a", cron="@weekly", destination="q", body=b"")
    late = put(here, **{**fields, "cron": "@hourly"})
    assert (late.status_code, "another user has changed or deleted it" in Page(late.text).text) == (400, True)
    assert Page(late.text).all("input")[1]["value"] == fields["version"]  # sent again, it is refused again
    assert put(here, **{**form_of(here, "a"), "cron": "@hourly"}).status_code == 303
    delivery.schedules.delete("a")
    assert "changed or deleted it meanwhile" in put(here, **fields).text
    assert delivery.schedules.list() == []


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"cron": "0 9 31 2 *"}, "never matches a date"),
        ({"cron": "0 9"}, "has 2 fields"),
        ({"cron": "", "every": ""}, "exactly one of them"),
        ({"zone": "Mars/Olympus"}, "Mars/Olympus"),
        ({"name": ""}, "name must be a text"),
        ({"name": "a\nb"}, "line break"),
        ({"name": "x" * 201}, "201 bytes"),
        ({"max_runs": "0"}, "max_runs must be a whole number"),
        ({"starts": "soon"}, "starts 'soon'"),
        ({"max_late": "soon"}, "max_late 'soon' is no duration"),
        ({"headers": "tenant=a"}, "field headers"),
        ({"properties": "[1]"}, "must be a JSON object"),
        ({"catch_up": EVIL}, "catch_up must be one of"),
        ({"destination": ""}, "destination"),
    ],
)
def test_a_mistake_is_told_above_the_form(
    here: Browser, delivery: DelayedDelivery, given: dict[str, str], said: str
) -> None:
    answer = put(here, **{"name": "reports", "cron": "0 9 * * 1", "body": "typed", **given})
    page = Page(answer.text)
    assert (answer.status_code, said.lower() in page.text.lower()) == (400, True), page.text
    assert "typed" in page.text
    values = {each.get("value") for each in page.all("input")}
    for name, value in given.items():
        assert name == "catch_up" or value.strip() in values
    assert "<script>alert" not in answer.text
    assert delivery.schedules.list() == []


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({**BERLIN, "cron": "30 2 * * *", "starts": "2031-03-29T12:00:00"}, "Sun 2031-03-30 03:00:00 CEST"),
        ({**BERLIN, "every": "2d", "at": "09:00", "starts": "2031-01-01T00:00"}, "Fri 2031-01-03 09:00:00"),
        ({}, "Write a cron expression or an interval"),
        ({"cron": "0 9 *"}, "Cron '0 9 *' has 3 fields"),
        ({"cron": "0 9 * * 1", "zone": "Europe/Berl"}, "Europe/Berl"),
        ({"cron": "@daily", "max_runs": "x"}, "Max_runs must be a whole number"),
        ({"cron": "@daily", "ends": "2020-01-01T00:00"}, "There is no run"),
        ({"cron": "@daily", "starts": "0001-01-01T00:00:00"}, "00:00:00 UTC"),
        ({"cron": EVIL}, "<script>alert"),
    ],
)  # fmt: skip
def test_the_next_runs_are_shown_as_a_rule_is_typed(here: Browser, given: dict[str, str], said: str) -> None:
    answer = here.get("/schedules/preview", params=given)
    assert answer.status_code == 200
    assert "<script>" not in answer.text
    assert said in Page(answer.text).text


def test_the_last_runs_are_shown() -> None:
    clock = SettableClock(datetime(2026, 12, 1, 8, 59, 30, tzinfo=UTC))
    store = InMemoryDelayedMessageStore(clock)
    settings = DelayedDeliverySettings(automatic_setup=False)
    dispatcher = Dispatcher(store, InMemoryTransport(auto_declare=True), settings, endpoint="sales")
    with DelayedDelivery("sales", store, InMemoryTransport()) as delivery:
        delivery.prepare()
        here = browser(app(delivery))
        delivery.schedules.put("daily", cron="0 9 * * *", destination="q", body=b"1")
        assert "No run was due yet." in show(here, "daily").text
        clock.advance(seconds=45)
        for page in (show(here, "daily"), Page(here.get("/schedules").text)):
            assert "overdue" in page.text
        dispatcher.dispatch_due()
        assert "its outcome is unknown" in show(here, "daily").text
        assert "overdue" not in Page(here.get("/schedules").text).text
        store.keep_history(timedelta(days=30))
        for day in range(2, 14):
            clock.set(datetime(2026, 12, day, 8, 59, tzinfo=UTC))
            delivery.schedules.put("daily", cron="0 9 * * *", destination="q", body=b"%d" % day)
            clock.advance(seconds=75)
            dispatcher.dispatch_due()
        for page in (show(here, "daily"), Page(here.get("/schedules").text)):
            assert "delivered 15 s late" in " ".join(page.text.split())
        links = [each["href"] for each in show(here, "daily").all("a") if each["href"].startswith("/message?")]
        days = [f"2026-12-{day:02}" for day in range(13, 3, -1)]
        assert links == [f"/message?id=schedule%2Fdaily%2F{day}T09%3A00%3A00Z" for day in days]
        assert here.get(links[0]).status_code == 200


def test_tables_without_schedules_are_told(sqlite_url: str) -> None:
    with DelayedDelivery("sales", SqlDelayedMessageStore(sqlite_url)) as delivery:
        delivery.prepare()
        engine = create_engine(sqlite_url)
        with engine.begin() as connection:
            (table,) = [each for each in inspect(engine).get_table_names() if each.endswith("_schedules")]
            connection.exec_driver_sql(f'DROP TABLE "{table}"')
        engine.dispose()
        here = browser(app(delivery))
        for path in ("/schedules", "/schedule?name=a", "/api/v1/schedules"):
            answer = here.get(path)
            assert (answer.status_code, "setup" in answer.text) == (503, True), answer.text
