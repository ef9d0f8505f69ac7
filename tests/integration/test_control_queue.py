"""The control queue on a real broker: each command, each mistake, who is told, and who is named."""

import json
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from secrets import token_hex
from typing import Any

import pika
import pytest
from sqlalchemy import text
from typing_extensions import override

from delaystore import DelayedDelivery, DelayedDeliverySettings, RabbitMQTransport, SqlDelayedMessageStore
from delaystore.errors import ConfigurationError, DurabilityUnknownError
from delaystore.ingress.control import ControlQueue
from delaystore.stores.sql.bound import BoundSqlStore
from delaystore.transports import InMemoryTransport
from tests.dispatching import wait_until
from tests.integration.asking import ENDPOINT, QUEUE, Asker, opened_delivery, reading, running
from tests.integration.sql_stores import connected, opened
from tests.servers import PostgreSQLDatabases, RabbitMQ

LATER = datetime(2040, 1, 31, 9, tzinfo=UTC)
REJECTED = f"{QUEUE}.rejected"
COMMANDS = [
    "cancel", "reschedule", "get", "put_schedule", "delete_schedule", "pause_schedule", "resume_schedule",
    "skip_schedule", "trigger_schedule", "ping",
]  # fmt: skip
WEEKLY = {"name": "reports/weekly", "cron": "0 9 * * 1", "destination": "billing", "body": "go"}
MISTAKES: list[tuple[Any, str]] = [
    (b"", "malformed"),
    (b"\xff", "malformed"),
    (b"[]", "malformed"),
    (b"[" * 60_000, "malformed"),
    (b'{"cancel": "a", "cancel": "b"}', "malformed"),
    (b'{"reschedule": "a", "delay": NaN}', "malformed"),
    (b"{" + b" " * 70_000 + b"}", "malformed"),
    (b"{" + b" " * 300_000 + b"}", "malformed"),  # in several frames
    ({"version": 2, "cancel": "a"}, "unknown_version"),
    ({"version": "1", "cancel": "a"}, "unknown_version"),
    ({}, "unknown_command"),
    ({"send": {"body": "x"}}, "unknown_command"),
    ({"cancel": "a", "get": "a"}, "bad_request"),
    ({"cancel": "a", "delay": 3}, "bad_request"),
    ({"cancel": 7}, "bad_request"),
    ({"cancel": {"key": "k", "destination": "d"}}, "bad_request"),
    ({"reschedule": "a"}, "bad_request"),
    ({"reschedule": "a", "delay": 3, "at": "2040-01-31T09:00:00Z"}, "bad_request"),
    ({"ping": 1}, "bad_request"),
    ({"cancel": ""}, "bad_id"),
    ({"cancel": "x" * 256}, "bad_id"),
    ({"get": "a\0b"}, "bad_id"),
    ({"get": "\ud800"}, "malformed"),  # half a character is no JSON text
    ({"get": {"key": ""}}, "bad_id"),
    ({"get": {"key": "a\nb"}}, "bad_id"),
    ({"reschedule": "a", "delay": -1}, "bad_time"),
    ({"reschedule": "a", "delay": True}, "bad_time"),
    ({"reschedule": "a", "delay": "soon"}, "bad_time"),
    ({"reschedule": "a", "delay": 10**300}, "bad_time"),
    ({"reschedule": "a", "at": 7}, "bad_time"),
    ({"reschedule": "a", "at": "2040-01-31T09:00:00"}, "bad_time"),
    ({"reschedule": "a", "at": "9999-12-31T23:00:00Z"}, "bad_time"),
    ({"reschedule": "a", "by": 1, "delay": 1}, "bad_request"),
    ({"reschedule": "a", "by": 0}, "bad_time"),
    ({"reschedule": "a", "by": "soon"}, "bad_time"),
    ({"reschedule": "a", "by": True}, "bad_time"),
    ({"reschedule": "a", "by": 1, "time_zone": "Mars"}, "bad_time"),
    ({"reschedule": "a", "delay": 1, "time_zone": "UTC"}, "bad_time"),
    ({"reschedule": "a", "by": "3000000d"}, "refused"),
    ({"put_schedule": "a"}, "bad_request"),
    ({"put_schedule": {}}, "bad_request"),
    ({"put_schedule": {"name": "a", "cron": "0 9 * * 1", "destination": "billing"}}, "bad_request"),  # no body
    ({"put_schedule": {**WEEKLY, "cron": "0 9 * * 8"}}, "bad_request"),
    ({"put_schedule": {**WEEKLY, "zone": "Mars"}}, "bad_request"),
    ({"put_schedule": {**WEEKLY, "name": "a\nb"}}, "bad_request"),
    ({"put_schedule": {**WEEKLY, "colour": "red"}}, "bad_request"),
    ({"put_schedule": WEEKLY, "at": "2040-01-31T09:00:00Z"}, "bad_request"),
    ({"put_schedule": WEEKLY, "cancel": "a"}, "bad_request"),
    ({"delete_schedule": 7}, "bad_request"),
    ({"pause_schedule": None}, "bad_request"),
    ({"resume_schedule": ""}, "bad_id"),
    ({"trigger_schedule": "x" * 201}, "bad_id"),
    ({"skip_schedule": "a"}, "bad_request"),
    ({"skip_schedule": "a", "at": 7}, "bad_time"),
    ({"skip_schedule": "a", "at": "2040-01-31T09:00:00"}, "bad_time"),
]


