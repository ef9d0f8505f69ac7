"""Tasks that wait in a queue with an eta move into the store: none lost, none twice, whoever is killed."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import pytest
from amqp import Message
from celery import Celery
from click.testing import CliRunner

from delaystore import DelayedDelivery, SqlDelayedMessageStore
from delaystore.errors import ConfigurationError, TransportSetupError, TransportUnavailableError
from delaystore.integrations.celery import DelayedTasks, Drained, drain
from delaystore.integrations.celery.command import delaystore as command
from delaystore.transports import open_transport
from tests.celery.apps import make_app
from tests.celery.workers import CELERY, ROOT, celery, runs_of, settings, worker
from tests.dispatching import wait_until
from tests.servers import RabbitMQVhosts

HOUR = 3600.0


@pytest.fixture
def delivery(sqlite_url: str) -> Iterator[DelayedDelivery]:
    with DelayedDelivery("tasks", SqlDelayedMessageStore(sqlite_url)) as delivery:
        yield delivery


@pytest.fixture(params=["classic", "quorum"])
def app(request: pytest.FixtureRequest, rabbitmq: RabbitMQVhosts, rabbitmq_url: str) -> Iterator[Celery]:
    """It sends as Celery does, and drains into the store."""
    lift_limits(rabbitmq, rabbitmq_url)
    with make_app(rabbitmq_url, None, quorum=request.param == "quorum") as app:
        yield app


def lift_limits(rabbitmq: RabbitMQVhosts, url: str) -> None:
    """As drain's refusal advises for the quorum queues of RabbitMQ 4, whose delivery limit is 20 by default."""
    policy = {"pattern": ".*", "definition": {"delivery-limit": 100_000}, "apply-to": "queues"}
    vhost = quote(rabbitmq.vhost_name(url), safe="")
    rabbitmq.request("PUT", f"/api/policies/{vhost}/lifted", policy)


def send(app: Celery, task_id: str, **options: Any) -> None:
    """Publish to the queue itself, as apps without native delays do."""
    due = {name: options.pop(name) for name in ("countdown", "eta") if name in options}
    eta = due.get("eta") or (due and datetime.now(UTC) + timedelta(seconds=due["countdown"])) or None
    headers = {"eta": eta.isoformat()} if eta else {}
    app.send_task("note", (task_id,), task_id=task_id, headers=headers, **options)


def in_queue(app: Celery, queue: str = "work") -> list[str]:
    """The ids of the tasks that are ready, in order; they stay there."""
    with app.connection_for_read() as connection:
        channel = connection.channel()
        ids: list[str] = []
        while message := channel.basic_get(queue):
            ids.append(message.headers["id"])
        channel.close()
    return ids


def sent(app: Celery, count: int, queue: str = "work") -> None:
    """Wait until so many messages are ready: what a channel gives back comes later than the end of the channel."""
    with app.connection_for_read() as connection:
        channel = connection.channel()
        wait_until(lambda: channel.queue_declare(queue, passive=True).message_count == count)


def test_what_is_due_later_moves_and_the_rest_keeps_its_order(
    app: Celery, delivery: DelayedDelivery, rabbitmq: RabbitMQVhosts
) -> None:
    DelayedTasks(app, delivery)
    eta = datetime.now(UTC) + timedelta(hours=2)
    send(app, "first")
    send(app, "later", eta=eta, expires=10_000, priority=3)
    send(app, "soon", countdown=30)
    send(app, "second")
    for number in range(3):
        send(app, f"hour {number}", countdown=HOUR)
    send(app, "third")
    sent(app, 8)
    assert drain(app, "work", management=rabbitmq.management_url, dry_run=True) == Drained(stored=4, left=4)
    assert (len(in_queue(app)), delivery.count()) == (8, 0)
    seen: list[tuple[int, int]] = []
    assert drain(
        app, "work", management=rabbitmq.management_url, on_progress=lambda *each: seen.append(each)
    ) == Drained(stored=4, left=4)
    assert seen[-1] == (8, 8)
    assert in_queue(app) == ["first", "soon", "second", "third"]
    message = delivery.get("later")
    assert message is not None
    assert (message.destination, message.due_time) == ("work", eta)
    assert (message.headers["eta"], message.headers["delayed_until"]) == (None, eta.isoformat())
    assert message.properties["correlation_id"] == "later"
    assert int(message.properties["expiration"]) == pytest.approx((10_000 - 7200) * 1000, abs=60_000)
    assert drain(app, "work", management=rabbitmq.management_url, threshold=10) == Drained(stored=1, left=3)
    assert "x-delivery-count" not in message.headers


