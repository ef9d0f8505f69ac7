"""The JSON API, against its own document: every answer is validated by it."""

import re
from base64 import b64encode
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import validate
from starlette.routing import Route

from delaystore.delivery import DelayedDelivery
from delaystore.errors import StoreUnavailableError
from delaystore.server.web import app
from delaystore.server.web._site import BackgroundJob
from delaystore.server.web.api.document import CALLS, document
from delaystore.server.web.http import API
from delaystore.server.web.store_calls import Calls
from delaystore.stores import InMemoryDelayedMessageStore, SqlDelayedMessageStore
from tests.faults.patience import wait_until
from tests.web.pages import TOKENS, USERS, Browser, Page, browser, live
from tests.web.test_pages import until_done

HOUR = timedelta(hours=1)
DOCUMENT = document(API)
seen: set[tuple[str, str, int]] = set()


class Program:
    """What calls the API, and holds each answer to the document."""

    def __init__(self, here: Browser) -> None:
        self.here = here

    def __call__(self, method: str, path: str, *, status: int = 200, json: Any = None, **more: Any) -> Any:
        answer = self.here.request(method, API + path, json=json, **more)
        assert answer.status_code == status, answer.text
        paths = sorted(DOCUMENT["paths"], key=lambda each: (each.count("{"), -len(each)))
        template = next(each for each in paths if matches(each, path, method))
        call = DOCUMENT["paths"][template][method.lower()]
        if status < 400 and json is not None:
            check(call["requestBody"]["content"]["application/json"]["schema"], json)
        described = call["responses"][str(status)]
        if "$ref" in described:
            described = DOCUMENT["components"]["responses"]["Problem"]
        kind = answer.headers["content-type"]
        check(described["content"][kind]["schema"], answer.json())
        seen.add((method, template, status))
        return answer.json()


def matches(template: str, path: str, method: str) -> bool:
    pattern = re.sub(r"\{[^}]*\}", ".+", template)
    return re.fullmatch(pattern, path.partition("?")[0]) is not None and method.lower() in DOCUMENT["paths"][template]


def check(schema: Any, instance: Any) -> None:
    whole = {**schema, "components": DOCUMENT["components"]}
    Draft202012Validator(whole, format_checker=Draft202012Validator.FORMAT_CHECKER).validate(instance)


@pytest.fixture
def call(delivery: DelayedDelivery) -> Program:
    bearer = {"Authorization": "Bearer 0123456789abcdef-operate"}
    return Program(browser(app(delivery, users=USERS, tokens=TOKENS, show_bodies=True), headers=bearer))


def test_the_document_is_openapi_and_names_every_route(delivery: DelayedDelivery) -> None:
    page = app(delivery)
    validate(browser(page).get(f"{API}/openapi.json").json())
    routes = {
        (method, re.sub(r":path\}", "}", route.path.removeprefix(API)))
        for route in page.routes
        if isinstance(route, Route) and route.path.startswith(API) and not route.path.endswith("openapi.json")
        for method in (route.methods or set()) - {"HEAD"}
    }
    documented = {(method.upper(), path) for path, methods in DOCUMENT["paths"].items() for method in methods}
    assert routes == documented
    assert len({each.name for each in CALLS}) == len(CALLS)


def test_the_document_names_what_any_call_may_be_refused_with() -> None:
    for call in CALLS:
        expected = {"400", "401", "403", "429", "503"} | ({"408", "413", "415", "422"} if call.body else set())
        assert expected <= call.document()["responses"].keys(), call.name


def test_the_document_says_where_the_api_is(delivery: DelayedDelivery) -> None:
    from starlette.applications import Starlette
    from starlette.routing import Mount

    host = Starlette(routes=[Mount("/delays", app(delivery))])
    found = browser(host).get(f"/delays{API}/openapi.json").json()
    assert found["servers"] == [{"url": f"/delays{API}"}]