@pytest.fixture
def delivery(prepared_postgresql_url: str) -> Iterator[DelayedDelivery]:
    with opened_delivery(prepared_postgresql_url) as delivery:
        yield delivery


@pytest.fixture
def control(delivery: DelayedDelivery, rabbitmq_url: str) -> Iterator[ControlQueue]:
    with running(delivery, rabbitmq_url) as control:
        yield control


@pytest.fixture
def asker(control: ControlQueue, rabbitmq_url: str) -> Iterator[Asker]:
    with Asker(rabbitmq_url) as asker:
        wait_until(lambda: control.health().connected)
        yield asker


def test_a_message_is_cancelled_once(asker: Asker, delivery: DelayedDelivery) -> None:
    message_id = delivery.send("billing", b"pay", delay=3600)
    assert asker.ask({"cancel": message_id}) == {"outcome": "done", "message_id": message_id}
    assert delivery.get(message_id) is None
    assert asker.ask({"version": 1, "cancel": message_id}) == {"outcome": "not_found", "message_id": None}


def test_a_message_is_cancelled_by_its_key(asker: Asker, delivery: DelayedDelivery) -> None:
    message_id = delivery.send("billing", b"pay", delay=3600, key="order 7")
    assert asker.ask({"cancel": {"key": "order 7"}}) == {"outcome": "done", "message_id": message_id}
    assert asker.ask({"cancel": {"key": "order 7"}}) == {"outcome": "not_found", "message_id": None}


@pytest.mark.parametrize(
    "when", [{"at": "2040-01-31T10:00:00+01:00"}, {"delay": 7200}, {"delay": 0.5}, {"delay": "2h30m"}, {"delay": 0}]
)
def test_a_message_is_rescheduled(asker: Asker, delivery: DelayedDelivery, when: dict[str, Any]) -> None:
    message_id = delivery.send("billing", b"pay", delay=3600, key="order 7")
    before = delivery.operations.now()
    answer = asker.ask({"reschedule": {"key": "order 7"}, **when})
    after = delivery.operations.now()
    due_time = datetime.fromisoformat(answer.pop("due_time"))
    assert answer == {"outcome": "done", "message_id": message_id}
    if "at" in when:
        assert due_time == LATER
    else:
        delay = timedelta(hours=2.5) if isinstance(when["delay"], str) else timedelta(seconds=when["delay"])
        assert before + delay <= due_time <= after + delay
    message = delivery.get(message_id)
    assert message is not None
    assert message.due_time == due_time


def test_a_due_time_is_moved(asker: Asker, delivery: DelayedDelivery) -> None:
    message_id = delivery.send("billing", b"pay", at=LATER, key="order 7")
    assert asker.ask({"reschedule": {"key": "order 7"}, "by": "1d"})["due_time"] == "2040-02-01T09:00:00+00:00"
    answer = asker.ask({"reschedule": message_id, "by": -86400, "time_zone": "Europe/Berlin"})
    assert answer == {"outcome": "done", "message_id": message_id, "due_time": LATER.isoformat()}
    about = delivery.operations.changes()[0].about
    assert about.startswith(f"message {message_id} by -1 day in Europe/Berlin from 2040-02-01 09:00:00Z to 2040-01-31")


