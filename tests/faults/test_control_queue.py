"""A control queue, its store and its broker are killed: no request is lost, and none is done twice."""

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pika
import pytest

from delaystore.delivery import DelayedDelivery
from delaystore.transports.rabbitmq import consuming
from tests.dispatching import wait_until
from tests.faults.patience import PATIENCE
from tests.faults.scale import scaled
from tests.integration.asking import QUEUE, Asker, opened_delivery, running
from tests.preloaded.forked import ForkedModule
from tests.servers import PostgreSQL, RabbitMQ

ROOT = Path(__file__).parents[2]
ANSWERS = "answers"
REJECTED = f"{QUEUE}.rejected"
KILLS = scaled(3, 30)


@pytest.fixture
def delivery(postgresql_url: str) -> Iterator[DelayedDelivery]:
    with opened_delivery(postgresql_url) as delivery:
        yield delivery


@contextmanager
def process(store: str, broker: str, linger: float = 0) -> Iterator[subprocess.Popen[str]]:
    arguments = [store, broker, str(linger)]
    child = ForkedModule("tests.faults.control_process", arguments, stdout=subprocess.PIPE, text=True)
    try:
        yield child
    finally:
        child.kill()
        child.wait(PATIENCE)
        assert child.stdout is not None
        child.stdout.close()


def says_answered(child: subprocess.Popen[str]) -> None:
    assert child.stdout is not None
    assert child.stdout.readline() == "answered\n"


def declare(asker: Asker) -> None:
    """The queues, as both sides know them, before there is a reader."""
    asker.channel.queue_declare(ANSWERS, durable=True)


def answered(asker: Asker) -> list[tuple[str, Any]]:
    """What has been answered to ANSWERS, by correlation_id, in order."""
    return [(properties.correlation_id, json.loads(body)) for properties, body in asker.bodies(ANSWERS)]


def test_killed_between_answer_and_acknowledgement_it_answers_again(
    delivery: DelayedDelivery, postgresql_url: str, rabbitmq_url: str
) -> None:
    kept = delivery.send("billing", b"pay", delay=3600)
    message_id = delivery.send("billing", b"pay", delay=3600)
    with Asker(rabbitmq_url) as asker:
        declare(asker)
        with process(postgresql_url, rabbitmq_url, linger=PATIENCE) as child:
            wait_until(lambda: has_queue(rabbitmq_url))
            correlation = asker.send({"cancel": message_id}, ANSWERS)
            says_answered(child)
            child.kill()
            assert answered(asker) == [(correlation, {"version": 1, "outcome": "done", "message_id": message_id})]
        with running(delivery, rabbitmq_url) as control:
            wait_until(lambda: control.health().answered == 1)
            assert answered(asker) == [(correlation, {"version": 1, "outcome": "not_found", "message_id": None})]
        with Asker(rabbitmq_url) as after:
            assert after.bodies(QUEUE) == []
    assert [change.message_id for change in delivery.operations.changes()] == [message_id]
    assert delivery.get(kept) is not None


def has_queue(url: str) -> bool:
    with Asker(url) as asker:
        try:
            asker.channel.queue_declare(QUEUE, passive=True)
        except pika.exceptions.ChannelClosedByBroker:
            return False
        return True


@pytest.mark.long
def test_killed_again_and_again_it_loses_no_request_and_cancels_each_once(
    delivery: DelayedDelivery, postgresql_url: str, rabbitmq_url: str
) -> None:
    count = 1000
    ids = [delivery.send("billing", b"pay", delay=3600) for _ in range(count)]
    with Asker(rabbitmq_url) as asker:
        declare(asker)
        with running(delivery, rabbitmq_url) as control:
            wait_until(lambda: control.health().connected)
        sent = {asker.send({"cancel": message_id}, ANSWERS): message_id for message_id in ids}
        for number in range(KILLS):
            with process(postgresql_url, rabbitmq_url, linger=0.01) as child:
                says_answered(child)
                time.sleep(0.002 * number)
                child.kill()
        answers: list[tuple[str, Any]] = []

        def all_are_answered() -> bool:
            answers.extend(answered(asker))
            return {correlation for correlation, _ in answers} == set(sent)

        with running(delivery, rabbitmq_url):
            wait_until(all_are_answered)
        answers += answered(asker)
        assert ready_in(asker, QUEUE) == 0
    done = [sent[correlation] for correlation, answer in answers if answer["outcome"] == "done"]
    assert len(done) == len(set(done))
    repeated = len(answers) - count
    missing = count - len(done)  # done, and killed before the answer: what came then was not_found
    assert missing <= KILLS * 500
    assert repeated <= KILLS * 500
    assert delivery.count() == 0