def test_messages_are_sent_read_changed_and_cancelled(call: Program, delivery: DelayedDelivery) -> None:
    new = {
        "destination": "billing",
        "body": "Grüße",
        "delay": "2h30m",
        "headers": {"tenant": "a", "attempt": 1},
        "properties": {"content_type": "text/plain", "timestamp": "2026-01-02T03:04:05+00:00"},
        "message_id": "a/b?c",
    }
    assert call("POST", "/messages", json=new, status=201) == {"message_id": "a/b?c", "stored": True}
    assert call("POST", "/messages", json=new) == {"message_id": "a/b?c", "stored": False}
    assert delivery.count() == 1
    found = call("GET", "/messages/a%2Fb%3Fc")
    assert found["body"] == "Grüße"
    assert found["headers"] == new["headers"]
    assert found["properties"] == new["properties"]
    call("PATCH", "/messages/a%2Fb%3Fc", json={"at": "2031-01-01T00:00:00Z"})
    assert call("GET", "/messages/a%2Fb%3Fc")["due_time"] == "2031-01-01T00:00:00+00:00"
    call("PATCH", "/messages/a%2Fb%3Fc", json={"delay": 0})
    call("DELETE", "/messages/a%2Fb%3Fc")
    for method in ("GET", "DELETE"):
        assert call(method, "/messages/a%2Fb%3Fc", status=404)["detail"] == "Message 'a/b?c' is not waiting."
    call("PATCH", "/messages/a%2Fb%3Fc", json={"delay": 0}, status=404)
    assert [each.by for each in delivery.operations.changes()] == ["robot"] * 3


def test_the_life_of_a_message_is_told(call: Program, delivery: DelayedDelivery) -> None:
    message_id = live(delivery)
    found = call("GET", f"/messages/{message_id}/history")
    assert found["waiting"] is None
    assert found["sent"] is not None
    assert [(each["action"], each["by"]) for each in found["changes"]] == [("send-now", "grace")]
    (entry,) = found["history"]
    assert (entry["outcome"], entry["attempts"], entry["key"]) == ("delivered", 2, "invoice 7")
    assert 0 <= entry["late"] < 60
    assert [each["kind"] for each in entry["failures"]] == ["Refused"]
    assert call("GET", f"/messages/{message_id}", status=404)["detail"] == f"Message '{message_id}' is not waiting."
    call("POST", "/messages", json={"destination": "q", "delay": 9, "message_id": "unpaid"}, status=201)
    found = call("GET", "/messages/unpaid/history")
    assert (found["waiting"]["destination"], found["sent"]) == ("q", None)
    assert [each["outcome"] for each in found["history"]] == ["cancelled"]
    said = call("GET", "/messages/other/history", status=404)["detail"]
    assert said.startswith("Message 'other' is not waiting, and neither the audit trail nor the history has")


@pytest.mark.parametrize("odd", ["a/history", "/history", "a/b", "history", "a\nb"])
def test_an_id_that_looks_like_a_path_has_a_life(call: Program, delivery: DelayedDelivery, odd: str) -> None:
    live(delivery)
    address = f"/messages/{quote(odd, safe='')}"
    call("POST", "/messages", json={"destination": "q", "delay": 9, "message_id": odd}, status=201)
    assert call.here.get(API + address).json()["destination"] == "q"
    call("DELETE", address)
    assert call.here.get(API + address).status_code == 404
    assert [each["outcome"] for each in call("GET", f"{address}/history")["history"]] == ["cancelled"]


def test_the_history_is_searched(call: Program, delivery: DelayedDelivery) -> None:
    assert call("GET", "/history") == {
        "history": [], "next": None, "kept": None, "since": None, "entries": 0, "size": None,
    }  # fmt: skip
    message_id = live(delivery)

    def ids(**query: Any) -> list[str]:
        return [each["message_id"] for each in call("GET", "/history", params=query)["history"]]

    assert ids() == [message_id, "unpaid"]
    assert ids(outcome="cancelled") == ids(destination="billing") == ids(key="invoice 8") == ["unpaid"]
    assert ids(message_id="unpaid", until="2099-01-01T00:00:00Z") == ["unpaid"]
    assert ids(since="2099-01-01T00:00:00Z") == []
    first = call("GET", "/history?limit=1")
    assert (first["kept"], first["entries"]) == (30 * 86_400, 2)
    rest = call("GET", "/history", params={"limit": 1, "after": first["next"]})
    assert [each["message_id"] for page in (first, rest) for each in page["history"]] == [message_id, "unpaid"]
    assert rest["next"] is None
    for wrong in ({"outcome": "lost"}, {"since": "soon"}, {"after": "x"}, {"limit": 0}, {"id_prefix": "x"}):
        call("GET", "/history", params=wrong, status=400)


