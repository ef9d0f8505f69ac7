"""Celery's waiting tasks are copied out of its queue, or its worker, and come back as they were."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from celery import Celery

from delaystore.message import DelayedMessage
from delaystore.settings import TransactionMode
from delaystore.stores import SqlDelayedMessageStore
from delaystore.transports import open_transport
from delaystore.transports.abc import OutcomeKind
from tests.integration.cascades import PATIENCE
from tests.integration.test_documents import ROOT, blocks, shell
from tests.servers import RabbitMQVhosts

CONVERT = f"{sys.executable} {ROOT}/examples/celery_tasks.py"
CELERY = [sys.executable, "-m", "celery", "-A", "tests.integration.celery_worker"]


@contextmanager
def working(environment: dict[str, str], log: Path) -> Iterator[None]:
    """A worker that keeps what is not due; killed at the end, so that its queue has the tasks again."""
    with log.open("a") as output:
        command = [*CELERY, "worker", "--pool", "solo", "--loglevel", "info"]
        worker = subprocess.Popen(command, env=environment, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT)
    try:
        yield
    finally:
        worker.kill()
        worker.wait()


def inspected(environment: dict[str, str], count: int) -> str:
    """What `celery inspect scheduled --json` prints once so many tasks are scheduled."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        command = [*CELERY, "inspect", "scheduled", "--json"]
        done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode == 0 and len(by_id(done.stdout)) == count:
            return done.stdout
    raise AssertionError(f"not {count} tasks are scheduled: {done}")


def by_id(printed: str) -> dict[str, Any]:
    """What tells one task from another, in what `celery inspect` printed."""
    tasks = [task for worker in json.loads(printed).values() for task in worker]
    return {
        task["request"]["id"]: (task["eta"], *(task["request"][key] for key in ("name", "args", "kwargs")))
        for task in tasks
    }


def waiting(file: Path) -> dict[str, DelayedMessage]:
    with closing(SqlDelayedMessageStore(f"sqlite:///{file}")) as store:
        store.initialize("tasks", TransactionMode.NONE)
        return {message.message_id: message for message in store.list().messages}


@pytest.mark.long
def test_tasks_are_copied_from_the_queue_or_the_worker_and_come_back_as_they_were(
    rabbitmq: RabbitMQVhosts, rabbitmq_url: str, tmp_path: Path
) -> None:
    ran = tmp_path / "ran"
    environment = os.environ | {
        "CELERY_BROKER": rabbitmq_url,
        "CELERY_QUEUE": "celery",
        "CELERY_QUEUE_TYPE": "classic",
        "CELERY_RAN": str(ran),
    }
    eta = datetime.now(UTC) + timedelta(hours=1)
    with Celery(broker=rabbitmq_url) as sender:
        with working(environment, tmp_path / "log"):
            sender.send_task("note", ["by the queue"], task_id="one", eta=eta)
            sender.send_task("note", kwargs={"call": "by the worker"}, task_id="two", eta=eta)
            scheduled = inspected(environment, 2)
        sender.send_task("note", ["at once"], task_id="three")

    (tmp_path / "scheduled.json").write_text(scheduled)
    ends = "--from file://$PWD/scheduled.jsonl --to sqlite:///scheduled.db --endpoint tasks"
    of_worker = f"{CONVERT} < scheduled.json > scheduled.jsonl\ndelaystore migrate run {ends} --yes"
    *_, of_queue = blocks("docs/how-to/migrating.md", "bash")
    parts = urlsplit(rabbitmq_url)
    management = (rabbitmq.management_url or "").replace("://", f"://{parts.username}:{parts.password}@")
    of_queue = of_queue.replace("http://guest:guest@localhost:15672", management)
    of_queue = of_queue.replace("%2F", rabbitmq.vhost_name(rabbitmq_url))
    of_queue = of_queue.replace("python examples/celery_tasks.py", CONVERT)
    done = shell(f"{of_worker}\n{of_queue}", tmp_path)
    assert done.returncode == 0, done
    assert "3 tasks" in done.stderr

    from_worker, from_queue = waiting(tmp_path / "scheduled.db"), waiting(tmp_path / "tasks.db")
    assert {id_: one.due_time for id_, one in from_worker.items()} == {"one": eta, "two": eta}
    assert from_queue.keys() == {"one", "two", "three"}
    assert from_queue["one"].due_time == eta
    assert from_queue["three"].due_time < eta
    with closing(open_transport(rabbitmq_url)) as transport:
        outcomes = transport.send([from_queue["one"], from_worker["two"], from_queue["three"]], None, PATIENCE)
    assert [outcome.kind for outcome in outcomes] == [OutcomeKind.DELIVERED] * 3
    with working(environment, tmp_path / "log"):
        assert by_id(inspected(environment, 2)) == by_id(scheduled)
    assert [json.loads(line)[0] for line in ran.read_text().splitlines()] == ["at once"]


def test_an_answer_that_lacks_messages_of_the_queue_is_refused(tmp_path: Path) -> None:
    (tmp_path / "queue.json").write_text('[{"message_count": 7}]')
    refused = shell(f"{CONVERT} < queue.json", tmp_path)
    assert refused.returncode == 1
    assert refused.stderr == "the queue has 7 more messages than these; get all of them, with a larger count\n"
