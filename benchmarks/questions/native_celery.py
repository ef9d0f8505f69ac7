"""Delaying Celery's tasks in its own cascade, against Celery."""

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

from celery import Celery
from celery.app.amqp import AMQP

from benchmarks.arena import Arena
from benchmarks.cascades import QUEUE, Cascade, cascade, delay_of
from benchmarks.results import Measurement, Question, Rounds, per_second
from delaystore.message import DelayedMessage, new_message_id
from delaystore.transports.rabbitmq.topology import celery

TASK = "bench"


def measure(arena: Arena, quick: bool) -> Measurement:
    count, rounds_wanted = (300, 1) if quick else (5_000, 5)
    rounds = Rounds()
    with cascade(arena, celery()) as made:
        app = _app(made.url)
        candidates: dict[str, Callable[[int], Callable[[], None]]] = {
            "apply_async": partial(_celery, app),
            "delaystore": partial(_ours, made, app),
            "delaystore, one at a time": partial(_ours_singly, made, app),
        }
        for prepare in candidates.values():
            prepare(50)()
        made.clear()
        for _ in range(rounds_wanted):
            for name, prepare in candidates.items():
                publish = prepare(count)
                began = time.perf_counter()
                publish()
                rounds.add(name, count / (time.perf_counter() - began))
                made.check(count)
                made.clear()
        app.close()
    singly = rounds.median("delaystore, one at a time")
    return Measurement(
        figure=rounds.ratio("delaystore", "apply_async"),
        ours=per_second(rounds.median("delaystore")),
        peer=per_second(rounds.median("apply_async")),
        numbers=rounds.numbers,
        notes=[f"{count:,} tasks, confirms on; delaystore, one at a time: {per_second(singly)}"],
    )


def _app(url: str) -> Any:
    """With quorum queues, and so with native delayed delivery, and confirms."""
    app = Celery(
        broker=url,
        set_as_current=False,
        task_default_queue=QUEUE,
        task_default_queue_type="quorum",
        task_default_exchange=QUEUE,
        task_default_exchange_type="topic",
        task_default_routing_key=QUEUE,
        broker_transport_options={"confirm_publish": True},
        broker_heartbeat=0,
        task_ignore_result=True,
    )
    app.task(_task, name=TASK, shared=False)
    app.finalize()
    return app


def _task(number: int) -> int:
    return number


def _celery(app: Any, count: int) -> Callable[[], None]:
    task = app.tasks[TASK]

    def publish() -> None:
        for number in range(count):
            task.apply_async((number,), countdown=delay_of(number).seconds)

    return publish


def _ours(made: Cascade, app: Any, count: int) -> Callable[[], None]:
    messages = _messages(app, count)
    return lambda: made.send(messages)


def _ours_singly(made: Cascade, app: Any, count: int) -> Callable[[], None]:
    messages = _messages(app, count)

    def publish() -> None:
        for message in messages:
            made.send([message])

    return publish


def _messages(app: Any, count: int) -> list[DelayedMessage]:
    """The same tasks as messages of ours."""
    now, protocol = datetime.now(UTC), AMQP(app)
    messages = []
    for number in range(count):
        message_id = new_message_id()
        task = protocol.as_task_v2(message_id, TASK, args=(number,))
        messages.append(
            DelayedMessage(
                message_id=message_id,
                destination=QUEUE,
                due_time=now + delay_of(number),
                body=json.dumps(task.body).encode(),
                headers=task.headers,
                properties={
                    "content_type": "application/json",
                    "content_encoding": "utf-8",
                    "correlation_id": message_id,
                },
            )
        )
    return messages


QUESTION = Question(
    name="native-celery",
    title="delaying Celery's tasks in its cascade, against apply_async(countdown=...)",
    limit=4,
    measure=measure,
)
