"""Recurring schedules by the API and on the page."""

from base64 import b64encode
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import pytest

from delaystore.delivery import DelayedDelivery
from delaystore.server.web import app
from delaystore.stores import SqlDelayedMessageStore
from tests.web.pages import TOKENS, USERS, browser, new_delivery
from tests.web.test_api import Program

EVIL = "<script>alert('x')</script>\"><img src=x onerror=alert(1)>"
NAMES = ("invoices/acme", "Grüße/Köln", 'it\'s "quoted"', EVIL, "a/pause", "a/upcoming", "50% off?#")
MONDAYS = {"cron": "0 9 * * 1", "zone": "Europe/Berlin", "destination": "reports", "body": "weekly"}


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


def test_the_action_of_an_address_is_no_part_of_the_name(call: Program, delivery: DelayedDelivery) -> None:
    delivery.schedules.put("a", cron="@daily", destination="q", body=b"")
    delivery.schedules.put("a/upcoming", cron="@hourly", destination="q", body=b"")
    assert call.here.post(f"/api/v1{at('a/pause')}", json={}).status_code == 404
    assert [each.paused for each in delivery.schedules.list()] == [False, False]
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
        ([wanted[0], {**wanted[1], "crom": "x"}], 400, "In schedule 2: unknown field 'crom'"),
        ([{**wanted[0], "zone": None}], 422, "In schedule 1: zone is null"),
        ([{"name": "a/2", "cron": "@hourly"}], 400, "In schedule 1: destination is missing"),
        (["a/2"], 400, "must be an object"),
    ):
        answer = call.here.post("/api/v1/schedules/apply", json={"prefix": "a/", "schedules": wrong})
        assert (answer.status_code, said in answer.json()["detail"]) == (status, True), answer.text
    assert len(delivery.schedules.list()) == 3


def test_a_preview_shows_times_in_utc_and_the_zone_and_writes_nothing(call: Program, delivery: DelayedDelivery) -> None:
    rule = {"cron": "30 2 * * *", "zone": "Europe/Berlin", "starts": "2031-03-29T00:00:00+01:00"}
    found = call("POST", "/schedules/preview", json=rule)
    assert found["zone"] == "Europe/Berlin"
    assert found["times"][:2] == [
        {"utc": "2031-03-29T01:30:00+00:00", "local": "2031-03-29T02:30:00+01:00"},
        {"utc": "2031-03-30T01:00:00+00:00", "local": "2031-03-30T03:00:00+02:00"},
    ]
    assert len(found["times"]) == 5
    assert len(call("POST", "/schedules/preview", json={**rule, "max_runs": 2})["times"]) == 2
    assert len(call("POST", "/schedules/preview", json={"every": "90s", "json": {}})["times"]) == 5
    assert call("POST", "/schedules/preview", json={**rule, "ends": "2031-03-29T00:00:00Z"})["times"] == []
    assert call("GET", "/schedules") == {"schedules": [], "next": None}
    said = call("POST", "/schedules/preview", json={"cron": "0 9"}, status=400)["detail"]
    assert said.startswith("Cron '0 9' has 2 fields")


@pytest.mark.parametrize(
    ("given", "status", "said"),
    [
        ({"cron": "0 9 31 2 *"}, 400, "never matches a date"),
        ({"cron": "0 9 * *"}, 400, "has 4 fields"),
        ({"cron": "61 * * * *"}, 400, "wrong minute '61'"),
        ({"zone": "Mars/Olympus"}, 400, "Mars/Olympus"),
        ({"every": "5m"}, 400, "exactly one of them"),
        ({"starts": "tomorrow"}, 400, "starts 'tomorrow' is no time"),
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