def test_what_waits_already_is_taken_out_and_another_task_of_its_id_is_not(
    app: Celery, delivery: DelayedDelivery, rabbitmq: RabbitMQVhosts
) -> None:
    DelayedTasks(app, delivery)
    eta = datetime.now(UTC) + timedelta(hours=1)
    for _ in range(2):
        send(app, "twice", eta=eta)
    send(app, "other", eta=eta)
    app.send_task("note", ("another",), task_id="other", countdown=HOUR)
    sent(app, 3)
    assert drain(app, "work", management=rabbitmq.management_url) == Drained(stored=1, known=1, left=1, conflicting=1)
    assert in_queue(app) == ["other"]
    assert delivery.count() == 2


def test_a_quorum_queue_has_nothing_again_that_was_acknowledged_last(
    rabbitmq: RabbitMQVhosts, rabbitmq_url: str, delivery: DelayedDelivery
) -> None:
    """Its broker keeps all but the first 32 of many acknowledgements for a while, and forgets them with the channel."""
    lift_limits(rabbitmq, rabbitmq_url)
    with make_app(rabbitmq_url, None) as app:
        DelayedTasks(app, delivery)
        declare(app, "many", {"x-queue-type": "quorum"})
        eta = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
        for batch in range(5):
            publish(app, "many", *(f"{batch} {number}" for number in range(60)), eta=eta)
            assert drain(app, "many", management=rabbitmq.management_url) == Drained(stored=60)
        time.sleep(0.5)  # what is given back comes late
        assert in_queue(app, "many") == []


@pytest.mark.parametrize("way", ["argument", "policy"])
def test_a_queue_with_a_delivery_limit_is_refused_before_a_message_is_read(
    rabbitmq: RabbitMQVhosts, rabbitmq_url: str, delivery: DelayedDelivery, way: str
) -> None:
    """Drain gives back what stays, and RabbitMQ drops what was given back too often."""
    with make_app(rabbitmq_url, None) as app:
        DelayedTasks(app, delivery)
        declare(app, "limited", {"x-queue-type": "quorum"} | ({"x-delivery-limit": 1} if way == "argument" else {}))
        if way == "policy":
            policy = {"pattern": "^limited$", "definition": {"delivery-limit": 1}, "apply-to": "queues"}
            vhost = quote(rabbitmq.vhost_name(rabbitmq_url), safe="")
            rabbitmq.request("PUT", f"/api/policies/{vhost}/ours", policy)
        publish(app, "limited", "at once", "another")
        advice = {"argument": "it was declared with it", "policy": "policy 'ours' .* applies"}[way]
        for dry_run in (True, False, True):
            with pytest.raises(ConfigurationError, match=f"queue 'limited' has a delivery limit of 1: .*{advice}"):
                drain(app, "limited", dry_run=dry_run, management=rabbitmq.management_url)
        assert in_queue(app, "limited") == ["at once", "another"]