def test_a_message_has_a_latest_delivery(call: Program) -> None:
    new = {"destination": "billing", "at": "2031-01-01T00:00:00Z"}
    call("POST", "/messages", json={**new, "message_id": "a", "max_late": "90m"}, status=201)
    call("POST", "/messages", json={**new, "message_id": "b", "not_after": "2031-01-01T01:00:00Z"}, status=201)
    call("POST", "/messages", json={**new, "message_id": "c", "max_late": 5}, status=201)
    times = [call("GET", f"/messages/{name}")["not_after"] for name in "abc"]
    assert times == ["2031-01-01T01:30:00+00:00", "2031-01-01T01:00:00+00:00", "2031-01-01T00:00:05+00:00"]
    for wrong in ({"max_late": 0}, {"not_after": "2030-01-01T00:00:00Z"}, {"not_after": "2031-01-01T00:00:00"}):
        call("POST", "/messages", json={**new, **wrong}, status=400)
    both = {"max_late": 5, "not_after": "2031-01-02T00:00:00Z"}
    call("POST", "/messages", json={**new, **both}, status=400)
    found = call("GET", "/messages?destination=billing")["messages"]
    assert [each["not_after"] for each in found] == times


@pytest.mark.parametrize("odd", ["a\nb", "a\r\n", "\n", " ", "a/../b", "?#", "\u2028", "<b>"])
def test_an_id_may_have_any_characters(call: Program, odd: str) -> None:
    call("POST", "/messages", json={"destination": "q", "delay": 9, "message_id": odd}, status=201)
    address = f"/messages/{quote(odd, safe='')}"
    assert call("GET", address)["message_id"] == odd
    call("PATCH", address, json={"delay": 60})
    call("DELETE", address)


def test_bodies_may_be_binary_and_are_hidden_unless_allowed(call: Program, delivery: DelayedDelivery) -> None:
    encoded = b64encode(b"\x00\xff").decode()
    sent = call("POST", "/messages", json={"destination": "q", "body_base64": encoded, "delay": 9}, status=201)
    assert call("GET", f"/messages/{sent['message_id']}")["body_base64"] == encoded
    hidden = Program(browser(app(delivery)))
    assert not {"body", "body_base64"} & hidden("GET", f"/messages/{sent['message_id']}").keys()


@pytest.mark.parametrize("number", ["9" * 5_000, "0", "-1", "1001", "²", "1.5", ""])
def test_a_number_that_cannot_be_is_told(call: Program, number: str) -> None:
    for path in ("/messages", "/changes", "/errors/messages"):
        said = call("GET", path, params={"limit": number}, status=400)["detail"]
        assert said.startswith("The limit must be a whole number from 1 to 1,000, not '")
    if number != "0":
        assert call.here.get(f"{API}/errors/messages", params={"skip": "9" * 5_000}).status_code == 400
        assert (
            call.here.get("/errors/messages", params={"skip": "9" * 5_000}, auth=("ada", "lovelace")).status_code == 400
        )


def test_what_is_said_stays_short(call: Program) -> None:
    said = call("POST", "/messages", json={"destination": "q", "delay": "x" * 1_000_000}, status=400)["detail"]
    assert len(said) < 700
    assert said.startswith("Delay 'xxx")
    assert said.endswith("or a number of seconds.")


def test_half_a_character_in_a_filter_does_not_stay(call: Program) -> None:
    headers = {"Content-Type": "application/json"}
    for path, more in (("/operations/preview", ""), ("/operations", '"kind": "cancel", ')):
        given = f'{{{more}"filter": {{"headers": {{"a": "\\ud800"}}}}}}'
        assert call.here.post(API + path, content=given, headers=headers).status_code == 400
    assert call("GET", "/operations") == {"operations": []}


