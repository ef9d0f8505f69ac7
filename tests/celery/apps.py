"""The Celery app that the tests' workers and senders share, by variables of the environment."""

import json
import os
import time
from pathlib import Path
from typing import Any

from celery import Celery, Task
from kombu import Exchange, Queue

from delaystore import DelayedDelivery, SqlDelayedMessageStore
from delaystore.integrations.celery import DelayedTasks


def make_app(broker: str, backend: str | None, queue: str = "work", *, quorum: bool = False) -> Celery:
    """An app with one queue; a quorum queue has a topic exchange, as Celery's native delays want it."""
    kind, arguments = ("topic", {"x-queue-type": "quorum"}) if quorum else ("direct", None)
    app = Celery("shop", broker=broker, backend=backend, set_as_current=False)
    app.conf.update(
        task_queues=[Queue(queue, Exchange(queue, type=kind), routing_key=queue, queue_arguments=arguments)],
        task_default_queue=queue,
        worker_send_task_events=True,
        task_send_sent_event=True,
        broker_connection_retry_on_startup=True,
        broker_native_delayed_delivery_queue_type="quorum",
        worker_hijack_root_logger=False,
    )
    if quorum:
        app.conf.update(task_default_exchange=queue, task_default_exchange_type="topic", task_default_routing_key=queue)
    add_tasks(app)
    return app


def add_tasks(app: Celery) -> None:
    @app.task(name="note", bind=True, shared=False)
    def note(self: Task, *call: Any) -> list[Any]:
        write(self, call)
        return list(call)

    @app.task(name="again", bind=True, shared=False, max_retries=3)
    def again(self: Task, *call: Any) -> int:
        write(self, call)
        if self.request.retries < 2:
            raise self.retry(countdown=1.5)
        return self.request.retries


def write(task: Task, call: Any) -> None:
    """A line of what the task was given."""
    request = task.request
    line = {
        "task": task.name,
        "id": request.id,
        "call": list(call),
        "time": time.time(),
        "pid": os.getpid(),
        "retries": request.retries,
        "eta": request.eta,
        "delayed_until": request.get("delayed_until"),
        "delivery_info": request.delivery_info,
    }
    if "CELERY_RAN" in os.environ:
        with Path(os.environ["CELERY_RAN"]).open("a") as file:
            file.write(json.dumps(line) + "\n")


if "CELERY_BROKER" in os.environ:
    app = make_app(
        os.environ["CELERY_BROKER"],
        os.environ.get("CELERY_BACKEND"),
        os.environ["CELERY_QUEUE"],
        quorum="CELERY_QUORUM" in os.environ,
    )
    if "CELERY_BEAT" in os.environ:
        app.conf.beat_schedule = {"tick": {"task": "note", "schedule": 1.0, "args": ("tick",)}}
    delivery = DelayedDelivery("tasks", SqlDelayedMessageStore(os.environ["CELERY_STORE"]))
    DelayedTasks(app, delivery, threshold=float(os.environ.get("CELERY_THRESHOLD", "1")))