def test_what_a_quorum_queue_had_back_is_not_given_back_again_where_the_limit_is_unknown(
    rabbitmq_url: str, delivery: DelayedDelivery
) -> None:
    """A copy goes back for it: it may be the last time. On RabbitMQ 4 a copy has no count until it is given back."""
    with make_app(rabbitmq_url, None) as app:
        DelayedTasks(app, delivery)
        declare(app, "limited", {"x-queue-type": "quorum", "x-delivery-limit": 2})
        publish(app, "limited", "one", "two")
        for _ in range(2):
            sent(app, 2, "limited")
            assert len(in_queue(app, "limited")) == 2
        for _ in range(3):
            sent(app, 2, "limited")
            with pytest.raises(ConfigurationError, match="pass the URL of its management API"):
                drain(app, "limited")
            sent(app, 2, "limited")
            assert len(in_queue(app, "limited")) == 2
        sent(app, 2, "limited")
        assert {*in_queue(app, "limited")} == {"one", "two"}


def test_a_queue_that_the_app_calls_a_quorum_queue_is_not_read_without_the_management_api(
    rabbitmq_url: str, delivery: DelayedDelivery
) -> None:
    with make_app(rabbitmq_url, None, quorum=True) as app:
        DelayedTasks(app, delivery)
        send(app, "later", countdown=HOUR)
        sent(app, 1)
        with pytest.raises(ConfigurationError, match=r"'work' is a quorum queue.* pass the URL of its management API"):
            drain(app, "work")
        with app.connection_for_read() as connection:
            message = connection.default_channel.basic_get("work")
        assert not message.headers.get("x-delivery-count")


def declare(app: Celery, queue: str, arguments: dict[str, Any]) -> None:
    with app.connection_for_write() as connection:
        connection.default_channel.queue_declare(queue, durable=True, auto_delete=False, arguments=arguments)


def publish(app: Celery, queue: str, *ids: str, eta: str | None = None) -> None:
    """Tasks, to be run at once unless an eta is given."""
    with app.connection_for_write() as connection:
        channel = connection.default_channel
        for each in ids:
            message = Message(b"[[], {}, {}]", application_headers={"id": each, "task": "note", "eta": eta})
            channel.basic_publish_confirm(message, exchange="", routing_key=queue)


def test_stopped_in_the_middle(rabbitmq_url: str, delivery: DelayedDelivery) -> None:
    with make_app(rabbitmq_url, None) as app:
        DelayedTasks(app, delivery)
        for number in range(5):
            send(app, str(number), countdown=HOUR)
        sent(app, 5)
        seen: list[int] = []
        stopped = drain(app, "work", on_progress=lambda n, _: seen.append(n), stop=lambda: len(seen) == 2)
        assert stopped == Drained(stored=2, stopped=True)
        assert (in_queue(app), delivery.count()) == (["2", "3", "4"], 2)


def test_a_mistake_is_one_line(rabbitmq_url: str, delivery: DelayedDelivery) -> None:
    with make_app(rabbitmq_url, None) as app:
        with pytest.raises(ConfigurationError, match=r"write DelayedTasks\(app, delivery\)"):
            drain(app, "work")
        DelayedTasks(app, delivery)
        with pytest.raises(TransportSetupError, match="there is no queue 'nowhere' at amqp"):
            drain(app, "nowhere")
        with pytest.raises(ConfigurationError, match="threshold must be"):
            drain(app, "work", threshold=-1)
    for broker, error in (("amqp://127.0.0.1:1", TransportUnavailableError), ("memory://", TransportSetupError)):
        with make_app(broker, None) as app:
            DelayedTasks(app, delivery)
            with pytest.raises(error):
                drain(app, "work")


def test_the_command_tells_a_mistake_in_one_line(
    rabbitmq: RabbitMQVhosts, rabbitmq_url: str, delivery: DelayedDelivery
) -> None:
    with make_app(rabbitmq_url, None) as app:
        DelayedTasks(app, delivery)
        send(app, "later", countdown=HOUR)
        sent(app, 1)
        context = SimpleNamespace(app=app)
        mistaken = CliRunner().invoke(command, ["drain", "--queue", "nowhere"], obj=context)
        assert mistaken.exit_code == 1
        assert mistaken.output.startswith("Error: there is no queue 'nowhere' at amqp://")
        assert len(mistaken.output.splitlines()) == 1
        dry = ["drain", "--dry-run", "--management", rabbitmq.management_url or ""]
        rehearsed = CliRunner().invoke(command, [*dry, "--queue", "work"], obj=context)
        assert rehearsed.output == "would store 1 of the tasks in 'work'; 0 stay in the queue\n"