def test_an_id_that_is_being_dispatched_is_no_duplicate(call: Program, delivery: DelayedDelivery) -> None:
    new = {"destination": "q", "delay": 0, "message_id": "m"}
    call("POST", "/messages", json=new, status=201)
    store = delivery.operable_store()
    assert isinstance(store, InMemoryDelayedMessageStore)
    store.key_timeout = 0.1  # type: ignore[misc]
    with store.transaction() as dispatcher:
        (claimed,) = dispatcher.fetch_due(store.now(), 1)
        said = call("POST", "/messages", json=new, status=409)["detail"]
        assert "'m' is just being dispatched" in said
        assert dispatcher.remove(claimed)
    assert call("POST", "/messages", json=new, status=201) == {"message_id": "m", "stored": True}


def test_a_message_with_a_key_that_waits_is_kept(call: Program) -> None:
    new = {"destination": "q", "delay": 9, "key": "k"}
    first = call("POST", "/messages", json={**new, "on_key": "keep"}, status=201)
    assert call("POST", "/messages", json={**new, "on_key": "keep"}) == {**first, "stored": False}
    call("POST", "/messages", json=new, status=409)


@pytest.mark.parametrize(
    "twice",
    ["header=tenant=a&header=tenant=b", "header=tenant=a%0Atenant=a", "destination=a&destination=b", "limit=1&limit=1"],
)
def test_what_is_given_twice_in_an_address_is_refused(call: Program, delivery: DelayedDelivery, twice: str) -> None:
    name = twice.partition("=")[0]
    about = "header 'tenant'" if name == "header" else name
    assert call("GET", f"/messages?{twice}", status=400)["detail"].lower().startswith(f"{about} is given twice")
    if name == "destination":
        call("GET", f"/errors/messages?{twice}", status=400)
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    operator = browser(app(delivery))
    token = Page(operator.get("/destinations").text).csrf
    if name != "limit":
        content = f"kind=cancel&csrf={token}&{twice}"
        assert operator.post("/bulk/begin", content=content, headers=form).status_code == 400
        assert not delivery.operations.operations()


def test_messages_are_searched_page_by_page(call: Program, delivery: DelayedDelivery) -> None:
    for number in range(25):
        delivery.send(f"q{number % 2}", b"x", delay=HOUR, headers={"n": number}, message_id=f"m{number:02}")
    found, after = [], ""
    while after is not None:
        page = call("GET", f"/messages?destination=q1&limit=5&after={after.replace('+', '%2B')}")
        found += [each["message_id"] for each in page["messages"]]
        after = page["next"]
    assert found == [f"m{number:02}" for number in range(1, 25, 2)]
    assert [each["message_id"] for each in call("GET", "/messages?header=n=7&failing=false")["messages"]] == ["m07"]
    until = (datetime.now(UTC) + timedelta(minutes=1)).isoformat().replace("+", "%2B")
    assert call("GET", f"/messages?until={until}")["messages"] == []


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "Destination is missing."),
        ({"destination": "q"}, "Give exactly one of delay"),
        ({"destination": "q", "delay": 1, "at": "2030-01-01T00:00:00Z"}, "Give exactly one of delay"),
        ({"destination": "q", "delay": True}, "Delay must be a number"),
        ({"destination": "q", "delay": -1}, "negative"),
        ({"destination": "q", "delay": "soon"}, "is no duration"),
        ({"destination": "q", "at": "2030-01-01T00:00:00"}, "add an offset"),
        ({"destination": 7, "delay": 1}, "Destination must be text"),
        ({"destination": "", "delay": 1}, "Destination is empty."),
        ({"destination": "q", "delay": 1, "bdoy": "x"}, "Unknown field 'bdoy'"),
        ({"destination": "q", "delay": 1, "body": "a", "body_base64": "YQ=="}, "one of body and body_base64"),
        ({"destination": "q", "delay": 1, "body_base64": "%"}, "is not base64"),
        ({"destination": "q", "delay": 1, "properties": {"colour": "red"}}, "unknown property"),
        ({"destination": "q", "delay": 1, "message_id": "x" * 300}, "at most 255"),
        ([1], "must be a JSON object"),
    ],
)
def test_what_cannot_be_sent_is_told_in_one_sentence(call: Program, given: Any, said: str) -> None:
    detail = call("POST", "/messages", json=given, status=400)["detail"]
    assert said.lower() in detail.lower()
    assert "\n" not in detail
    assert detail.endswith(".")