def test_whoever_dispatches_in_this_process_is_told_of_a_new_due_time(
    delivery: DelayedDelivery, rabbitmq_url: str
) -> None:
    message_id, told = delivery.send("billing", b"pay", delay=3600), list[datetime]()
    with running(delivery, rabbitmq_url, on_rescheduled=told.append) as control, Asker(rabbitmq_url) as asker:
        wait_until(lambda: control.health().connected)
        asker.ask({"reschedule": message_id, "at": LATER.isoformat()})
        asker.ask({"reschedule": "nobody", "delay": 1})
        asker.ask({"cancel": message_id})
    assert told == [LATER]


def test_what_is_not_there_is_not_rescheduled(asker: Asker) -> None:
    answer = asker.ask({"reschedule": "nobody", "delay": 1})
    assert answer == {"outcome": "not_found", "message_id": None, "due_time": None}


def test_a_message_is_looked_up_as_the_json_api_shows_it(asker: Asker, delivery: DelayedDelivery) -> None:
    message_id = delivery.send(
        "billing", "zahle ünïcödé".encode(), at=LATER, headers={"raw": b"\xff"}, properties={"type": "Pay"}, key="k"
    )
    expected = {
        "message_id": message_id,
        "destination": "billing",
        "due_time": "2040-01-31T09:00:00+00:00",
        "next_attempt": None,
        "not_after": None,
        "failure_count": 0,
        "size": 17,
        "key": "k",
        "parked": False,
        "last_failure": None,
        "failures": [],
        "headers": {"raw": {"base64": "/w=="}},
        "properties": {"type": "Pay"},
        "body": "zahle ünïcödé",
    }
    for named in (message_id, {"key": "k"}):
        answer = asker.ask({"get": named})
        assert answer == {"outcome": "done", "message_id": message_id, "message": expected, "history": None}
    nothing = {"outcome": "not_found", "message_id": None, "message": None, "history": None}
    assert asker.ask({"get": "nobody"}) == nothing


def test_the_history_of_a_message_is_answered(prepared_postgresql_url: str, rabbitmq_url: str) -> None:
    with opened_delivery(prepared_postgresql_url) as delivery, Asker(rabbitmq_url) as asker:
        keep_history(prepared_postgresql_url)
        with running(delivery, rabbitmq_url) as control:
            wait_until(lambda: control.health().connected)
            for number in range(12):
                delivery.send("billing", b"pay", delay=3600, key="order 7", message_id=f"m-{number}")
                assert asker.ask({"cancel": f"m-{number}"}, app_id="till")["outcome"] == "done"
            answer = asker.ask({"get": "m-11"})
            (entry,) = answer.pop("history")
            assert answer == {"outcome": "not_found", "message_id": None, "message": None}
            assert (entry["message_id"], entry["outcome"], entry["key"]) == ("m-11", "cancelled", "order 7")
            assert entry["by"] == "application till, by the control queue"
            by_key = asker.ask({"get": {"key": "order 7"}})["history"]
            assert [each["message_id"] for each in by_key] == [f"m-{number}" for number in range(11, 1, -1)]
            waiting = asker.ask({"get": delivery.send("billing", b"pay", delay=3600)})
            assert (waiting["message"]["destination"], waiting["history"]) == ("billing", [])
            assert asker.ask({"get": "nobody"})["history"] == []


