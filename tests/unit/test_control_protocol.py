"""The protocol of control queues by itself: whatever comes, there is an answer, and it is JSON."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delaystore.filters import Shift
from delaystore.ingress.control._protocol import (
    Answer,
    ProblemCode,
    Protocol,
    ReadRequest,
    RequestContext,
    ScheduleRequest,
)
from delaystore.ingress.control._replies import sender_of
from delaystore.message import DelayedMessage
from delaystore.operations.changes import CancelRequest, LookUpRequest, RequestResult, RescheduleRequest
from delaystore.stores.abc import ManagementOutcome
from delaystore.stores.records import ChangeAction
from delaystore.transports.rabbitmq.raw import RawProperties

NOON = datetime(2027, 1, 1, 12, tzinfo=UTC)
ASKED = RequestContext(by="ada", now=NOON)
PROTOCOL = Protocol("sales")
SCHEDULES = ["put_schedule", "delete_schedule", "pause_schedule", "skip_schedule", "name", "cron", "destination"]
NAMES = st.sampled_from(["cancel", "reschedule", "get", "ping", "version", "at", "delay", "key", "destroy", *SCHEDULES])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.just("2h") | st.just("2027-01-31T09:00Z"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES | st.text(), inner, max_size=3),
    max_leaves=5,
)


def read(request: Any) -> ReadRequest | ScheduleRequest | Answer:
    return PROTOCOL.read(json.dumps(request).encode(), ASKED)


@given(st.binary())
def test_any_bytes_are_answered(body: bytes) -> None:
    assert isinstance(PROTOCOL.read(body, ASKED), Answer)


@pytest.mark.parametrize("depth", range(850, 1000))
def test_a_request_that_is_nested_deeply_is_answered(depth: int) -> None:
    body = b'{"reschedule":"m","at":' + b"[" * depth + b"]" * depth + b"}"
    assert isinstance(PROTOCOL.read(body, ASKED), Answer)


@given(st.dictionaries(NAMES, VALUES, max_size=4))
def test_any_object_is_done_or_answered_with_what_is_wrong(request: dict[str, Any]) -> None:
    found = read(request)
    if isinstance(found, Answer):
        document = json.loads(found.body, parse_constant=pytest.fail)
        assert found.body.isascii()
        assert len(found.body) < 8000
        assert document["version"] == 1
        assert ("error" in document) is (found.problem is not None)
    elif isinstance(found, ScheduleRequest):
        assert found.name
        assert found.by == "ada"
    else:
        assert (found.request.message_id is None) is not (found.request.key is None)
        assert found.request.by == "ada"


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        ({"cancel": "a"}, CancelRequest(message_id="a", by="ada")),
        ({"get": {"key": "k"}, "version": 1}, LookUpRequest(key="k", by="ada")),
        (
            {"reschedule": "a", "delay": "1d"},
            RescheduleRequest(message_id="a", by="ada", at=NOON + timedelta(days=1)),
        ),
        ({"reschedule": "a", "delay": 0.25}, RescheduleRequest(message_id="a", by="ada", at=NOON + timedelta(0, 0.25))),
        (
            {"reschedule": "a", "delay": "0s"},
            RescheduleRequest(message_id="a", by="ada", at=NOON, action=ChangeAction.SEND_NOW),
        ),
        ({"reschedule": "a", "at": "2027-01-01T13:00:00+01:00"}, RescheduleRequest(message_id="a", by="ada", at=NOON)),
        (
            {"reschedule": {"key": "k"}, "by": "-2h", "time_zone": "UTC"},
            RescheduleRequest(key="k", by="ada", at=Shift(-timedelta(hours=2), "UTC")),
        ),
        ({"reschedule": "a", "by": 7}, RescheduleRequest(message_id="a", by="ada", at=Shift(timedelta(seconds=7)))),
    ],
)
def test_a_request_is_what_it_says(request_: Any, expected: object) -> None:
    found = read(request_)
    assert isinstance(found, ReadRequest)
    assert found.request == expected


def test_a_message_whose_text_no_json_parser_likes_is_answered_nevertheless() -> None:
    message = DelayedMessage(
        message_id="a",
        destination="billing",
        due_time=NOON,
        body=b"\xff\x00",
        headers={"n": float("nan"), "b": b"\xff"},
    )
    found = read({"get": "a"})
    assert isinstance(found, ReadRequest)
    result = RequestResult(outcome=ManagementOutcome.DONE, message_id="a", message=message)
    document = json.loads(found.answer(result).body, parse_constant=pytest.fail)
    assert document["message"]["body_base64"] == "/wA="
    assert document["message"]["headers"] == {"n": "nan", "b": {"base64": "/w=="}}


def short(text: bytes) -> bytes:
    return bytes((len(text),)) + text


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, "an unknown sender, by the control queue"),
        ({"user_id": short(b"")}, "an unknown sender, by the control queue"),
        ({"user_id": short(b"shop"), "app_id": short(b"till")}, "shop, by the control queue"),
        ({"app_id": short(b"till\0\xff\n")}, "application till?\ufffd?, by the control queue"),
    ],
)
def test_the_sender_is_named_as_far_as_it_is_known(fields: dict[str, bytes], expected: str) -> None:
    assert sender_of(RawProperties.of(fields)) == expected


def test_who_sends_what_cannot_be_read_is_an_unknown_sender() -> None:
    assert sender_of(RawProperties(b"\xff")) == "an unknown sender, by the control queue"


def test_properties_are_put_together_as_they_lie_on_the_wire() -> None:
    fields = {"user_id": short(b"u"), "content_type": short(b"t"), "delivery_mode": b"\x02", "message_id": short(b"m")}
    made = RawProperties.of(fields)
    assert RawProperties(made.encoded).fields == fields
    assert made.text("message_id") == "m"
    assert (
        made.changed([], without=["user_id"]).encoded
        == RawProperties.of({name: value for name, value in fields.items() if name != "user_id"}).encoded
    )
    assert RawProperties.of({}).encoded == bytes(2)


def test_without_schedules_no_command_is_about_them() -> None:
    found = Protocol("sales", with_schedules=False).read(b'{"trigger_schedule": "a"}', ASKED)
    assert isinstance(found, Answer)
    error = json.loads(found.body)["error"]
    assert error["code"] == "unknown_command"
    assert error["known"] == ["cancel", "reschedule", "get", "ping"]


def test_each_command_and_each_code_is_in_the_document() -> None:
    document = (Path(__file__).parents[2] / "docs" / "reference" / "control.md").read_text()
    unknown = read({"destroy": "m1"})
    assert isinstance(unknown, Answer)
    assert all(f'`{{"{name}": ' in document for name in json.loads(unknown.body)["error"]["known"])
    codes: list[Any] = list(ProblemCode)
    assert all(f"`{code}`" in document for code in codes)