def test_half_a_character_is_told_and_does_no_harm(call: Program) -> None:
    headers = {"Content-Type": "application/json"}
    for new in (r'{"destination": "q", "delay": 1, "body": "\ud800"}', r'{"destination": "\ud800", "delay": 1}',
                r'{"\ud800": 1}', r'{"destination": "q", "delay": "\ud800"}'):  # fmt: skip
        assert call.here.post(f"{API}/messages", content=new, headers=headers).status_code == 400


@pytest.mark.parametrize("text", ["", "{", "NaN", '{"delay": Infinity}', '{"delay": 1e999}', "[" * 100_000])
def test_what_is_no_json_is_refused(call: Program, text: str) -> None:
    headers = {"Content-Type": "application/json"}
    answer = call.here.post(f"{API}/messages", content=text, headers=headers)
    assert answer.status_code == 400
    assert answer.headers["content-type"] == "application/problem+json"


def test_what_is_sent_by_another_site_s_form_is_refused(call: Program, delivery: DelayedDelivery) -> None:
    new = '{"destination": "q", "delay": 1}'
    for headers in ({"Content-Type": "text/plain"}, {"Content-Type": "application/x-www-form-urlencoded"}, {}):
        assert call.here.post(f"{API}/messages", content=new, headers=headers).status_code == 415
    elsewhere = {"Content-Type": "application/json", "Origin": "https://elsewhere.example"}
    assert call.here.post(f"{API}/messages", content=new, headers=elsewhere).status_code == 403
    assert delivery.count() == 0


def test_a_request_that_is_too_large_is_refused(call: Program) -> None:
    new = {"destination": "q", "delay": 1, "body": "x" * 17_000_000}
    assert "larger than" in call("POST", "/messages", json=new, status=413)["detail"]


def test_many_are_changed_and_watched(call: Program, delivery: DelayedDelivery) -> None:
    for number in range(30):
        delivery.send(f"q{number % 3}", b"x", delay=HOUR)
    wanted = {"filter": {"destination": "q1"}}
    previewed = call("POST", "/operations/preview", json=wanted)
    assert (previewed["count"], previewed["complete"], len(previewed["sample"])) == (10, True, 5)
    begun = call("POST", "/operations", json={"kind": "cancel", **wanted}, status=202)
    until_done(call.here, f"/operation?id={begun['operation_id']}")
    done = call("GET", f"/operations/{begun['operation_id']}")
    assert (done["state"], done["changed"], done["by"]) == ("done", 10, "robot")
    begun = call("POST", "/operations", json={"kind": "reschedule", "delay": 9, **wanted}, status=202)
    assert call("GET", "/operations")["operations"][0]["operation_id"] == begun["operation_id"]
    left = delivery.operations.begin_cancel(_everything()).operation_id  # nobody runs it
    call("POST", f"/operations/{left}", json={}, status=202)
    until_done(call.here, f"/operation?id={left}")
    left = delivery.operations.begin_cancel(_everything()).operation_id
    assert call("DELETE", f"/operations/{left}")["state"] == "abandoned"
    for method, body in (("GET", None), ("DELETE", None), ("POST", {})):
        call(method, "/operations/unknown", json=body, status=404)