def ready_in(asker: Asker, queue: str) -> int:
    count: int = asker.channel.queue_declare(queue, passive=True).method.message_count
    return count


@pytest.mark.long
def test_while_the_store_is_down_requests_wait(private_postgresql: PostgreSQL, rabbitmq_url: str) -> None:
    url = private_postgresql.create_database()
    with opened_delivery(url) as delivery, running(delivery, rabbitmq_url) as control, Asker(rabbitmq_url) as asker:
        message_id = delivery.send("billing", b"pay", delay=3600)
        wait_until(lambda: control.health().connected)
        assert asker.ask({"get": message_id})["outcome"] == "done"
        private_postgresql.kill()
        sent = [asker.send({"cancel": message_id}), *(asker.send({"get": str(number)}) for number in range(1500))]
        wait_until(lambda: control.health().store is not None)
        assert any("nothing that is asked is done" in problem for problem in control.health().problems)
        assert not asker.answers
        private_postgresql.start()
        outcomes = [asker.wait(correlation)["outcome"] for correlation in sent]
        assert outcomes == ["done"] + ["not_found"] * 1500
        assert control.health().healthy


@pytest.mark.long
def test_while_the_store_is_down_heartbeats_are_answered_although_memory_is_full(
    private_postgresql: PostgreSQL, rabbitmq_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consuming, "_HEARTBEAT", 1)
    monkeypatch.setattr(consuming, "_LONGEST_UNREAD", 0.2)
    url = private_postgresql.create_database()
    with opened_delivery(url) as delivery, running(delivery, rabbitmq_url) as control, Asker(rabbitmq_url) as asker:
        message_id = delivery.send("billing", b"pay", delay=3600)
        wait_until(lambda: control.health().connected)
        private_postgresql.kill()
        cancel = asker.send({"cancel": message_id})
        wait_until(lambda: control.health().store is not None)
        large = [asker.send(b" " * 2**21) for _ in range(20)]
        wait_until(lambda: ready_in(asker, QUEUE) == 0)
        for _ in range(50):  # a broker that hears nothing ends the connection after some two seconds
            time.sleep(0.1)
            assert ready_in(asker, QUEUE) == 0
        private_postgresql.start()
        assert asker.wait(cancel)["outcome"] == "done"
        assert {asker.wait(correlation)["error"]["code"] for correlation in large} == {"malformed"}
        wait_until(lambda: control.health().answered == 21)
        assert control.health().requests == 21, "none came twice"


def test_stopped_while_the_store_is_down_it_leaves_requests_in_the_queue(
    private_postgresql: PostgreSQL, rabbitmq_url: str
) -> None:
    with opened_delivery(private_postgresql.create_database()) as delivery, Asker(rabbitmq_url) as asker:
        with running(delivery, rabbitmq_url) as control:
            wait_until(lambda: control.health().connected)
            private_postgresql.kill()
            sent = [asker.send({"ping": {}}) for _ in range(3)]
            wait_until(lambda: control.health().store is not None)
        assert ready_in(asker, QUEUE) == 3
        private_postgresql.start()
        with running(delivery, rabbitmq_url):
            assert {asker.wait(correlation)["outcome"] for correlation in sent} == {"done"}


@pytest.mark.long
def test_it_reads_on_when_the_broker_is_back(delivery: DelayedDelivery, private_rabbitmq: RabbitMQ) -> None:
    url = private_rabbitmq.create_vhost()
    with running(delivery, url) as control:
        wait_until(lambda: control.health().connected)
        with Asker(url) as asker:
            assert asker.ask({"ping": {}})["outcome"] == "done"
        private_rabbitmq.sync_queues()
        private_rabbitmq.kill()
        wait_until(lambda: control.health().obstacle is not None)
        assert not control.health().healthy
        private_rabbitmq.start()
        wait_until(lambda: control.health().healthy)
        with Asker(url) as asker:
            assert asker.ask({"ping": {}})["outcome"] == "done"