@pytest.mark.long
def test_a_worker_s_reserved_tasks_by_the_command(rabbitmq_url: str, sqlite_url: str, tmp_path: Path) -> None:
    """The procedure of docs/how-to/celery.md: the worker ends, the queue is drained, a new worker gets the tasks."""
    variables = {**settings(rabbitmq_url, sqlite_url, tmp_path), "CELERY_THRESHOLD": "2"}
    with make_app(rabbitmq_url, None) as app:
        with worker(variables, tmp_path / "log", "--pool", "solo"):
            for number in range(3):
                app.send_task("note", (number,), task_id=str(number), countdown=HOUR)
            app.send_task("note", task_id="at once")
            wait_until(lambda: runs_of(tmp_path, "at once") and (tmp_path / "log").read_text().count("received") == 4)
        sent(app, 3)
        done = celery(variables, "delaystore", "drain", "--queue", "work", "--json")
        assert json.loads(done.stdout) == {"stored": 3, "known": 0, "left": 0, "conflicting": 0, "stopped": False}
        assert in_queue(app) == []
    with (
        DelayedDelivery("tasks", SqlDelayedMessageStore(sqlite_url), open_transport(rabbitmq_url)) as delivery,
        worker(variables, tmp_path / "log", "--pool", "solo"),
    ):
        for number in range(3):
            delivery.reschedule(str(number), delay=0)
        wait_until(lambda: all(runs_of(tmp_path, str(number)) for number in range(3)))
    assert all(len(runs_of(tmp_path, str(number))) == 1 for number in range(3))


@pytest.mark.long
def test_a_drain_that_ends_early_leaves_each_task_in_the_queue_or_the_store(
    rabbitmq_url: str, sqlite_url: str, tmp_path: Path, delivery: DelayedDelivery
) -> None:
    """Stopped by Ctrl-C, then killed."""
    count = 2000
    variables = settings(rabbitmq_url, sqlite_url, tmp_path)
    with make_app(rabbitmq_url, None) as app:
        ids = {str(number) for number in range(count)}
        eta = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
        send(app, "0", countdown=HOUR)
        with app.producer_or_acquire() as producer:
            for each in ids - {"0"}:
                headers = {"id": each, "task": "note", "eta": eta}
                producer.publish([[], {}, {}], headers=headers, exchange="", routing_key="work")
        sent(app, count)
        interrupted, told = ended_early(variables, signal.SIGINT, lambda: delivery.count() >= 100)
        assert interrupted == 130
        assert told.endswith("stopped before all were looked at: run it again\n")
        stored = stored_in(delivery)
        assert 100 <= len(stored) < count
        sent(app, count - len(stored))
        ended_early(variables, signal.SIGKILL, lambda: delivery.count() >= len(stored) + 100)
        stored = stored_in(delivery)
        assert len(stored) < count
        wait_until(lambda: {*in_queue(app)} | stored == ids)
        left = in_queue(app)
        DelayedTasks(app, delivery)
        again = drain(app, "work")
        assert again == Drained(stored=count - len(stored), known=len(left) + len(stored) - count)
        assert in_queue(app) == []
        assert stored_in(delivery) == ids


def ended_early(variables: dict[str, str], end: signal.Signals, when: Callable[[], bool]) -> tuple[int, str]:
    """The exit code of a drain that gets this signal then, and what it said."""
    arguments = [*CELERY, "delaystore", "drain", "-Q", "work"]
    process = subprocess.Popen(arguments, env=os.environ | variables, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    wait_until(when)
    process.send_signal(end)
    told, _ = process.communicate()
    return process.returncode, told


def stored_in(delivery: DelayedDelivery) -> set[str]:
    return {message.message_id for message in delivery.list(limit=5000).messages}