def test_a_history_that_cannot_be_read_hinders_no_change(
    delivery: DelayedDelivery, postgresql: PostgreSQLDatabases, prepared_postgresql_url: str, rabbitmq_url: str
) -> None:
    keep_history(prepared_postgresql_url)
    url = postgresql.create_role(role := f"writer_{token_hex(4)}", "secret", prepared_postgresql_url)
    with connected(prepared_postgresql_url) as connection:
        tables = "ALL TABLES IN SCHEMA public"
        connection.execute(text(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {tables} TO {role}"))
        connection.execute(text(f"REVOKE SELECT ON sales_delayed_history FROM {role}"))
    delivery.send("billing", b"pay", delay=3600, message_id="a")
    delivery.send("billing", b"pay", delay=3600, message_id="b")
    settings = DelayedDeliverySettings(automatic_setup=False)
    with (
        closing(DelayedDelivery(ENDPOINT, SqlDelayedMessageStore(url), settings=settings)) as other,
        running(other, rabbitmq_url) as control,
        Asker(rabbitmq_url) as asker,
    ):
        wait_until(lambda: control.health().connected)
        sent = [asker.send(request) for request in ({"cancel": "a"}, {"get": "b"}, {"get": "a"})]
        cancelled, waiting, gone = (asker.wait(each) for each in sent)
        assert cancelled["outcome"] == "done"
        assert (waiting["message"]["message_id"], waiting["history"]) == ("b", None)
        assert (gone["outcome"], gone["history"]) == ("not_found", None)
    assert [entry.ending for entry in delivery.history("a")] == ["cancelled"]


def keep_history(url: str) -> None:
    with opened(url) as store:
        store.keep_history(timedelta(days=30))


def test_bodies_may_be_hidden(delivery: DelayedDelivery, rabbitmq_url: str) -> None:
    message_id = delivery.send("billing", b"secret", delay=3600)
    with running(delivery, rabbitmq_url, with_bodies=False) as control, Asker(rabbitmq_url) as asker:
        wait_until(lambda: control.health().connected)
        shown = asker.ask({"get": message_id})["message"]
    assert shown["size"] == 6
    assert not {"body", "body_base64"} & shown.keys()


@pytest.mark.long
def test_many_large_messages_are_looked_up_a_few_at_a_time(asker: Asker, delivery: DelayedDelivery) -> None:
    ids = [delivery.send("billing", bytes(2 * 2**20), delay=3600) for _ in range(12)]
    sent = [asker.send({"get": message_id}) for message_id in ids]
    sizes = [len(asker.wait(each)["message"]["body"]) for each in sent]
    assert sizes == [2 * 2**20] * 12


@pytest.mark.long
def test_answers_that_nobody_takes_do_not_pile_up(delivery: DelayedDelivery, private_rabbitmq: RabbitMQ) -> None:
    url = private_rabbitmq.create_vhost()
    message_id = delivery.send("billing", b"x" * 2 * 2**20, delay=3600)
    with running(delivery, url) as control:
        wait_until(lambda: control.health().connected)
    with Asker(url) as asker:
        sent = [asker.send({"get": message_id}) for _ in range(24)]
        asker.channel.queue_declare(QUEUE, passive=True)  # they have come to the broker
        private_rabbitmq.alarm("memory")
        with running(delivery, url) as control:
            wait_until(lambda: control.health().replies is not None)
            time.sleep(8)
            assert control.health().requests <= 16
            private_rabbitmq.clear_alarms()
            assert {len(asker.wait(each)["message"]["body"]) for each in sent} == {2 * 2**20}


def test_a_body_that_no_answer_can_hold_is_left_out(asker: Asker, delivery: DelayedDelivery) -> None:
    message_id = delivery.send("billing", bytes(2 * 2**20 + 1), delay=3600)
    shown = asker.ask({"get": message_id})["message"]
    assert shown["size"] == 2 * 2**20 + 1
    assert not {"body", "body_base64"} & shown.keys()


def test_a_schedule_is_put_paused_skipped_triggered_and_deleted(asker: Asker, delivery: DelayedDelivery) -> None:
    done = {"outcome": "done", "schedule": "reports/weekly"}
    assert asker.ask({"put_schedule": WEEKLY}, app_id="desk") == {**done, "result": "created"}
    assert asker.ask({"put_schedule": WEEKLY}) == {**done, "result": "unchanged"}
    assert asker.ask({"put_schedule": {**WEEKLY, "json": {"n": 1}, "body": None}}) == {**done, "result": "changed"}
    first, second = delivery.schedules.upcoming("reports/weekly", 2)
    assert asker.ask({"skip_schedule": "reports/weekly", "at": first.isoformat()}) == done
    assert delivery.schedules.upcoming("reports/weekly", 1) == [second]
    late = (first + timedelta(seconds=1)).isoformat()
    assert asker.ask({"skip_schedule": "reports/weekly", "at": late})["error"]["code"] == "bad_time"
    for changed in (True, False):
        assert asker.ask({"pause_schedule": "reports/weekly"}) == {**done, "changed": changed}
    for changed in (True, False):
        assert asker.ask({"resume_schedule": "reports/weekly"}) == {**done, "changed": changed}
    answer = asker.ask({"trigger_schedule": "reports/weekly"})
    assert answer["outcome"] == "done"
    message = delivery.get(answer["message_id"])
    assert message is None or message.body == b'{"n":1}'  # a dispatcher may be faster
    assert asker.ask({"delete_schedule": "reports/weekly"}) == done
    assert asker.ask({"delete_schedule": "reports/weekly"}) == {**done, "outcome": "not_found"}
    assert asker.ask({"pause_schedule": "reports/weekly"}) == {**done, "outcome": "not_found"}
    noted = [(each.action, each.way, each.by) for each in reversed(delivery.operations.changes())]
    assert noted[0] == ("put", "control", "application desk, by the control queue")
    assert [action for action, _, _ in noted] == ["put", "put", "skip", "pause", "resume", "trigger", "delete"]


def test_requests_about_schedules_and_messages_are_done_in_their_order(asker: Asker, delivery: DelayedDelivery) -> None:
    requests = [
        {"cancel": "a"}, {"put_schedule": WEEKLY}, {"get": "a"}, {"ping": {}}, {"pause_schedule": WEEKLY["name"]},
        {"pause_schedule": WEEKLY["name"]}, {"skip_schedule": "none", "at": LATER.isoformat()}, {"cancel": "a"},
    ]  # fmt: skip
    answers = [asker.wait(each) for each in [asker.send(request) for request in requests * 20]]
    assert [each.get("changed") for each in answers[4:6]] == [True, False]
    assert [each["outcome"] for each in answers[:8]] == [
        "not_found", "done", "not_found", "done", "done", "done", "not_found", "not_found"
    ]  # fmt: skip
    assert {each["result"] for each in answers[9::8]} == {"unchanged"}
    found = delivery.schedules.get("reports/weekly")
    assert found is not None
    assert found.paused


def test_a_ping_says_what_is_known(asker: Asker, delivery: DelayedDelivery) -> None:
    answer = asker.ask({"ping": {}})
    now = datetime.fromisoformat(answer.pop("now"))
    assert abs(now - delivery.operations.now()) < timedelta(minutes=1)
    assert answer == {
        "outcome": "done",
        "endpoint": ENDPOINT,
        "versions": [1],
        "commands": COMMANDS,
    }


def test_what_a_dispatcher_has_is_left_to_it(asker: Asker, delivery: DelayedDelivery) -> None:
    message_id = delivery.send("billing", b"pay", delay=0, key="k")
    store: Any = delivery._store
    with store.transaction() as claiming:
        assert [each.message_id for each in claiming.fetch_due(store.now(), 10)] == [message_id]
        for request in ({"cancel": message_id}, {"cancel": {"key": "k"}}):
            assert asker.ask(request) == {"outcome": "being_dispatched", "message_id": message_id}
        answer = asker.ask({"reschedule": message_id, "delay": 9})
        assert answer == {"outcome": "being_dispatched", "message_id": message_id, "due_time": None}
        assert asker.ask({"get": message_id})["message"]["message_id"] == message_id
    assert delivery.get(message_id) is not None


def test_each_mistake_is_answered_and_named(asker: Asker, delivery: DelayedDelivery) -> None:
    message_id = delivery.send("billing", b"pay", delay=3600, message_id="a")
    sent = [(code, asker.send(request)) for request, code in MISTAKES]
    found = [(code, asker.wait(correlation)["error"]) for code, correlation in sent]
    assert [code for code, _ in found] == [error["code"] for _, error in found]
    assert all(0 < len(error["message"]) <= 310 for _, error in found)
    assert delivery.get(message_id) is not None
    assert asker.ask({"ping": {}})["outcome"] == "done"


def test_an_unknown_version_and_an_unknown_command_are_told_what_is_known(asker: Asker) -> None:
    assert asker.ask({"version": 9, "ping": {}})["error"]["known"] == [1]
    assert asker.ask({"destroy": "all"})["error"]["known"] == COMMANDS


def test_a_mistake_without_reply_to_is_put_aside_with_its_reason(
    asker: Asker, control: ControlQueue, rabbitmq_url: str
) -> None:
    user = pika.URLParameters(rabbitmq_url).credentials.username
    asker.send(b"nonsense", reply_to=None, user_id=user, expiration="100000", headers={"mine": 1})
    asker.send(b"more nonsense", reply_to="a queue that is not there")
    wait_until(lambda: control.health().rejected == 2)
    first, second = asker.bodies(REJECTED)
    assert [first[1], second[1]] == [b"nonsense", b"more nonsense"]
    assert "no JSON" in first[0].headers["delaystore.rejected-reason"]
    assert first[0].headers["mine"] == 1
    assert first[0].headers["delaystore.user-id"] == user
    assert first[0].expiration is None
    assert second[0].reply_to == "a queue that is not there"


def test_what_is_done_needs_no_answer(asker: Asker, control: ControlQueue, delivery: DelayedDelivery) -> None:
    quiet, gone = (delivery.send("billing", b"pay", delay=3600) for _ in range(2))
    asker.send({"cancel": quiet}, reply_to=None)
    asker.send({"cancel": gone}, reply_to="a queue that is not there")
    wait_until(lambda: control.health().requests == 2 and control.health().unanswered == 1)
    assert delivery.get(quiet) is delivery.get(gone) is None
    assert asker.bodies(REJECTED) == []
    assert control.health().healthy


def test_an_answer_goes_to_a_queue_by_name_or_by_address(asker: Asker) -> None:
    asker.channel.queue_declare("my answers")
    asker.send({"ping": {}}, reply_to="my answers", message_id="m1")
    asker.send({"ping": {}}, reply_to="/queues/my%20answers", message_id="m2")
    wait_until(lambda: asker.channel.queue_declare("my answers", passive=True).method.message_count == 2)
    found = asker.bodies("my answers")
    assert [json.loads(body)["outcome"] for _, body in found] == ["done", "done"]
    assert all(each.content_type == "application/json" and each.delivery_mode == 2 for each, _ in found)


def test_without_a_correlation_id_the_message_id_takes_its_place(asker: Asker) -> None:
    asker.channel.queue_declare("answers")
    given = pika.BasicProperties(reply_to="answers", message_id="request 7")
    asker.channel.basic_publish("", QUEUE, b'{"ping":{}}', given)
    wait_until(lambda: asker.channel.queue_declare("answers", passive=True).method.message_count == 1)
    ((properties, _),) = asker.bodies("answers")
    assert properties.correlation_id == "request 7"
    assert properties.message_id != "request 7"


def test_an_answer_that_comes_back_as_a_request_ends_there(asker: Asker, control: ControlQueue) -> None:
    asker.send({"ping": {}}, reply_to=QUEUE)
    wait_until(lambda: control.health().rejected == 1)
    ((_, body),) = asker.bodies(REJECTED)
    assert json.loads(body)["endpoint"] == ENDPOINT


@pytest.mark.parametrize("where", ["/exchanges/nowhere/key", "/exchanges/", "/nonsense", "x" * 255, "\n"])
def test_an_answer_that_leads_nowhere_harms_no_other(asker: Asker, control: ControlQueue, where: str) -> None:
    sent = []
    for number in range(20):
        sent.append(asker.send({"ping": {}}))
        if number % 5 == 2:
            asker.send({"ping": {}}, reply_to=where)
    assert {asker.wait(each)["outcome"] for each in sent} == {"done"}
    wait_until(lambda: control.health().unanswered == 4)
    assert control.health().healthy


@pytest.mark.long
def test_a_full_queue_of_answers_holds_nobody_up(asker: Asker, control: ControlQueue) -> None:
    asker.channel.queue_declare("full", arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    asker.channel.basic_publish("", "full", b"in the way")
    asker.send({"ping": {}}, reply_to="full")
    for _ in range(3):
        assert asker.ask({"ping": {}})["outcome"] == "done"
    wait_until(lambda: control.health().unanswered == 1)


def test_changes_are_noted_with_who_made_them(asker: Asker, delivery: DelayedDelivery, rabbitmq_url: str) -> None:
    user = pika.URLParameters(rabbitmq_url).credentials.username
    for number in range(4):
        delivery.send("billing", b"pay", delay=3600, message_id=f"m{number}")
    asker.ask({"cancel": "m0"}, user_id=user, app_id="shop")
    asker.ask({"reschedule": "m1", "at": LATER.isoformat()}, app_id="sh\nop")
    asker.ask({"cancel": "m2"})
    asker.ask({"get": "m3"}, app_id="shop")
    asker.ask({"cancel": "not there"}, app_id="shop")
    changes = [(each.by, each.action, each.message_id, each.new_due_time) for each in delivery.operations.changes()]
    assert changes == [
        ("an unknown sender, by the control queue", "cancel", "m2", None),
        ("application sh?op, by the control queue", "reschedule", "m1", LATER),
        (f"{user}, by the control queue", "cancel", "m0", None),
    ]
    assert {(each.way, each.count) for each in delivery.operations.changes()} == {("control", 1)}


@pytest.fixture
def limited(
    delivery: DelayedDelivery, postgresql: PostgreSQLDatabases, prepared_postgresql_url: str
) -> Iterator[DelayedDelivery]:
    """The same endpoint, for a role that may delete nothing."""
    role = f"reader_{token_hex(4)}"
    url = postgresql.create_role(role, "secret", prepared_postgresql_url)
    with connected(prepared_postgresql_url) as connection:
        connection.execute(text(f"GRANT SELECT, UPDATE ON ALL TABLES IN SCHEMA public TO {role}"))
    settings = DelayedDeliverySettings(automatic_setup=False)
    with closing(DelayedDelivery(ENDPOINT, SqlDelayedMessageStore(url), settings=settings)) as limited:
        yield limited


def test_what_the_store_refuses_is_answered_and_the_rest_is_done(
    delivery: DelayedDelivery, limited: DelayedDelivery, rabbitmq_url: str
) -> None:
    for number in range(6):
        delivery.send("billing", b"pay", delay=3600, message_id=f"m{number}")
    commands = ["get", "cancel", "get", "get", "cancel", "get"]
    with Asker(rabbitmq_url) as asker:
        with running(delivery, rabbitmq_url) as control:
            wait_until(lambda: control.health().connected)
        sent = [asker.send({command: f"m{number}"}) for number, command in enumerate(commands)]
        with running(limited, rabbitmq_url) as control:
            answers = [asker.wait(each) for each in sent]
            assert control.health().healthy
    codes = [answer["error"]["code"] if "error" in answer else answer["outcome"] for answer in answers]
    assert codes == ["done", "refused", "done", "done", "refused", "done"]
    assert "permission" in answers[1]["error"]["message"]
    assert delivery.count() == 6


class Unconfirmed(SqlDelayedMessageStore):
    """Its standby is gone: it commits, and says twice that nobody knows whether that lasts."""

    left = 2

    @override
    @contextmanager
    def transaction(self) -> Iterator[BoundSqlStore]:
        with super().transaction() as bound:
            yield bound
        if self.left:
            self.left -= 1
            raise DurabilityUnknownError("the standby did not answer")


def test_what_may_be_lost_yet_is_done_again(postgresql_url: str, rabbitmq_url: str) -> None:
    store = Unconfirmed(postgresql_url)
    with (
        closing(DelayedDelivery(ENDPOINT, store)) as delivery,
        running(delivery, rabbitmq_url) as control,
        Asker(rabbitmq_url) as asker,
    ):
        wait_until(lambda: control.health().connected)
        message_id = delivery.send("billing", b"pay", delay=3600)
        assert asker.ask({"reschedule": message_id, "at": LATER.isoformat()})["outcome"] == "done"
        assert not store.left


def test_who_may_write_to_the_exchange_alone_may_ask_and_is_answered(
    asker: Asker, rabbitmq: Any, rabbitmq_url: str
) -> None:
    with rabbitmq.user(rabbitmq_url, write=r"^sales\.control$") as url, Asker(url, QUEUE, "") as other:
        assert other.ask({"ping": {}})["outcome"] == "done"
        with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="ACCESS_REFUSED"):
            other.channel.basic_publish("", "billing", b"forged")
            other.channel.queue_declare(QUEUE, passive=True)


def test_a_user_with_few_rights_reads_what_others_have_declared(
    delivery: DelayedDelivery, control: ControlQueue, rabbitmq: Any, rabbitmq_url: str
) -> None:
    wait_until(lambda: control.health().connected)
    control.stop()
    with (
        rabbitmq.user(rabbitmq_url, write=r"^amq\.default$", read=r"^sales\.control$") as url,
        running(delivery, url) as other,
        Asker(rabbitmq_url) as asker,
    ):
        wait_until(lambda: other.health().connected)
        assert asker.ask({"ping": {}})["outcome"] == "done"


def test_a_user_who_may_not_read_is_told_why(delivery: DelayedDelivery, rabbitmq: Any, rabbitmq_url: str) -> None:
    with rabbitmq.user(rabbitmq_url) as url, running(delivery, url) as control:
        wait_until(lambda: control.health().obstacle is not None)
        (problem,) = control.health().problems
        assert "ACCESS_REFUSED" in problem
        assert "grant permission" in problem


def test_the_queue_of_another_kind_is_read_as_well(delivery: DelayedDelivery, rabbitmq_url: str) -> None:
    with Asker(rabbitmq_url, "", "commands") as asker:
        asker.channel.queue_declare("commands")
        with running(delivery, rabbitmq_url, queue="commands") as control:
            wait_until(lambda: control.health().connected)
            assert control.queue == "commands"
            assert asker.ask({"ping": {}})["outcome"] == "done"


def test_two_read_one_queue(delivery: DelayedDelivery, rabbitmq_url: str) -> None:
    ids = [delivery.send("billing", b"pay", delay=3600) for _ in range(400)]
    with (
        running(delivery, rabbitmq_url) as first,
        running(delivery, rabbitmq_url) as second,
        Asker(rabbitmq_url) as asker,
    ):
        wait_until(lambda: first.health().connected and second.health().connected)
        sent = [asker.send({"cancel": message_id}) for message_id in ids]
        assert {asker.wait(each)["outcome"] for each in sent} == {"done"}
        assert first.health().requests + second.health().requests == 400
        assert min(first.health().requests, second.health().requests) > 0
    assert delivery.count() == 0
    assert sum(change.count for change in delivery.operations.changes(1000)) == 400


def test_it_reads_again_after_it_was_stopped(delivery: DelayedDelivery, rabbitmq_url: str) -> None:
    control = ControlQueue(delivery.operations, transport := RabbitMQTransport(rabbitmq_url))
    assert control.stop()
    for _ in range(2):
        with reading(control), Asker(rabbitmq_url) as asker:
            wait_until(lambda: control.health().connected)
            assert asker.ask({"ping": {}})["outcome"] == "done"
        assert control.health().problems == ["the control queue 'sales.control' is not read by this process"]
    transport.close()


def test_the_health_is_a_document(asker: Asker, control: ControlQueue) -> None:
    asker.ask({"ping": {}})
    wait_until(lambda: control.health().answered == 1)
    assert control.health().as_dict() == {
        "healthy": True,
        "problems": [],
        "queue": QUEUE,
        "running": True,
        "connected": True,
        "obstacle": None,
        "store": None,
        "replies": None,
        "requests": 1,
        "answered": 1,
        "unanswered": 0,
        "rejected": 0,
        "breakers": {"control": "disarmed", "control_store": "disarmed"},
    }


def test_it_takes_rabbitmq(delivery: DelayedDelivery) -> None:
    with pytest.raises(ConfigurationError, match="RabbitMQTransport"):
        ControlQueue(delivery.operations, InMemoryTransport())


@pytest.mark.parametrize("name", ["", " ", "x" * 250, "amq.mine", "/queues/x", "a\nb"])
def test_a_name_that_no_queue_can_have_is_refused(delivery: DelayedDelivery, name: str) -> None:
    with pytest.raises(ConfigurationError, match="control queue"):
        ControlQueue(delivery.operations, RabbitMQTransport("amqp://127.0.0.1"), queue=name)