def test_due_times_are_moved(call: Program, delivery: DelayedDelivery) -> None:
    due = datetime(2031, 3, 29, 8, tzinfo=UTC)
    for number in range(3):
        delivery.send("q", b"x", at=due + timedelta(days=number), message_id=f"m{number}")
    call("PATCH", "/messages/m0", json={"by": "-2h"})
    call("PATCH", "/messages/m0", json={"by": 7200, "time_zone": "Europe/Berlin"})
    wanted = {"filter": {"all": True}, "by": "1d", "time_zone": "Europe/Berlin"}
    found = call("POST", "/operations/preview", json=wanted)
    times = ("first_due", "new_first_due", "last_due", "new_last_due")
    moved = [datetime.fromisoformat(found[name]) - due for name in times]
    assert moved == [timedelta(0), timedelta(hours=23), timedelta(days=2), timedelta(days=3)]
    assert found["sample"][0]["new_due_time"] == found["new_first_due"]
    begun = call("POST", "/operations", json={"kind": "reschedule", **wanted}, status=202)
    assert begun["shift"] == {"by": 86400.0, "time_zone": "Europe/Berlin"}
    until_done(call.here, f"/operation?id={begun['operation_id']}")
    message = delivery.get("m0")
    assert message is not None
    assert message.due_time == due + timedelta(hours=23)
    for wrong in (
        {"by": 0},
        {"by": 1, "delay": 1},
        {"delay": 1, "time_zone": "UTC"},
        {"by": 1, "time_zone": "Mars"},
        {},
    ):
        call("PATCH", "/messages/m0", json=wrong, status=400)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"kind": "delete", "filter": {"all": True}}, "must be cancel or reschedule"),
        ({"kind": "reschedule", "filter": {"all": True}}, "exactly one of delay"),
        ({"kind": "cancel", "filter": {"all": True}, "delay": 5}, "unknown field 'delay'"),
        ({"kind": "cancel", "filter": {"all": True}, "at": "2030-01-01T00:00Z"}, "unknown field 'at'"),
    ],
)
def test_what_cannot_be_changed_is_told(
    call: Program, delivery: DelayedDelivery, given: dict[str, Any], said: str
) -> None:
    assert said.lower() in call("POST", "/operations", json=given, status=400)["detail"].lower()
    assert not delivery.operations.operations()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("", "The filter is empty; name a property"),
        ('"filter": null', "Filter is null"),
        ('"filter": {}', "The filter is empty"),
        ('"filter": []', "must be an object"),
        ('"filter": ""', "must be an object"),
        ('"filter": {"destination": null}', "destination is empty"),
        ('"filter": {"destination": "q1", "id_prefix": null}', "id_prefix is empty"),
        ('"filter": {"headers": {}}', "headers is empty"),
        ('"filter": {"headers": {"tenant": null}}', "must be a str"),
        ('"filter": {"destination": ""}', "is empty"),
        ('"filter": {"id_prefix": ""}', "at least one character"),
        ('"filter": {"since": ""}', "since"),
        ('"filter": {"failing": ""}', "failing must be"),
        ('"filter": {"all": false}', "stands alone"),
        ('"filter": {"all": null}', "all is empty"),
        ('"filter": {"all": 1}', "stands alone"),
        ('"filter": {"all": true, "destination": "q1"}', "stands alone"),
        ('"filter": {"dest": "q"}', "unknown filter 'dest'"),
        ('"filter": {"since": "2030-01-01"}', "2030-01-01"),
        ('"filter": {"destination": "q1"}, "filter": {"all": true}', "twice in one object"),
        ('"filter": {"destination": "q1", "destination": "q2"}', "twice in one object"),
        ('"filter": {"headers": {"a": "1", "a": "2"}}', "twice in one object"),
    ],
)
def test_a_filter_that_may_mean_more_than_was_meant_is_refused(
    call: Program, delivery: DelayedDelivery, given: str, said: str
) -> None:
    delivery.send("q1", b"x", delay=HOUR)
    headers = {"Content-Type": "application/json"}
    for path, more in (("/operations", '"kind": "cancel"'), ("/operations/preview", "")):
        answer = call.here.post(API + path, content=f"{{{', '.join(filter(None, (more, given)))}}}", headers=headers)
        assert answer.status_code == 422, answer.text
        assert said.lower() in answer.json()["detail"].lower()
    assert not delivery.operations.operations()
    assert delivery.count() == 1


def test_everything_has_a_word_of_its_own(call: Program, delivery: DelayedDelivery) -> None:
    delivery.send("q1", b"x", delay=HOUR)
    assert call("POST", "/operations/preview", json={"filter": {"all": True}})["count"] == 1
    begun = call("POST", "/operations", json={"kind": "cancel", "filter": {"all": True}}, status=202)
    assert begun["wanted"] == {"all": True}
    until_done(call.here, f"/operation?id={begun['operation_id']}")
    assert delivery.count() == 0


def test_null_is_no_value(call: Program, delivery: DelayedDelivery) -> None:
    """What was meant to be given, and is not, would end no pause, lift a limit, or wait under no key."""
    for path, given in (
        ("/messages", {"destination": "q", "delay": 9, "key": None}),
        ("/messages", {"destination": "q", "delay": 9, "at": None}),
        ("/destinations/pause", {"destination": "q", "until": None}),
        ("/destinations/limit", {"destination": None, "max_rate": 3}),
    ):
        assert "is null" in call("POST", path, json=given, status=422)["detail"]
    assert "Max_rate is missing" in call("POST", "/destinations/limit", json={"destination": "q"}, status=400)["detail"]
    assert delivery.count() == 0
    assert call("GET", "/destinations") == {"destinations": []}