@pytest.mark.long
def test_a_channel_that_the_broker_ends_while_the_store_is_down_is_told_and_replaced(
    private_postgresql: PostgreSQL, private_rabbitmq: RabbitMQ
) -> None:
    url = private_rabbitmq.create_vhost()
    with (
        private_rabbitmq.consumer_timeout(1),
        opened_delivery(private_postgresql.create_database()) as delivery,
        running(delivery, url) as control,
        Asker(url) as asker,
    ):
        message_id = delivery.send("billing", b"pay", delay=3600)
        wait_until(lambda: control.health().connected)
        private_postgresql.kill()
        correlation = asker.send({"cancel": message_id})
        wait_until(lambda: "delivery acknowledgement" in str(control.health().obstacle))
        wait_until(lambda: control.health().connected)
        private_postgresql.start()
        assert asker.wait(correlation)["outcome"] == "done"


@pytest.mark.long
def test_it_begins_before_there_is_a_broker(delivery: DelayedDelivery, private_rabbitmq: RabbitMQ) -> None:
    url = private_rabbitmq.create_vhost()
    private_rabbitmq.sync_queues()
    private_rabbitmq.kill()
    with running(delivery, url) as control:
        wait_until(lambda: control.health().obstacle is not None)
        private_rabbitmq.start()
        wait_until(lambda: control.health().connected)
        with Asker(url) as asker:
            assert asker.ask({"ping": {}})["outcome"] == "done"


def test_what_is_deleted_is_declared_again(delivery: DelayedDelivery, rabbitmq_url: str) -> None:
    with running(delivery, rabbitmq_url) as control, Asker(rabbitmq_url) as asker:
        wait_until(lambda: control.health().connected)
        for name in (QUEUE, REJECTED):
            asker.channel.queue_delete(name)
        asker.channel.exchange_delete(QUEUE)
        wait_until(lambda: not control.health().connected)
        wait_until(lambda: control.health().connected)
        with Asker(rabbitmq_url, QUEUE, "any key") as other:
            assert other.ask({"ping": {}})["outcome"] == "done"


def test_the_rejected_queue_is_declared_again_when_it_is_needed(delivery: DelayedDelivery, rabbitmq_url: str) -> None:
    message_id = delivery.send("billing", b"pay", delay=3600)
    with running(delivery, rabbitmq_url) as control, Asker(rabbitmq_url) as asker:
        wait_until(lambda: control.health().connected)
        asker.channel.queue_delete(REJECTED)
        asker.send(b"nonsense", reply_to=None)
        assert asker.ask({"cancel": message_id})["outcome"] == "done"
        wait_until(lambda: control.health().rejected == 1)
        wait_until(lambda: control.health().healthy)
        assert [body for _, body in asker.bodies(REJECTED)] == [b"nonsense"]


def test_a_rejected_request_waits_until_the_rejected_queue_takes_it(
    delivery: DelayedDelivery, rabbitmq_url: str
) -> None:
    with Asker(rabbitmq_url) as asker:
        full = {"x-max-length": 1, "x-overflow": "reject-publish"}
        asker.channel.queue_declare(REJECTED, durable=True, arguments=full)
        asker.channel.basic_publish("", REJECTED, b"in the way")
        with running(delivery, rabbitmq_url) as control:
            wait_until(lambda: control.health().connected)
            asker.send(b"nonsense", reply_to=None)
            wait_until(lambda: control.health().replies is not None)
            assert asker.ask({"ping": {}})["outcome"] == "done"
            assert REJECTED in " ".join(control.health().problems)
            assert [body for _, body in asker.bodies(REJECTED)] == [b"in the way"]
            wait_until(lambda: control.health().rejected == 1)
            assert control.health().healthy
        assert [body for _, body in asker.bodies(REJECTED)] == [b"nonsense"]


@pytest.mark.long
def test_it_begins_although_the_rejected_queue_answers_nothing(
    delivery: DelayedDelivery, private_rabbitmq: RabbitMQ
) -> None:
    url = private_rabbitmq.create_vhost()
    with Asker(url) as asker:
        asker.channel.queue_declare(REJECTED, durable=True)  # a classic one, whose process answers all who ask about it
        private_rabbitmq.suspend_queue(url, REJECTED)
        with running(delivery, url) as control:
            wait_until(lambda: control.health().connected)
            assert asker.ask({"ping": {}})["outcome"] == "done"
            private_rabbitmq.resume_queue(url, REJECTED)
