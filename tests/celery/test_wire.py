"""What comes out of the store is, on the wire, what Celery publishes, without the eta."""

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
from celery import Celery
from kombu import Exchange, Queue
from kombu.common import Broadcast

from delaystore import DelayedDelivery
from delaystore.errors import UnsupportedMessageError
from delaystore.integrations.celery import DelayedTasks
from delaystore.stores import InMemoryDelayedMessageStore
from delaystore.transports import open_transport
from tests.celery.apps import make_app
from tests.dispatching import wait_until

CALLS: dict[str, dict[str, Any]] = {
    "plain": {},
    "priority, transient": {"priority": 7, "delivery_mode": "transient"},
    "pickle, compressed": {"serializer": "pickle", "compression": "zlib"},
    "own headers": {"headers": {"tenant": "blue", "nested": {"list": [1, -(2**40), None, True]}}, "shadow": "shown"},
    "link and errback": {"link": "note", "link_error": "note"},
    "another exchange": {"exchange": "orders", "routing_key": "orders.paid"},
    "another queue": {"queue": "plain"},
    "fanout": {"queue": "all"},
    "topic": {"queue": "topic"},
    "stamped": {"stamped_headers": ["batch"], "batch": "b-1"},
    "limits": {"time_limit": 30, "soft_time_limit": 20},
}


@contextmanager
def shop(url: str) -> Iterator[Celery]:
    with make_app(url, None) as app:
        app.conf.task_queues = [
            *app.conf.task_queues,
            Queue("paid", Exchange("orders", type="direct"), routing_key="orders.paid"),
            Queue("plain"),
            Queue("topic", Exchange("topics", type="topic"), routing_key="a.b"),
            Broadcast("all", queue="all", auto_delete=False, unique=False),
        ]
        with app.connection_for_write() as connection:
            for queue in app.amqp.queues.values():
                queue(connection.default_channel).declare()
        yield app


def arrived(app: Celery) -> dict[str, Any]:
    """The one message of all queues, taken out, as it is on the wire."""
    with app.connection_for_read() as connection:
        channel = connection.channel()
        channel.auto_decode = False
        for name in ("work", "paid", "plain", "topic", "all"):
            message = channel.basic_get(name, no_ack=True)
            if message is not None:
                properties = dict(message.properties)
                return {
                    "queue": name,
                    "exchange": message.delivery_info["exchange"],
                    "routing_key": message.delivery_info["routing_key"],
                    "body": message.body,
                    "headers": properties.pop("application_headers"),
                    "properties": properties,
                }
    return {}


def next_arrived(app: Celery) -> dict[str, Any]:
    found: list[dict[str, Any]] = []
    wait_until(lambda: found.append(arrived(app)) or found[-1])
    return found[-1]


@pytest.mark.long
def test_a_message_of_the_store_is_celery_s_own(rabbitmq_url: str) -> None:
    with (
        shop(rabbitmq_url) as app,
        DelayedDelivery("tasks", InMemoryDelayedMessageStore(), open_transport(rabbitmq_url)) as delivery,
    ):
        for call, given in CALLS.items():
            options = {
                name: app.signature(value) if name.startswith("link") else value for name, value in given.items()
            }
            send = {"task_id": f"id-{len(call)}", "reply_to": "replies", **options}
            app.send_task("note", ("hällo",), {"number": 1}, **send)
            theirs = next_arrived(app)
            tasks = DelayedTasks(app, delivery, threshold=0)
            app.send_task("note", ("hällo",), {"number": 1}, countdown=0.1, **send)
            tasks.uninstall()
            ours = next_arrived(app)
            assert ours["headers"].pop("delayed_until"), call
            assert ours["properties"].pop("message_id") == send["task_id"], call
            assert ours == theirs, call


def test_a_stored_task_s_queue_is_declared_and_its_event_tells_the_eta(
    rabbitmq_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        make_app(rabbitmq_url, None) as app,
        DelayedDelivery("tasks", InMemoryDelayedMessageStore()) as delivery,
        app.connection_for_read() as connection,
    ):
        DelayedTasks(app, delivery)
        channel = connection.channel()
        channel.queue_declare("other", arguments={"x-max-length": 3}, auto_delete=False)
        channel.queue_declare("events", exclusive=True)
        channel.exchange_declare("celeryev", "topic", durable=True, auto_delete=False)
        channel.queue_bind("events", "celeryev", "task.sent")
        result = app.send_task("note", countdown=3600)
        assert channel.queue_declare("work", passive=True).message_count == 0
        events: list[Any] = []
        wait_until(lambda: events.append(channel.basic_get("events", no_ack=True)) or events[-1])
        event = json.loads(events[-1].body)
        stored = delivery.get(result.id)
        assert stored is not None
        assert (event["uuid"], event["eta"]) == (result.id, stored.headers["delayed_until"])
        app.send_task("note", countdown=3600, queue="other")
        assert delivery.count() == 2
    assert "cannot declare the queue other of a stored task" in caplog.text


@pytest.mark.parametrize(
    ("expires", "left"),
    [
        ({"expires": 100.0}, 40_000),
        ({"expires": 30.0}, None),  # it expires before it is due: the worker says so
        ({"expires": 10_000_000.0}, None),  # more than RabbitMQ knows
        ({"expiration": 5}, 5_000),  # a time in the queue
        ({}, None),
    ],
)
def test_a_time_to_live_counts_from_the_due_time(expires: dict[str, float], left: int | None) -> None:
    delivery = DelayedDelivery("tasks", InMemoryDelayedMessageStore())
    with make_app("amqp://127.0.0.1:1", None) as app:
        app.conf.task_send_sent_event = False  # it would be tried for a while
        DelayedTasks(app, delivery)
        app.send_task("note", countdown=61, task_id="x", **expires)
    message = delivery.get("x")
    assert message is not None
    expiration = message.properties.get("expiration")
    assert expiration is None if left is None else int(expiration or 0) == pytest.approx(left, abs=1500)
    assert (message.headers["expires"] is not None) == ("expires" in expires)
    delivery.close()


def test_floats_are_refused_but_for_time_limits() -> None:
    """pika writes none."""
    delivery = DelayedDelivery("tasks", InMemoryDelayedMessageStore())
    with make_app("amqp://127.0.0.1:1", None) as app:
        app.conf.task_send_sent_event = False  # it would be tried for a while
        DelayedTasks(app, delivery)
        app.send_task("note", countdown=61, task_id="x", soft_time_limit=1.5, headers={"whole": 2.0})
        with pytest.raises(UnsupportedMessageError, match=r"holds 2\.5"):
            app.send_task("note", countdown=61, headers={"part": 2.5})
    message = delivery.get("x")
    assert message is not None
    assert (message.headers["timelimit"], message.headers["whole"]) == ([None, 2], 2)
    delivery.close()


def test_a_queue_whose_name_looks_like_an_address() -> None:
    delivery = DelayedDelivery("tasks", InMemoryDelayedMessageStore())
    with make_app("amqp://127.0.0.1:1", None) as app, closing(delivery):
        app.conf.task_send_sent_event = False
        DelayedTasks(app, delivery)
        app.send_task("note", countdown=61, task_id="x", queue="/odd")
        found = delivery.get("x")
    assert found is not None
    assert found.destination == "/queues/%2Fodd"