def test_an_operation_that_began_too_late_for_the_answer_runs(
    call: Program, delivery: DelayedDelivery, monkeypatch: pytest.MonkeyPatch
) -> None:
    delivery.send("billing", b"x", delay=HOUR)
    site, held = call.here.client._transport.app.state.site, Event()  # type: ignore[attr-defined]
    begin = InMemoryDelayedMessageStore.begin_operation

    def late(*arguments: Any, **named: Any) -> None:
        assert held.wait(30)
        begin(*arguments, **named)

    monkeypatch.setattr(InMemoryDelayedMessageStore, "begin_operation", late)
    site.calls = Calls(0.1)
    said = call("POST", "/operations", json={"kind": "cancel", "filter": {"all": True}}, status=503)["detail"]
    assert (
        said == "The store did not answer within 0.1 seconds; the change may still be made: check before you try again."
    )
    held.set()
    wait_until(lambda: delivery.count() == 0, "the operation")


def test_an_operation_that_failed_says_why_and_is_logged(
    call: Program, delivery: DelayedDelivery, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    delivery.send("billing", b"x", delay=HOUR)

    def lost(*_: Any, **__: Any) -> None:
        raise StoreUnavailableError("the connection was lost")

    with monkeypatch.context() as patched:
        patched.setattr(InMemoryDelayedMessageStore, "advance_operation", lost)
        begun = call("POST", "/operations", json={"kind": "cancel", "filter": {"all": True}}, status=202)
        path = f"/operations/{begun['operation_id']}"
        wait_until(lambda: not call("GET", path)["runs_here"], "the failure")
        assert call("GET", path)["problem"] == "the connection was lost"
    (logged,) = [each.getMessage() for each in caplog.records if each.name == "delaystore.server.web"]
    assert logged == (
        f"unfinished: operation {begun['operation_id']} (cancel: all messages), requested by robot: "
        f"the connection was lost; resume it on its page, or by `delaystore operations resume {begun['operation_id']}`"
    )
    assert call("POST", path, json={}, status=202)["problem"] is None
    wait_until(lambda: call("GET", path)["state"] == "done", "the operation")
    assert "has already ended: done" in call("POST", path, json={}, status=409)["detail"]


def test_a_process_that_ends_logs_the_operations_that_it_leaves(
    call: Program, delivery: DelayedDelivery, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    delivery.send("billing", b"x", delay=HOUR)
    held, advance = Event(), InMemoryDelayedMessageStore.advance_operation

    def slow(*arguments: Any, **named: Any) -> Any:
        assert held.wait(30)
        return advance(*arguments, **named)

    monkeypatch.setattr(InMemoryDelayedMessageStore, "advance_operation", slow)
    begun = call("POST", "/operations", json={"kind": "cancel", "filter": {"all": True}}, status=202)
    assert begun["runs_here"] is True
    call.here.client._transport.app.state.site.stop()  # type: ignore[attr-defined]
    held.set()
    (logged,) = [each.getMessage() for each in caplog.records if each.name == "delaystore.server.web"]
    assert f"`delaystore operations resume {begun['operation_id']}`" in logged


def test_unknown_parameters_are_refused(call: Program) -> None:
    said = call("GET", "/messages?destinaton=billing", status=400)["detail"]
    assert said.startswith("This call has no parameter 'destinaton'; it has destination, ")
    said = call("GET", "/operations?limit=3", status=400)["detail"]
    assert said == "This call has no parameter 'limit'; it has none."


def test_an_operation_is_not_resumed_with_what_is_not_understood(call: Program, delivery: DelayedDelivery) -> None:
    left = delivery.operations.begin_cancel(_everything()).operation_id
    said = call("POST", f"/operations/{left}", json={"filter": {"destination": "q1"}}, status=400)["detail"]
    assert said == "Unknown field 'filter'; this call takes no fields."


def test_an_operation_is_kept_only_where_there_is_room_to_run_it(call: Program, delivery: DelayedDelivery) -> None:
    site, held = call.here.client._transport.app.state.site, Event()  # type: ignore[attr-defined]
    for _ in range(8):
        site.jobs.begin(BackgroundJob(about="waiting", by="me"), lambda _: str(held.wait(30)))
    new = {"kind": "cancel", "filter": {"all": True}}
    assert "8 changes are in progress" in call("POST", "/operations", json=new, status=429)["detail"]
    assert not delivery.operations.operations()
    held.set()


def test_a_store_that_fails_in_the_midst_of_a_pause_is_no_mistake_of_the_caller(
    call: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(*_: Any, **__: Any) -> None:
        raise StoreUnavailableError("the connection was lost")

    monkeypatch.setattr(InMemoryDelayedMessageStore, "pause", lost)
    said = call("POST", "/destinations/pause", json={"destination": "billing"}, status=503)["detail"]
    assert said == "The connection was lost."


def test_destinations_are_paused_limited_and_resumed(call: Program, delivery: DelayedDelivery) -> None:
    delivery.send("billing", b"x", delay=0)
    assert call("POST", "/destinations/pause", json={"destination": "billing"}) == {"count": 1, "complete": True}
    call("POST", "/destinations/limit", json={"destination": "billing", "max_rate": 7.5})
    (found,) = call("GET", "/destinations")["destinations"]
    assert (found["name"], found["waiting"], found["paused"], found["max_rate"]) == ("billing", 1, True, 7.5)
    assert found["by"] == "robot"
    call("POST", "/destinations/limit", json={"destination": "billing", "max_rate": None})
    call("POST", "/destinations/limit", json={"destination": "billing", "max_rate": -1}, status=400)
    assert call("POST", "/destinations/resume", json={"destination": "billing"}) == {"count": 1, "complete": True}
    changes = call("GET", "/changes?limit=2")["changes"]
    assert [each["action"] for each in changes] == ["resume", "limit"]
    call("GET", "/changes?limit=0", status=400)


def test_health_and_overview(call: Program, delivery: DelayedDelivery) -> None:
    assert call("GET", "/health") == {"healthy": True, "problems": [], "warnings": []}
    assert call("GET", "/overview")["endpoint"] == "sales"
    delivery.send("billing", b"x", delay=HOUR)
    fresh = Program(browser(app(delivery)))
    told = fresh("GET", "/health")
    assert told["healthy"] is True
    assert "no dispatcher reports that it is running" in told["warnings"][0]
    told = fresh("GET", "/health?require_dispatcher=true", status=503)
    assert told["problems"] == ["no dispatcher is running"]
    fresh("GET", "/health?require_dispatcher=perhaps", status=400)


def test_a_store_that_is_gone_is_unhealthy(tmp_path: Path) -> None:
    file = tmp_path / "app.db"
    store = SqlDelayedMessageStore(f"sqlite:///{file}")
    with DelayedDelivery("sales", store) as delivery:
        delivery.setup_infrastructure()
        page = Program(browser(app(delivery)))
        store.close()
        file.write_bytes(b"no database, but as long as one has to be to be taken for one" * 20)
        assert "not a database" in page("GET", "/health", status=503)["problems"][0]


def test_a_token_reads_or_operates(delivery: DelayedDelivery) -> None:
    page = app(delivery, users=USERS, tokens=TOKENS)
    reader = Program(browser(page, headers={"Authorization": "Bearer 0123456789abcdef-read"}))
    reader("GET", "/messages")
    reader("POST", "/messages", json={"destination": "q", "delay": 1}, status=403)
    Program(browser(page, headers={"Authorization": "Bearer wrong"}))("GET", "/messages", status=401)
    Program(browser(page))("GET", "/messages", status=401)
    Program(browser(page, user="ada"))("GET", "/messages")
    pages = httpx.Headers({"Authorization": "Bearer 0123456789abcdef-operate"})
    assert browser(page, headers=pages).get("/").status_code == 401  # for programs only


def test_an_unknown_address_is_told_as_a_problem(call: Program) -> None:
    for method, path, status in (("GET", "/nothing", 404), ("PUT", "/messages", 405)):
        answer = call.here.request(method, API + path)
        assert answer.status_code == status
        assert answer.json()["status"] == status


def _everything() -> Any:
    from delaystore.filters import EVERYTHING

    return EVERYTHING
