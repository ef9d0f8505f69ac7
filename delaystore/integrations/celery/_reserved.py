"""A task with an eta, as it lies in a queue, as a message of the store."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from delaystore.errors import InvalidMessageError
from delaystore.integrations.celery._due import read_time, seconds_until
from delaystore.integrations.celery._tasks import DelayedTasks
from delaystore.integrations.celery._wire import address, kept_properties, time_to_live, without_eta
from delaystore.message import DelayedMessage
from delaystore.transports.rabbitmq.delay_headers import COUNTED_BY_QUEUE


def reserved_message(raw: Any, queue: str, tasks: DelayedTasks, threshold: float | None) -> DelayedMessage | None:
    """What py-amqp read from `queue`, if it is due later than `threshold` (None: what the tasks have).

    None: it is to stay where it is: due sooner, or no task of protocol 2, or nothing that the store could keep.
    """
    headers = raw.properties.get("application_headers") or {}
    task_id, name, eta = headers.get("id"), headers.get("task"), headers.get("eta")
    due = read_time(tasks.app, eta)
    if due is None or not isinstance(task_id, str) or not isinstance(name, str):
        return None
    beyond = tasks.threshold_of(name) if threshold is None else threshold
    if beyond is None or seconds_until(due) <= beyond:
        return None
    try:
        return DelayedMessage(
            message_id=task_id,
            destination=address("", queue),  # its exchange would give it to other queues again
            due_time=due,
            body=bytes(raw.body),
            headers=without_eta({name: headers[name] for name in headers.keys() - COUNTED_BY_QUEUE}, due),
            properties=_properties(raw.properties, read_time(tasks.app, headers.get("expires")), due),
        )
    except InvalidMessageError:
        return None


def _properties(given: Mapping[str, Any], expires: datetime | None, due: datetime) -> dict[str, Any]:
    properties = kept_properties(given)
    if expires is not None and properties.pop("expiration", None) is not None:
        left = time_to_live((expires - due).total_seconds())
        return properties if left is None else {**properties, "expiration": left}
    return properties
